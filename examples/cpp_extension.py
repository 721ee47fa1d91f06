"""An operator in C++ with a custom OpenCL kernel, built by torch.utils.cpp_extension.

    python examples/cpp_extension.py

It needs a C++ compiler, ninja (`pip install ninja`) and OpenCL's headers and loader (`apt-get install opencl-headers
ocl-icd-opencl-dev`). The first run builds scale_extension.cpp, in half a minute; later runs load the result.
"""

from pathlib import Path

import torch
from torch.utils.cpp_extension import load


def load_extension() -> None:
    """Build and load the extension, which registers ``torch.ops.scale_extension``."""
    load(
        "scale_extension",
        [str(Path(__file__).parent / "scale_extension.cpp")],
        extra_include_paths=torch.opencl.include_paths(),
        extra_ldflags=[torch.opencl.library_path(), "-lOpenCL"],
        is_python_module=False,
    )


def main() -> None:
    """Multiply a tensor, then a part of it again."""
    load_extension()
    x = torch.arange(5.0, device="opencl")
    torch.ops.scale_extension.scale_(x, 2.0)
    torch.ops.scale_extension.scale_(x[3:], 10.0)
    print(x.tolist())
    assert x.tolist() == [0.0, 2.0, 4.0, 60.0, 80.0]


if __name__ == "__main__":
    main()
