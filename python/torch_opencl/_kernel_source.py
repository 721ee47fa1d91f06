"""Reads the signature of a user's kernel, and writes the source that the library builds.

A buffer of OpenCL 1.2 has no address, and a tensor may start anywhere in it. A kernel's parameters are therefore
rewritten: first its buffers, with written ones before read-only ones, then one struct of 64-bit values that holds the
offsets of these buffers and the scalars. The author's parameters follow the opening brace as variables. `#line`
directives and spaces keep the lines and columns of the author's source in the compiler's messages.
"""

import contextlib
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

Kind = Literal["tensor", "scalar", "size"]

# The OpenCL C types, by dtype, of a tensor's elements and of values computed from them.
STORAGE = {
    torch.bool: ("bool_t", "int"),
    torch.uint8: ("uchar", "int"),
    torch.int8: ("char", "int"),
    torch.uint16: ("ushort", "int"),
    torch.int16: ("short", "int"),
    torch.uint32: ("uint", "uint"),
    torch.int32: ("int", "int"),
    torch.uint64: ("ulong", "ulong"),
    torch.int64: ("long", "long"),
    torch.float16: ("half", "float"),
    torch.bfloat16: ("bfloat16_t", "float"),
    torch.float32: ("float", "float"),
    torch.float64: ("double", "double"),
    torch.complex64: ("float2", "float2"),
    torch.complex128: ("double2", "double2"),
}
DTYPES = {storage: dtype for dtype, (storage, _) in STORAGE.items()}

# Least and greatest value of integers.
_INTEGERS = {
    "bool": (0, 1),
    "char": (-(2**7), 2**7 - 1),
    "uchar": (0, 2**8 - 1),
    "short": (-(2**15), 2**15 - 1),
    "ushort": (0, 2**16 - 1),
    "int": (-(2**31), 2**31 - 1),
    "uint": (0, 2**32 - 1),
    "long": (-(2**63), 2**63 - 1),
    "ulong": (0, 2**64 - 1),
    "size_t": (0, 2**64 - 1),
}
_LARGEST_FLOAT = torch.finfo(torch.float32).max
_ALIASES = {f"unsigned {name}": f"u{name}" for name in ("char", "short", "int", "long")} | {"unsigned": "uint"}
_QUALIFIERS = re.compile(r"\b(?:__)?(?:const|restrict|volatile)\b")
_SPACES = re.compile(r"\b(?:__)?(global|local|constant|private)\b|\b(GLOBAL|LOCAL|CONSTANT)\b")
_KERNEL = re.compile(r"\b(?:__kernel|kernel|KERNEL)\b([^;{}]*?)\bvoid\b([^;{}()]*(?:\(\([^;{}]*\)\)\s*)?)\b(\w+)\s*\(")

_REQUIRED = re.compile(r"\b(?:__)?reqd_work_group_size(?:__)?\s*\(([^()]*)\)")
# Macros and types that the source's prefix defines. load_T and store_T are checked by their prefixes.
_TAKEN = {
    *("KERNEL", "GLOBAL", "LOCAL", "CONSTANT", "ELEMENT", "GLOBAL_ID", "GLOBAL_SIZE", "GROUP_ID", "GROUPS"),
    *("LOCAL_ID", "LOCAL_SIZE", "LOCAL_BARRIER", "GLOBAL_BARRIER", "HAS_FP64", "HAS_CLANG_BUILTINS", "IS_CPU"),
    *("group_sum", "group_max", "group_min", "bfloat16_of", "float_of", "DEFINE_ELEMENT", "DEFINE_GROUP_JOIN"),
    *("void", "size_t", "kernel", "global", "local", "constant", "private", "const", "if", "for", "while", "return"),
    *_INTEGERS,
    *(name for types in STORAGE.values() for name in types),
}
_BRACE = re.compile(r"\s*(?:__attribute__\s*\(\(.*?\)\)\s*)*\{", re.DOTALL)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: its name, what it takes, and its type in OpenCL C."""

    name: str
    kind: Kind
    type: str
    """For a tensor, the type of its elements: one of OpenCL C, ``void``, or a type parameter."""
    is_written: bool = False
    """True if a tensor's elements are not ``const``."""


