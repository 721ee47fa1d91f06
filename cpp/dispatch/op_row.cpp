#include "dispatch/op_row.h"

namespace torch_opencl {

OpInfo::OpInfo(const OpRow& row, const char* name, const char* overload)
    : OpRow(row),
      name(name),
      overload(overload),
      // record_stream has the signature of an in-place op, but writes no element.
      is_inplace(this->name.ends_with('_') || this->name == "aten::record_stream"),
      crosses_devices(
          this->name.starts_with("aten::_copy_from") || this->name.starts_with("aten::copy_") ||
          this->name.starts_with("aten::_foreach_")),
      handle_(c10::Dispatcher::singleton().findSchema({name, overload})) {
  has_cpu_kernel = handle_.has_value() && handle_->hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
}

c10::OperatorHandle OpInfo::handle() const {
  return handle_.has_value()
      ? *handle_
      : c10::Dispatcher::singleton().findSchemaOrThrow(std::string(name).c_str(), std::string(overload).c_str());
}

} // namespace torch_opencl
