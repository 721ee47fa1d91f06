// See Pointwise.h.
#pragma once

DECLARE_DISPATCH(reduce_fn, sum_stub)
DECLARE_DISPATCH(void (*)(const Tensor&, Tensor&, Tensor&), aminmax_allreduce_stub)