@dataclass(frozen=True)
class Signature:
    """A kernel's parameters, and their positions in its source."""

    name: str
    parameters: tuple[Parameter, ...]
    opening: int
    """The position after the opening parenthesis."""
    closing: int
    """The position of the closing parenthesis."""
    brace: int
    """The position after the brace."""
    group: tuple[str, ...] = ()
    """The arguments of ``reqd_work_group_size``, as they are written; empty without the attribute."""

    def buffers(self) -> list[Parameter]:
        """Return the tensors in the order of the kernel's arguments: written ones before read-only ones."""
        tensors = [parameter for parameter in self.parameters if parameter.kind == "tensor"]
        return sorted(tensors, key=lambda parameter: not parameter.is_written)

    def scalars(self) -> list[Parameter]:
        """Return the other parameters, in their order."""
        return [parameter for parameter in self.parameters if parameter.kind != "tensor"]


def read_signature(source: str, name: str, types: Sequence[str]) -> Signature:
    """Read the parameters of a kernel.

    Args:
        source: the user's source.
        name: of the kernel.
        types: names of type parameters.

    Returns:
        The signature.

    Raises:
        ValueError: there is no such kernel, or it has a parameter that no argument fits.
    """
    code = _without_comments(source)
    for match in _KERNEL.finditer(code):
        if match.group(3) == name and (signature := _signature(code, match, types)) is not None:
            return signature
    others = sorted({match.group(3) for match in _KERNEL.finditer(code)})
    raise ValueError(f"the source has no kernel {name!r}; its kernels are: {', '.join(others) or 'none'}")


def _signature(code: str, match: re.Match[str], types: Sequence[str]) -> Signature | None:
    """A kernel's signature; None for a declaration without a body."""
    name = match.group(3)
    closing = _closing(code, match.end())
    brace = _BRACE.match(code, closing + 1)
    if brace is None:
        return None
    inside = code[match.end() : closing]
    parts = [] if inside.strip() in ("", "void") else inside.split(",")
    parameters = tuple(_parameter(part, name, types) for part in parts)
    names = [parameter.name for parameter in parameters]
    for word in (name, *names):
        check_name(word)
    if len(set(names)) < len(names):
        raise ValueError(f"kernel {name}: two parameters have the same name: {', '.join(names)}")
    required = _REQUIRED.search(code[match.start() : match.end()] + code[closing : brace.end()])
    group = tuple(part.strip() for part in required.group(1).split(",")) if required else ()
    return Signature(name, parameters, match.end(), closing, brace.end(), group)


def check_name(word: str) -> None:
    """Refuse names that the source's prefix or the rewritten parameters define.

    Args:
        word: the name of a kernel, a parameter, a constant or a type parameter.

    Raises:
        ValueError: the name is taken.
    """
    if word in _TAKEN or word == "packed_" or word.endswith(("_buffer_", "_packed_")):
        raise ValueError(f"the name {word!r} is taken: see docs/kernels.md; choose another")


def _signatures(source: str, types: Sequence[str]) -> list[Signature]:
    """The kernels of a source, last first. Kernels with a parameter of an unsupported type are left out."""
    code = _without_comments(source)
    found = []
    for match in _KERNEL.finditer(code):
        with contextlib.suppress(ValueError):
            if (signature := _signature(code, match, types)) is not None:
                found.append(signature)
    return found[::-1]


