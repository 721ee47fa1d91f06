// Every op body of our own: functions and classes that the table names, and the templates that it gives arguments to.
#pragma once

#include "native/foreach.h"
#include "native/index.h"
#include "native/pool.h"
#include "native/random.h"
#include "native/resample.h"
