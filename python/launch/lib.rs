//! `launch(kernel, global_size, local_size, is_short, *args)` for Python.
//!
//! A launch through `torch.ops` costs the host about 4 us: its arguments become a stack of values for the dispatcher.
//! This extension takes them as Python passes them, and calls the library's function, whose address is passed to
//! [`bind`]. `empty_strided` allocates in the same way.

mod empty_strided;

use std::ffi::{c_char, c_int};
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3_ffi::*;

/// Maximum numbers of tensors and of scalars of a launch: the library raises an error if there are more.
const MOST_BUFFERS: usize = 60;
const MOST_VALUES: usize = 64;
/// Status of a launch during which a signal handler raised: its exception is set.
const INTERRUPTED: c_int = 3;
/// Bytes of an error's message.
const MESSAGE: usize = 4096;

/// The type of the function in rust/ops/generated/mod.rs.
type Launch =
    unsafe extern "C" fn(i64, usize, usize, c_int, *const usize, usize, *const u64, usize, *mut u8, usize) -> c_int;

/// The address of the library's function; 0 until [`bind`] is called.
static LAUNCH: AtomicUsize = AtomicUsize::new(0);
/// The name `data_ptr`.
static DATA_PTR: AtomicPtr<PyObject> = AtomicPtr::new(null_mut());

/// An exception is set.
struct Raised;

fn raise(kind: *mut PyObject, text: &str) -> Raised {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    // SAFETY: the message ends with a zero; Python copies it.
    unsafe { PyErr_SetString(kind, bytes.as_ptr().cast::<c_char>()) };
    Raised
}

/// Returns an error if an exception is set.
fn check<T>(value: T) -> Result<T, Raised> {
    // SAFETY: called with the interpreter's lock held, like all functions here.
    if unsafe { PyErr_Occurred() }.is_null() {
        Ok(value)
    } else {
        Err(Raised)
    }
}

fn integer(object: *mut PyObject) -> Result<i64, Raised> {
    // SAFETY: an object that the caller keeps.
    check(unsafe { PyLong_AsLongLong(object) })
}

/// The arguments of a kernel, sorted.
struct Arguments {
    addresses: [usize; MOST_BUFFERS],
    buffers: usize,
    values: [u64; MOST_VALUES],
    scalars: usize,
}

impl Arguments {
    fn push(&mut self, object: *mut PyObject) -> Result<(), Raised> {
        // SAFETY: an object that the caller keeps.
        let (is_int, is_float) = unsafe { (PyLong_Check(object) != 0, PyFloat_Check(object) != 0) };
        // SAFETY: kinds of exceptions are static.
        let too_many = || raise(unsafe { PyExc_ValueError }, "a generated kernel has more arguments than devices take");
        if is_int || is_float {
            let slot = self.values.get_mut(self.scalars).ok_or_else(too_many)?;
            *slot = if is_int {
                integer(object)? as u64
            } else {
                // SAFETY: as above.
                check(unsafe { PyFloat_AsDouble(object) })?.to_bits()
            };
            self.scalars += 1;
            return Ok(());
        }
        let slot = self.addresses.get_mut(self.buffers).ok_or_else(too_many)?;
        // SAFETY: the name was made together with the module; the list of arguments ends with a null.
        let address =
            unsafe { PyObject_CallMethodObjArgs(object, DATA_PTR.load(Ordering::Relaxed), null_mut::<PyObject>()) };
        let address = NonNull::new(address).ok_or(Raised)?.as_ptr();
        // SAFETY: an integer that is ours to release.
        let value = check(unsafe { PyLong_AsUnsignedLongLong(address) });
        // SAFETY: as above.
        unsafe { Py_DecRef(address) };
        *slot = value? as usize;
        self.buffers += 1;
        Ok(())
    }
}

