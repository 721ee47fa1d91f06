"""RMSNorm with its gradients, from kernels in OpenCL C: one source for float16, bfloat16 and float32.

A work-group computes a row, and its work-items combine their sums in local memory. The operator works with autograd and
torch.compile. Formulas: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.

    python examples/rms_norm_kernel.py
"""

import torch
import torch.nn.functional as F

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
GROUP = 64

SOURCE = """
// y = x * rstd * weight with rstd = 1 / sqrt(mean(x * x) + eps), a work-group for each row.
KERNEL void forward(GLOBAL const T *x, GLOBAL const T *weight, GLOBAL T *y, GLOBAL float *rstd, const size_t columns,
                    const work_T eps) {
  LOCAL float scratch[GROUP];
  const long row = GROUP_ID(0), start = row * (long)columns;
  work_T squares = 0;
  for (long i = LOCAL_ID(0); i < (long)columns; i += LOCAL_SIZE(0)) {
    const work_T value = load_T(x, start + i);
    squares += value * value;
  }
  const work_T scale = rsqrt(group_sum(squares, scratch) / columns + eps);
  if (LOCAL_ID(0) == 0) rstd[row] = scale;
  for (long i = LOCAL_ID(0); i < (long)columns; i += LOCAL_SIZE(0))
    store_T(y, start + i, load_T(x, start + i) * scale * load_T(weight, i));
}

// dx = rstd * (weight * dy - x * rstd^2 * mean(weight * dy * x)), a work-group for each row.
KERNEL void backward_x(GLOBAL const T *dy, GLOBAL const T *x, GLOBAL const T *weight, GLOBAL const float *rstd,
                       GLOBAL T *dx, const size_t columns) {
  LOCAL float scratch[GROUP];
  const long row = GROUP_ID(0), start = row * (long)columns;
  work_T products = 0;
  for (long i = LOCAL_ID(0); i < (long)columns; i += LOCAL_SIZE(0))
    products += load_T(dy, start + i) * load_T(weight, i) * load_T(x, start + i);
  const work_T scale = rstd[row], mean = group_sum(products, scratch) / columns;
  for (long i = LOCAL_ID(0); i < (long)columns; i += LOCAL_SIZE(0)) {
    const work_T along = load_T(x, start + i) * scale * scale * mean;
    store_T(dx, start + i, scale * (load_T(dy, start + i) * load_T(weight, i) - along));
  }
}

// dweight = sum over rows of dy * x * rstd, a work-item for each column.
KERNEL void backward_weight(GLOBAL const T *dy, GLOBAL const T *x, GLOBAL const float *rstd, GLOBAL T *dweight,
                            const size_t rows, const size_t columns) {
  const long column = ELEMENT;
  work_T sum = 0;
  for (long row = 0; row < (long)rows; row++) {
    const long i = row * (long)columns + column;
    sum += load_T(dy, i) * load_T(x, i) * rstd[row];
  }
  store_T(dweight, column, sum);
}
"""

forward_kernel, backward_x_kernel, backward_weight_kernel = (
    torch.opencl.compile_kernel(SOURCE, name, types={"T": DTYPES}, constants={"GROUP": GROUP})
    for name in ("forward", "backward_x", "backward_weight")
)


@torch.library.custom_op("opencl_examples::rms_norm", mutates_args=())
def rms_norm_forward(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalise the last dimension by the root of its mean square.

    Args:
        x: a tensor of at least one dimension, on an OpenCL device.
        weight: a factor for each column, of the same dtype.
        eps: is added to the mean square.

    Returns:
        The result, and the reciprocal of the root for each row, in float32.
    """
    x, columns = x.contiguous(), x.shape[-1]
    rows = x.numel() // max(1, columns)
    y, rstd = torch.empty_like(x), x.new_empty(x.shape[:-1], dtype=torch.float32)
    forward_kernel(x, weight.contiguous(), y, rstd, columns, eps, global_size=rows * GROUP, local_size=GROUP)
    return y, rstd


@rms_norm_forward.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[:-1], dtype=torch.float32)


@torch.library.custom_op("opencl_examples::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of :func:`rms_norm_forward`.

    Args:
        dy: the gradient of its result.
        x: its input.
        weight: its factors.
        rstd: its second result.

    Returns:
        The gradients of ``x`` and of ``weight``.
    """
    dy, x, weight, columns = dy.contiguous(), x.contiguous(), weight.contiguous(), x.shape[-1]
    rows = x.numel() // max(1, columns)
    dx, dweight = torch.empty_like(x), torch.empty_like(weight)
    backward_x_kernel(dy, x, weight, rstd, dx, columns, global_size=rows * GROUP, local_size=GROUP)
    backward_weight_kernel(dy, x, rstd, dweight, rows, columns, elements=columns)
    return dx, dweight


@rms_norm_backward.register_fake
def _(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape), weight.new_empty(weight.shape)


def _save(ctx, inputs: tuple[torch.Tensor, torch.Tensor, float], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    ctx.save_for_backward(inputs[0], inputs[1], output[1])
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx, dy: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    return *rms_norm_backward(dy, *ctx.saved_tensors), None


rms_norm_forward.register_autograd(_gradients, setup_context=_save)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Compute ``torch.nn.functional.rms_norm(x, weight.shape, weight, eps)``.

    Args:
        x: a tensor of at least one dimension, on an OpenCL device.
        weight: a factor for each element of its last dimension, of the same dtype.
        eps: is added to the mean square.

    Returns:
        The normalised tensor.
    """
    return rms_norm_forward(x, weight, eps)[0]


def main() -> None:
    """Compare results and gradients with PyTorch's, eager and compiled."""
    torch.manual_seed(0)
    for dtype in DTYPES:
        x, weight = torch.randn(37, 300).to(dtype), torch.randn(300).to(dtype)
        for function in (rms_norm, torch.compile(rms_norm, fullgraph=True)):
            ours = [tensor.to("opencl").requires_grad_() for tensor in (x, weight)]
            theirs = [tensor.float().clone().requires_grad_() for tensor in (x, weight)]
            y, expected = function(*ours), F.rms_norm(theirs[0], (300,), theirs[1], 1e-6)
            y.float().square().sum().backward()
            expected.square().sum().backward()
            limits = {"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 0.03, "atol": 0.5}
            for actual, right in zip([y, *(t.grad for t in ours)], [expected, *(t.grad for t in theirs)], strict=True):
                torch.testing.assert_close(actual.detach().float().cpu(), right.detach(), **limits)
    print("rms_norm: results and gradients agree with PyTorch's in", ", ".join(map(str, DTYPES)))


if __name__ == "__main__":
    main()
