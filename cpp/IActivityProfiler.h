// PyTorch's privateuse1_profiler.h asks for Kineto's header by this name alone; wheels have it in a folder.
#pragma once

#include <kineto/IActivityProfiler.h>
