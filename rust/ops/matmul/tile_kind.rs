//! Kinds of matrix instructions, and which of them a device has.

use std::sync::OnceLock;

use crate::cl::DeviceInfo;
use crate::error::{Error, Result};
use crate::kernels::{DType, Spec, OPENCL_3};

const VARIABLE: &str = "TORCH_OPENCL_MATRIX";

/// A kind of matrix instructions; as in `tile_layout.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TileKind {
    /// NVIDIA from compute capability 8.0 on.
    Mma = 1,
    /// AMD gfx11.
    Wmma = 2,
    /// AMD gfx12.
    Wmma12 = 3,
    /// AMD gfx90a and gfx94x.
    Mfma = 4,
    /// Intel Xe-HPC and Xe2.
    Dpas16 = 5,
    /// Intel Arc A.
    Dpas8 = 6,
    /// No matrix instructions, but one instruction of an item that adds two products of float16, or four of int8.
    Dot = 7,
}

impl TileKind {
    const ALL: [Self; 7] = [Self::Mma, Self::Wmma, Self::Wmma12, Self::Mfma, Self::Dpas16, Self::Dpas8, Self::Dot];

    /// Its name in `TORCH_OPENCL_MATRIX`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mma => "mma",
            Self::Wmma => "wmma",
            Self::Wmma12 => "wmma12",
            Self::Mfma => "mfma",
            Self::Dpas16 => "dpas16",
            Self::Dpas8 => "dpas8",
            Self::Dot => "dot",
        }
    }

    /// Items of a sub-group.
    pub const fn lanes(self) -> i64 {
        match self {
            Self::Mfma => 64,
            Self::Dpas16 => 16,
            Self::Dpas8 => 8,
            Self::Mma | Self::Wmma | Self::Wmma12 | Self::Dot => 32,
        }
    }

    /// Returns true if the device copies from global to local memory while items compute.
    pub const fn has_copies(self) -> bool {
        matches!(self, Self::Mma)
    }

    /// Dtypes of operands that have instructions; float32 is TensorFloat-32.
    const fn dtypes(self) -> &'static [DType] {
        match self {
            Self::Mma => &[DType::F16, DType::BF16, DType::F32, DType::I8],
            Self::Dpas16 | Self::Dpas8 => &[DType::F16, DType::BF16, DType::I8],
            Self::Wmma | Self::Wmma12 | Self::Mfma => &[DType::F16, DType::BF16],
            Self::Dot => &[DType::F16, DType::I8],
        }
    }

    /// Returns true if the kind is one of matrix instructions, which attention needs.
    pub const fn is_matrix(self) -> bool {
        !matches!(self, Self::Dot)
    }

    /// The kind that a device reports for a dtype. A program is used only after a check of its results
    /// (`tile_check.rs`).
    fn of(info: &DeviceInfo, dtype: DType) -> Option<Self> {
        let found = Self::matrix(info).filter(|kind| kind.dtypes().contains(&dtype));
        found.or_else(|| Self::has_dot(info, dtype).then_some(Self::Dot))
    }

    /// Returns true if a device has instructions for [`Self::Dot`].
    fn has_dot(info: &DeviceInfo, dtype: DType) -> bool {
        match dtype {
            DType::F16 => has_dot_builtins(info),
            DType::I8 => has_dot_builtins(info) || (info.fast_int8_dot && info.version_number() >= (3, 0)),
            _ => false,
        }
    }

    fn matrix(info: &DeviceInfo) -> Option<Self> {
        if info.compute_capability_major.is_some_and(|major| major >= 8) {
            return Some(Self::Mma);
        }
        if has_amd_builtins(info) {
            let is = |names: &[&str]| names.iter().any(|name| info.name.starts_with(name));
            return match () {
                () if is(&["gfx11"]) => Some(Self::Wmma),
                () if is(&["gfx12"]) => Some(Self::Wmma12),
                () if is(&["gfx90a", "gfx94"]) => Some(Self::Mfma),
                () => None,
            };
        }
        match info.matrix_sub_group {
            Some(16) => Some(Self::Dpas16),
            Some(8) => Some(Self::Dpas8),
            _ => None,
        }
    }
}

/// Returns true if a device compiles clang's builtins for AMD's GPUs: other drivers of these GPUs do not.
fn has_amd_builtins(info: &DeviceInfo) -> bool {
    info.platform == "AMD Accelerated Parallel Processing"
}

/// Returns true if clang has builtins for the sums of products of a device.
fn has_dot_builtins(info: &DeviceInfo) -> bool {
    const NAMES: [&str; 9] = ["gfx906", "gfx908", "gfx90a", "gfx94", "gfx1011", "gfx1012", "gfx103", "gfx11", "gfx12"];
    has_amd_builtins(info) && NAMES.iter().any(|name| info.name.starts_with(name))
}

/// The instructions that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileUnit {
    /// Their kind.
    pub kind: TileKind,
    /// `TILE_EMULATED` of `tile_emulated.cl`: 0 for the device's instructions, 1 for the emulation, 2 for one with a
    /// wrong result.
    pub emulated: i64,
    /// Programs may call clang's builtins.
    has_builtins: bool,
}

/// The value of `TORCH_OPENCL_MATRIX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Off,
    Auto,
    Emulated(TileUnit),
}

