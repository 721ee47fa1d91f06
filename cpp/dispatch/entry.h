// Types of our entries, derived from their ops. The generated entries/FAMILY.h declare the entries with these types, so
// that a definition whose parameters differ from the op's does not link.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <c10/core/OptionalRef.h>
#include <c10/util/TypeList.h>
#include <tuple>
#include <utility>

namespace torch_opencl {

// An entry takes the op's arguments, with plain integers for symbolic ones.
template <class Op>
using Entry = typename c10::fn_remove_symint<typename Op::schema>::type;

template <class Op>
using EntryTraits = c10::guts::infer_function_traits_t<Entry<Op>>;

// The return type of an op, and the type of its parameter at position kIndex.
template <class Op>
using Returns = typename EntryTraits<Op>::return_type;
template <class Op, size_t kIndex>
using Argument = c10::guts::typelist::element_t<kIndex, typename EntryTraits<Op>::parameter_types>;

namespace native {
// The arguments of an op, by their names in its schema: entries/FAMILY.h defines it for rows with `arguments: struct`.
template <class Op>
struct Arguments;
} // namespace native

// The entry of such a row, and a function that takes separate arguments and calls the entry.
template <class Op>
using TakesStruct = Returns<Op>(const native::Arguments<Op>& args);
template <class Op, TakesStruct<Op>* kEntry>
constexpr auto with_struct = [](auto&&... args) -> Returns<Op> { return kEntry({args...}); };

// `impl` of a structured class takes optional tensors and scalars by reference, and its outputs last.
template <class T>
struct ImplArgument {
  using type = T;
};
template <>
struct ImplArgument<const std::optional<at::Tensor>&> {
  using type = at::OptionalTensorRef;
};
template <>
struct ImplArgument<const std::optional<at::Scalar>&> {
  using type = at::OptionalScalarRef;
};

template <class Function, size_t kOutputs>
struct ImplOf;

template <class Return, class... Args, size_t kOutputs>
struct ImplOf<Return(Args...), kOutputs> {
  using All = std::tuple<Args...>;

  template <size_t... In, size_t... Out>
  static auto type(std::index_sequence<In...>, std::index_sequence<Out...>) -> void (*)(
      typename ImplArgument<std::tuple_element_t<In, All>>::type...,
      std::enable_if_t<(Out < kOutputs), const at::Tensor&>...);

  using Pointer =
      decltype(type(std::make_index_sequence<sizeof...(Args) - kOutputs>(), std::make_index_sequence<kOutputs>()));
};

// `impl` of a structured class, from the out= variant of its op.
template <class Op, size_t kOutputs>
using Impl = std::remove_pointer_t<typename ImplOf<Entry<Op>, kOutputs>::Pointer>;

} // namespace torch_opencl
