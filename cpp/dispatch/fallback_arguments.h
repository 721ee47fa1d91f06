// How the CPU fallback handles arguments, apart from moving them.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <ATen/core/stack.h>
#include <string>

namespace torch_opencl {

// Calls `visit` with every defined tensor of an argument.
template <class Visit>
void for_each_tensor(const c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) visit(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      if (tensor.has_value() && tensor->defined()) visit(*tensor);
    }
  }
}

// Replaces every tensor of an argument or a result, also in lists, by the result of `map`.
template <class Map>
void map_tensors(c10::IValue& value, Map&& map) {
  if (value.isTensor()) {
    value = map(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(map(tensor));
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(map(*tensor)) : std::nullopt);
    }
    value = std::move(list);
  }
}

// A generator for a call that runs on the CPU instead of `device`: it is seeded from the device's generator, which
// advances. Raises, as on every device, if `generator` belongs to another device.
at::Generator host_generator(const at::Generator& generator, c10::Device device);

// Raises for arguments with which the CPU kernel of the operator `name` would access memory out of bounds. The
// arguments are already on the host.
void check_host_arguments(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

} // namespace torch_opencl
