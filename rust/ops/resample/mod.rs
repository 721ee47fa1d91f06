//! Interpolation and padding of up to three spatial dimensions, and their gradients.

mod bytes;

use crate::error::{Error, Result};
use crate::kernels::entry::{self, LocalBytes};
use crate::kernels::structs::resample::ResampleAxis;
use crate::kernels::{Class, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::planes;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Rule that finds the input positions of an output position; as in `resample.cl`.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum ResampleRule {
        /// Unchanged positions; positions outside repeat the ends.
        Replicate,
        /// Unchanged positions; positions outside are reflected at the ends.
        Reflect,
        /// The position below.
        Nearest,
        /// The nearest position.
        NearestExact,
        /// Between two positions.
        Linear,
        /// Between four positions.
        Cubic,
        /// A triangle as wide as the step.
        SmoothLinear,
        /// A cubic kernel as wide as the step.
        SmoothCubic,
        /// A windowed sinc as wide as the step.
        SmoothLanczos,
    }

    /// Resampling of one dimension, independent of its sizes.
    #[derive(Clone, Copy, Debug)]
    pub struct ResampleStep {
        /// Rule that finds input positions.
        pub rule: ResampleRule,
        /// True if the first and last positions of both grids coincide.
        pub align_corners: bool,
        /// Input positions per output position.
        pub scale: f64,
        /// Padding before the first element.
        pub shift: i64,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn resample(output: &Tensor, input: &Tensor, steps: &[ResampleStep], transposed: bool) -> Result<()>;
        fn resample_bytes(
            output: &Tensor,
            input: &Tensor,
            step: &ResampleStep,
            coarse: i64,
            fine: i64,
            inner: i64,
        ) -> Result<()>;
    }
}

use bytes::resample_bytes;
pub use ffi::{ResampleRule, ResampleStep};

/// Up to this many input elements per output element of a row, all are read before some are gathered. A choice: the
/// more there are, the fewer of them are needed.
const MOST_INPUTS: i64 = 4;
/// Local memory for a row of inputs: a part of L1.
const LINE_BYTES: usize = 16 << 10;

impl ResampleRule {
    /// Reach of a rule to either side of a position, in steps of the wider grid.
    const fn reach(self) -> f64 {
        match self {
            Self::Replicate | Self::Reflect | Self::Nearest | Self::NearestExact => 0.5,
            Self::Linear | Self::SmoothLinear => 1.0,
            Self::Cubic | Self::SmoothCubic => 2.0,
            _ => 3.0,
        }
    }
}

impl ResampleStep {
    /// A dimension that is not resampled.
    const SAME: Self = Self { rule: ResampleRule::Replicate, align_corners: false, scale: 1.0, shift: 0 };

    /// Maximum number of elements that an output position reads, or with `transposed` of output positions that read an
    /// element: the width of the table of a dimension with `coarse` input and `fine` output positions.
    fn width(&self, coarse: i64, fine: i64, transposed: bool) -> i64 {
        let reach = self.rule.reach();
        match (self.rule, transposed) {
            (
                ResampleRule::Replicate | ResampleRule::Reflect | ResampleRule::Nearest | ResampleRule::NearestExact,
                false,
            ) => 1,
            (ResampleRule::Linear, false) => 2,
            (ResampleRule::Cubic, false) => 4,
            (_, false) => {
                let each_side = (reach * self.scale.max(1.0)).ceil() as i64;
                each_side.saturating_mul(2).saturating_add(1).min(coarse)
            }
            (ResampleRule::Replicate, true) => 1 + self.shift.max(0) + (fine - coarse - self.shift).max(0),
            (ResampleRule::Reflect, true) => 3,
            // Beyond the input's end all positions read its last elements.
            _ if self.scale <= 0.0 || self.scale * fine as f64 > coarse as f64 + self.scale + 1.0 => fine,
            _ => ((2.0 * reach / self.scale.min(1.0)).ceil() as i64 + 3).min(fine),
        }
        .max(1)
    }
}

/// The kernels' `Axis` of one dimension, and the bytes that its table takes.
struct Axis {
    step: ResampleStep,
    coarse: i64,
    fine: i64,
    transposed: bool,
    width: i64,
}

impl Axis {
    fn new(step: ResampleStep, output: i64, input: i64, transposed: bool) -> Self {
        let (fine, coarse) = if transposed { (input, output) } else { (output, input) };
        Self { step, coarse, fine, transposed, width: step.width(coarse, fine, transposed) }
    }

    fn positions(&self) -> i64 {
        if self.transposed {
            self.coarse
        } else {
            self.fine
        }
    }

    /// Counts and indices are `int`, weights have `weight` bytes.
    fn table_bytes(&self, weight: i64) -> i64 {
        const PITCH: u64 = 16;
        let pitch = (self.positions() as u64).next_multiple_of(PITCH) as i64;
        pitch * (4 + self.width * (4 + weight))
    }

    /// The axis as kernels take it; its table begins at byte `start`.
    fn shared(&self, start: i64, class: Class) -> ResampleAxis {
        let scale = match self.step.rule {
            ResampleRule::Nearest | ResampleRule::NearestExact => f64::from(self.step.scale as f32),
            _ => self.step.scale,
        };
        ResampleAxis {
            rule: self.step.rule.repr,
            align_corners: i32::from(self.step.align_corners),
            transposed: i32::from(self.transposed),
            width: self.width as i32,
            coarse: self.coarse,
            fine: self.fine,
            shift: self.step.shift,
            start,
            scale: match class {
                Class::Double | Class::ComplexDouble => scale.to_bits(),
                Class::Float | Class::Integer | Class::Unsigned | Class::Complex => u64::from((scale as f32).to_bits()),
            },
        }
    }
}

