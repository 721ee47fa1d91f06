// A stub OpenCL driver with GPU devices: it stores what is written to buffers, records which programs are built and how
// their kernels are launched, and runs none of them, so that results are zeros. With OPENCL_DYLIB_PATH pointing at it,
// the native library builds exactly what it would build for a GPU with these properties, and no compiler runs.
//
// STUB_FOLDER is the output folder: <program>.cl and <program>.options, and a line of launches.txt for each new
// (program, kernel, group size, bytes of local memory in arguments). STUB_LOCAL_BYTES is the devices' local
// memory, by default that of the smallest GPUs; STUB_KERNEL_GROUP is the largest group size of kernels, if less than
// the device's.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Status = int32_t;
constexpr Status SUCCESS = 0, BUILD_FAILURE = -11, INVALID_VALUE = -30;

/// Device properties that the backend queries. Local memory and group size are the least of current GPUs.
struct Device {
  const char* name;
  bool computes_double;
  const char* extensions;
};
constexpr uint64_t LOCAL_BYTES = 32 << 10, GLOBAL_BYTES = 16ull << 30, LARGEST_GROUP = 256;
Device devices[] = {
    {"Stub GPU", true,
     "cl_khr_fp64 cl_khr_byte_addressable_store cl_khr_int64_base_atomics cl_khr_int64_extended_atomics"},
    {"Stub GPU without fp64", false, "cl_khr_byte_addressable_store"},
};

struct Buffer {
  size_t size;
  char* bytes;
};
struct Program {
  std::string source, name;
};
struct Kernel {
  const Program* program;
  std::string name;
  std::map<uint32_t, size_t> local_arguments;
};

std::mutex lock;
int object; // All contexts, queues and events are this object: they have no state.
int platform;

std::string path(const std::string& file) {
  const char* folder = std::getenv("STUB_FOLDER");
  return std::string(folder ? folder : ".") + "/" + file;
}

uint64_t local_bytes() {
  const char* given = std::getenv("STUB_LOCAL_BYTES");
  return given ? std::strtoull(given, nullptr, 10) : LOCAL_BYTES;
}

/// Answers a query: copies the value if it fits, and reports its size.
Status answer(const void* value, size_t size, size_t room, void* out, size_t* needed) {
  if (needed) *needed = size;
  if (!out) return SUCCESS;
  if (room < size) return INVALID_VALUE;
  std::memcpy(out, value, size);
  return SUCCESS;
}

Status answer_text(const char* text, size_t room, void* out, size_t* needed) {
  return answer(text, std::strlen(text) + 1, room, out, needed);
}

template <class T>
Status answer_number(T value, size_t room, void* out, size_t* needed) {
  return answer(&value, sizeof value, room, out, needed);
}

template <class Handle>
Status list(Handle* all, uint32_t count, uint32_t room, void** out, uint32_t* found) {
  if (found) *found = count;
  for (uint32_t i = 0; out && i < count && i < room; ++i) out[i] = &all[i];
  return SUCCESS;
}

std::string fingerprint(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char letter : text) hash = (hash ^ letter) * 0x100000001b3;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

/// Adds a line unless it was added before.
void note_launch(const std::string& line) {
  static std::set<std::string> noted;
  std::lock_guard<std::mutex> locked(lock);
  if (noted.insert(line).second) std::ofstream(path("launches.txt"), std::ios::app) << line << '\n';
}

Status done(void** event) {
  if (event) *event = &object;
  return SUCCESS;
}

} // namespace

