// Every op body of our own: functions and classes that the table names, and the templates that it gives arguments to.
#pragma once

#include "foreach.h"
#include "index.h"
#include "pool.h"
#include "random.h"
#include "resample.h"
