// Random numbers: kernels of ATen's stubs, dropout, and what is made of them.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace torch_opencl::native {

using OptionalGenerator = std::optional<at::Generator>;

// Kernels of ATen's stubs.
void uniform(at::TensorIteratorBase& iter, double from, double to, OptionalGenerator generator);
void normal(const at::TensorBase& self, double mean, double std, OptionalGenerator generator);
void log_normal(at::TensorIteratorBase& iter, double mean, double std, OptionalGenerator generator);
void exponential(at::TensorIteratorBase& iter, double rate, OptionalGenerator generator);
void cauchy(at::TensorIteratorBase& iter, double median, double sigma, OptionalGenerator generator);
void geometric(at::TensorIteratorBase& iter, double p, OptionalGenerator generator);
void bernoulli_scalar(const at::TensorBase& self, double p, OptionalGenerator generator);
void bernoulli_tensor(const at::TensorBase& self, const at::TensorBase& p, OptionalGenerator generator);
void random(at::TensorIteratorBase& iter, OptionalGenerator generator);
void random_from_to(at::TensorIteratorBase& iter, uint64_t range, int64_t base, OptionalGenerator generator);
void random_full_64_bits_range(at::TensorIteratorBase& iter, OptionalGenerator generator);
void multinomial_with_replacement(
    at::Tensor& result, const at::Tensor& self, int64_t samples, OptionalGenerator generator);

// Whole ops.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train);
at::Tensor native_dropout_backward(const at::Tensor& grad_output, const at::Tensor& mask, double scale);
at::Tensor& randperm_out(int64_t n, OptionalGenerator generator, at::Tensor& out);

} // namespace torch_opencl::native
