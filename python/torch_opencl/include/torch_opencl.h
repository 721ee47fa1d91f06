/* torch_opencl.h: OpenCL memory and streams of PyTorch's "opencl" device, for extensions in C, C++ and Rust.
 *
 * The functions are in libtorch_opencl.so, which `import torch` has loaded: an extension links with it by the absolute
 * path that torch_opencl.library_path() returns, or calls dlopen() with that path.
 *
 * Each function returns 0, or -1 and leaves a message for the calling thread: torch_opencl_last_error(). No function
 * raises a C++ exception, and all may be called from any thread. Returned handles belong to the library: retain a
 * handle that is kept longer than its tensor.
 *
 * A tensor's data pointer is not a pointer to memory: it names a buffer and an offset in it, torch_opencl_buffer(). It
 * is NULL for a tensor without elements, which the functions refuse: check numel() first.
 */
#ifndef TORCH_OPENCL_H
#define TORCH_OPENCL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The handles of CL/cl.h, which this header does not need. */
struct _cl_device_id;
struct _cl_context;
struct _cl_command_queue;
struct _cl_mem;
struct _cl_kernel;

/* The version of this header. The library's may be greater: functions are added and never changed. */
#define TORCH_OPENCL_INTERFACE_VERSION 1
int torch_opencl_interface_version(void);

/* The message of this thread's last call that returned -1, valid until the next such call. */
const char* torch_opencl_last_error(void);

/* The index of the device whose memory a tensor's data pointer names: N of "opencl:N". */
int torch_opencl_device_of(const void* data, int* index);

/* The OpenCL device and its context, which has this one device; both live as long as the process. An extension builds
 * its programs for them, once per device. */
int torch_opencl_context(int index, struct _cl_device_id** device, struct _cl_context** context);

/* The buffer that holds a tensor's data, and the offset in it, in bytes. Tensors share buffers, so a kernel takes the
 * offset as an argument. The buffer lives at least as long as the tensor. */
int torch_opencl_buffer(const void* data, struct _cl_mem** memory, size_t* offset);

/* The calling thread's current stream of a device, by its id. */
int torch_opencl_current_stream(int index, int64_t* stream);

/* A stream's queue. It is in order: commands that are enqueued there and the stream's tensor operations need no other
 * synchronization. From then on the stream defers no launches, so launches of its small kernels take longer: to enqueue
 * only kernels, prefer torch_opencl_enqueue_kernel(). */
int torch_opencl_queue(int index, int64_t stream, struct _cl_command_queue** queue);

/* Enqueues a kernel on the calling thread's current stream of a device. All its arguments must have been set with
 * clSetKernelArg, and no other thread may use the kernel object meanwhile. `global` and `local` have 1 to 3 sizes;
 * if `local` is NULL, the driver chooses. A global size of 0 launches nothing. Refused while a graph is captured. */
int torch_opencl_enqueue_kernel(
    int index, struct _cl_kernel* kernel, int dimensions, const size_t* global, const size_t* local);

/* Keeps memory for a stream that is not the one it was allocated on: after the tensor is freed, the memory is not
 * reused until the stream has finished the work enqueued before. `storage` is the start of the tensor's storage,
 * tensor.storage().data(). The stream of the allocation does not need this. */
int torch_opencl_record_stream(const void* storage, int64_t stream);

#ifdef __cplusplus
}
#endif

#endif
