"""The OpenCL calls that are needed to measure a device, through ctypes and without code of the backend.

Only a loader (``libOpenCL.so.1``) has to be installed.
"""

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p

LOADER = "libOpenCL.so.1"
READ_WRITE, COPY_HOST_PTR = 1 << 0, 1 << 5
DEVICE_TYPE_ALL = 0xFFFFFFFF
NOT_FOUND = (-1, -1001)  # CL_DEVICE_NOT_FOUND, and the loaders' CL_PLATFORM_NOT_FOUND_KHR
PLATFORM_VERSION, PLATFORM_NAME = 0x0901, 0x0902
BUILD_LOG = 0x1183
TYPES = {1 << 1: "cpu", 1 << 2: "gpu", 1 << 3: "accelerator"}
TEXTS = {"name": 0x102B, "vendor": 0x102C, "driver_version": 0x102D, "version": 0x102F, "c_version": 0x103D}
NUMBERS = {
    "vendor_id": (0x1001, c_uint32),
    "compute_units": (0x1002, c_uint32),
    "max_work_group_size": (0x1004, c_size_t),
    "preferred_vector_width_float": (0x100A, c_uint32),
    "max_clock_mhz": (0x100C, c_uint32),
    "address_bits": (0x100D, c_uint32),
    "max_alloc_bytes": (0x1010, c_uint64),
    "base_address_align_bits": (0x1019, c_uint32),
    "cache_line_bytes": (0x101D, c_uint32),
    "cache_bytes": (0x101E, c_uint64),
    "global_mem_bytes": (0x101F, c_uint64),
    "max_constant_bytes": (0x1020, c_uint64),
    "local_mem_bytes": (0x1023, c_uint64),
    "timer_resolution_ns": (0x1025, c_size_t),
    "host_unified_memory": (0x1035, c_uint32),
}
TYPE, EXTENSIONS, PLATFORM = 0x1000, 0x1030, 0x1031
# A kernel's argument: the handle of a buffer, or a C scalar.
Argument = ctypes._SimpleCData


class OpenCLError(RuntimeError):
    """An OpenCL call has failed, or there is no OpenCL."""


def _check(code: int, name: str, accepted: Sequence[int] = ()) -> int:
    if code and code not in accepted:
        raise OpenCLError(f"{name}: error {code}")
    return code


