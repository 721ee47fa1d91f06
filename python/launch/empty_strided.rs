//! `empty_strided(size, stride, dtype, device)` for Python: a tensor of our device, without the dispatcher.
//!
//! An allocation through the dispatcher costs the host 1.6 us, most of it for parsing generic arguments.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3_ffi::*;

use super::{check, integer, raise, Raised};

/// Maximum number of dimensions that are allocated here; tensors with more go through the dispatcher.
const MOST_DIMS: usize = 16;

/// The type of the function in cpp/runtime/python_tensor.cpp: device, dtype, sizes, strides, and their number.
type NewTensor = unsafe extern "C" fn(c_int, c_int, *const i64, *const i64, usize) -> *mut PyObject;

/// The address of the library's function; 0 until it is bound.
static NEW_TENSOR: AtomicUsize = AtomicUsize::new(0);
/// The Python function to call with the same arguments if the library's function cannot allocate.
static OTHERWISE: AtomicPtr<PyObject> = AtomicPtr::new(null_mut());

pub(super) const METHOD: PyMethodDef = PyMethodDef {
    ml_name: c"empty_strided".as_ptr(),
    ml_meth: PyMethodDefPointer { PyCFunctionFast: entry },
    ml_flags: METH_FASTCALL,
    ml_doc: c"empty_strided(size, stride, dtype, device): a tensor; the dtype is its code in C++.".as_ptr(),
};

pub(super) const BIND: PyMethodDef = PyMethodDef {
    ml_name: c"bind_empty_strided".as_ptr(),
    ml_meth: PyMethodDefPointer { PyCFunctionFast: bind },
    ml_flags: METH_FASTCALL,
    ml_doc: c"bind_empty_strided(address, otherwise): set the functions that allocate.".as_ptr(),
};

/// Copies the integers of a tuple, and returns their number; `None` if they do not fit.
fn numbers(tuple: *mut PyObject, into: &mut [i64; MOST_DIMS]) -> Result<Option<usize>, Raised> {
    // SAFETY: an object that the caller keeps; another type than a tuple is an error that is set.
    let count = check(unsafe { PyTuple_Size(tuple) })? as usize;
    let Some(slots) = into.get_mut(..count) else { return Ok(None) };
    for (index, slot) in slots.iter_mut().enumerate() {
        // SAFETY: the index is below the size; the tuple keeps its items.
        *slot = integer(unsafe { PyTuple_GetItem(tuple, index as Py_ssize_t) })?;
    }
    Ok(Some(count))
}

/// A new reference, or null if the Python function has to allocate.
fn new_tensor(args: &[*mut PyObject]) -> Result<*mut PyObject, Raised> {
    let [size, stride, dtype, device] = args else {
        // SAFETY: kinds of exceptions are static.
        return Err(raise(unsafe { PyExc_TypeError }, "empty_strided() takes a size, a stride, a dtype and a device"));
    };
    let address = NEW_TENSOR.load(Ordering::Relaxed);
    let (mut sizes, mut strides) = ([0; MOST_DIMS], [0; MOST_DIMS]);
    let counts = (numbers(*size, &mut sizes)?, numbers(*stride, &mut strides)?);
    let (Some(count), true) = (counts.0, counts.0 == counts.1 && address != 0) else { return Ok(null_mut()) };
    let (dtype, device) = (integer(*dtype)? as c_int, integer(*device)? as c_int);
    // SAFETY: `bind` was given the address of a function of this type.
    let function = unsafe { std::mem::transmute::<usize, NewTensor>(address) };
    // A signal handler may have raised while the call waited for memory.
    // SAFETY: the arrays have at least `count` elements.
    check(unsafe { function(device, dtype, sizes.as_ptr(), strides.as_ptr(), count) })
}

unsafe extern "C" fn entry(_: *mut PyObject, args: *mut *mut PyObject, count: Py_ssize_t) -> *mut PyObject {
    // SAFETY: as the caller promises.
    let given = unsafe { super::arguments(args, count) };
    let Ok(made) = new_tensor(given) else { return null_mut() };
    if !made.is_null() {
        return made;
    }
    let [size, stride, dtype, device] = given else { return null_mut() };
    // SAFETY: the GIL is held; the arguments are the caller's; the list ends with a null.
    unsafe {
        PyErr_Clear();
        let otherwise = OTHERWISE.load(Ordering::Relaxed);
        if otherwise.is_null() {
            let Raised = raise(PyExc_RuntimeError, "bind_empty_strided() has not been called");
            return null_mut();
        }
        PyObject_CallFunctionObjArgs(otherwise, *size, *stride, *dtype, *device, null_mut::<PyObject>())
    }
}

unsafe extern "C" fn bind(_: *mut PyObject, args: *mut *mut PyObject, count: Py_ssize_t) -> *mut PyObject {
    // SAFETY: as the caller promises.
    let [address, otherwise] = (unsafe { super::arguments(args, count) }) else {
        // SAFETY: kinds of exceptions are static.
        let Raised = raise(unsafe { PyExc_TypeError }, "bind_empty_strided() takes an address and a function");
        return null_mut();
    };
    let Ok(address) = integer(*address) else { return null_mut() };
    NEW_TENSOR.store(address as usize, Ordering::Relaxed);
    // SAFETY: the function is kept from now on, for as long as the process lives.
    unsafe {
        Py_IncRef(*otherwise);
        OTHERWISE.store(*otherwise, Ordering::Relaxed);
        Py_NewRef(Py_None())
    }
}
