#include "entries/optimizer.h"

#include <ATen/ops/empty_strided.h>
#include <algorithm>
#include <array>
#include <vector>

#include "../error.h"
#include "../tensor_arg.h"
#include "torch_opencl/rust/ops/optimizer/mod.rs.h"

namespace torch_opencl::native {

using OptionalTensor = std::optional<at::Tensor>;
namespace {

using bridge::OptimizerRule;

// Parameters, gradients, three states, and step counts; as rust/ops/optimizer takes them.
constexpr size_t kLists = 6;

// A tensor laid out as `like` is: the tensor itself, or a stand-in whose values `finish` puts back.
class Alike {
 public:
  Alike(const at::Tensor& tensor, const at::Tensor& like) : tensor_(tensor), used_(tensor) {
    if (!tensor.defined()) return;
    TORCH_CHECK(
        tensor.sizes() == like.sizes(), "fused optimizer: a gradient or state of shape ", tensor.sizes(),
        " does not belong to a parameter of shape ", like.sizes());
    if (tensor.strides() == like.strides() && tensor.is_non_overlapping_and_dense()) return;
    const at::Tensor model = like.is_non_overlapping_and_dense() ? like : like.contiguous();
    used_ = at::empty_strided(model.sizes(), model.strides(), tensor.options()).copy_(tensor);
  }

  size_t address() const {
    return address_of(used_);
  }

  void finish() const {
    if (!used_.is_same(tensor_)) tensor_.copy_(used_);
  }

 private:
  at::Tensor tensor_, used_;
};

// One step of every parameter; those that follow one another with the same dtypes are passed on together.
struct Optimizer {
  OptimizerRule rule;
  bridge::OptimizerSettings settings;
  at::TensorList parameters, gradients;
  std::array<at::TensorList, 3> states;
  at::TensorList counts;
  OptionalTensor scale, found_inf;

  void run(const at::Tensor& lr = {}) {
    at::Tensor device_lr;
    if (lr.defined() && lr.device().is_cpu()) {
      settings.lr = lr.item<double>();
    } else {
      device_lr = lr;
    }
    TORCH_CHECK(
        gradients.size() == parameters.size(), "fused optimizer: ", parameters.size(), " parameters, but ",
        gradients.size(), " gradients");
    for (const at::TensorList list : {states[0], states[1], states[2], counts}) {
      TORCH_CHECK(
          list.empty() || list.size() == parameters.size(), "fused optimizer: ", parameters.size(), " parameters, but ",
          list.size(), " states");
    }
    for (const at::Tensor& count : counts) {
      TORCH_CHECK(count.numel() == 1, "fused optimizer: a number of steps has shape ", count.sizes());
    }
    for (size_t begin = 0, end = 0; begin < parameters.size(); begin = end) {
      do {
        end++;
      } while (end < parameters.size() && is_alike(begin, end));
      step(begin, end, device_lr);
    }
  }

 private:
  // Returns true if two parameters and the tensors that belong to them have the same dtypes.
  bool is_alike(size_t one, size_t other) const {
    const std::array<at::TensorList, kLists> lists{parameters, gradients, states[0], states[1], states[2], counts};
    return std::all_of(lists.begin(), lists.end(), [&](at::TensorList list) {
      return list.empty() || list[one].scalar_type() == list[other].scalar_type();
    });
  }