def program_source(
    source: str, signature: Signature, dtypes: Mapping[str, torch.dtype], constants: Mapping[str, int | float | bool]
) -> str:
    """Write the part of the program that follows ``user.cl``.

    Args:
        source: the user's source.
        signature: of the kernel that is built.
        dtypes: values of the type parameters.
        constants: macros to define.

    Returns:
        OpenCL C; the compiler's messages have the lines and columns of the source, under the kernel's name.
    """
    types = {STORAGE[dtype][0] for dtype in dtypes.values()} | {parameter.type for parameter in signature.parameters}
    is_double = not types.isdisjoint({"double", "double2"})
    lines = [f"#define {name} {_literal(value, is_double)}" for name, value in constants.items()]
    for name, dtype in dtypes.items():
        storage, work = STORAGE[dtype]
        word = str(dtype).removeprefix("torch.")
        lines += [f"typedef {storage} {name};", f"typedef {work} work_{name};"]
        lines += [f"#define {verb}_{name} {verb}_{word}" for verb in ("load", "store")]
    text = source
    # All kernels are rewritten, because OpenCL C allows no kernel parameters of size_t.
    for other in _signatures(source, tuple(dtypes)):
        lines.append(_packed(other))
        text = _rewritten(source, text, other, signature.name, dtypes)
    return "\n".join([*lines, _line(source, 0, signature.name), text, ""])


def _packed(signature: Signature) -> str:
    """The struct of a kernel's offsets and scalars."""
    count = max(1, len(signature.parameters))
    return f"typedef struct {{ long {', '.join(f'v{i}' for i in range(count))}; }} {signature.name}_packed_;"


def _rewritten(source: str, text: str, signature: Signature, name: str, dtypes: Mapping[str, torch.dtype]) -> str:
    """The text with a kernel's rewritten parameters instead of its author's.

    ``text`` equals the source up to the end of this kernel's parameters. ``name`` is its name in messages.
    """
    buffers, scalars = signature.buffers(), signature.scalars()
    head = [f"__global uchar *{parameter.name}_buffer_" for parameter in buffers]
    unpacked = ""
    for i, parameter in enumerate(buffers):
        kind = f"__global {'' if parameter.is_written else 'const '}{parameter.type} *"
        unpacked += f" {kind}{parameter.name} = ({kind})({parameter.name}_buffer_ + packed_.v{i});"
    for i, parameter in enumerate(scalars, len(buffers)):
        work = _work(parameter.type, dtypes)
        unpacked += (
            f" const {parameter.type} {parameter.name} = {_UNPACK.get(work, f'({work})packed_.v{i}').format(i)};"
        )
    written = ", ".join([*head, f"const {signature.name}_packed_ packed_"])
    pieces = (text[: signature.opening], text[signature.closing : signature.brace], text[signature.brace :])
    if _is_in_directive(source, signature.opening):
        return written.join(pieces[:2]) + unpacked + pieces[2]
    after_parameters, after_brace = (
        f"\n{_line(source, position, name)}\n{_indent(source, position)}"
        for position in (signature.closing, signature.brace)
    )
    return pieces[0] + written + after_parameters + pieces[1] + unpacked + after_brace + pieces[2]


def _line(source: str, position: int, name: str) -> str:
    """The directive that gives the compiler's messages the line of a position."""
    number = source.count("\n", 0, position) + 1
    return f'#line {number} "{name}"'


def _indent(source: str, position: int) -> str:
    """Spaces for the bytes before a position in its line, because compilers count columns in bytes."""
    start = source.rfind("\n", 0, position) + 1
    return " " * len(source[start:position].encode())


def _is_in_directive(source: str, position: int) -> bool:
    """Return whether a position is in a preprocessor directive (such as a macro), which ends with its line."""
    start = source.rfind("\n", 0, position) + 1
    while source[:start].endswith("\\\n"):
        start = source.rfind("\n", 0, start - 1) + 1
    return source[start:].lstrip(" \t").startswith("#")


_UNPACK = {
    "float": "as_float((uint)packed_.v{0})",
    "double": "as_double(packed_.v{0})",
    "bool": "packed_.v{0} != 0",
}


def packer(type: str, dtypes: Mapping[str, torch.dtype]) -> Callable[[Any], int]:
    """Return the function that turns an argument into the 64 bits that the kernel unpacks.

    Args:
        type: of a scalar, in OpenCL C.
        dtypes: values of the type parameters.

    Returns:
        The function: it takes a Python scalar, and raises TypeError and ValueError.
    """
    work = _work(type, dtypes)
    if work in ("float", "double"):
        form, bits = ("<f", "<I") if work == "float" else ("<d", "<q")

        def pack(value: float) -> int:
            try:
                return struct.unpack(bits, struct.pack(form, value))[0]
            except OverflowError:
                raise ValueError(f"{value} does not fit its type {work}") from None

        return pack
    least, most = _INTEGERS[work]

    def pack_integer(value: int) -> int:
        if not least <= value <= most:
            raise ValueError(f"{value} does not fit its type {work}")
        return value - 2**64 if value >= 2**63 else value

    return pack_integer


