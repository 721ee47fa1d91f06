"""Finds mathematical functions of OpenCL C that a driver lacks, as some builds do, or computes wrongly."""

from collections.abc import Callable, Iterable

import torch

from torch_opencl.kernels import Kernel, compile_kernel

# The mathematical functions that kernels call, by name: an expression of x, of type T, and the same in PyTorch.
FUNCTIONS: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    **{
        name: (f"{name}(x)", getattr(torch, name))
        for name in (
            *("sqrt", "rsqrt", "exp", "exp2", "expm1", "log", "log1p", "sin", "cos", "tan", "atan", "sinh", "cosh"),
            *("tanh", "asinh", "erf", "erfc", "lgamma", "floor", "ceil", "trunc"),
        )
    },
    "rint": ("rint(x)", torch.round),
    "sinpi": ("sinpi(x)", lambda x: (x * torch.pi).sin()),
    "cospi": ("cospi(x)", lambda x: (x * torch.pi).cos()),
    "pow": ("pow(x, (T)1.5)", lambda x: x**1.5),
    "atan2": ("atan2(x, (T)2)", lambda x: (x / 2).atan()),
    "hypot": ("hypot(x, (T)2)", lambda x: (x * x + 4).sqrt()),
    "fmod": ("fmod(x, (T)0.75)", lambda x: x.fmod(0.75)),
    "fma": ("fma(x, x, (T)-1)", lambda x: x * x - 1),
    "mad": ("mad(x, x, (T)-1)", lambda x: x * x - 1),
    "ldexp": ("ldexp(x, 3)", lambda x: x * 8),
    "frexp": ("mantissa_of(x)", lambda x: x.frexp().mantissa),
    "ilogb": ("(T)ilogb(x)", lambda x: x.log2().floor()),
    "nextafter": ("nextafter(x, (T)9)", lambda x: x),
    "popcount": ("(T)popcount((uint)(x * 8))", lambda x: torch.tensor([(int(v * 8)).bit_count() for v in x])),
    "clz": ("(T)clz((uint)(x * 8))", lambda x: torch.tensor([32 - int(v * 8).bit_length() for v in x])),
    "mul_hi": ("(T)mul_hi((uint)(x * 8), 1u << 31)", lambda x: (x * 8).floor().div(2).floor()),
}
_MANTISSA = "T mantissa_of(T x) {\n  int exponent;\n  return frexp(x, &exponent);\n}\n"
# Away from values at which a function jumps or is nearly 0.
_INPUTS = (0.3, 0.65, 0.9, 1.1, 1.7, 2.35)
# Relative and absolute. Far above what OpenCL allows: this finds functions that are wrong, not inaccurate.
_TOLERANCES = (1e-4, 1e-5)


def lacking(device: torch.device) -> dict[str, list[str]]:
    """Compile and run the mathematical functions of kernels, in float32, and in float64 if the device has it.

    Args:
        device: the device to test.

    Returns:
        By dtype, such as ``"float64"``, what is missing or wrong: entries such as ``"sinpi (does not compile)"`` and
        ``"erf (wrong results)"``, or why they could not be tested. Dtypes without a fault are left out.
    """
    dtypes = [torch.float32]
    if torch.opencl.get_device_properties(device).fp64:
        dtypes.append(torch.float64)
    found = {}
    for dtype in dtypes:
        try:
            faults = _faults(FUNCTIONS, dtype, device)
        except RuntimeError as failure:  # the device failed, or it has no memory
            faults = [f"nothing that could be tested: {failure}"]
        if faults:
            found[str(dtype).removeprefix("torch.")] = faults
    return found


def _faults(names: Iterable[str], dtype: torch.dtype, device: torch.device) -> list[str]:
    """Test functions in one kernel; if that does not compile, each half in a separate one."""
    names = list(names)
    kernel = _kernel(names)
    try:
        kernel.compile(device, T=dtype)
    except RuntimeError:
        if len(names) == 1:
            return [f"{names[0]} (does not compile)"]
        half = len(names) // 2
        return _faults(names[:half], dtype, device) + _faults(names[half:], dtype, device)
    x = torch.tensor(_INPUTS, dtype=torch.float64)
    results = torch.empty(len(x), len(names), dtype=dtype, device=device)
    kernel(x.to(device, dtype), results)
    values = results.cpu().double()
    relative, absolute = _TOLERANCES
    expected = torch.stack([FUNCTIONS[name][1](x).double() for name in names], 1)
    right = torch.isclose(values, expected, relative, absolute).all(0)
    return [f"{name} (wrong results)" for name, is_right in zip(names, right.tolist(), strict=True) if not is_right]


def _kernel(names: list[str]) -> Kernel:
    stores = (f"  out[ELEMENT * {len(names)} + {i}] = {FUNCTIONS[name][0]};" for i, name in enumerate(names))
    head = "KERNEL void functions(GLOBAL const T *inputs, GLOBAL T *out) {\n  const T x = inputs[ELEMENT];\n"
    source = (_MANTISSA if "frexp" in names else "") + head + "\n".join(stores) + "\n}\n"
    return compile_kernel(source, "functions", types={"T": (torch.float32, torch.float64)})
