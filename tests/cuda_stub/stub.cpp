// A stub of NVIDIA's libraries for tests without such a GPU, in one file under three names: libcuda.so,
// libcublasLt.so, and an OpenCL layer that adds cl_khr_external_memory_opaque_fd to the driver below it.
//
// "Device memory" is a file in RAM. CUDA's address of it is one mapping; the layer makes an OpenCL buffer of another
// mapping (CL_MEM_USE_HOST_PTR), which a driver for CPUs uses in place. A thread is CUDA's stream: each command waits a
// little, so that a missing order of commands gives wrong results, and a matmul is a loop.
//
// STUB_FAULT is a fault to simulate: "export", "import" and "acquire" of memory fail, "memory": there are only 256 MiB,
// "bytes" are copied wrongly, "private": OpenCL's buffer is other memory, "wait": a stream refuses to wait, "early": it does not
// wait for the number, "late": its callback comes before its commands, "copy" and "device": a copy or a matmul fails on the device, "gemm":
// cuBLASLt fails, "unsupported": it supports no matmul, "bias": it supports none with a bias; "refused" and "refused bias":
// it supports neither, but says so only when it should compute.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_ext.h>
#include <CL/cl_layer.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cublas_lt.h"
#include "stream.h"

namespace {

// --- the OpenCL layer

const cl_icd_dispatch* driver;
cl_icd_dispatch layer;

cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info what, size_t size, void* value, size_t* needed) {
  std::string text;
  if (what == CL_DEVICE_EXTENSIONS) {
    size_t length = 0;
    if (cl_int status = driver->clGetDeviceInfo(device, what, 0, nullptr, &length)) return status;
    text.resize(length);
    driver->clGetDeviceInfo(device, what, length, text.data(), nullptr);
    text.resize(length - 1);
    text.append(EXTENSIONS).push_back('\0');
  } else if (what == CL_DEVICE_UUID_KHR) {
    text.assign(UUID, sizeof(UUID));
  } else {
    return driver->clGetDeviceInfo(device, what, size, value, needed);
  }
  if (needed != nullptr) *needed = text.size();
  if (value == nullptr) return CL_SUCCESS;
  if (size < text.size()) return CL_INVALID_VALUE;
  std::memcpy(value, text.data(), text.size());
  return CL_SUCCESS;
}

cl_mem CL_API_CALL create_buffer(cl_context context, const cl_mem_properties* properties, cl_mem_flags flags,
                                 size_t size, void* host, cl_int* status) {
  if (properties == nullptr || properties[0] != CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR) {
    return driver->clCreateBufferWithProperties(context, properties, flags, size, host, status);
  }
  int descriptor = int(properties[1]);
  int sharing = fails("private") ? MAP_PRIVATE : MAP_SHARED;
  void* memory = fails("import") ? MAP_FAILED : mmap(nullptr, size, PROT_READ | PROT_WRITE, sharing, descriptor, 0);
  if (memory == MAP_FAILED) {
    *status = CL_INVALID_OPERATION;
    return nullptr;
  }
  cl_mem buffer = driver->clCreateBuffer(context, flags | CL_MEM_USE_HOST_PTR, size, memory, status);
  if (buffer == nullptr) return nullptr;
  struct Mapping {
    void* memory;
    size_t size;
  };
  auto unmap = [](cl_mem, void* argument) {
    auto* mapping = static_cast<Mapping*>(argument);
    munmap(mapping->memory, mapping->size);
    delete mapping;
  };
  driver->clSetMemObjectDestructorCallback(buffer, unmap, new Mapping{memory, size});
  // An import takes over the descriptor.
  close(descriptor);
  ++imports;
  return buffer;
}

cl_int CL_API_CALL acquire(cl_command_queue queue, cl_uint count, const cl_mem*, cl_uint, const cl_event*, cl_event*) {
  if (fails("acquire")) return CL_INVALID_MEM_OBJECT;
  acquired += count;
  return driver->clEnqueueMarkerWithWaitList(queue, 0, nullptr, nullptr);
}

void* CL_API_CALL extension_function(cl_platform_id platform, const char* name) {
  bool is_acquire = std::strcmp(name, "clEnqueueAcquireExternalMemObjectsKHR") == 0;
  return is_acquire ? reinterpret_cast<void*>(acquire)
                    : driver->clGetExtensionFunctionAddressForPlatform(platform, name);
}

}  // namespace

extern "C" {

// --- what tests ask

int64_t stub_live_allocations() { return live_allocations; }
int64_t stub_gemms() { return gemms; }
int64_t stub_biases() { return biases; }
int64_t stub_live_objects() { return live_objects; }
int64_t stub_imports_not_acquired() { return imports - acquired; }
int64_t stub_has_current_context() { return current_context != nullptr; }

// --- the OpenCL layer

cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void* value, size_t* needed) {
  if (what != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
  if (needed != nullptr) *needed = sizeof(cl_layer_api_version);
  if (value != nullptr && size >= sizeof(cl_layer_api_version)) {
    *static_cast<cl_layer_api_version*>(value) = CL_LAYER_API_VERSION_100;
  }
  return CL_SUCCESS;
}

cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* target, cl_uint* count,
                               const cl_icd_dispatch** dispatch) {
  driver = target;
  layer = *target;
  layer.clGetDeviceInfo = device_info;
  layer.clCreateBufferWithProperties = create_buffer;
  layer.clGetExtensionFunctionAddressForPlatform = extension_function;
  *count = std::min<cl_uint>(entries, sizeof(layer) / sizeof(void*));
  *dispatch = &layer;
  return CL_SUCCESS;
}