extern "C" {

Status clGetPlatformIDs(uint32_t room, void** out, uint32_t* found) {
  return list(&platform, 1, room, out, found);
}

Status clGetPlatformInfo(void*, uint32_t what, size_t room, void* out, size_t* needed) {
  constexpr uint32_t VERSION = 0x0901, NAME = 0x0902, VENDOR = 0x0903;
  switch (what) {
    case VERSION:
      return answer_text("OpenCL 1.2 stub", room, out, needed);
    case NAME:
    case VENDOR:
      return answer_text("stub", room, out, needed);
    default:
      return INVALID_VALUE;
  }
}

Status clGetDeviceIDs(void*, uint64_t, uint32_t room, void** out, uint32_t* found) {
  return list(devices, 2, room, out, found);
}

Status clGetDeviceInfo(Device* device, uint32_t what, size_t room, void* out, size_t* needed) {
  // Denormals, infinities, rounding to nearest, fused multiply-add; for float also correctly rounded division and sqrt.
  constexpr uint64_t FP_DOUBLE = 0x3f, FP_SINGLE = 0xbf, TYPE_GPU = 4;
  switch (what) {
    case 0x1000: // TYPE
      return answer_number(TYPE_GPU, room, out, needed);
    case 0x1002: // MAX_COMPUTE_UNITS
      return answer_number<uint32_t>(32, room, out, needed);
    case 0x1004: // MAX_WORK_GROUP_SIZE
      return answer_number<size_t>(LARGEST_GROUP, room, out, needed);
    case 0x100C: // MAX_CLOCK_FREQUENCY
      return answer_number<uint32_t>(1500, room, out, needed);
    case 0x1010: // MAX_MEM_ALLOC_SIZE
    case 0x101F: // GLOBAL_MEM_SIZE
      return answer_number(GLOBAL_BYTES, room, out, needed);
    case 0x101B: // SINGLE_FP_CONFIG
      return answer_number(FP_SINGLE, room, out, needed);
    case 0x1032: // DOUBLE_FP_CONFIG
      return answer_number(device->computes_double ? FP_DOUBLE : 0, room, out, needed);
    case 0x1023: // LOCAL_MEM_SIZE
      return answer_number(local_bytes(), room, out, needed);
    case 0x1035: // HOST_UNIFIED_MEMORY
      return answer_number<uint32_t>(0, room, out, needed);
    case 0x103A: // NATIVE_VECTOR_WIDTH_FLOAT
      return answer_number<uint32_t>(1, room, out, needed);
    case 0x102B: // NAME
      return answer_text(device->name, room, out, needed);
    case 0x102C: // VENDOR
      return answer_text("stub", room, out, needed);
    case 0x102D: // DRIVER_VERSION
      return answer_text("1", room, out, needed);
    case 0x102F: // VERSION
      return answer_text("OpenCL 1.2 stub", room, out, needed);
    case 0x103D: // OPENCL_C_VERSION
      return answer_text("OpenCL C 1.2 stub", room, out, needed);
    case 0x1030: // EXTENSIONS
      return answer_text(device->extensions, room, out, needed);
    case 0x1031: // PLATFORM
      return answer_number<void*>(&platform, room, out, needed);
    default:
      return INVALID_VALUE;
  }
}

void* clCreateContext(const void*, uint32_t, void* const*, void*, void*, Status* status) {
  *status = SUCCESS;
  return &object;
}

void* clCreateCommandQueue(void*, void*, uint64_t, Status* status) {
  *status = SUCCESS;
  return &object;
}

void* clCreateUserEvent(void*, Status* status) {
  *status = SUCCESS;
  return &object;
}

Status clReleaseContext(void*) {
  return SUCCESS;
}
Status clReleaseCommandQueue(void*) {
  return SUCCESS;
}
Status clReleaseEvent(void*) {
  return SUCCESS;
}
Status clSetUserEventStatus(void*, int32_t) {
  return SUCCESS;
}
Status clFlush(void*) {
  return SUCCESS;
}
Status clFinish(void*) {
  return SUCCESS;
}
Status clWaitForEvents(uint32_t, void* const*) {
  return SUCCESS;
}

Status clGetEventInfo(void*, uint32_t, size_t room, void* out, size_t* needed) {
  constexpr int32_t COMPLETE = 0;
  return answer_number(COMPLETE, room, out, needed);
}

Status clGetEventProfilingInfo(void*, uint32_t, size_t room, void* out, size_t* needed) {
  return answer_number<uint64_t>(1, room, out, needed);
}

Buffer* clCreateBuffer(void*, uint64_t, size_t size, void*, Status* status) {
  // Zeroed pages from the system, which take no memory until they are written to.
  auto* bytes = static_cast<char*>(std::calloc(size, 1));
  *status = bytes ? SUCCESS : -4;
  return bytes ? new Buffer{size, bytes} : nullptr;
}

Status clReleaseMemObject(Buffer* buffer) {
  std::free(buffer->bytes);
  delete buffer;
  return SUCCESS;
}

Status clGetMemObjectInfo(Buffer* buffer, uint32_t what, size_t room, void* out, size_t* needed) {
  constexpr uint32_t SIZE = 0x1102, HOST_POINTER = 0x1103;
  if (what == SIZE) return answer_number(buffer->size, room, out, needed);
  if (what == HOST_POINTER) return answer_number<void*>(nullptr, room, out, needed);
  return INVALID_VALUE;
}

Status clEnqueueWriteBuffer(
    void*, Buffer* to, uint32_t, size_t offset, size_t size, const void* from, uint32_t, void*, void** event) {
  std::memcpy(to->bytes + offset, from, size);
  return done(event);
}

Status clEnqueueReadBuffer(
    void*, Buffer* from, uint32_t, size_t offset, size_t size, void* to, uint32_t, void*, void** event) {
  std::memcpy(to, from->bytes + offset, size);
  return done(event);
}

Status clEnqueueCopyBuffer(
    void*, Buffer* from, Buffer* to, size_t read, size_t write, size_t size, uint32_t, void*, void** event) {
  std::memcpy(to->bytes + write, from->bytes + read, size);
  return done(event);
}

Status clEnqueueFillBuffer(
    void*, Buffer* to, const void* pattern, size_t period, size_t offset, size_t size, uint32_t, void*, void** event) {
  for (size_t i = 0; i < size; i += period) std::memcpy(to->bytes + offset + i, pattern, period);
  return done(event);
}

void* clEnqueueMapBuffer(
    void*, Buffer* buffer, uint32_t, uint64_t, size_t offset, size_t, uint32_t, void*, void** event, Status* status) {
  *status = done(event);
  return buffer->bytes + offset;
}

Status clEnqueueUnmapMemObject(void*, Buffer*, void*, uint32_t, void*, void** event) {
  return done(event);
}
Status clEnqueueMarkerWithWaitList(void*, uint32_t, void*, void** event) {
  return done(event);
}
Status clEnqueueBarrierWithWaitList(void*, uint32_t, void*, void** event) {
  return done(event);
}

Program* clCreateProgramWithSource(void*, uint32_t count, const char** texts, const size_t* lengths, Status* status) {
  auto* program = new Program;
  for (uint32_t i = 0; i < count; ++i) {
    program->source += lengths && lengths[i] ? std::string(texts[i], lengths[i]) : std::string(texts[i]);
  }
  *status = SUCCESS;
  return program;
}

Status clBuildProgram(Program* program, uint32_t, void*, const char* options, void*, void*) {
  // Sources without kernels are probes of the compiler's extensions beyond OpenCL C, which this one lacks.
  if (program->source.find("__kernel") == std::string::npos || program->source.find("__builtin_") == 0)
    return BUILD_FAILURE;
  program->name = fingerprint(program->source + options);
  std::ofstream(path(program->name + ".cl")) << program->source;
  std::ofstream(path(program->name + ".options")) << options;
  return SUCCESS;
}

Status clGetProgramInfo(Program*, uint32_t what, size_t room, void* out, size_t* needed) {
  constexpr uint32_t DEVICES = 0x1162, NUM_KERNELS = 0x1167;
  if (what == DEVICES) return answer_number<uint32_t>(1, room, out, needed);
  // The caller only checks that there is at least one.
  if (what == NUM_KERNELS) return answer_number<size_t>(1, room, out, needed);
  return INVALID_VALUE;
}

Status clGetProgramBuildInfo(Program*, void*, uint32_t, size_t room, void* out, size_t* needed) {
  return answer_text("", room, out, needed);
}

Status clRetainProgram(Program*) {
  return SUCCESS;
}

Status clReleaseProgram(Program*) {
  return SUCCESS;
} // Programs are never freed, as kernels refer to them.

Kernel* clCreateKernel(Program* program, const char* name, Status* status) {
  *status = SUCCESS;
  return new Kernel{program, name, {}};
}

Status clGetKernelWorkGroupInfo(Kernel*, void*, uint32_t what, size_t room, void* out, size_t* needed) {
  constexpr uint32_t WORK_GROUP_SIZE = 0x11B0;
  const char* least = std::getenv("STUB_KERNEL_GROUP");
  if (what != WORK_GROUP_SIZE) return INVALID_VALUE;
  return answer_number<size_t>(least ? std::atoi(least) : LARGEST_GROUP, room, out, needed);
}

Status clReleaseKernel(Kernel* kernel) {
  delete kernel;
  return SUCCESS;
}

Status clSetKernelArg(Kernel* kernel, uint32_t index, size_t size, const void* value) {
  if (value) {
    kernel->local_arguments.erase(index);
  } else {
    kernel->local_arguments[index] = size;
  }
  return SUCCESS;
}

Status clEnqueueNDRangeKernel(
    void*,
    Kernel* kernel,
    uint32_t dimensions,
    const size_t*,
    const size_t*,
    const size_t* local,
    uint32_t,
    void*,
    void** event) {
  size_t group = 1, bytes = 0;
  for (uint32_t i = 0; local && i < dimensions; ++i) group *= local[i];
  for (const auto& [index, size] : kernel->local_arguments) bytes += size;
  std::ostringstream line;
  line << kernel->program->name << ' ' << kernel->name << ' ' << (local ? group : 0) << ' ' << bytes;
  note_launch(line.str());
  return done(event);
}

} // extern "C"
