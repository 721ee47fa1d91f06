// Every op body of our own, one header a family. Generated registrations include this.
#pragma once

#include "activation.h"
#include "copy.h"
#include "factory.h"
#include "index.h"
#include "memory.h"
#include "random.h"
#include "scan.h"
#include "sort.h"
