//! Max and average pooling, with fixed or adaptive windows.

use super::geometry::Geometry;
use super::planes::{self, layout, SPATIAL};
use super::tier::tier;
use super::{Target, Tensor};
use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::{Family, Layout};

/// Elements of a window's row from which vectors along it pay, and not across channels.
const WIDE_WINDOW: i64 = 8;
/// Planes that leave every core of a CPU a fair share, where an item takes whole ones.
const PLANES_PER_UNIT: i64 = 8;

/// The kernels that do the same.
struct Kernels {
    /// Of `cl/pool.cl`.
    gather: &'static str,
    /// Of `cl/pool_planes.cl`, where tensors and windows suit it.
    planes: Option<&'static str>,
}

/// How fixed windows lie: one number for each spatial dimension, outermost first.
#[derive(Clone, Copy, Debug)]
pub struct Fixed<'a> {
    /// Extent of a window, in elements it takes.
    pub kernel_size: &'a [i64],
    /// Distance of neighbouring windows.
    pub stride: &'a [i64],
    /// Margin around the input.
    pub padding: &'a [i64],
    /// Distance of neighbouring elements of a window.
    pub dilation: &'a [i64],
}

/// Where windows lie in the input.
#[derive(Clone, Copy, Debug)]
pub enum Windows<'a> {
    /// As the sizes of input and output demand.
    Adaptive,
    /// At regular distances.
    Fixed(Fixed<'a>),
}

/// What averages divide by.
#[derive(Clone, Copy, Debug)]
pub struct Divisor {
    /// Whether padding counts as elements.
    pub count_padding: bool,
    /// A number in place of the count; 0 for none.
    pub override_with: i64,
}

impl Windows<'_> {
    const fn is_adaptive(&self) -> bool {
        matches!(self, Self::Adaptive)
    }

    /// The kernels' `Window`, for the tensor that is pooled and the one that has a value for each window.
    fn bytes(&self, input: &Tensor<'_>, output: &Tensor<'_>, spatial: usize) -> Result<Vec<u8>> {
        let fixed = match self {
            Self::Adaptive => Fixed { kernel_size: &[], stride: &[], padding: &[], dilation: &[] },
            Self::Fixed(fixed) => *fixed,
        };
        let [width, height, depth, _, _] = planes::sizes(input, spatial);
        let [out_width, out_height, out_depth, _, _] = planes::sizes(output, spatial);
        let fields = [
            innermost_first(fixed.kernel_size, 1),
            innermost_first(fixed.stride, 1),
            innermost_first(fixed.padding, 0),
            innermost_first(fixed.dilation, 1),
            [width, height, depth],
            [out_width, out_height, out_depth],
        ];
        let plane = width * height * depth;
        let too_large = || Error::Unsupported(format!("OpenCL: pooling planes of {plane} elements are not supported"));
        let mut bytes = Vec::with_capacity(fields.len() * SPATIAL * 4);
        if i32::try_from(plane).is_err() {
            return Err(too_large());
        }
        for value in fields.into_iter().flatten() {
            bytes.extend(i32::try_from(value).map_err(|_| too_large())?.to_ne_bytes());
        }
        Ok(bytes)
    }
}

/// One value for each of W, H, D from a list that begins with the outermost; `absent` for missing dimensions.
fn innermost_first(list: &[i64], absent: i64) -> [i64; SPATIAL] {
    let mut values = [absent; SPATIAL];
    for (slot, value) in values.iter_mut().zip(list.iter().rev()) {
        *slot = *value;
    }
    values
}

/// One call: `spatial` pooled dimensions, windows, and the tensors whose sizes they join.
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// Number of spatial dimensions.
    pub spatial: usize,
    /// Where windows lie.
    pub windows: Windows<'a>,
}

