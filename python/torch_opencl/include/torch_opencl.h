/* torch_opencl.h: OpenCL memory and streams of PyTorch's "opencl" device, for extensions in C, C++ and Rust.
 *
 * The functions are in libtorch_opencl.so, which `import torch` has loaded: an extension links with it, by the whole
 * path that torch_opencl.library_path() returns, or calls dlopen() with that path.
 *
 * Each function returns 0, or -1 and leaves a message for the calling thread: torch_opencl_last_error(). None raises a
 * C++ exception, and all may be called from any thread. Handles that are returned belong to the library: retain what is
 * kept longer than its tensor.
 *
 * A tensor's data pointer is no pointer to memory: it names a buffer and an offset in it, torch_opencl_buffer(). That of
 * a tensor without elements is NULL, which the functions refuse: ask for numel() first.
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

/* What this header describes. The library's may be greater: functions are added, and stay as they are. */
#define TORCH_OPENCL_INTERFACE_VERSION 1
int torch_opencl_interface_version(void);

/* The message of this thread's last call that has returned -1, until the next one that does. */
const char* torch_opencl_last_error(void);

/* The index of the device whose memory a tensor's data pointer names: N of "opencl:N". */
int torch_opencl_device_of(const void* data, int* index);

/* The OpenCL device and its context, of this one device; both live as long as the process. Programs of an extension are
 * built for them, once for each device. */
int torch_opencl_context(int index, struct _cl_device_id** device, struct _cl_context** context);

/* The buffer in which a tensor's data lie, and where in it, in bytes. Tensors share buffers, so a kernel takes the
 * offset as an argument. The buffer lives at least as long as the tensor. */
int torch_opencl_buffer(const void* data, struct _cl_mem** memory, size_t* offset);

/* The calling thread's current stream of a device, by its id. */
int torch_opencl_current_stream(int index, int64_t* stream);

/* A stream's queue, which is in order: commands that are enqueued there and what tensors do on the stream need no
 * waiting for each other. From then on the stream holds no launches back, so launches of its own small kernels take
 * longer: where only kernels are to be enqueued, torch_opencl_enqueue_kernel() is the better way. */
int torch_opencl_queue(int index, int64_t stream, struct _cl_command_queue** queue);

/* Enqueues a kernel on the calling thread's current stream of a device. clSetKernelArg has set all its arguments, and
 * no other thread uses the kernel object meanwhile. `global` and `local` have 1 to 3 sizes; `local` may be NULL, and
 * the driver chooses. A global size of 0 launches nothing. Refused while a graph is captured. */
int torch_opencl_enqueue_kernel(
    int index, struct _cl_kernel* kernel, int dimensions, const size_t* global, const size_t* local);

/* Keeps memory for a stream that is not the one it was allocated on: after the tensor is freed nobody else gets it
 * until the stream has done what it was given before. `storage` is where the tensor's storage starts,
 * tensor.storage().data(). Nothing of this is needed on the stream of the allocation. */
int torch_opencl_record_stream(const void* storage, int64_t stream);

#ifdef __cplusplus
}
#endif

#endif
