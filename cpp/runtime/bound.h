// Functions of the bridge as functions of torch.ops: with the dispatcher's types, and with Rust's errors as exceptions.
#pragma once

#include <string>
#include <type_traits>

#include "runtime/error.h"
#include "runtime/library.h"
#include "rust/cxx.h"

namespace torch_opencl {

// The dispatcher's type for an argument of the bridge.
template <class T>
struct BoundArgument {
  using Type = T;
  static T convert(T value) {
    return value;
  }
};

// An int32_t is always the index of a device: bind other functions by hand.
template <>
struct BoundArgument<int32_t> {
  using Type = int64_t;
  static int32_t convert(int64_t device) {
    return device_index(device);
  }
};

template <>
struct BoundArgument<rust::Str> {
  using Type = const std::string&;
  static rust::Str convert(const std::string& text) {
    return text;
  }
};

template <class T>
auto bound_result(T value) {
  if constexpr (std::is_same_v<T, rust::String>) {
    return std::string(value.data(), value.size());
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return static_cast<int64_t>(value);
  } else {
    return value;
  }
}

template <auto kFunction, class Return, class... Args>
auto call_bound(typename BoundArgument<Args>::Type... args) {
  if constexpr (std::is_void_v<Return>) {
    kFunction(BoundArgument<Args>::convert(args)...);
  } else {
    return bound_result(kFunction(BoundArgument<Args>::convert(args)...));
  }
}

template <auto kFunction, class Return, class... Args>
auto bind_as(Return (*)(Args...)) {
  return [](typename BoundArgument<Args>::Type... args) {
    return checked([&] { return call_bound<kFunction, Return, Args...>(args...); });
  };
}

// Functions without a `Result`, which cxx declares noexcept.
template <auto kFunction, class Return, class... Args>
auto bind_as(Return (*)(Args...) noexcept) {
  return [](typename BoundArgument<Args>::Type... args) { return call_bound<kFunction, Return, Args...>(args...); };
}

template <auto kFunction>
auto bound() {
  return bind_as<kFunction>(kFunction);
}

} // namespace torch_opencl
