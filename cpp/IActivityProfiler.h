// PyTorch's privateuse1_profiler.h includes Kineto's header by this bare name; wheels have it in a folder.
#pragma once

#include <kineto/IActivityProfiler.h>