fn launch(args: &[*mut PyObject]) -> Result<(), Raised> {
    // SAFETY: kinds of exceptions are static.
    let (type_error, runtime_error, index_error) = unsafe { (PyExc_TypeError, PyExc_RuntimeError, PyExc_IndexError) };
    let [kernel, global, local, is_short, rest @ ..] = args else {
        return Err(raise(type_error, "launch() takes a kernel, two sizes, a flag, tensors and numbers"));
    };
    let mut arguments = Arguments { addresses: [0; MOST_BUFFERS], buffers: 0, values: [0; MOST_VALUES], scalars: 0 };
    for object in rest {
        arguments.push(*object)?;
    }
    let address = LAUNCH.load(Ordering::Relaxed);
    if address == 0 {
        return Err(raise(runtime_error, "bind() has not been called"));
    }
    // SAFETY: `bind` was given the address of a function of this type.
    let function = unsafe { std::mem::transmute::<usize, Launch>(address) };
    let (global, local) = (integer(*global)?, integer(*local)?);
    let (kernel, is_short) = (integer(*kernel)?, integer(*is_short)?);
    let mut message = [0_u8; MESSAGE];
    // SAFETY: the arrays live during the call, and have at least as many elements as the lengths say.
    let status = unsafe {
        function(
            kernel,
            global.max(0) as usize,
            local.max(0) as usize,
            c_int::from(is_short != 0),
            arguments.addresses.as_ptr(),
            arguments.buffers,
            arguments.values.as_ptr(),
            arguments.scalars,
            message.as_mut_ptr(),
            message.len(),
        )
    };
    if status == 0 {
        return Ok(());
    }
    if status == INTERRUPTED {
        check(())?;
    }
    let text = message.split(|byte| *byte == 0).next().unwrap_or_default();
    Err(raise(if status == 2 { index_error } else { runtime_error }, &String::from_utf8_lossy(text)))
}

/// The arguments of a call.
///
/// # Safety
/// `args` must have `count` arguments that live during the call, and the slice must not be used after it.
unsafe fn arguments<'a>(args: *mut *mut PyObject, count: Py_ssize_t) -> &'a [*mut PyObject] {
    if count == 0 {
        &[]
    } else {
        // SAFETY: as the caller guarantees.
        unsafe { std::slice::from_raw_parts(args.cast_const(), count as usize) }
    }
}

unsafe extern "C" fn launch_entry(_: *mut PyObject, args: *mut *mut PyObject, count: Py_ssize_t) -> *mut PyObject {
    // SAFETY: as Python calls it.
    match launch(unsafe { arguments(args, count) }) {
        // SAFETY: None, with a reference for the caller.
        Ok(()) => unsafe { Py_NewRef(Py_None()) },
        Err(Raised) => null_mut(),
    }
}

unsafe extern "C" fn bind(_: *mut PyObject, address: *mut PyObject) -> *mut PyObject {
    match integer(address) {
        Ok(address) => {
            LAUNCH.store(address as usize, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { Py_NewRef(Py_None()) }
        }
        Err(Raised) => null_mut(),
    }
}

/// Static tables that Python only reads.
struct Table<T>(std::cell::UnsafeCell<T>);
// SAFETY: Python changes them only under its lock.
unsafe impl<T> Sync for Table<T> {}

static METHODS: Table<[PyMethodDef; 5]> = Table(std::cell::UnsafeCell::new([
    PyMethodDef {
        ml_name: c"launch".as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunctionFast: launch_entry },
        ml_flags: METH_FASTCALL,
        ml_doc: c"launch(kernel, global_size, local_size, is_short, *args): enqueue a kernel.".as_ptr(),
    },
    PyMethodDef {
        ml_name: c"bind".as_ptr(),
        ml_meth: PyMethodDefPointer { PyCFunction: bind },
        ml_flags: METH_O,
        ml_doc: c"bind(address): set the address of the library's function.".as_ptr(),
    },
    empty_strided::METHOD,
    empty_strided::BIND,
    PyMethodDef::zeroed(),
]));

static MODULE: Table<PyModuleDef> = Table(std::cell::UnsafeCell::new(PyModuleDef {
    m_base: PyModuleDef_HEAD_INIT,
    m_name: c"_launch".as_ptr(),
    m_doc: c"Launches of generated kernels.".as_ptr(),
    m_size: -1,
    m_methods: METHODS.0.get().cast(),
    m_slots: null_mut(),
    m_traverse: None,
    m_clear: None,
    m_free: None,
}));

/// Makes the module.
///
/// # Safety
/// Called by Python, when the module is imported.
#[no_mangle]
pub unsafe extern "C" fn PyInit__launch() -> *mut PyObject {
    // SAFETY: the name ends with a zero.
    let name = unsafe { PyUnicode_InternFromString(c"data_ptr".as_ptr()) };
    DATA_PTR.store(name, Ordering::Relaxed);
    // SAFETY: the definition lives for the process.
    unsafe { PyModule_Create2(MODULE.0.get(), PYTHON_API_VERSION) }
}
