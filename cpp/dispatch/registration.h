// How rows of native_functions.yaml become kernels of the dispatcher.
//
// `entry` registers a kernel: a functor for each signature. It checks the tensors of a call, decides whether the kernel
// or the CPU runs it (`route.h`), and calls the row's implementation through one of the forms below.
#pragma once

#include <torch/library.h>
#include <tuple>
#include <utility>

#include "cpu/host_call.h"
#include "dispatch/convert.h"
#include "dispatch/fallback.h"
#include "dispatch/op_row.h"
#include "dispatch/pointwise.h"
#include "dispatch/route.h"
#include "dispatch/structured.h"
#include "runtime/error.h"
#include "runtime/tensor_args.h"

namespace torch_opencl {

template <class Schema>
class DispatchEntry;

template <class Return, class... Args>
class DispatchEntry<Return(Args...)> {
 public:
  // An implementation, wrapped in a form.
  using Body = Return (*)(const OpInfo& op, Args&... args);
  // `HostCall::attempt`, instantiated only for entries that use it.
  using Attempt = std::optional<typename HostCall<Return(Args...)>::Result> (*)(
      const OpInfo& op, HostMemory& memory, Args&... args);

  // ATen's CPU kernel creates results or writes to its first arguments. The form `Out` resizes outputs before it tries
  // the CPU kernel.
  using First = std::tuple_element_t<0, std::tuple<Args..., void>>;
  static constexpr bool kIsInplace =
      std::is_void_v<Return> || (std::is_reference_v<Return> && std::is_same_v<First, Return>);

  DispatchEntry(const OpInfo& op, Body body, Attempt attempt) : op_(&op), body_(body), attempt_(attempt) {}

  Return operator()(Args... args) const try {
    const TensorArgs tensors(args...);
    switch (route(*op_, tensors)) {
      case Route::Kernel:
        return body_(*op_, args...);
      case Route::SmallCall:
        return small_call(tensors, args...);
      case Route::Cpu:
        return boxed<&host_kernel>(std::forward<Args>(args)...);
      case Route::Fallback:
        return boxed<&cpu_fallback>(std::forward<Args>(args)...);
    }
    TORCH_INTERNAL_ASSERT(false, "unknown route of ", op_->name);
  } catch (const NoFloat64& refusal) {
    raise(refusal, op_->name);
  }

 private:
  Return small_call(const TensorArgs& tensors, Args&... args) const {
    HostMemory memory(op_->cost);
    memory.add(tensors);
    if (!memory.open()) return body_(*op_, args...);
    if constexpr (kIsResult<Return> || kIsInplace) {
      if (auto result = attempt_ != nullptr ? attempt_(*op_, memory, args...) : std::nullopt) {
        if constexpr (kIsResult<Return>) {
          return *std::move(result);
        } else if constexpr (std::is_void_v<Return>) {
          return;
        } else {
          return std::get<0>(std::tie(args...));
        }
      }
    }
    return body_(*op_, args...);
  }

  template <c10::BoxedKernel::BoxedKernelFunction* kFunction>
  Return boxed(Args... args) const {
    return c10::impl::BoxedKernelWrapper<Return(Args...)>::call(
        c10::BoxedKernel::makeFromFunction<kFunction>(), op_->handle(), c10::DispatchKeySet(),
        std::forward<Args>(args)...);
  }

  const OpInfo* op_;
  Body body_;
  Attempt attempt_;
};

// The key of Python functions, which no tensor has: PyTorch reserves it for a second backend outside its sources.
constexpr c10::DispatchKeySet kPythonKey(c10::DispatchKey::PrivateUse2);

// Forms: how an implementation becomes an op's kernel.
namespace form {

// A structured kernel that creates its outputs.
template <class Kernel, int kOutputs>
struct Functional {
  template <class Return, class... Args>
  static Return call(const OpInfo&, Args&... args) {
    Structured<Kernel> kernel{Outputs(kOutputs)};
    kernel.meta(convert_structured(args)...);
    return [&]<size_t... I>(std::index_sequence<I...>) -> Return {
      kernel.impl(convert_structured(args)..., kernel.outputs.get(I)...);
      kernel.outputs.finish();
      return Return(kernel.outputs.take(I)...);
    }(std::make_index_sequence<kOutputs>());
  }
};

// A structured kernel that writes to its first argument.
template <class Kernel>
struct Inplace {
  template <class Return, class... Args>
  static Return call(const OpInfo&, Args&... args) {
    at::Tensor& self = std::get<0>(std::tie(args...));
    Structured<Kernel> kernel{Outputs(Outputs::Source::Self, {self})};
    kernel.meta(convert_structured(args)...);
    kernel.impl(convert_structured(args)..., kernel.outputs.get(0));
    kernel.outputs.finish();
    return self;
  }
};

// Calls `function(inputs, outputs)` with two tuples of references. The last `kOutputs` arguments are the outputs.
template <int kOutputs, class Function, class... Args>
decltype(auto) split(Function&& function, Args&... args) {
  constexpr size_t kInputs = sizeof...(Args) - kOutputs;
  auto all = std::tie(args...);
  return [&]<size_t... In, size_t... Out>(std::index_sequence<In...>, std::index_sequence<Out...>) -> decltype(auto) {
    return function(std::tie(std::get<In>(all)...), std::tie(std::get<kInputs + Out>(all)...));
  }(std::make_index_sequence<kInputs>(), std::make_index_sequence<kOutputs>());
}

// The return value of an op with `out` arguments: references to them.
template <class Return, class... Outputs>
Return returned(const std::tuple<Outputs&...>& outputs) {
  if constexpr (sizeof...(Outputs) == 1) {
    return std::get<0>(outputs);
  } else {
    return Return(outputs);
  }
}

// A structured kernel that writes to `out` arguments. Its `meta` resizes them before the CPU may run a small call.
template <class Kernel, int kOutputs, SmallCalls kSmall>
struct Out {
  static constexpr bool kIsOut = true;

