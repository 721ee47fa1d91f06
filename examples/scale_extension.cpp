// An operator with a custom OpenCL kernel: torch.ops.scale_extension.scale_(tensor, factor).
#define CL_TARGET_OPENCL_VERSION 120
#include <ATen/core/Tensor.h>
#include <CL/cl.h>
#include <torch/library.h>
#include <torch_opencl.h>
#include <map>

namespace {

const char* const SOURCE = R"(
__kernel void scale(__global char *x, ulong offset, float factor) {
  ((__global float *)(x + offset))[get_global_id(0)] *= factor;
})";

void check(int status) {
  TORCH_CHECK(status == 0, torch_opencl_last_error());
}

// The kernel of a device, built at its first use. Not thread-safe.
cl_kernel kernel_of(int index) {
  static std::map<int, cl_kernel> kernels;
  if (!kernels.count(index)) {
    cl_device_id device;
    cl_context context;
    check(torch_opencl_context(index, &device, &context));
    const char* source = SOURCE;
    cl_program program = clCreateProgramWithSource(context, 1, &source, nullptr, nullptr);
    TORCH_CHECK(clBuildProgram(program, 1, &device, "", nullptr, nullptr) == CL_SUCCESS, "the kernel does not compile");
    kernels[index] = clCreateKernel(program, "scale", nullptr);
  }
  return kernels[index];
}

at::Tensor& scale_(at::Tensor& tensor, double factor) {
  TORCH_CHECK(tensor.is_contiguous() && tensor.scalar_type() == at::kFloat, "expected a contiguous float32 tensor");
  const size_t count = tensor.numel();
  if (count == 0) return tensor;
  int index;
  cl_mem memory;
  size_t offset;
  check(torch_opencl_device_of(tensor.const_data_ptr(), &index));
  check(torch_opencl_buffer(tensor.const_data_ptr(), &memory, &offset));
  const cl_ulong start = offset;
  const cl_float number = static_cast<cl_float>(factor);
  cl_kernel kernel = kernel_of(index);
  clSetKernelArg(kernel, 0, sizeof memory, &memory);
  clSetKernelArg(kernel, 1, sizeof start, &start);
  clSetKernelArg(kernel, 2, sizeof number, &number);
  check(torch_opencl_enqueue_kernel(index, kernel, 1, &count, nullptr));
  return tensor;
}

} // namespace

TORCH_LIBRARY(scale_extension, m) {
  m.def("scale_(Tensor(a!) tensor, float factor) -> Tensor(a!)");
}

TORCH_LIBRARY_IMPL(scale_extension, PrivateUse1, m) {
  m.impl("scale_", &scale_);
}
