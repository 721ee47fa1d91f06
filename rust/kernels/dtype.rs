//! Storage dtypes, and the classes of types in which they are computed.

use crate::cl::DeviceInfo;
use crate::error::{Error, Result};

/// The constant of programs that convert rare dtypes.
pub const RARE_DTYPES: &str = "RARE_DTYPES";

/// A storage dtype, with its code in `c10::ScalarType` and in kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum DType {
    /// `torch.uint8`
    U8 = 0,
    /// `torch.int8`
    I8 = 1,
    /// `torch.int16`
    I16 = 2,
    /// `torch.int32`
    I32 = 3,
    /// `torch.int64`
    I64 = 4,
    /// `torch.float16`
    F16 = 5,
    /// `torch.float32`
    F32 = 6,
    /// `torch.float64`
    F64 = 7,
    /// `torch.complex32`
    C32 = 8,
    /// `torch.complex64`
    C64 = 9,
    /// `torch.complex128`
    C128 = 10,
    /// `torch.bool`
    Bool = 11,
    /// `torch.bfloat16`
    BF16 = 15,
    /// `torch.float8_e5m2`
    F8E5M2 = 23,
    /// `torch.float8_e4m3fn`
    F8E4M3FN = 24,
    /// `torch.float8_e5m2fnuz`
    F8E5M2FNUZ = 25,
    /// `torch.float8_e4m3fnuz`
    F8E4M3FNUZ = 26,
    /// `torch.uint16`
    U16 = 27,
    /// `torch.uint32`
    U32 = 28,
    /// `torch.uint64`
    U64 = 29,
    /// `torch.float8_e8m0fnu`
    F8E8M0FNU = 44,
}

/// The type in which arithmetic is done; each class has separate programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// `float`: f16, bf16, f32 and the float8 dtypes.
    Float,
    /// `double`: f64.
    Double,
    /// `long`, wrapping: bool and all integers that fit in it.
    Integer,
    /// `ulong`, wrapping: uint64.
    Unsigned,
    /// `float2`: complex32, complex64.
    Complex,
    /// `double2`: complex128.
    ComplexDouble,
}

impl DType {
    /// All dtypes.
    pub const ALL: [Self; 21] = [
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::C32,
        Self::C64,
        Self::C128,
        Self::Bool,
        Self::BF16,
        Self::F8E5M2,
        Self::F8E4M3FN,
        Self::F8E5M2FNUZ,
        Self::F8E4M3FNUZ,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F8E8M0FNU,
    ];

    /// PyTorch's name of a dtype without kernels (quantised, packed, opaque bits), by its `c10::ScalarType` code.
    pub fn unsupported_name(code: i32) -> String {
        let name = match code {
            12 => "qint8",
            13 => "quint8",
            14 => "qint32",
            _ => return format!("c10::ScalarType {code}"),
        };
        format!("torch.{name}")
    }