impl Choice {
    fn parse(text: &str) -> Option<Self> {
        match text.split(':').collect::<Vec<_>>().as_slice() {
            ["off"] => Some(Self::Off),
            ["auto"] => Some(Self::Auto),
            ["emulated", name, rest @ ..] => {
                let kind = TileKind::ALL.into_iter().find(|kind| kind.name() == *name)?;
                let emulated = match rest {
                    [] => 1,
                    ["wrong"] => 2,
                    _ => return None,
                };
                Some(Self::Emulated(TileUnit { kind, emulated, has_builtins: false }))
            }
            _ => None,
        }
    }

    fn of_process() -> Result<Self> {
        static CHOICE: OnceLock<Result<Choice>> = OnceLock::new();
        let read = || match std::env::var_os(VARIABLE).map(|text| text.to_string_lossy().into_owned()) {
            Some(text) => Self::parse(&text).ok_or_else(|| {
                let kinds = TileKind::ALL.map(TileKind::name).join(", ");
                Error::Invalid(format!("{VARIABLE}={text}: expected off, auto or emulated:KIND, with one of {kinds}."))
            }),
            None => Ok(Self::Auto),
        };
        CHOICE.get_or_init(read).clone()
    }
}

impl TileUnit {
    /// The instructions to use for operands of a dtype on a device; `None` if there are none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a wrong value of `TORCH_OPENCL_MATRIX`.
    pub fn of(info: &DeviceInfo, dtype: DType) -> Result<Option<Self>> {
        Ok(match Choice::of_process()? {
            Choice::Off => None,
            Choice::Auto => Self::reported(info, dtype),
            Choice::Emulated(unit) => Some(unit).filter(|unit| unit.kind.dtypes().contains(&dtype)),
        })
    }

    /// The instructions that a device reports.
    fn reported(info: &DeviceInfo, dtype: DType) -> Option<Self> {
        let kind = TileKind::of(info, dtype)?;
        let has_builtins = if kind.is_matrix() { has_amd_builtins(info) } else { has_dot_builtins(info) };
        Some(Self { kind, emulated: 0, has_builtins })
    }

    /// The most terms of an int8 sum. The function of the extension saturates, where other instructions wrap around.
    pub const fn most_int8_terms(self) -> i64 {
        if self.kind.is_matrix() || self.has_builtins {
            i64::MAX
        } else {
            // Each term is at most 2^14.
            (1 << 17) - 1
        }
    }

    /// Rows and columns of the largest block. Most GPUs without matrix instructions, other than AMD's, have too few
    /// registers for the sums of 64 results.
    pub const fn most_rows(self) -> i64 {
        if self.kind.is_matrix() || self.has_builtins || self.emulated != 0 {
            128
        } else {
            64
        }
    }

    /// Lets a program call the functions of the instructions.
    pub fn with_instructions(self, spec: Spec) -> Spec {
        let (name, value) = match (self.has_builtins, self.kind, self.emulated) {
            (true, ..) => ("HAS_CLANG_BUILTINS", 1),
            (false, TileKind::Dot, 0) => OPENCL_3,
            _ => return spec,
        };
        spec.define(name, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cl::DeviceType;

    #[test]
    fn devices_have_the_instructions_that_they_report() {
        let amd = |name| DeviceInfo::imagined(1, name, "AMD Accelerated Parallel Processing", DeviceType::Gpu);
        let other = |platform| DeviceInfo::imagined(1, "gfx1030", platform, DeviceType::Gpu);
        let with_extension = |info| DeviceInfo { fast_int8_dot: true, version: "OpenCL 3.0".to_owned(), ..info };
        let kinds = |info: &DeviceInfo| {
            [DType::F16, DType::BF16, DType::I8].map(|dtype| {
                TileUnit::reported(info, dtype).map(|unit| (unit.kind, unit.has_builtins, unit.most_rows()))
            })
        };
        let large = |kind| Some((kind, true, 128));
        let dot = large(TileKind::Dot);
        assert_eq!(kinds(&amd("gfx1030")), [dot, None, dot]);
        assert_eq!(kinds(&amd("gfx1100")), [large(TileKind::Wmma), large(TileKind::Wmma), dot]);
        assert_eq!(kinds(&amd("gfx1010")), [None; 3]);
        assert_eq!(kinds(&other("rusticl")), [None; 3]);
        let small = Some((TileKind::Dot, false, 64));
        assert_eq!(kinds(&with_extension(other("rusticl"))), [None, None, small]);
        assert_eq!(kinds(&with_extension(amd("gfx1010"))), [None, None, small]);
    }

    #[test]
    fn values_of_the_variable_are_read() {
        let emulated = |kind, emulated| Some(Choice::Emulated(TileUnit { kind, emulated, has_builtins: false }));
        assert_eq!(Choice::parse("off"), Some(Choice::Off));
        assert_eq!(Choice::parse("auto"), Some(Choice::Auto));
        assert_eq!(Choice::parse("emulated:mma"), emulated(TileKind::Mma, 1));
        assert_eq!(Choice::parse("emulated:dpas8:wrong"), emulated(TileKind::Dpas8, 2));
        for text in ["", "on", "emulated", "emulated:sse", "emulated:mma:right"] {
            assert_eq!(Choice::parse(text), None, "{text}");
        }
    }
}
