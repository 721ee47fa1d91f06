//! Max and average pooling, with fixed or adaptive windows.

pub mod fractional;

use crate::error::{Error, Result};
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::structs::pool::{AverageDivisor, PoolWindow};
use crate::kernels::Family;
use crate::ops::core::geometry::Geometry;
use crate::ops::core::planes::{self, layout, SPATIAL};
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Windows, one value for each spatial dimension, outermost first; with empty lists they adapt to the sizes of
    /// input and output.
    #[derive(Clone, Copy, Debug)]
    pub struct Pool<'a> {
        /// Number of spatial dimensions.
        pub spatial: usize,
        /// Size of a window, in elements.
        pub kernel_size: &'a [i64],
        /// Stride between neighbouring windows.
        pub stride: &'a [i64],
        /// Padding around the input.
        pub padding: &'a [i64],
        /// Dilation: distance between neighbouring elements of a window.
        pub dilation: &'a [i64],
    }

    /// Divisor of averages.
    #[derive(Clone, Copy, Debug)]
    pub struct Divisor {
        /// True if padding counts as elements.
        pub count_include_pad: bool,
        /// A divisor in place of the count; 0 for none.
        pub divisor_override: i64,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn max_pool(pool: &Pool, output: &Tensor, indices: &Tensor, input: &Tensor) -> Result<()>;
        fn max_pool_backward(pool: &Pool, grad_input: &Tensor, grad: &Tensor, indices: &Tensor) -> Result<()>;
        fn avg_pool(pool: &Pool, output: &Tensor, input: &Tensor, divisor: Divisor) -> Result<()>;
        fn avg_pool_backward(pool: &Pool, grad_input: &Tensor, grad: &Tensor, divisor: Divisor) -> Result<()>;
    }
}

pub use ffi::{Divisor, Pool};

/// From this many elements in a row of a window on, vectors along it are faster than vectors across channels.
const WIDE_WINDOW: i64 = 8;
/// Occupancy target: planes, rows or output positions per core of a CPU, so that items that take whole ones get equal
/// shares.
const OCCUPANCY_TARGET: i64 = 8;

/// Equivalent kernels.
struct Kernels<A> {
    /// The kernel of `pool.cl`.
    gather: EntryPoint<A>,
    /// A kernel for CPUs, if tensors and windows suit one.
    whole: Option<Whole<A>>,
}

/// A kernel whose items take whole planes, rows of outputs or output positions, and the number of these.
struct Whole<A> {
    kernel: EntryPoint<A>,
    tasks: i64,
}

/// State that the arguments of all kernels are made from.
struct PoolCall {
    target: Target,
    window: PoolWindow,
    adaptive: i32,
}

/// One value for each of W, H, D from a list that begins with the outermost; `absent` for missing dimensions.
fn innermost_first(list: &[i64], absent: i64) -> [i64; SPATIAL] {
    let mut values = [absent; SPATIAL];
    for (slot, value) in values.iter_mut().zip(list.iter().rev()) {
        *slot = *value;
    }
    values
}

/// Writes the largest element of each window, and its index in the plane of `input`.
///
/// # Errors
/// Errors reported by the driver.
pub fn max_pool(pool: &Pool<'_>, output: &Tensor<'_>, indices: &Tensor<'_>, input: &Tensor<'_>) -> Result<()> {
    if output.numel() == 0 {
        return Ok(());
    }
    let tensors = [output, indices, input];
    let layout = layout(&tensors, pool.spatial)?;
    // Vectors must not reach beyond the rows of windows, which borders cut short if windows are fixed.
    let lanes = Geometry::of(&Target::of(output.address)?, output.class()).lanes as i64;
    let whole = if pool.is_adaptive() && pool.window_width(input, output) >= lanes && pool.are_dense(&tensors) {
        Some(pool.planes(entry::MAX_POOL_PLANES, output))
    } else if pool.inner_outputs(input, output) >= lanes && pool.are_dense(&tensors) {
        Some(pool.rows(entry::MAX_POOL_ROWS, output))
    } else {
        pool.channels_last(entry::MAX_POOL_CHANNELS_LAST, &tensors)
    };
    let args = |call: &PoolCall| {
        Ok(entry::MaxPool {
            output: call.target.tensor(output)?,
            indices: call.target.tensor(indices)?,
            input: call.target.tensor(input)?,
            dtype0: output.dtype,
            layout,
            w: call.window,
            adaptive: call.adaptive,
        })
    };
    pool.launch(&Kernels { gather: entry::MAX_POOL, whole }, output, (input, output), args)
}

/// Returns true if gradients may be added up in the memory of the result. 16-bit floats may not: each step would round.
fn adds_in_place(grad_input: &Tensor<'_>) -> bool {
    grad_input.dtype == grad_input.class().storage()
}