impl Pool<'_> {
    /// Writes the largest element of each window, and its place in the plane of `input`.
    ///
    /// # Errors
    /// As the driver reports.
    pub fn max(&self, output: &Tensor<'_>, indices: &Tensor<'_>, input: &Tensor<'_>) -> Result<()> {
        let layouts = [layout(&[output, indices, input], self.spatial)?];
        self.launch(
            Kernels { gather: "max_pool", planes: None },
            &[output, indices, input],
            &layouts,
            (input, output),
            &[],
        )
    }

    /// Writes what each element of the pooled tensor gets of the gradient.
    ///
    /// # Errors
    /// As the driver reports.
    pub fn max_backward(&self, grad_input: &Tensor<'_>, grad: &Tensor<'_>, indices: &Tensor<'_>) -> Result<()> {
        let layouts = [layout(&[grad_input], self.spatial)?, layout(&[grad, indices], self.spatial)?];
        let planes = self.are_dense(&[grad_input, grad, indices]).then_some("max_pool_backward_planes");
        self.launch(
            Kernels { gather: "max_pool_backward", planes },
            &[grad_input, grad, indices],
            &layouts,
            (grad_input, grad),
            &[],
        )
    }

    /// Writes the mean of each window.
    ///
    /// # Errors
    /// As the driver reports.
    pub fn average(&self, output: &Tensor<'_>, input: &Tensor<'_>, divisor: Divisor) -> Result<()> {
        let layouts = [layout(&[output, input], self.spatial)?];
        let serves = self.windows_are_wide(input, output) && self.are_dense(&[input, output]);
        let planes = serves.then_some("avg_pool_planes");
        self.launch(
            Kernels { gather: "avg_pool", planes },
            &[output, input],
            &layouts,
            (input, output),
            &divisor.args(),
        )
    }

    /// Writes what each element of the pooled tensor gets of the gradient.
    ///
    /// # Errors
    /// As the driver reports.
    pub fn average_backward(&self, grad_input: &Tensor<'_>, grad: &Tensor<'_>, divisor: Divisor) -> Result<()> {
        let layouts = [layout(&[grad_input], self.spatial)?, layout(&[grad], self.spatial)?];
        let serves = self.windows_are_wide(grad_input, grad) && self.are_dense(&[grad_input, grad]);
        let planes = serves.then_some("avg_pool_backward_planes");
        self.launch(
            Kernels { gather: "avg_pool_backward", planes },
            &[grad_input, grad],
            &layouts,
            (grad_input, grad),
            &divisor.args(),
        )
    }

    /// Whether every plane lies dense, in the same order as all others.
    fn are_dense(&self, tensors: &[&Tensor<'_>]) -> bool {
        tensors.iter().all(|tensor| {
            let mut expected = 1;
            tensor.sizes.iter().zip(tensor.strides).rev().take(self.spatial).all(|(&size, &stride)| {
                let dense = size == 1 || stride == expected;
                expected *= size;
                dense
            })
        })
    }

    /// Whether the rows of windows are long enough for vectors along them.
    fn windows_are_wide(&self, pooled: &Tensor<'_>, windowed: &Tensor<'_>) -> bool {
        let width = match self.windows {
            Windows::Fixed(fixed) => fixed.kernel_size.last().copied().unwrap_or(1),
            Windows::Adaptive => {
                let ([width, ..], [outputs, ..]) =
                    (planes::sizes(pooled, self.spatial), planes::sizes(windowed, self.spatial));
                width / outputs.max(1)
            }
        };
        width >= WIDE_WINDOW
    }

    /// Writes the first of `tensors`; `pooled` and `windowed` give the sizes that windows join.
    fn launch(
        &self,
        kernels: Kernels,
        tensors: &[&Tensor<'_>],
        layouts: &[Layout],
        (pooled, windowed): (&Tensor<'_>, &Tensor<'_>),
        divisor: &[Arg<'_>],
    ) -> Result<()> {
        let Some(written) = tensors.first() else { return Ok(()) };
        let count = written.numel();
        if count == 0 {
            return Ok(());
        }
        let target = Target::of(written.address)?;
        let class = written.class();
        let geometry = Geometry::of(&target, class);
        let adaptive = i32::from(self.windows.is_adaptive());
        let constants = [("SPEC_DTYPE0", written.dtype.code()), ("SPEC_ADAPTIVE", adaptive)];
        let program = target.program(Family::Pool, class, &geometry.define(tier(count, &constants)))?;
        let windows = self.windows.bytes(pooled, windowed, self.spatial)?;
        let mut args = tensors.iter().map(|tensor| target.tensor(tensor)).collect::<Result<Vec<_>>>()?;
        args.push(Arg::Int(written.dtype.code()));
        args.extend(layouts.iter().map(|layout| Arg::Bytes(layout.as_bytes())));
        args.extend([Arg::Bytes(&windows), Arg::Int(adaptive)]);
        args.extend(divisor);
        let [_, _, _, channels, samples] = planes::sizes(written, self.spatial);
        let planes = channels * samples;
        let keeps_busy = planes >= target.compute_units() as i64 * PLANES_PER_UNIT;
        if let Some(kernel) = kernels.planes.filter(|_| target.is_cpu() && keeps_busy) {
            return target.launch(&program, kernel, &args, &geometry.items_for(planes), None);
        }
        let channels = channels.max(1);
        let tasks = count / channels * (channels as u64).div_ceil(geometry.lanes as u64) as i64;
        target.launch(&program, kernels.gather, &args, &geometry.items_for(tasks), None)
    }
}

impl Divisor {
    fn args(self) -> [Arg<'static>; 2] {
        [Arg::Int(i32::from(self.count_padding)), Arg::Long(self.override_with)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::DType;

    fn tensor<'a>(sizes: &'a [i64], strides: &'a [i64]) -> Tensor<'a> {
        Tensor { address: 0, dtype: DType::F32, sizes, strides }
    }

    #[test]
    fn windows_list_the_innermost_dimension_first() {
        assert_eq!(innermost_first(&[2, 3], 1), [3, 2, 1]);
    }

    #[test]
    fn planes_beyond_32_bits_are_refused() {
        let huge = tensor(&[1, 1, 1 << 16, 1 << 16], &[0, 0, 1 << 16, 1]);
        assert!(Windows::Adaptive.bytes(&huge, &huge, 2).is_err());
    }
}
