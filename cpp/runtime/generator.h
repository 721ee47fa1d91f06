// Random number generators: a seed and a counter, from which every kernel derives its random numbers.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace torch_opencl {

// State of a Philox 4x32-10 generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
class GeneratorImpl final : public c10::GeneratorImpl {
 public:
  explicit GeneratorImpl(c10::DeviceIndex index);

  static c10::DeviceType device_type() {
    return c10::DeviceType::PrivateUse1;
  }

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  // 16 bytes, seed and offset, as get_rng_state returns them.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // Takes `blocks` counter values (128 bits of randomness each) and returns the first. The caller holds mutex_.
  uint64_t advance(uint64_t blocks);

 private:
  GeneratorImpl* clone_impl() const override;

  uint64_t seed_;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(c10::DeviceIndex index);
at::Generator make_generator(c10::DeviceIndex index);

// The generator for a call on `device`: the given one, which must belong to the device, or the device's default.
GeneratorImpl* generator_for(const std::optional<at::Generator>& generator, c10::Device device);

// Seed and first counter value of a launch.
struct PhiloxArgs {
  uint64_t seed;
  uint64_t offset;
};

// Keeps a generator alive for a graph that draws from it.
struct GeneratorHold final {
  at::Generator generator;
};

// Takes `blocks` counter values from the given generator, or from the device's default generator.
PhiloxArgs philox(const std::optional<at::Generator>& generator, c10::Device device, uint64_t blocks);

} // namespace torch_opencl
