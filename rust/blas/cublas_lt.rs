//! cuBLASLt's objects: a matmul as it describes one.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

use cudarc::cublaslt::result as lt;
use cudarc::cublaslt::result::CublasError;
use cudarc::cublaslt::sys::{
    cublasComputeType_t as Compute, cublasLtEpilogue_t as LtEpilogue, cublasLtHandle_t, cublasLtMatmulAlgo_t,
    cublasLtMatmulDescAttributes_t as DescAttribute, cublasLtMatmulDesc_t,
    cublasLtMatmulPreferenceAttributes_t as PreferenceAttribute, cublasLtMatmulPreference_t,
    cublasLtMatrixLayoutAttribute_t as LayoutAttribute, cublasLtMatrixLayout_t, cublasLtReductionScheme_t,
    cublasStatus_t as Status, cudaDataType, cudaStream_t,
};

use crate::cl::cuda::Link;
use crate::error::{Error, Result};

pub fn failed(cause: impl Display) -> Error {
    Error::Invalid(format!("cuBLAS: {cause}"))
}

/// Maximum size of the workspace of a matmul; PyTorch gives as much on NVIDIA's newest GPUs.
const WORKSPACE: usize = 32 << 20;
/// A larger alignment of an operand makes no difference.
const ALIGNMENT: u64 = 256;
/// cuBLASLt reads a bias in vectors, and does not ask for its alignment.
pub const BIAS_ALIGNMENT: u64 = 16;

/// A column-major matrix, or a batch of them, in CUDA's memory.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    pub address: u64,
    pub data: cudaDataType,
    /// Rows of the stored matrix, which may be used transposed.
    pub rows: u64,
    pub columns: u64,
    pub leading: i64,
    pub batches: i32,
    pub batch_stride: i64,
}

/// `d = alpha * a @ b + beta * c + bias`, where `a` and `b` may be transposed.
pub struct Description {
    pub compute: Compute,
    pub scale: cudaDataType,
    pub a: Operand,
    pub b: Operand,
    /// `None` means `d`.
    pub c: Option<Operand>,
    pub d: Operand,
    /// True for `a`, and for `b`, if the matmul transposes it.
    pub transposed: [bool; 2],
    /// Address of a value for each row of `d`, a multiple of [`BIAS_ALIGNMENT`]; 0 without a bias.
    pub bias: u64,
}

/// The objects of a matmul, and how cuBLASLt computes it.
pub struct Plan {
    handle: cublasLtHandle_t,
    desc: Object<cublasLtMatmulDesc_t>,
    /// The layouts of `a`, `b` and `d`.
    layouts: [Object<cublasLtMatrixLayout_t>; 3],
    /// The layout of `c`; `None` if `c` is `d`.
    added: Option<Object<cublasLtMatrixLayout_t>>,
    /// The addresses of `a`, `b`, `c` and `d`.
    addresses: [u64; 4],
    algo: cublasLtMatmulAlgo_t,
    /// Bytes of workspace that it needs.
    pub workspace: usize,
}

impl Plan {
    /// `None` if cuBLASLt does not support the matmul.
    ///
    /// # Errors
    /// Errors of cuBLASLt.
    pub fn new(link: &Link, device: i32, matmul: &Description, may_take_memory: bool) -> Result<Option<Self>> {
        // cuBLASLt reads properties of the current context's device.
        let _bound = link.bind()?;
        let handle = handle(device)?;
        let desc = Object::desc(matmul.compute, matmul.scale)?;
        // CUBLAS_OP_T is 1, and CUBLAS_OP_N is 0.
        let [first, second] = matmul.transposed.map(i32::from);
        desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSA, first)?;
        desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_TRANSB, second)?;
        if matmul.bias != 0 {
            desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_EPILOGUE, LtEpilogue::CUBLASLT_EPILOGUE_BIAS)?;
            desc.set(DescAttribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, matmul.bias)?;
        }
        let layouts = [Object::layout(&matmul.a)?, Object::layout(&matmul.b)?, Object::layout(&matmul.d)?];
        let added = matmul.c.as_ref().map(Object::layout).transpose()?;
        let preference = Object::preference()?;
        let most = if may_take_memory { WORKSPACE as u64 } else { 0 };
        preference.set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most)?;
        // Sums of halves that are split stay float32.
        let scheme = cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        preference.set(PreferenceAttribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, scheme as u32)?;
        let alignments = [
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            PreferenceAttribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ];
        let addresses = [&matmul.a, &matmul.b, matmul.c.as_ref().unwrap_or(&matmul.d), &matmul.d];
        let addresses = addresses.map(|operand| operand.address);
        for (attribute, address) in alignments.into_iter().zip(addresses) {
            // The largest power of two that divides the address.
            preference.set(attribute, 1_u32 << (address | ALIGNMENT).trailing_zeros())?;
        }
        let [a, b, d] = &layouts;
        let c = added.as_ref().unwrap_or(d);
        // SAFETY: the objects are live.
        let found = unsafe { lt::get_matmul_algo_heuristic(handle, desc.0, a.0, b.0, c.0, d.0, preference.0) };
        let Some(found) = supported(found)? else { return Ok(None) };
        Ok(Some(Self { handle, desc, layouts, added, addresses, algo: found.algo, workspace: found.workspaceSize }))
    }

    /// Enqueues the matmul on a stream. `factors` are `alpha` and `beta`, in the scale's dtype. Returns false, and
    /// enqueues nothing, if cuBLASLt does not support the matmul although it named an algorithm.
    ///
    /// # Errors
    /// Errors of cuBLASLt.
    ///
    /// # Safety
    /// The operands, and the workspace of as many bytes as the plan needs, are memory of the stream's device until the
    /// matmul has run.
    pub unsafe fn enqueue(&self, factors: [*const c_void; 2], workspace: u64, stream: cudaStream_t) -> Result<bool> {
        let [alpha, beta] = factors;
        let [a, b, d] = &self.layouts;
        let c = self.added.as_ref().unwrap_or(d);
        let [first, second, added, out] = self.addresses;
        // SAFETY: the objects are live; the caller answers for the memory.
        let done = unsafe {
            lt::matmul(
                self.handle,
                self.desc.0,
                alpha,
                beta,
                first as *const c_void,
                a.0,
                second as *const c_void,
                b.0,
                added as *const c_void,
                c.0,
                out as *mut c_void,
                d.0,
                &raw const self.algo,
                workspace as *mut c_void,
                self.workspace,
                stream,
            )
        };
        supported(done).map(|done| done.is_some())
    }
}

