// What the order of elements tells: medians and other ranks, modes, runs of equal elements.
#pragma once

#include <ATen/core/Tensor.h>
#include <tuple>

namespace torch_opencl::native {

at::Tensor median(const at::Tensor& self);
at::Tensor nanmedian(const at::Tensor& self);
std::tuple<at::Tensor&, at::Tensor&> median_out(
    const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices);
std::tuple<at::Tensor&, at::Tensor&> nanmedian_out(
    const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices);

std::tuple<at::Tensor&, at::Tensor&> kthvalue_out(
    const at::Tensor& self, int64_t k, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices);

std::tuple<at::Tensor, at::Tensor> mode(const at::Tensor& self, int64_t dim, bool keepdim);
std::tuple<at::Tensor&, at::Tensor&> mode_out(
    const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices);

std::tuple<at::Tensor, at::Tensor, at::Tensor> unique(
    const at::Tensor& self, bool sorted, bool return_inverse, bool return_counts);
std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_dim(
    const at::Tensor& self, int64_t dim, bool sorted, bool return_inverse, bool return_counts);
std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_consecutive(
    const at::Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim);
std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_dim_consecutive(
    const at::Tensor& self, int64_t dim, bool return_inverse, bool return_counts);

} // namespace torch_opencl::native