def is_integer(type: str, dtypes: Mapping[str, torch.dtype]) -> bool:
    """Return whether a scalar's type takes only integers.

    Args:
        type: of a scalar, in OpenCL C.
        dtypes: values of the type parameters.

    Returns:
        False for floating types.
    """
    return _work(type, dtypes) in _INTEGERS


def _work(type: str, dtypes: Mapping[str, torch.dtype]) -> str:
    """A scalar's type, with a type parameter replaced by its value."""
    name = type.removeprefix("work_")
    return STORAGE[dtypes[name]][1] if name != type and name in dtypes else type


def _parameter(text: str, kernel: str, types: Sequence[str]) -> Parameter:
    written = " ".join(text.split())
    found = re.match(r"(.*?)(\w+)\s*$", text, re.DOTALL)
    spaces = [word.lower() for pair in _SPACES.findall(text) for word in pair if word]
    if found is None or not found.group(1).strip() or "[" in text:
        raise ValueError(
            f"kernel {kernel}: the parameter {written!r} cannot be read: write a type and a name, not a macro"
        )
    declared, name = found.groups()
    stars = declared.count("*")
    plain = " ".join(_SPACES.sub(" ", _QUALIFIERS.sub(" ", declared.replace("*", " "))).split())
    plain = _ALIASES.get(plain, plain)
    if stars > 1 or "local" in spaces or ("constant" in spaces and stars):
        raise ValueError(
            f"kernel {kernel}: {written!r} is not a pointer to global memory; declare local memory within the kernel, "
            f"and constant memory as `__global const`"
        )
    if stars == 1:
        if "global" not in spaces:
            raise ValueError(f"kernel {kernel}: the pointer {written!r} lacks __global")
        if plain not in DTYPES and plain not in types and plain != "void":
            known = ", ".join([*types, *DTYPES, "void"])
            raise ValueError(f"kernel {kernel}: {written!r} does not point to an element type; these are {known}")
        return Parameter(name, "tensor", plain, re.search(r"\b(__)?const\b", declared.split("*")[0]) is None)
    works = [f"work_{type}" for type in types]
    if plain not in _INTEGERS and plain not in ("float", "double") and plain not in works:
        known = ", ".join([*works, *_INTEGERS, "float", "double"])
        raise ValueError(f"kernel {kernel}: {written!r} is neither a pointer nor a scalar; scalars are {known}")
    return Parameter(name, "size" if plain == "size_t" else "scalar", plain)


def _without_comments(source: str) -> str:
    """The source with comments and strings replaced by spaces."""
    pattern = r"//(?:\\\n|[^\n])*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\""
    return re.sub(pattern, lambda match: re.sub(r"[^\n]", " ", match.group()), source, flags=re.DOTALL)


def _closing(code: str, start: int) -> int:
    depth = 1
    for position in range(start, len(code)):
        depth += {"(": 1, ")": -1}.get(code[position], 0)
        if depth == 0:
            return position
    raise ValueError("the source has a parenthesis that is never closed")


def _literal(value: int | float | bool, is_double: bool) -> str:
    """A value in OpenCL C. It is a float unless the kernel uses doubles, so that floats are not computed in double."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return f"({value}{'' if -(2**31) < value < 2**31 else 'L'})"
    if not math.isfinite(value):
        return {"nan": "NAN", "inf": "INFINITY", "-inf": "(-INFINITY)"}[str(value)]
    if is_double:
        return f"({value!r})"
    if abs(value) > _LARGEST_FLOAT:
        raise ValueError(f"the constant {value} does not fit a float, and the kernel takes no doubles")
    return f"({value!r}f)"
