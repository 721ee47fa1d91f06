#include "entries/optimizer.h"

#include <ATen/ops/empty_strided.h>
#include <algorithm>
#include <array>
#include <vector>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/optimizer/mod.rs.h"

namespace torch_opencl::native {
namespace {

using bridge::OptimizerRule;

// Parameters, gradients, three states, and step counts; as rust/ops/optimizer takes them.
constexpr size_t kLists = 6;

// A tensor with the strides of `like`: the tensor itself, or a copy that `finish` writes back.
class Alike {
 public:
  Alike(const at::Tensor& tensor, const at::Tensor& like) : tensor_(tensor), used_(tensor) {
    if (!tensor.defined()) return;
    TORCH_CHECK(
        tensor.sizes() == like.sizes(), "fused optimizer: a gradient or state of shape ", tensor.sizes(),
        " does not match its parameter of shape ", like.sizes());
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
  // Takes the arguments that all rules share.
  template <class Op>
  Optimizer(OptimizerRule rule, const Arguments<Op>& args)
      : rule(rule), parameters(args.self), gradients(args.grads), scale(args.grad_scale), found_inf(args.found_inf) {
    settings.weight_decay = args.weight_decay;
    settings.maximize = args.maximize;
    set_lr(args.lr);
  }

  OptimizerRule rule;
  bridge::OptimizerSettings settings{};
  at::TensorList parameters, gradients;
  std::array<at::TensorList, 3> states;
  at::TensorList counts;
  at::Tensor lr; // on the device
  const std::optional<at::Tensor>&scale, &found_inf;

  void run() const {
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
      step(begin, end);
    }
  }

 private:
  void set_lr(double value) {
    settings.lr = value;
  }
  void set_lr(const at::Tensor& value) {
    if (value.defined() && value.device().is_cpu()) {
      settings.lr = value.item<double>();
    } else {
      lr = value;
    }
  }

  // Returns true if two parameters and the tensors that belong to them have the same dtypes.
  bool is_alike(size_t one, size_t other) const {
    const std::array<at::TensorList, kLists> lists{parameters, gradients, states[0], states[1], states[2], counts};
    return std::all_of(lists.begin(), lists.end(), [&](at::TensorList list) {
      return list.empty() || list[one].scalar_type() == list[other].scalar_type();
    });
  }

  void step(size_t begin, size_t end) const {
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

template <class Op>
void sgd(const Arguments<Op>& args) {
  Optimizer optimizer(OptimizerRule::Sgd, args);
  optimizer.states = {args.momentum_buffer_list};
  optimizer.settings.momentum = args.momentum;
  optimizer.settings.dampening = args.dampening;
  optimizer.settings.is_first_step = args.is_first_step;
  optimizer.settings.nesterov = args.nesterov;
  optimizer.run();
}

template <class Op>
void adam(OptimizerRule rule, const Arguments<Op>& args) {
  Optimizer optimizer(rule, args);
  optimizer.states = {args.exp_avgs, args.exp_avg_sqs, args.amsgrad ? args.max_exp_avg_sqs : at::TensorList()};
  optimizer.counts = args.state_steps;
  optimizer.settings.eps = args.eps;
  optimizer.settings.momentum = args.beta1;
  optimizer.settings.beta2 = args.beta2;
  optimizer.run();
}

template <class Op>
void adagrad(const Arguments<Op>& args) {
  Optimizer optimizer(OptimizerRule::Adagrad, args);
  optimizer.states = {args.state_sums};
  optimizer.counts = args.state_steps;
  optimizer.settings.eps = args.eps;
  optimizer.settings.lr_decay = args.lr_decay;
  optimizer.run();
}

} // namespace

void fused_sgd(const Arguments<at::_ops::_fused_sgd_>& args) {
  sgd(args);
}
void fused_sgd_tensor_lr(const Arguments<at::_ops::_fused_sgd__tensor_lr>& args) {
  sgd(args);
}
void fused_adam(const Arguments<at::_ops::_fused_adam_>& args) {
  adam(OptimizerRule::Adam, args);
}
void fused_adam_tensor_lr(const Arguments<at::_ops::_fused_adam__tensor_lr>& args) {
  adam(OptimizerRule::Adam, args);
}
void fused_adamw(const Arguments<at::_ops::_fused_adamw_>& args) {
  adam(OptimizerRule::AdamW, args);
}
void fused_adamw_tensor_lr(const Arguments<at::_ops::_fused_adamw__tensor_lr>& args) {
  adam(OptimizerRule::AdamW, args);
}
void fused_adagrad(const Arguments<at::_ops::_fused_adagrad_>& args) {
  adagrad(args);
}
void fused_adagrad_tensor_lr(const Arguments<at::_ops::_fused_adagrad__tensor_lr>& args) {
  adagrad(args);
}

} // namespace torch_opencl::native
