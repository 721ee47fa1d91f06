// Declarations of stubs in the form of torch's headers; DECLARE_DISPATCH(type, comment_stub) here is
// prose. Only read by the code generator's tests, never compiled.
#pragma once

#define DECLARE_DISPATCH(fn, name) struct name

using structured_binary_fn_alpha = void (*)(TensorIteratorBase&, const Scalar& alpha);
using structured_binary_fn = void (*)(TensorIteratorBase&);
using unary_fn = void (*)(
    TensorIteratorBase&);

DECLARE_DISPATCH(structured_binary_fn_alpha, add_stub)
DECLARE_DISPATCH(unary_fn, exp_stub)
DECLARE_DISPATCH(void (*)(TensorIteratorBase&, const double, std::optional<Generator>), exponential_stub)
DECLARE_DISPATCH(void (*)(TensorIteratorBase&), frexp_stub)
DECLARE_DISPATCH(structured_binary_fn, bitwise_and_stub)
DECLARE_DISPATCH(void (*)(TensorIterator&), where_kernel)
DECLARE_DISPATCH(
    void (*)(TensorIterator&, const c10::Scalar&),
    fill_stub)
DECLARE_DISPATCH(structured_binary_fn, div_trunc_stub)
