//! Launchers compared with PyTorch on the host, called through `tch`: tests the kernels and the other libraries without
//! C++ and Python. Needs an OpenCL device.

use std::cell::Cell;
use std::error::Error;
use std::sync::{Mutex, Once, PoisonError};

use tch::{Device, Kind, Tensor as HostTensor};
use torch_opencl::blas::{Library, Matmul};
use torch_opencl::kernels::{leave_driver_cache, stop_building, DType};
use torch_opencl::ops::reduce::{reduce, ReduceOp};
use torch_opencl::ops::Operand;
use torch_opencl::ops::{softmax, Scalar, Tensor};
use torch_opencl::runtime::{copy_device_to_host, copy_host_to_device, device};

type Outcome = Result<(), Box<dyn Error>>;

const FLOATS: [(Kind, DType); 4] =
    [(Kind::Float, DType::F32), (Kind::Double, DType::F64), (Kind::BFloat16, DType::BF16), (Kind::Half, DType::F16)];

/// The dtypes in which the device computes.
fn floats() -> Result<impl Iterator<Item = (Kind, DType)>, Box<dyn Error>> {
    let device = device(0)?;
    Ok(FLOATS.into_iter().filter(move |(_, dtype)| dtype.class().check(&device.info).is_ok()))
}

/// Makes the process exit as Python's do: a process that ends while it loads a kernel would be mistaken for one that
/// crashed on a damaged driver cache, and the next process would set that cache aside.
fn finish_at_exit() {
    extern "C" fn finish() {
        stop_building();
        leave_driver_cache();
    }
    static INSTALL: Once = Once::new();
    // SAFETY: the function does not unwind.
    INSTALL.call_once(|| unsafe { assert_eq!(libc::atexit(finish), 0) });
}

/// A copy of a host tensor on device 0, with the same strides.
struct Copied {
    address: usize,
    dtype: DType,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    like: HostTensor,
}

impl Copied {
    fn new(tensor: &HostTensor, dtype: DType) -> Result<Self, Box<dyn Error>> {
        let mut copied =
            Self { address: 0, dtype, sizes: tensor.size(), strides: tensor.stride(), like: tensor.shallow_clone() };
        let size = copied.tensor().span();
        copied.address = device(0)?.state()?.allocate(size, 0)?;
        finish_at_exit();
        // SAFETY: the tensor holds `size` bytes from its first element to its last.
        unsafe { copy_host_to_device(copied.address, tensor.data_ptr().cast(), size, false)? };
        Ok(copied)
    }

    fn tensor(&self) -> Tensor<'_> {
        Tensor { address: self.address, dtype: self.dtype, sizes: &self.sizes, strides: &self.strides }
    }

    /// The current values on the device.
    fn read(&self) -> Result<HostTensor, Box<dyn Error>> {
        let back = HostTensor::empty_strided(&self.sizes, &self.strides, (self.like.kind(), Device::Cpu));
        // SAFETY: the fresh tensor has the strides, and so the bytes, of the copy.
        unsafe { copy_device_to_host(back.data_ptr().cast(), self.address, self.tensor().span(), false)? };
        Ok(back)
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let freed = device(0).and_then(|device| device.state()?.free(self.address));
        assert!(freed.is_ok() || std::thread::panicking());
    }
}

/// Values of a normal distribution, the same in each run: the nth tensor of a test uses n as its seed.
fn random(sizes: &[i64], kind: Kind) -> HostTensor {
    // PyTorch has one generator for all threads, and each test has a separate thread.
    static GENERATOR: Mutex<()> = Mutex::new(());
    thread_local!(static SEED: Cell<i64> = const { Cell::new(0) });
    let _guard = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    tch::manual_seed(SEED.replace(SEED.get() + 1));
    HostTensor::randn(sizes, (Kind::Float, Device::Cpu)).to_kind(kind)
}

/// Compares with the result in f64, within a few units in the last place of its largest value.
fn assert_close(result: &HostTensor, expected: &HostTensor, what: &str) {
    assert_close_to(result, expected, expected.abs().max().double_value(&[]), what);
}

/// Compares within a few units in the last place of a value of size `largest`.
fn assert_close_to(result: &HostTensor, expected: &HostTensor, largest: f64, what: &str) {
    let unit = match result.kind() {
        Kind::Double => 1e-13,
        Kind::Float => 1e-6,
        Kind::Half => 2e-3,
        _ => 1.6e-2,
    };
    let largest = largest.max(1.0);
    let difference = (result.to_kind(Kind::Double) - expected).abs().max().double_value(&[]);
    assert!(difference <= 4.0 * unit * largest, "{what}: difference {difference}, the largest value is {largest}");
}

fn number(real: f64) -> Scalar {
    Scalar { real, imag: 0.0, integer: real as i64 }
}