  void step(size_t begin, size_t end, const at::Tensor& lr) const {
    const std::array<at::TensorList, kLists> lists{parameters, gradients, states[0], states[1], states[2], counts};
    std::vector<int64_t> sizes;
    for (size_t i = begin; i < end; i++) sizes.push_back(parameters[i].numel());
    std::vector<Alike> tensors;
    tensors.reserve(kLists * sizes.size());
    std::array<std::vector<size_t>, kLists> addresses;
    std::array<bridge::TensorList, kLists> operands;
    for (size_t list = 0; list < kLists; list++) {
      const bool is_count = list == kLists - 1, is_present = !lists[list].empty();
      for (size_t i = begin; is_present && i < end; i++) {
        const at::Tensor& tensor = lists[list][i];
        tensors.emplace_back(tensor, is_count ? tensor : parameters[i]);
        addresses[list].push_back(tensors.back().address());
      }
      const at::Tensor& first = is_present ? lists[list][begin] : parameters[begin];
      operands[list] = {{addresses[list].data(), addresses[list].size()}, arg(first.scalar_type()), /*is_one=*/false};
    }
    checked([&] {
      const auto& [params, grads, first, second, largest, steps] = operands;
      bridge::optimizer_step(
          rule, settings, arg(at::IntArrayRef(sizes)),
          {params, grads, first, second, largest, steps, arg(lr), arg(scale), arg(found_inf)});
    });
    for (const Alike& tensor : tensors) tensor.finish();
  }
};

Optimizer sgd(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList momentum_buffers,
    double weight_decay,
    double momentum,
    double lr,
    double dampening,
    bool nesterov,
    bool maximize,
    bool is_first_step,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  bridge::OptimizerSettings settings{};
  settings.lr = lr;
  settings.maximize = maximize;
  settings.weight_decay = weight_decay;
  settings.momentum = momentum;
  settings.dampening = dampening;
  settings.is_first_step = is_first_step;
  settings.nesterov = nesterov;
  return {OptimizerRule::Sgd, settings, self, grads, {momentum_buffers}, {}, grad_scale, found_inf};
}

Optimizer adam(
    OptimizerRule rule,
    at::TensorList self,
    at::TensorList grads,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    at::TensorList state_steps,
    double lr,
    double beta1,
    double beta2,
    double weight_decay,
    double eps,
    bool amsgrad,
    bool maximize,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  bridge::OptimizerSettings settings{};
  settings.lr = lr;
  settings.maximize = maximize;
  settings.weight_decay = weight_decay;
  settings.eps = eps;
  settings.momentum = beta1;
  settings.beta2 = beta2;
  const at::TensorList largest = amsgrad ? max_exp_avg_sqs : at::TensorList();
  return {rule, settings, self, grads, {exp_avgs, exp_avg_sqs, largest}, state_steps, grad_scale, found_inf};
}

Optimizer adagrad(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList state_sums,
    at::TensorList state_steps,
    double lr,
    double lr_decay,
    double weight_decay,
    double eps,
    bool maximize,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  bridge::OptimizerSettings settings{};
  settings.lr = lr;
  settings.maximize = maximize;
  settings.weight_decay = weight_decay;
  settings.eps = eps;
  settings.lr_decay = lr_decay;
  return {OptimizerRule::Adagrad, settings, self, grads, {state_sums}, state_steps, grad_scale, found_inf};
}

} // namespace

void fused_sgd(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList momentum_buffers,
    double weight_decay,
    double momentum,
    double lr,
    double dampening,
    bool nesterov,
    bool maximize,
    bool is_first_step,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  sgd(self, grads, momentum_buffers, weight_decay, momentum, lr, dampening, nesterov, maximize, is_first_step,
      grad_scale, found_inf)
      .run();
}

void fused_sgd_tensor_lr(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList momentum_buffers,
    double weight_decay,
    double momentum,
    const at::Tensor& lr,
    double dampening,
    bool nesterov,
    bool maximize,
    bool is_first_step,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  sgd(self, grads, momentum_buffers, weight_decay, momentum, 0, dampening, nesterov, maximize, is_first_step,
      grad_scale, found_inf)
      .run(lr);
}

void fused_adam(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    at::TensorList state_steps,
    double lr,
    double beta1,
    double beta2,
    double weight_decay,
    double eps,
    bool amsgrad,
    bool maximize,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  adam(
      OptimizerRule::Adam, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
      weight_decay, eps, amsgrad, maximize, grad_scale, found_inf)
      .run();
}

void fused_adam_tensor_lr(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    at::TensorList state_steps,
    const at::Tensor& lr,
    double beta1,
    double beta2,
    double weight_decay,
    double eps,
    bool amsgrad,
    bool maximize,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  adam(
      OptimizerRule::Adam, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, 0, beta1, beta2,
      weight_decay, eps, amsgrad, maximize, grad_scale, found_inf)
      .run(lr);
}

void fused_adamw(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    at::TensorList state_steps,
    double lr,
    double beta1,
    double beta2,
    double weight_decay,
    double eps,
    bool amsgrad,
    bool maximize,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  adam(
      OptimizerRule::AdamW, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, lr, beta1, beta2,
      weight_decay, eps, amsgrad, maximize, grad_scale, found_inf)
      .run();
}

void fused_adamw_tensor_lr(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList exp_avgs,
    at::TensorList exp_avg_sqs,
    at::TensorList max_exp_avg_sqs,
    at::TensorList state_steps,
    const at::Tensor& lr,
    double beta1,
    double beta2,
    double weight_decay,
    double eps,
    bool amsgrad,
    bool maximize,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  adam(
      OptimizerRule::AdamW, self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, 0, beta1, beta2,
      weight_decay, eps, amsgrad, maximize, grad_scale, found_inf)
      .run(lr);
}

void fused_adagrad(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList state_sums,
    at::TensorList state_steps,
    double lr,
    double lr_decay,
    double weight_decay,
    double eps,
    bool maximize,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  adagrad(self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf).run();
}

void fused_adagrad_tensor_lr(
    at::TensorList self,
    at::TensorList grads,
    at::TensorList state_sums,
    at::TensorList state_steps,
    const at::Tensor& lr,
    double lr_decay,
    double weight_decay,
    double eps,
    bool maximize,
    const OptionalTensor& grad_scale,
    const OptionalTensor& found_inf) {
  adagrad(self, grads, state_sums, state_steps, 0, lr_decay, weight_decay, eps, maximize, grad_scale, found_inf)
      .run(lr);
}

} // namespace torch_opencl::native