    /// The code for kernels.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::F8E5M2 | Self::F8E4M3FN | Self::F8E5M2FNUZ | Self::F8E4M3FNUZ | Self::F8E8M0FNU => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 | Self::C32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// PyTorch's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "torch.uint8",
            Self::I8 => "torch.int8",
            Self::I16 => "torch.int16",
            Self::I32 => "torch.int32",
            Self::I64 => "torch.int64",
            Self::F16 => "torch.float16",
            Self::F32 => "torch.float32",
            Self::F64 => "torch.float64",
            Self::C64 => "torch.complex64",
            Self::C128 => "torch.complex128",
            Self::Bool => "torch.bool",
            Self::BF16 => "torch.bfloat16",
            Self::C32 => "torch.complex32",
            Self::F8E5M2 => "torch.float8_e5m2",
            Self::F8E4M3FN => "torch.float8_e4m3fn",
            Self::F8E5M2FNUZ => "torch.float8_e5m2fnuz",
            Self::F8E4M3FNUZ => "torch.float8_e4m3fnuz",
            Self::U16 => "torch.uint16",
            Self::U32 => "torch.uint32",
            Self::U64 => "torch.uint64",
            Self::F8E8M0FNU => "torch.float8_e8m0fnu",
        }
    }

    /// The class in which it is computed.
    pub const fn class(self) -> Class {
        match self {
            Self::F16 | Self::BF16 | Self::F32 => Class::Float,
            Self::F8E5M2 | Self::F8E4M3FN | Self::F8E5M2FNUZ | Self::F8E4M3FNUZ | Self::F8E8M0FNU => Class::Float,
            Self::F64 => Class::Double,
            Self::C32 | Self::C64 => Class::Complex,
            Self::C128 => Class::ComplexDouble,
            Self::U8 | Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::Bool => Class::Integer,
            Self::U16 | Self::U32 => Class::Integer,
            Self::U64 => Class::Unsigned,
        }
    }

    /// Returns true if only programs with `RARE_DTYPES` convert it: other programs compile faster without.
    pub const fn is_rare(self) -> bool {
        match self {
            Self::C32 | Self::U16 | Self::U32 | Self::U64 => true,
            Self::F8E5M2 | Self::F8E4M3FN | Self::F8E5M2FNUZ | Self::F8E4M3FNUZ | Self::F8E8M0FNU => true,
            Self::U8 | Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::Bool => false,
            Self::F16 | Self::BF16 | Self::F32 | Self::F64 | Self::C64 | Self::C128 => false,
        }
    }

    /// Returns true for the code of a rare dtype.
    pub const fn is_rare_code(code: i32) -> bool {
        const CODES: u64 = {
            let (mut codes, mut rest) = (0, DType::ALL.as_slice());
            while let [dtype, others @ ..] = rest {
                if dtype.is_rare() {
                    codes |= 1 << dtype.code();
                }
                rest = others;
            }
            codes
        };
        CODES >> code & 1 == 1
    }

    /// An integer dtype as wide as a rare dtype: kernels that only move its elements need no conversion.
    #[must_use]
    pub const fn moved_as(self) -> Self {
        match self.size() {
            _ if !self.is_rare() => self,
            1 => Self::U8,
            2 => Self::I16,
            4 => Self::I32,
            _ => Self::I64,
        }
    }
}

impl Class {
    /// Returns true for complex numbers, which are pairs of reals.
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::Complex | Self::ComplexDouble)
    }

    /// The macro that selects the class in the prelude.
    pub const fn define(self) -> &'static str {
        match self {
            Self::Float => "CLASS_F",
            Self::Double => "CLASS_D",
            Self::Integer => "CLASS_I",
            Self::Unsigned => "CLASS_U",
            Self::Complex => "CLASS_C",
            Self::ComplexDouble => "CLASS_Z",
        }
    }

    /// Returns true if the class computes in f64.
    pub const fn needs_fp64(self) -> bool {
        matches!(self, Self::Double | Self::ComplexDouble)
    }

    /// Checks that a device supports the class.
    ///
    /// # Errors
    /// [`Error::NoFloat64`] for float64 and complex128 if the device has no `cl_khr_fp64`.
    pub fn check(self, info: &DeviceInfo) -> Result<()> {
        if !self.needs_fp64() || info.fp64 {
            return Ok(());
        }
        Err(Error::NoFloat64 { dtype: self.storage().name(), device: info.name.clone() })
    }

    /// Bytes of one value of the kernel type `T`.
    pub const fn size(self) -> usize {
        match self {
            Self::Float => 4,
            Self::Double | Self::Integer | Self::Unsigned | Self::Complex => 8,
            Self::ComplexDouble => 16,
        }
    }

    /// The dtype that stores a `T` without loss: for workspaces.
    pub const fn storage(self) -> DType {
        match self {
            Self::Float => DType::F32,
            Self::Double => DType::F64,
            Self::Integer => DType::I64,
            Self::Unsigned => DType::U64,
            Self::Complex => DType::C64,
            Self::ComplexDouble => DType::C128,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::cl::DeviceType;

    #[test]
    fn all_are_listed_once_and_have_distinct_bits() {
        let codes: std::collections::BTreeSet<_> = DType::ALL.iter().map(|dtype| dtype.code()).collect();
        assert_eq!(codes.len(), DType::ALL.len());
        assert!(codes.iter().all(|code| (0..64).contains(code)));
    }

    #[test]
    fn arithmetic_in_float64_is_refused_without_fp64() {
        let device = |fp64| DeviceInfo { fp64, ..DeviceInfo::imagined(1, "Radeon", "p", DeviceType::Gpu) };
        assert_eq!(Class::Double.check(&device(true)), Ok(()));
        assert_eq!(Class::Complex.check(&device(false)), Ok(()));
        for (class, dtype) in [(Class::Double, "torch.float64"), (Class::ComplexDouble, "torch.complex128")] {
            let refusal = Error::NoFloat64 { dtype, device: "Radeon".to_owned() };
            assert_eq!(class.check(&device(false)), Err(refusal));
        }
    }
}
