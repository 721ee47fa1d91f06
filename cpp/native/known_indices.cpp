#include "native/known_indices.h"

#include <c10/core/StorageImpl.h>
#include <algorithm>
#include <mutex>
#include <vector>

namespace torch_opencl::native {
namespace {

// Graph networks use two index tensors a layer, each some ten times in a training step.
constexpr size_t kMostKnown = 64;

// Memory layout of a tensor: sizes and strides, merged if possible, without dimensions of size 1 or stride 0.
using Geometry = c10::SmallVector<int64_t, 8>;

struct Known {
  // Keeps the object and not its memory, so that no other storage can have its address.
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  uint32_t version;
  const void* data;
  at::ScalarType dtype;
  Geometry geometry;
  int64_t size;
  bool wraps;
};

// Backward runs in a separate thread, so threads share the table. It is never freed: at exit other threads may run.
struct Table {
  std::mutex mutex;
  std::vector<Known> known;
  size_t oldest = 0;
};

Table& table() {
  static auto* const table = new Table;
  return *table;
}

Geometry geometry_of(const at::Tensor& index) {
  Geometry geometry;
  for (int64_t dim = 0; dim < index.dim(); dim++) {
    const int64_t size = index.size(dim), stride = index.stride(dim);
    if (size == 1 || stride == 0) continue;
    if (!geometry.empty() && geometry.back() == size * stride) {
      geometry[geometry.size() - 2] *= size;
      geometry.back() = stride;
    } else {
      geometry.push_back(size);
      geometry.push_back(stride);
    }
  }
  return geometry;
}

// True if the version of a tensor shows whether an operator has written to it. The version of a view that C++ made
// below autograd does not: such a view shares its memory, but not its version.
bool has_version(const at::Tensor& index) {
  if (index.device().type() != c10::DeviceType::PrivateUse1 || index.is_inference()) return false;
  return !index.unsafeGetTensorImpl()->unique_version() || index.storage().use_count() == 1;
}

// True if the entry describes this tensor, and its version has not changed.
bool is_of(const Known& known, const at::Tensor& index) {
  return known.storage._unsafe_get_target() == index.storage().unsafeGetStorageImpl() &&
      known.version == index.unsafeGetTensorImpl()->version_counter().current_version() &&
      known.data == index.const_data_ptr() && known.dtype == index.scalar_type() &&
      known.geometry == geometry_of(index);
}

} // namespace

GivenIndex::GivenIndex(const at::Tensor& index) : tensor(index), has_version(native::has_version(index)) {}

IndexBounds bounds_of(const at::Tensor& self, at::IOptTensorListRef indices) {
  IndexBounds bounds;
  int64_t dim = 0;
  for (const at::OptionalTensorRef& given : indices) {
    const bool is_mask = given.has_value() && (given->scalar_type() == at::kBool || given->scalar_type() == at::kByte);
    // ATen raises the error for more indices than dimensions.
    if (dim >= self.dim()) break;
    if (given.has_value() && !is_mask) bounds.push_back({*given, self.size(dim), /*wraps=*/true});
    dim += is_mask ? given->dim() : 1;
  }
  return bounds;
}

bool are_in_range(c10::ArrayRef<IndexBound> bounds) {
  Table& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return std::all_of(bounds.begin(), bounds.end(), [&](const IndexBound& bound) {
    return bound.index.has_version && std::any_of(all.known.begin(), all.known.end(), [&](const Known& known) {
             return known.size <= bound.size && known.wraps <= bound.wraps && is_of(known, bound.index.tensor);
           });
  });
}

void remember_in_range(c10::ArrayRef<IndexBound> bounds) {
  Table& all = table();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [given, size, wraps] : bounds) {
    if (!given.has_version) continue;
    const at::Tensor& index = given.tensor;
    const auto& storage = index.storage();
    Known entry{
        c10::weak_intrusive_ptr<c10::StorageImpl>(storage.getWeakStorageImpl()),
        index.unsafeGetTensorImpl()->version_counter().current_version(),
        index.const_data_ptr(),
        index.scalar_type(),
        geometry_of(index),
        size,
        wraps};
    if (all.known.size() < kMostKnown) {
      all.known.push_back(std::move(entry));
    } else {
      all.known[all.oldest] = std::move(entry);
      all.oldest = (all.oldest + 1) % kMostKnown;
    }
  }
}

} // namespace torch_opencl::native