/// Resamples the last `steps.len()` dimensions of `input`, outermost first, into `output`. With `transposed`, computes
/// the gradient: `input` is the gradient of a result, and `output` the gradient of what was resampled.
///
/// # Errors
/// [`Error::Unsupported`] for dimensions of 2^31 elements; else as the driver reports.
pub fn resample(output: &Tensor<'_>, input: &Tensor<'_>, steps: &[ResampleStep], transposed: bool) -> Result<()> {
    if output.numel() == 0 {
        return Ok(());
    }
    let (to, from) = (planes::sizes(output, steps.len()), planes::sizes(input, steps.len()));
    let class = output.class();
    let weight = match class {
        Class::Float | Class::Complex => 4,
        Class::Double | Class::ComplexDouble | Class::Integer | Class::Unsigned => 8,
    };
    let spatial = |sizes: &[i64], dim: usize| sizes.get(dim).copied().unwrap_or(1);
    let mut axes = [ResampleAxis::default(); planes::SPATIAL];
    let (mut positions, mut bytes) = (0, 0);
    // From the innermost dimension on.
    for (dim, shared) in axes.iter_mut().enumerate() {
        let step = steps.iter().rev().nth(dim).copied().unwrap_or(ResampleStep::SAME);
        let (output, input) = (spatial(&to, dim), spatial(&from, dim));
        if i32::try_from(output.max(input)).is_err() {
            return Err(Error::Unsupported(format!("OpenCL: a dimension of {output} elements cannot be resampled")));
        }
        let axis = Axis::new(step, output, input, transposed);
        *shared = axis.shared(bytes, class);
        bytes += axis.table_bytes(weight);
        positions += axis.positions();
    }
    let target = Target::of(output.address)?;
    let geometry = Geometry::of(&target, class);
    let [length, _, _, channels, _] = from;
    // Vectors of fewer channels than lanes, such as those of images, are read and written element by element.
    let fills_lanes = !target.is_cpu() || channels >= geometry.lanes as i64;
    let by_channel = fills_lanes && planes::channels_are_neighbours(&[output, input], steps.len());
    // Neighbours of a row have separate indices and weights.
    let geometry = if by_channel { geometry } else { geometry.for_columns(1, 1) };
    let spec = geometry.define(tier(output.numel(), &[("SPEC_DTYPE0", output.dtype.code())]));
    let program = target.program(Family::Resample, class, &spec)?;
    let tables = target.workspace(bytes as usize)?;
    let tables = target.memory(tables.address)?;
    let [x_axis, y_axis, z_axis] = axes;
    let axes = entry::AxesArguments { x_axis, y_axis, z_axis };
    let args = entry::ResampleTables { tables, axes };
    target.launch(&program, entry::RESAMPLE_TABLES, &args, &[positions as usize], None)?;

    let layout = planes::layout(&[output, input], steps.len())?;
    let (lanes, rest) = planes::strips(&to, by_channel, geometry.lanes);
    let (dtype0, output, input) = (output.dtype, target.tensor(output)?, target.tensor(input)?);
    let [width, ..] = to;
    let line_bytes = (length as u64).next_multiple_of(geometry.lanes as u64) as usize * class.size();
    let by_row = !by_channel && length <= width * MOST_INPUTS && line_bytes <= LINE_BYTES;
    if target.is_cpu() && by_row && line_bytes * 2 <= target.device.info.local_mem as usize {
        let line = LocalBytes(line_bytes);
        let args = entry::ResampleRows { output, input, tables, dtype0, layout, axes, length, line };
        return target.launch(&program, entry::RESAMPLE_ROWS, &args, &geometry.items_for(rest), Some(&[1]));
    }
    let by_channel = i32::from(by_channel);
    let args = entry::Resample { output, input, tables, dtype0, layout, axes, by_channel };
    target.launch(&program, entry::RESAMPLE, &args, &geometry.items_for(lanes * rest), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rule: ResampleRule, scale: f64, shift: i64) -> ResampleStep {
        ResampleStep { rule, align_corners: false, scale, shift }
    }

    #[test]
    fn a_table_is_as_wide_as_the_rule() {
        assert_eq!(step(ResampleRule::Linear, 0.5, 0).width(4, 8, false), 2);
        assert_eq!(step(ResampleRule::SmoothLinear, 4.0, 0).width(16, 4, false), 9);
        assert_eq!(step(ResampleRule::Replicate, 1.0, 3).width(4, 9, true), 6);
    }

    #[test]
    fn an_element_has_at_most_all_positions_as_readers() {
        assert_eq!(step(ResampleRule::Linear, 0.5, 0).width(1, 2, true), 2);
        assert_eq!(step(ResampleRule::Cubic, 0.0, 0).width(9, 1, true), 1);
        assert_eq!(
            step(ResampleRule::Linear, 0.1, 0).width(4, 100, true),
            100,
            "the last element is read over and over"
        );
    }

    #[test]
    fn scales_have_the_precision_of_their_class() {
        let axis = Axis::new(step(ResampleRule::Linear, 0.1, 0), 5, 50, false);
        assert_eq!(axis.shared(0, Class::Float).scale, u64::from(0.1_f32.to_bits()));
        assert_eq!(axis.shared(0, Class::Double).scale, 0.1_f64.to_bits());
        let nearest = Axis::new(step(ResampleRule::Nearest, 0.1, 0), 5, 50, false);
        assert_eq!(nearest.shared(0, Class::Double).scale, f64::from(0.1_f32).to_bits());
    }

    #[test]
    fn tables_are_padded_to_whole_vectors() {
        assert_eq!(Axis::new(ResampleStep::SAME, 5, 5, false).table_bytes(4), 16 * 12);
    }
}
