// Every op body of our own, one header a family. Generated registrations include this.
#pragma once

#include "copy.h"
#include "memory.h"
