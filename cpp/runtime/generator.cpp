#include "runtime/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Utils.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <memory>
#include <mutex>

#include "runtime/error.h"
#include "torch_opencl/rust/bridge/graph.rs.h"

namespace torch_opencl {
namespace {

constexpr int64_t kStateBytes = 2 * sizeof(uint64_t);

c10::DeviceIndex resolve(c10::DeviceIndex index) {
  return index < 0 ? static_cast<c10::DeviceIndex>(bridge::current_device()) : index;
}

} // namespace

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index)
    : c10::GeneratorImpl(
          c10::Device(c10::DeviceType::PrivateUse1, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::detail::getNonDeterministicRandom()) {}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t GeneratorImpl::current_seed() const {
  return seed_;
}

uint64_t GeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void GeneratorImpl::set_offset(uint64_t offset) {
  offset_ = offset;
}

uint64_t GeneratorImpl::get_offset() const {
  return offset_;
}

void GeneratorImpl::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == kStateBytes, "OpenCL: an RNG state holds ", kStateBytes, " bytes, got ", state.numel());
  const auto* bytes = static_cast<const uint8_t*>(state.data());
  std::memcpy(&seed_, bytes, sizeof(seed_));
  std::memcpy(&offset_, bytes + sizeof(seed_), sizeof(offset_));
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  at::TensorBase state = at::detail::empty_cpu({kStateBytes}, at::kByte);
  auto* bytes = static_cast<uint8_t*>(state.mutable_data_ptr());
  std::memcpy(bytes, &seed_, sizeof(seed_));
  std::memcpy(bytes + sizeof(seed_), &offset_, sizeof(offset_));
  return state.getIntrusivePtr();
}

uint64_t GeneratorImpl::advance(uint64_t blocks) {
  const uint64_t first = offset_;
  offset_ += blocks;
  return first;
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto* copy = new GeneratorImpl(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

at::Generator make_generator(c10::DeviceIndex index) {
  return at::make_generator<GeneratorImpl>(resolve(index));
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  // Never destroyed: Python may ask for a generator during static destruction.
  static const auto* const generators = [] {
    auto* list = new std::vector<at::Generator>;
    for (int32_t i = 0; i < bridge::device_count(); i++) {
      list->push_back(at::make_generator<GeneratorImpl>(static_cast<c10::DeviceIndex>(i)));
      // Every process starts with the same seed, as on CPU and CUDA: unseeded programs are reproducible.
      list->back().set_current_seed(c10::default_rng_seed_val);
    }
    return list;
  }();
  index = resolve(index);
  TORCH_CHECK(
      index < static_cast<int64_t>(generators->size()), "OpenCL: no generator for device index ",
      static_cast<int>(index), ", there are ", generators->size(), " devices");
  return (*generators)[index];
}

GeneratorImpl* generator_for(const std::optional<at::Generator>& generator, c10::Device device) {
  const at::Generator& chosen =
      generator.has_value() && generator->defined() ? *generator : default_generator(device.index());
  auto* state = at::check_generator<GeneratorImpl>(chosen);
  TORCH_CHECK(
      state->device() == device, "Expected a '", device, "' generator device but found '", state->device(), "'");
  return state;
}

namespace {

// Placeholders for seed and counter. A graph replaces them at each replay, which also advances the generator.
PhiloxArgs draw_captured(GeneratorImpl* state, uint64_t blocks) {
  const int32_t device = state->device().index();
  const bridge::CapturedDraw draw =
      checked([&] { return bridge::draw_captured(device, reinterpret_cast<uint64_t>(state), blocks); });
  if (draw.is_first) {
    auto generator = at::Generator(c10::intrusive_ptr<c10::GeneratorImpl>::reclaim_copy(state));
    checked([&] { bridge::hold_generator(device, std::make_unique<GeneratorHold>(std::move(generator))); });
  }
  return {draw.seed, draw.offset};
}

} // namespace

PhiloxArgs philox(const std::optional<at::Generator>& generator, c10::Device device, uint64_t blocks) {
  GeneratorImpl* state = generator_for(generator, device);
  if (checked([&] { return bridge::is_capturing(device.index()); })) return draw_captured(state, blocks);
  const std::lock_guard<std::mutex> lock(state->mutex_);
  const uint64_t first = state->advance(blocks);
  return {state->current_seed(), first};
}

} // namespace torch_opencl