class Loader:
    """The OpenCL loader.

    Raises:
        OpenCLError: there is none.
    """

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LOADER)
        except OSError as error:
            raise OpenCLError(str(error)) from error

    def call(self, name: str, *arguments: object, accepted: Sequence[int] = ()) -> int:
        """Call a function that returns an error code; raise OpenCLError for codes that are not accepted."""
        return _check(getattr(self._library, name)(*arguments), name, accepted)

    def create(self, name: str, *arguments: object) -> c_void_p:
        """Call a function that returns an object, and an error code through its last argument."""
        function, code = getattr(self._library, name), c_int32()
        function.restype = c_void_p
        made = function(*arguments, byref(code))
        _check(code.value, name)
        return c_void_p(made)

    def text(self, name: str, *which: object) -> str:
        """Get a string from a clGet...Info function."""
        size = c_size_t()
        self.call(name, *which, c_size_t(0), None, byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call(name, *which, size, text, None)
        return text.value.decode(errors="replace").strip()

    def handles(self, name: str, *which: object) -> list[c_void_p]:
        """Get all handles from clGetPlatformIDs or clGetDeviceIDs."""
        count = c_uint32()
        if self.call(name, *which, c_uint32(0), None, byref(count), accepted=NOT_FOUND):
            return []
        found = (c_void_p * count.value)()
        self.call(name, *which, count, found, None)
        return [c_void_p(handle) for handle in found]

    def platforms(self) -> list[tuple[str, str, list["Device"]]]:
        """Return the name, the version and the devices of each platform."""
        found = []
        for platform in self.handles("clGetPlatformIDs"):
            name, version = (
                self.text("clGetPlatformInfo", platform, c_uint32(what)) for what in (PLATFORM_NAME, PLATFORM_VERSION)
            )
            devices = self.handles("clGetDeviceIDs", platform, c_uint64(DEVICE_TYPE_ALL))
            found.append((name, version, [Device(self, handle) for handle in devices]))
        return found


class Device:
    """A device.

    Args:
        loader: the loader.
        handle: its ``cl_device_id``.
    """

    def __init__(self, loader: Loader, handle: c_void_p) -> None:
        self.loader, self.handle = loader, handle

    def text(self, what: int) -> str:
        """Return a property that is a string."""
        return self.loader.text("clGetDeviceInfo", self.handle, c_uint32(what))

    def number(self, what: int, kind: Callable[[], Argument]) -> int:
        """Return a property that is a number."""
        value = kind()
        self.loader.call(
            "clGetDeviceInfo", self.handle, c_uint32(what), c_size_t(ctypes.sizeof(value)), byref(value), None
        )
        return value.value

    @property
    def name(self) -> str:
        """The device's name."""
        return self.text(TEXTS["name"])

    def properties(self) -> dict[str, object]:
        """Return the device's properties as plain values; the error for a property that the driver does not report."""
        found: dict[str, object] = {"type": TYPES.get(self.number(TYPE, c_uint64) & 0b1110, "custom")}
        for name, what in TEXTS.items():
            found[name] = self.text(what)
        for name, (what, kind) in NUMBERS.items():
            try:
                found[name] = self.number(what, kind)
            except OpenCLError as error:
                found[name] = str(error)
        found["extensions"] = self.text(EXTENSIONS).split()
        return found


class Queue:
    """A context with one queue on a device, its buffers and programs, which live as long as the process.

    Args:
        device: the device.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._loader = device, device.loader
        handles = (c_void_p * 1)(device.handle)
        self._context = self._loader.create("clCreateContext", None, c_uint32(1), handles, None, None)
        self._queue = self._loader.create("clCreateCommandQueue", self._context, device.handle, c_uint64(0))

    def build(self, source: str, options: str = "") -> c_void_p:
        """Compile a program; raise OpenCLError with the compiler's log if it fails."""
        text = c_char_p(source.encode())
        program = self._loader.create("clCreateProgramWithSource", self._context, c_uint32(1), byref(text), None)
        handles = (c_void_p * 1)(self._device.handle)
        try:
            self._loader.call("clBuildProgram", program, c_uint32(1), handles, options.encode(), None, None)
        except OpenCLError as error:
            log = self._loader.text("clGetProgramBuildInfo", program, self._device.handle, c_uint32(BUILD_LOG))
            raise OpenCLError(f"{error}\n{log}") from error
        return program

    def kernel(self, program: c_void_p, name: str) -> c_void_p:
        """Return a kernel of a program."""
        return self._loader.create("clCreateKernel", program, name.encode())

    def buffer(self, size: int, contents: int | None = None) -> c_void_p:
        """Make a buffer.

        Args:
            size: its bytes.
            contents: the host address of the bytes to copy into it.
        """
        flags = READ_WRITE | (COPY_HOST_PTR if contents else 0)
        return self._loader.create("clCreateBuffer", self._context, c_uint64(flags), c_size_t(size), c_void_p(contents))

    def release(self, buffer: c_void_p) -> None:
        """Release a buffer."""
        self._loader.call("clReleaseMemObject", buffer)

    def set_arguments(self, kernel: c_void_p, arguments: Sequence[Argument]) -> None:
        """Set a kernel's arguments: buffers and ctypes scalars."""
        for index, value in enumerate(arguments):
            size = c_size_t(ctypes.sizeof(value))
            self._loader.call("clSetKernelArg", kernel, c_uint32(index), size, byref(value))

    def launch(self, kernel: c_void_p, items: int, group: int) -> None:
        """Enqueue a kernel with a number of work-items, in groups of a size."""
        sizes = POINTER(c_size_t)(c_size_t(items)), POINTER(c_size_t)(c_size_t(group))
        self._loader.call(
            "clEnqueueNDRangeKernel", self._queue, kernel, c_uint32(1), None, *sizes, c_uint32(0), None, None
        )

    def finish(self) -> None:
        """Wait for everything that is enqueued."""
        self._loader.call("clFinish", self._queue)