/// Writes the gradient of the pooled tensor.
///
/// # Errors
/// Errors reported by the driver.
pub fn max_pool_backward(
    pool: &Pool<'_>,
    grad_input: &Tensor<'_>,
    grad: &Tensor<'_>,
    indices: &Tensor<'_>,
) -> Result<()> {
    let (inputs, outputs) = (layout(&[grad_input], pool.spatial)?, layout(&[grad, indices], pool.spatial)?);
    let adds_in_place = adds_in_place(grad_input) && pool.are_dense(&[grad_input, grad, indices]);
    let whole = adds_in_place.then(|| pool.planes(entry::MAX_POOL_BACKWARD_PLANES, grad_input));
    let args = |call: &PoolCall| {
        Ok(entry::MaxPoolBackward {
            grad_input: call.target.tensor(grad_input)?,
            grad: call.target.tensor(grad)?,
            indices: call.target.tensor(indices)?,
            dtype0: grad_input.dtype,
            layout: inputs,
            outputs,
            w: call.window,
            adaptive: call.adaptive,
        })
    };
    pool.launch(&Kernels { gather: entry::MAX_POOL_BACKWARD, whole }, grad_input, (grad_input, grad), args)
}

/// Writes the mean of each window.
///
/// # Errors
/// Errors reported by the driver.
pub fn avg_pool(pool: &Pool<'_>, output: &Tensor<'_>, input: &Tensor<'_>, divisor: Divisor) -> Result<()> {
    if output.numel() == 0 {
        return Ok(());
    }
    let tensors = [output, input];
    let layout = layout(&tensors, pool.spatial)?;
    let lanes = Geometry::of(&Target::of(output.address)?, output.class()).lanes as i64;
    let whole = if pool.window_width(input, output) >= WIDE_WINDOW && pool.are_dense(&tensors) {
        Some(pool.planes(entry::AVG_POOL_PLANES, output))
    } else if pool.inner_outputs(input, output) >= lanes && pool.are_dense(&tensors) {
        Some(pool.rows(entry::AVG_POOL_ROWS, output))
    } else {
        pool.channels_last(entry::AVG_POOL_CHANNELS_LAST, &tensors)
    };
    let args = |call: &PoolCall| {
        Ok(entry::AvgPool {
            output: call.target.tensor(output)?,
            input: call.target.tensor(input)?,
            dtype0: output.dtype,
            layout,
            w: call.window,
            adaptive: call.adaptive,
            divided_by: divisor.into(),
        })
    };
    pool.launch(&Kernels { gather: entry::AVG_POOL, whole }, output, (input, output), args)
}

/// Writes the gradient of the pooled tensor.
///
/// # Errors
/// Errors reported by the driver.
pub fn avg_pool_backward(pool: &Pool<'_>, grad_input: &Tensor<'_>, grad: &Tensor<'_>, divisor: Divisor) -> Result<()> {
    let (inputs, outputs) = (layout(&[grad_input], pool.spatial)?, layout(&[grad], pool.spatial)?);
    let is_wide = pool.window_width(grad_input, grad) >= WIDE_WINDOW;
    let serves = is_wide && adds_in_place(grad_input) && pool.are_dense(&[grad_input, grad]);
    let whole = serves.then(|| pool.planes(entry::AVG_POOL_BACKWARD_PLANES, grad_input));
    let args = |call: &PoolCall| {
        Ok(entry::AvgPoolBackward {
            grad_input: call.target.tensor(grad_input)?,
            grad: call.target.tensor(grad)?,
            dtype0: grad_input.dtype,
            layout: inputs,
            outputs,
            w: call.window,
            adaptive: call.adaptive,
            divided_by: divisor.into(),
        })
    };
    pool.launch(&Kernels { gather: entry::AVG_POOL_BACKWARD, whole }, grad_input, (grad_input, grad), args)
}

impl From<Divisor> for AverageDivisor {
    fn from(divisor: Divisor) -> Self {
        let count_include_pad = divisor.count_include_pad.into();
        Self { divisor_override: divisor.divisor_override, count_include_pad, pad: 0 }
    }
}