  template <class Return, class... Args>
  static Return call(const OpInfo& op, Args&... args) {
    return split<kOutputs>(
        [&](auto inputs, auto outputs) -> Return {
          Structured<Kernel> kernel{
              std::apply([](auto&... output) { return Outputs(Outputs::Source::Given, {output...}); }, outputs)};
          std::apply([&](auto&... input) { kernel.meta(convert_structured(input)...); }, inputs);
          bool ran_on_cpu = false;
          if constexpr (kSmall == SmallCalls::Cpu) {
            ran_on_cpu = kernel.outputs.are_contiguous() && HostCall<Return(Args...)>::attempt(op, args...).has_value();
          }
          if (!ran_on_cpu) {
            [&]<size_t... I>(std::index_sequence<I...>) {
              std::apply(
                  [&](auto&... input) { kernel.impl(convert_structured(input)..., kernel.outputs.get(I)...); }, inputs);
            }(std::make_index_sequence<kOutputs>());
          }
          kernel.outputs.finish();
          return returned<Return>(outputs);
        },
        args...);
  }
};

// Any other op: `Implementation` is a stateless callable around a function of ATen or of this library.
template <class Implementation>
struct Function {
  template <class Return, class... Args>
  static Return call(const OpInfo&, Args&... args) {
    return Implementation()(convert(args)...);
  }
};

// An op that a Python function composes: torch_opencl/composites/__init__.py registers it for `kPythonKey`.
struct Python {
  template <class Return, class... Args>
  static Return call(const OpInfo& op, Args&... args) {
    return op.handle().template typed<Return(Args...)>().redispatch(kPythonKey, std::forward<Args>(args)...);
  }
};

// An op whose `out` variant is `Implementation`. It writes to the outputs that `Allocate` creates.
template <class Implementation, class Allocate>
struct Allocating {
  template <class Return, class... Args>
  static Return call(const OpInfo&, Args&... args) {
    Return outputs = Allocate()(convert(args)...);
    if constexpr (std::is_same_v<Return, at::Tensor>) {
      Implementation()(convert(args)..., outputs);
    } else {
      std::apply([&](auto&... output) { Implementation()(convert(args)..., output...); }, outputs);
    }
    return outputs;
  }
};

// An op with `out` arguments: copies the results of `Implementation` to them.
template <class Implementation, int kOutputs>
struct Copied {
  template <class Return, class... Args>
  static Return call(const OpInfo&, Args&... args) {
    return split<kOutputs>(
        [&](auto inputs, auto outputs) -> Return {
          const auto results = std::apply([](auto&... input) { return Implementation()(convert(input)...); }, inputs);
          if constexpr (kOutputs == 1) {
            store_result(std::get<0>(outputs), results);
          } else {
            [&]<size_t... I>(std::index_sequence<I...>) {
              (store_result(std::get<I>(outputs), std::get<I>(results)), ...);
            }(std::make_index_sequence<kOutputs>());
          }
          return returned<Return>(outputs);
        },
        args...);
  }
};

template <class Form>
constexpr bool kIsOut = requires { Form::kIsOut; };

} // namespace form

// Registers `Form` for an op of this name, and of the function type `Return(Args...)`.
template <class Form, SmallCalls kSmall = SmallCalls::Kernel, class Return, class... Args>
void register_entry(torch::Library& library, const char* name, OpInfo* op, Return (*)(Args...)) {
  op->small = kSmall;
  typename DispatchEntry<Return(Args...)>::Attempt attempt = nullptr;
  if constexpr (kSmall == SmallCalls::Cpu && !form::kIsOut<Form>) {
    if (kIsResult<Return> || op->is_inplace) attempt = &HostCall<Return(Args...)>::attempt;
  }
  library.impl(name, DispatchEntry<Return(Args...)>(*op, &Form::template call<Return, Args...>, attempt));
}

// Registers `Form` for the op `Op` of at::_ops. `name` is without its namespace.
template <class Op, SmallCalls kSmall, class Form>
void entry(torch::Library& library, const char* name, const OpRow& row) {
  // Never destroyed: the dispatcher calls entries until the process ends.
  register_entry<Form, kSmall>(
      library, name, new OpInfo(row, Op::name, Op::overload_name), static_cast<typename Op::schema*>(nullptr));
}

} // namespace torch_opencl

// Turns a function, which may be overloaded, into a type.
#define TORCH_OPENCL_CALLABLE(FUNCTION) decltype([](auto&&... args) -> decltype(auto) { return FUNCTION(args...); })
