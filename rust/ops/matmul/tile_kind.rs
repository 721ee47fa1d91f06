//! Kinds of matrix instructions, and which of them a device has.

use std::sync::OnceLock;

use crate::cl::DeviceInfo;
use crate::error::{Error, Result};
use crate::kernels::{DType, Spec};

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
}

impl TileKind {
    const ALL: [Self; 6] = [Self::Mma, Self::Wmma, Self::Wmma12, Self::Mfma, Self::Dpas16, Self::Dpas8];

    /// Its name in `TORCH_OPENCL_MATRIX`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mma => "mma",
            Self::Wmma => "wmma",
            Self::Wmma12 => "wmma12",
            Self::Mfma => "mfma",
            Self::Dpas16 => "dpas16",
            Self::Dpas8 => "dpas8",
        }
    }

    /// Items of a sub-group.
    pub const fn lanes(self) -> i64 {
        match self {
            Self::Mfma => 64,
            Self::Dpas16 => 16,
            Self::Dpas8 => 8,
            Self::Mma | Self::Wmma | Self::Wmma12 => 32,
        }
    }

    /// Returns true if the device copies from global to local memory while items compute.
    pub const fn has_copies(self) -> bool {
        matches!(self, Self::Mma)
    }

    /// Dtypes besides float16 and bfloat16 that have instructions of the same words; float32 is TensorFloat-32.
    pub const fn other_dtypes(self) -> &'static [DType] {
        match self {
            Self::Mma => &[DType::F32, DType::I8],
            Self::Dpas16 | Self::Dpas8 => &[DType::I8],
            Self::Wmma | Self::Wmma12 | Self::Mfma => &[],
        }
    }

    const fn needs_clang(self) -> bool {
        matches!(self, Self::Wmma | Self::Wmma12 | Self::Mfma)
    }

    /// The kind that a device reports. A program is used only after a check of its results (`tile_check.rs`).
    pub fn of(info: &DeviceInfo) -> Option<Self> {
        if info.compute_capability_major.is_some_and(|major| major >= 8) {
            return Some(Self::Mma);
        }
        // Other drivers of AMD's GPUs do not compile clang's builtins.
        if info.platform == "AMD Accelerated Parallel Processing" {
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

/// The matrix instructions that kernels use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileUnit {
    /// Their kind.
    pub kind: TileKind,
    /// `TILE_EMULATED` of `tile_emulated.cl`: 0 for the device's instructions, 1 for the emulation, 2 for one with a
    /// wrong result.
    pub emulated: i64,
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
                Some(Self::Emulated(TileUnit { kind, emulated }))
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
    /// The instructions to use on a device; `None` if there are none.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a wrong value of `TORCH_OPENCL_MATRIX`.
    pub fn of(info: &DeviceInfo) -> Result<Option<Self>> {
        Ok(match Choice::of_process()? {
            Choice::Off => None,
            Choice::Auto => TileKind::of(info).map(|kind| Self { kind, emulated: 0 }),
            Choice::Emulated(unit) => Some(unit),
        })
    }

    /// Lets a program call clang's builtins if its kind needs them: only AMD's own driver has such a kind.
    pub fn with_builtins(self, spec: Spec) -> Spec {
        if self.emulated == 0 && self.kind.needs_clang() {
            spec.define("HAS_CLANG_BUILTINS", 1)
        } else {
            spec
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_variable_are_read() {
        let emulated = |kind, emulated| Some(Choice::Emulated(TileUnit { kind, emulated }));
        assert_eq!(Choice::parse("off"), Some(Choice::Off));
        assert_eq!(Choice::parse("auto"), Some(Choice::Auto));
        assert_eq!(Choice::parse("emulated:mma"), emulated(TileKind::Mma, 1));
        assert_eq!(Choice::parse("emulated:dpas8:wrong"), emulated(TileKind::Dpas8, 2));
        for text in ["", "on", "emulated", "emulated:sse", "emulated:mma:right"] {
            assert_eq!(Choice::parse(text), None, "{text}");
        }
    }
}