impl Pool<'_> {
    fn is_adaptive(&self) -> bool {
        self.kernel_size.is_empty()
    }

    /// The windows between the pooled tensor and the tensor with a value per window.
    fn window(&self, input: &Tensor<'_>, output: &Tensor<'_>) -> Result<PoolWindow> {
        let sizes = |tensor| {
            let [width, height, depth, _, _] = planes::sizes(tensor, self.spatial);
            [width, height, depth]
        };
        let plane: i64 = sizes(input).iter().product();
        let too_large = |_| Error::Unsupported(format!("OpenCL: pooling planes of {plane} elements are not supported"));
        i32::try_from(plane).map_err(too_large)?;
        let narrow = |values: [i64; SPATIAL]| -> Result<[i32; SPATIAL]> {
            let mut narrow = [0; SPATIAL];
            for (slot, value) in narrow.iter_mut().zip(values) {
                *slot = value.try_into().map_err(too_large)?;
            }
            Ok(narrow)
        };
        Ok(PoolWindow {
            kernel_size: narrow(innermost_first(self.kernel_size, 1))?,
            stride: narrow(innermost_first(self.stride, 1))?,
            padding: narrow(innermost_first(self.padding, 0))?,
            dilation: narrow(innermost_first(self.dilation, 1))?,
            input: narrow(sizes(input))?,
            output: narrow(sizes(output))?,
        })
    }

    /// A kernel of `pool_planes.cl`.
    fn planes<A>(&self, kernel: EntryPoint<A>, written: &Tensor<'_>) -> Whole<A> {
        let [_, _, _, channels, samples] = planes::sizes(written, self.spatial);
        Whole { kernel, tasks: channels * samples }
    }

    /// A kernel of `pool_rows.cl`.
    fn rows<A>(&self, kernel: EntryPoint<A>, written: &Tensor<'_>) -> Whole<A> {
        let [_, height, depth, channels, samples] = planes::sizes(written, self.spatial);
        Whole { kernel, tasks: height * depth * channels * samples }
    }

    /// Outputs of a row whose windows lie within the row of the input, as in `inner_outputs` of `pool_rows.cl`; none if
    /// windows are adaptive.
    fn inner_outputs(&self, input: &Tensor<'_>, output: &Tensor<'_>) -> i64 {
        if self.is_adaptive() {
            return 0;
        }
        let ([width, ..], [outputs, ..]) = (planes::sizes(input, self.spatial), planes::sizes(output, self.spatial));
        let innermost = |list, absent| innermost_first(list, absent)[0];
        let (stride, padding) = (innermost(self.stride, 1), innermost(self.padding, 0));
        let last_begin = width - 1 - (innermost(self.kernel_size, 1) - 1) * innermost(self.dilation, 1);
        if last_begin < 0 {
            return 0;
        }
        outputs.min((last_begin + padding) / stride + 1) - div_ceil(padding, stride)
    }

    /// A kernel of `pool_channels_last.cl`, if the channels of all tensors are neighbours.
    fn channels_last<A>(&self, kernel: EntryPoint<A>, tensors: &[&Tensor<'_>]) -> Option<Whole<A>> {
        let [width, height, depth, _, samples] = planes::sizes(tensors.first()?, self.spatial);
        let serves = planes::channels_are_neighbours(tensors, self.spatial);
        serves.then_some(Whole { kernel, tasks: width * height * depth * samples })
    }

    /// Returns true if every plane is dense, in the same order as all others.
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

    /// Minimum number of elements in a row of the windows that no border cuts short.
    fn window_width(&self, pooled: &Tensor<'_>, windowed: &Tensor<'_>) -> i64 {
        if let Some(width) = self.kernel_size.last() {
            return *width;
        }
        let ([width, ..], [outputs, ..]) = (planes::sizes(pooled, self.spatial), planes::sizes(windowed, self.spatial));
        width / outputs.max(1)
    }

    /// Launches a kernel that writes to `written`; `pooled` and `windowed` give the sizes on both sides of the windows.
    fn launch<A: Arguments>(
        &self,
        kernels: &Kernels<A>,
        written: &Tensor<'_>,
        (pooled, windowed): (&Tensor<'_>, &Tensor<'_>),
        args: impl FnOnce(&PoolCall) -> Result<A>,
    ) -> Result<()> {
        let count = written.numel();
        if count == 0 {
            return Ok(());
        }
        let target = Target::of(written.address)?;
        let class = written.class();
        let geometry = Geometry::of(&target, class);
        let adaptive = i32::from(self.is_adaptive());
        let constants = [("SPEC_DTYPE0", written.dtype.code()), ("SPEC_ADAPTIVE", adaptive)];
        let program = target.program(Family::Pool, class, &geometry.define(tier(count, &constants)))?;
        let args = args(&PoolCall { target, window: self.window(pooled, windowed)?, adaptive })?;
        let fair = target.compute_units() as i64 * OCCUPANCY_TARGET;
        if let Some(Whole { kernel, tasks }) =
            kernels.whole.as_ref().filter(|whole| target.is_cpu() && whole.tasks >= fair)
        {
            return target.launch(&program, *kernel, &args, &geometry.items_for(*tasks), None);
        }
        let [_, _, _, channels, _] = planes::sizes(written, self.spatial);
        let channels = channels.max(1);
        let tasks = count / channels * div_ceil(channels, geometry.lanes as i64);
        target.launch(&program, kernels.gather, &args, &geometry.items_for(tasks), None)
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
        let pool = Pool { spatial: 2, kernel_size: &[], stride: &[], padding: &[], dilation: &[] };
        assert!(pool.window(&huge, &huge).is_err());
    }
}