// --- CUDA

Status cuInit(unsigned) { return SUCCESS; }
Status cuDeviceGetCount(int* count) { return *count = 1, SUCCESS; }
Status cuDeviceGet(int* device, int ordinal) { return *device = ordinal, SUCCESS; }
Status cuDeviceGetUuid_v2(char* uuid, int) { return std::memcpy(uuid, UUID, sizeof(UUID)), SUCCESS; }
Status cuDeviceGetAttribute(int* value, int, int) { return *value = 0, SUCCESS; }
Status cuDevicePrimaryCtxRetain(void** context, int) { return *context = &the_context, SUCCESS; }
Status cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
Status cuCtxGetCurrent(void** context) { return *context = current_context, SUCCESS; }
Status cuCtxSetCurrent(void* context) { return current_context = context, SUCCESS; }
Status cuCtxSynchronize() { return SUCCESS; }
Status cuGetErrorName(Status, const char** text) { return *text = "STUB_ERROR", SUCCESS; }
Status cuGetErrorString(Status, const char** text) { return *text = "an error of the stub", SUCCESS; }

Status cuMemGetAllocationGranularity(size_t* size, const void*, int) { return *size = GRANULARITY, SUCCESS; }

Status cuMemCreate(uint64_t* handle, size_t size, const void*, unsigned long long) {
  if (size % GRANULARITY != 0) return INVALID_VALUE;
  if (fails("memory") && live_bytes + int64_t(size) > MEMORY) return OUT_OF_MEMORY;
  int file = memfd_create("stub", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, off_t(size)) != 0) return OUT_OF_MEMORY;
  // Fresh memory of CUDA's is not zero either.
  std::vector<char> garbage(size, '\xEE');
  if (pwrite(file, garbage.data(), size, 0) != ssize_t(size)) return OUT_OF_MEMORY;
  ++live_allocations;
  live_bytes += int64_t(size);
  return *handle = uint64_t(file), SUCCESS;
}

Status cuMemRelease(uint64_t handle) {
  --live_allocations;
  live_bytes -= int64_t(lseek(int(handle), 0, SEEK_END));
  return close(int(handle)) == 0 ? SUCCESS : INVALID_VALUE;
}

Status cuMemAddressReserve(Address* address, size_t size, size_t, Address, unsigned long long) {
  void* range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *address = reinterpret_cast<Address>(range);
  return range == MAP_FAILED ? OUT_OF_MEMORY : SUCCESS;
}

Status cuMemAddressFree(Address address, size_t size) {
  return munmap(pointer<void>(address), size) == 0 ? SUCCESS : INVALID_VALUE;
}

Status cuMemMap(Address address, size_t size, size_t, uint64_t handle, unsigned long long) {
  void* there = pointer<void>(address);
  return mmap(there, size, PROT_NONE, MAP_SHARED | MAP_FIXED, int(handle), 0) == there ? SUCCESS : INVALID_VALUE;
}

Status cuMemUnmap(Address address, size_t size) {
  void* there = pointer<void>(address);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  return mmap(there, size, PROT_NONE, flags, -1, 0) == there ? SUCCESS : INVALID_VALUE;
}

Status cuMemSetAccess(Address address, size_t size, const void*, size_t) {
  return mprotect(pointer<void>(address), size, PROT_READ | PROT_WRITE) == 0 ? SUCCESS : INVALID_VALUE;
}

Status cuMemExportToShareableHandle(int* descriptor, uint64_t handle, int, unsigned long long) {
  if (fails("export")) return NOT_SUPPORTED;
  return *descriptor = fcntl(int(handle), F_DUPFD_CLOEXEC, 0), *descriptor < 0 ? OUT_OF_MEMORY : SUCCESS;
}

Status cuStreamCreate(Stream** stream, unsigned) { return *stream = new Stream, SUCCESS; }
Status cuStreamSynchronize(Stream* stream) { return stream->synchronize(), stream->status.load(); }
// Its thread still uses the stream.
Status cuStreamDestroy_v2(Stream*) { return SUCCESS; }

Status cuStreamWaitValue32_v2(Stream* stream, Address address, uint32_t value, unsigned) {
  if (fails("wait")) return NOT_SUPPORTED;
  stream->add([=] {
    while (!fails("early") && int32_t(*pointer<std::atomic<uint32_t>>(address) - value) < 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  return SUCCESS;
}

Status cuStreamAddCallback(Stream* stream, void (*callback)(Stream*, Status, void*), void* argument, unsigned) {
  if (fails("late")) {
    callback(stream, SUCCESS, argument);
  } else {
    stream->add([=] { callback(stream, stream->status, argument); });
  }
  return SUCCESS;
}

Status cuMemcpyDtoDAsync_v2(Address target, Address source, size_t size, Stream* stream) {
  stream->add([=] {
    std::memcpy(pointer<void>(target), pointer<void>(source), size);
    if (fails("bytes")) *pointer<char>(target + size / 2) ^= 1;
    if (fails("copy")) stream->status = LAUNCH_FAILED;
  });
  return SUCCESS;
}

Status cuMemsetD8Async(Address target, unsigned char byte, size_t size, Stream* stream) {
  stream->add([=] { std::memset(pointer<void>(target), byte, size); }, SHORT);
  return SUCCESS;
}

}  // extern "C"