/// Computes a matmul with every library of this machine, and compares.
fn check_matmul(a: &HostTensor, b: &HostTensor, bias: Option<&HostTensor>, dtype: DType) -> Outcome {
    let double = |tensor: &HostTensor| tensor.to_kind(Kind::Double);
    let (alpha, beta) = if bias.is_some() { (0.5, -2.0) } else { (1.0, 0.0) };
    let mut expected = double(a).matmul(&double(b)) * alpha;
    if let Some(bias) = bias {
        expected += double(bias) * beta;
    }
    let (left, right) = (Copied::new(a, dtype)?, Copied::new(b, dtype)?);
    let bias = bias.map(|bias| Copied::new(bias, dtype)).transpose()?;
    for library in Library::ALL {
        if library.obstacle(device(0)?).is_some() {
            continue;
        }
        let out = Copied::new(&HostTensor::full(expected.size(), f64::NAN, (a.kind(), Device::Cpu)), dtype)?;
        let matmul = Matmul {
            out: out.tensor(),
            a: left.tensor(),
            b: right.tensor(),
            bias: bias.as_ref().map(Copied::tensor),
            alpha: number(alpha),
            beta: number(beta),
        };
        if library.serves(&matmul) {
            library.run(&matmul)?;
            let what = format!("{} of {:?}{:?} @ {:?}{:?}", library.name(), dtype, a.size(), b.size(), b.stride());
            assert_close(&out.read()?, &expected, &what);
        }
    }
    Ok(())
}

#[test]
fn matmuls_of_matrices() -> Outcome {
    for (kind, dtype) in floats()? {
        for [rows, k, columns] in [[1, 1, 1], [3, 5, 7], [64, 300, 33], [130, 70, 257], [1, 900, 40]] {
            let (a, b) = (random(&[rows, k], kind), random(&[k, columns], kind));
            check_matmul(&a, &b, None, dtype)?;
            check_matmul(&a, &b, Some(&random(&[rows, columns], kind)), dtype)?;
            let bias = random(&[columns], kind).expand([rows, columns], false);
            check_matmul(&a, &b, Some(&bias), dtype)?;
        }
    }
    Ok(())
}

#[test]
fn matmuls_of_transposed_and_strided_matrices() -> Outcome {
    for (kind, dtype) in floats()? {
        let (a, b, wide) = (random(&[60, 50], kind), random(&[70, 60], kind), random(&[50, 140], kind));
        check_matmul(&a.tr(), &b.tr(), None, dtype)?;
        check_matmul(&b, &a, Some(&random(&[50, 70], kind).tr()), dtype)?;
        check_matmul(&a, &wide.slice(1, 10, 80, 1), None, dtype)?;
        check_matmul(&a, &wide.slice(1, 0, 140, 2), None, dtype)?;
        check_matmul(&a.slice(0, 0, 60, 3), &wide.slice(1, 0, 140, 2), None, dtype)?;
    }
    Ok(())
}

#[test]
fn matmuls_of_batches() -> Outcome {
    for (kind, dtype) in floats()? {
        let (a, b) = (random(&[3, 20, 30], kind), random(&[3, 30, 40], kind));
        check_matmul(&a, &b, None, dtype)?;
        check_matmul(&a, &b, Some(&random(&[3, 20, 40], kind)), dtype)?;
        check_matmul(&b.transpose(1, 2), &a.transpose(1, 2), None, dtype)?;
        check_matmul(&a.transpose(0, 1).contiguous().transpose(0, 1), &b, None, dtype)?;
        check_matmul(&a.slice(0, 0, 1, 1).expand([3, 20, 30], false), &b, None, dtype)?;
    }
    Ok(())
}

#[test]
fn sums_over_rows_columns_and_all() -> Outcome {
    for (kind, dtype) in floats()? {
        let input = random(&[37, 1300], kind);
        let there = Copied::new(&input, dtype)?;
        let size = dtype.size() as i64;
        for (dims, strides) in [([1].as_slice(), [0, size]), (&[0], [size, 0]), (&[0, 1], [0, 0])] {
            let expected = input.to_kind(Kind::Double).sum_dim_intlist(dims, false, Kind::Double);
            let out = Copied::new(&expected.to_kind(kind), dtype)?;
            let operand = |address, strides| Operand { address, dtype, strides, value: number(0.0) };
            // Innermost dimension first, strides in bytes.
            let source = [size, 1300 * size];
            reduce(ReduceOp::Sum, 0.0, &[1300, 37], &operand(out.address, &strides), &operand(there.address, &source))?;
            // Partial sums of values around zero are larger than their sum: about as large as the norm of the values.
            let squares = input.to_kind(Kind::Double).square().sum_dim_intlist(dims, false, Kind::Double);
            let largest = expected.abs().maximum(&squares.sqrt()).max().double_value(&[]);
            assert_close_to(&out.read()?, &expected, largest, &format!("sum of {dtype:?} over {dims:?}"));
        }
    }
    Ok(())
}

#[test]
fn softmax_along_every_dimension() -> Outcome {
    for (kind, dtype) in floats()? {
        let input = random(&[5, 70, 33], kind);
        let there = Copied::new(&input, dtype)?;
        for dim in 0..3 {
            let double = input.to_kind(Kind::Double);
            for (log, expected) in [(false, double.softmax(dim, None)), (true, double.log_softmax(dim, None))] {
                let out = Copied::new(&input, dtype)?;
                softmax::softmax(&there.tensor(), &out.tensor(), dim as usize, log)?;
                assert_close(&out.read()?, &expected, &format!("softmax of {dtype:?} along {dim}, log {log}"));
            }
        }
    }
    Ok(())
}