/// `None` instead of the errors for a matmul that cuBLASLt does not support.
fn supported<T>(result: std::result::Result<T, CublasError>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(CublasError(Status::CUBLAS_STATUS_NOT_SUPPORTED | Status::CUBLAS_STATUS_INVALID_VALUE)) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

/// cuBLASLt's handle of a device, whose context is current; created on first use, kept as long as the process lives.
fn handle(device: i32) -> Result<cublasLtHandle_t> {
    struct Handle(cublasLtHandle_t);
    // SAFETY: cuBLASLt's functions may be called with one handle from several threads.
    unsafe impl Send for Handle {}
    static HANDLES: Mutex<BTreeMap<i32, Handle>> = Mutex::new(BTreeMap::new());

    let mut handles = HANDLES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(handle) = handles.get(&device) {
        return Ok(handle.0);
    }
    let handle = lt::create_handle().map_err(failed)?;
    handles.insert(device, Handle(handle));
    Ok(handle)
}

/// An object of cuBLASLt, which dropping destroys.
struct Object<T: Kind>(T);

trait Kind: Copy {
    type Attribute;

    /// # Safety
    /// The object is live, and the value is one of the attribute's type.
    unsafe fn set(self, attribute: Self::Attribute, value: *const c_void, size: usize) -> Result<()>;

    /// # Safety
    /// The object is live, and not used afterwards.
    unsafe fn destroy(self);
}

macro_rules! kind {
    ($object:ty, $attribute:ty, $set:path, $destroy:path) => {
        impl Kind for $object {
            type Attribute = $attribute;

            unsafe fn set(self, attribute: $attribute, value: *const c_void, size: usize) -> Result<()> {
                // SAFETY: as the caller guarantees.
                unsafe { $set(self, attribute, value, size) }.map_err(failed)
            }

            unsafe fn destroy(self) {
                // SAFETY: as the caller guarantees. A failure leaks the object.
                let _ignored = unsafe { $destroy(self) };
            }
        }
    };
}

kind!(cublasLtMatmulDesc_t, DescAttribute, lt::set_matmul_desc_attribute, lt::destroy_matmul_desc);
kind!(cublasLtMatrixLayout_t, LayoutAttribute, lt::set_matrix_layout_attribute, lt::destroy_matrix_layout);
kind!(cublasLtMatmulPreference_t, PreferenceAttribute, lt::set_matmul_pref_attribute, lt::destroy_matmul_pref);

impl<T: Kind> Object<T> {
    fn set<V>(&self, attribute: T::Attribute, value: V) -> Result<()> {
        // SAFETY: the object is live; callers pass values of the attribute's type.
        unsafe { self.0.set(attribute, (&raw const value).cast(), size_of::<V>()) }
    }
}

impl<T: Kind> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: the object is live.
        unsafe { self.0.destroy() };
    }
}

impl Object<cublasLtMatmulDesc_t> {
    fn desc(compute: Compute, scale: cudaDataType) -> Result<Self> {
        lt::create_matmul_desc(compute, scale).map(Self).map_err(failed)
    }
}

impl Object<cublasLtMatmulPreference_t> {
    fn preference() -> Result<Self> {
        lt::create_matmul_pref().map(Self).map_err(failed)
    }
}

impl Object<cublasLtMatrixLayout_t> {
    fn layout(operand: &Operand) -> Result<Self> {
        let Operand { data, rows, columns, leading, batches, batch_stride, .. } = *operand;
        let layout = lt::create_matrix_layout(data, rows, columns, leading).map(Self).map_err(failed)?;
        layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, batches)?;
        layout.set(LayoutAttribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride)?;
        Ok(layout)
    }
}
