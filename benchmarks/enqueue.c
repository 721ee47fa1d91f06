// Enqueues kernels whose arguments are set: measures the host time of the driver alone, without the backend.
// benchmarks/graphs.py compiles and calls it.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

typedef void* Handle;

static Handle context, queue;
static Handle (*user_event)(Handle, int*);
static int (*set_status)(Handle, int);
static int (*launch)(
    Handle, Handle, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t, const Handle*, Handle*);
static int (*finish)(Handle);
static int (*release_event)(Handle);

// Processor time of this thread, in microseconds.
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

// Makes a queue in the context of a kernel. Returns an OpenCL status.
int prepare(Handle kernel) {
  Handle cl = dlopen("libOpenCL.so.1", RTLD_NOW);
  if (!cl) return -1;
  int (*kernel_info)(Handle, uint32_t, size_t, Handle, size_t*) = dlsym(cl, "clGetKernelInfo");
  int (*context_info)(Handle, uint32_t, size_t, Handle, size_t*) = dlsym(cl, "clGetContextInfo");
  Handle (*create_queue)(Handle, Handle, uint64_t, int*) = dlsym(cl, "clCreateCommandQueue");
  user_event = dlsym(cl, "clCreateUserEvent");
  set_status = dlsym(cl, "clSetUserEventStatus");
  launch = dlsym(cl, "clEnqueueNDRangeKernel");
  finish = dlsym(cl, "clFinish");
  release_event = dlsym(cl, "clReleaseEvent");
  const uint32_t kernel_context = 0x1193, context_devices = 0x1081;
  const uint64_t profiling = 2;
  Handle device;
  int status = kernel_info(kernel, kernel_context, sizeof(context), &context, NULL);
  if (status) return status;
  status = context_info(context, context_devices, sizeof(device), &device, NULL);
  if (status) return status;
  queue = create_queue(context, device, profiling, &status);
  return status;
}

// The host's time to enqueue kernels over one dimension, in microseconds; with `held` the first one waits for a user
// event, which is set after the last. Negative if the driver fails.
double enqueue(const Handle* kernels, const size_t* global, const size_t* local, int count, int held) {
  int status = 0;
  const double start = now();
  Handle event = held ? user_event(context, &status) : NULL;
  for (int i = 0; i < count && !status; i++) {
    const int waits = held && i == 0;
    status =
        launch(queue, kernels[i], 1, NULL, &global[i], local[i] ? &local[i] : NULL, waits, waits ? &event : NULL, NULL);
  }
  const double time = now() - start;
  if (held) {
    set_status(event, 0);
    release_event(event);
  }
  finish(queue);
  return status ? -1 : time;
}
