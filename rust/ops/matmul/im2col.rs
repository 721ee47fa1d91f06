//! Tensors of images, and which of their elements a convolution reads.
//!
//! Everything here has three spatial dimensions, innermost first (w, h, d); missing ones have size 1.

use super::gemm_tile::computes;
use super::matrix::{advance, Axis, Matrix};
use super::tile_form::CHUNK;
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::structs::gemm_operands::Im2colLayout;
use crate::kernels::DType;
use crate::ops::{Target, Tensor};

/// Fewer positions of one image leave too much of a tile empty.
const LEAST_POSITIONS: i64 = 512;
/// Spatial dimensions.
pub const SPATIAL: usize = 3;
/// One value for each spatial dimension.
pub type Spatial = [i64; SPATIAL];

/// Converts outermost-first values of at most three dimensions; `missing` fills the others.
pub fn spatial(values: &[i64], missing: i64) -> Spatial {
    let mut all = [missing; SPATIAL];
    for (slot, value) in all.iter_mut().zip(values.iter().rev()) {
        *slot = *value;
    }
    all
}

/// A tensor of (images, channels, spatial dimensions); a weight has output channels as images.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Buffer and offset.
    pub memory: Memory,
    /// Storage dtype.
    pub dtype: DType,
    /// Images.
    pub images: i64,
    /// Channels of all groups.
    pub channels: i64,
    /// Elements from one image to the next.
    pub image_stride: i64,
    /// Elements from one channel to the next.
    pub channel_stride: i64,
    /// Spatial sizes.
    pub sizes: Spatial,
    /// Spatial strides.
    pub strides: Spatial,
}

impl Volume {
    /// A tensor's memory and layout.
    ///
    /// # Errors
    /// When the address is not the device's.
    pub fn of(target: &Target, tensor: &Tensor<'_>) -> Result<Self> {
        Ok(Self {
            memory: target.tensor(tensor)?,
            dtype: tensor.dtype,
            images: tensor.size(0),
            channels: tensor.size(1),
            image_stride: tensor.stride(0),
            channel_stride: tensor.stride(1),
            sizes: spatial(tensor.sizes.get(2..).unwrap_or_default(), 1),
            strides: spatial(tensor.strides.get(2..).unwrap_or_default(), 0),
        })
    }

    /// Positions of an image.
    pub fn positions(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// Elements.
    pub fn numel(&self) -> i64 {
        self.images * self.channels * self.positions()
    }

    /// `sizes` positions from `first` on, `dilation` apart.
    #[must_use]
    pub fn every(self, first: Spatial, dilation: Spatial, sizes: Spatial) -> Self {
        let offset: i64 = first.iter().zip(self.strides).map(|(at, stride)| at * stride).sum();
        let mut strides = self.strides;
        for (stride, dilation) in strides.iter_mut().zip(dilation) {
            *stride *= dilation;
        }
        Self { memory: advance(self.memory, offset, self.dtype), sizes, strides, ..self }
    }

    /// The positions of all images as one index.
    ///
    /// # Errors
    /// Never for three spatial dimensions.
    pub fn position_axis(&self) -> Result<Axis> {
        let [w, h, d] = self.sizes;
        let [w_stride, h_stride, d_stride] = self.strides;
        Axis::nest(&[(w, w_stride), (h, h_stride), (d, d_stride), (self.images, self.image_stride)])
    }

    /// One index over `channels` channels, `stride` apart, and all positions, in the order of the im2col matrix.
    ///
    /// # Errors
    /// Never for three spatial dimensions.
    pub fn kernel_axis(&self, channels: i64, stride: i64, order: Im2colOrder) -> Result<Axis> {
        let [w, h, d] = self.sizes;
        let [w_stride, h_stride, d_stride] = self.strides;
        let positions = [(w, w_stride), (h, h_stride), (d, d_stride)];
        let [w, h, d] = positions;
        match order {
            Im2colOrder::ChannelsInnermost => Axis::nest(&[(channels, stride), w, h, d]),
            Im2colOrder::KernelInnermost => Axis::nest(&[w, h, d, (channels, stride)]),
        }
    }
}

/// How kernel elements map to input positions: element t of output position p reads position
/// p * stride + origin + t * dilation of the input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelMap {
    /// Output positions.
    pub out_sizes: Spatial,
    /// Kernel elements.
    pub kernel_size: Spatial,
    /// Input positions from one output position to the next.
    pub stride: Spatial,
    /// Input position of kernel element 0 of output position 0.
    pub origin: Spatial,
    /// Input positions from one kernel element to the next.
    pub dilation: Spatial,
}

/// Order of the columns of an im2col matrix, each a channel at a kernel element. It follows the memory of the input,
/// and so of the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Im2colOrder {
    /// For channels-last tensors.
    ChannelsInnermost,
    /// For contiguous tensors.
    KernelInnermost,
}

/// The im2col matrix of a group: a row for each output position, a column for each channel at each kernel
/// element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Im2col {
    /// How kernel elements map to input positions.
    pub kernel_map: KernelMap,
    in_sizes: Spatial,
    strides: Spatial,
    /// Channels of a group.
    pub channels: i64,
    channel_stride: i64,
    image_stride: i64,
    images: i64,
    /// Elements from one group to the next.
    pub group_stride: i64,
}

impl Im2col {
    /// The im2col matrix of an input whose channels make up `groups` groups.
    pub fn of(input: &Volume, kernel_map: KernelMap, groups: i64) -> Self {
        let channels = input.channels / groups.max(1);
        Self {
            kernel_map,
            in_sizes: input.sizes,
            strides: input.strides,
            channels,
            channel_stride: input.channel_stride,
            image_stride: input.image_stride,
            images: input.images,
            group_stride: channels * input.channel_stride,
        }
    }

    /// The order of columns that suits the input.
    pub const fn order(&self) -> Im2colOrder {
        if self.channel_stride == 1 {
            Im2colOrder::ChannelsInnermost
        } else {
            Im2colOrder::KernelInnermost
        }
    }

    /// The im2col matrix as a strided matrix, output positions by channels, if the kernel has one element and each
    /// output position reads inside the input.
    ///
    /// # Errors
    /// Never for three spatial dimensions.
    pub fn matrix(&self) -> Result<Option<Matrix>> {
        let KernelMap { out_sizes, kernel_size, stride, origin, .. } = self.kernel_map;
        let dims = out_sizes.iter().zip(stride).zip(self.in_sizes);
        let is_inside = dims.fold(true, |all, ((out_sizes, stride), extent)| all && (out_sizes - 1) * stride < extent);
        // Output positions that are not adjacent are packed faster as im2col, which loads vectors of them.
        let is_dense = stride == [1; SPATIAL] || self.channel_stride == 1;
        if kernel_size != [1; SPATIAL] || origin != [0; SPATIAL] || !is_inside || !is_dense {
            return Ok(None);
        }
        let [w, h, d] = out_sizes;
        let [w_stride, h_stride, d_stride] = self.strides;
        let [w_step, h_step, d_step] = stride;
        let rows = Axis::nest(&[
            (w, w_stride * w_step),
            (h, h_stride * h_step),
            (d, d_stride * d_step),
            (self.images, self.image_stride),
        ])?;
        let columns = Axis::line(self.channels, self.channel_stride);
        Ok(Some(Matrix { rows, columns, batch_stride: self.group_stride }))
    }

    /// The strided matrix of [`Self::matrix`], if a GEMM should read it. Tiles load it only if its rows have one
    /// stride; otherwise they load the im2col matrix, and the result is `None`. `side` is the smaller of the GEMM's
    /// rows and columns.
    ///
    /// # Errors
    /// Never for three spatial dimensions.
    pub fn matrix_for(&self, target: &Target, dtype: DType, side: i64, k: i64) -> Result<Option<Matrix>> {
        let is_loaded = |matrix: &Matrix| matrix.rows.is_line() || !computes(target, dtype, side, k);
        Ok(self.matrix()?.filter(is_loaded))
    }

    /// The matrix of one image, output positions by channels, if tiles should load it from an image whose positions are
    /// neighbours. `rows` are the output channels.
    ///
    /// # Errors
    /// Never for three spatial dimensions.
    pub fn image_for(&self, target: &Target, dtype: DType, rows: i64) -> Result<Option<Matrix>> {
        let positions = self.kernel_map.out_sizes.iter().product();
        let is_loaded = |matrix: &Matrix| {
            self.order() == Im2colOrder::KernelInnermost
                && matrix.rows.is_line()
                && matrix.rows.is_dense()
                && fills_tiles(positions)
                && computes(target, dtype, rows, self.channels)
        };
        let image = Self { images: 1, ..*self }.matrix()?.filter(is_loaded);
        Ok(image.map(|matrix| Matrix { batch_stride: self.image_stride, ..matrix }))
    }

    /// Returns true if `chunk` channels at a time are neighbours at a multiple of their size from the input's start.
    /// All positions, and offsets in chunks, must fit 31 bits, and so must a bit for each kernel element along each
    /// dimension.
    pub fn is_in_chunks(&self, chunk: i64) -> bool {
        let strides = self.strides.iter().chain([&self.image_stride, &self.group_stride]);
        self.order() == Im2colOrder::ChannelsInnermost
            && self.channels % chunk == 0
            && strides.into_iter().all(|stride| stride % chunk == 0)
            && self.has_small_positions()
            && self.images.saturating_mul(self.kernel_map.out_sizes.iter().product()) < i64::from(i32::MAX)
            && self.elements() / chunk < 1 << 29
            && has_few_kernel_elements(self.kernel_map.kernel_size)
    }

    /// Returns true if input positions, in the padding too, are far below 2^30.
    pub fn has_small_positions(&self) -> bool {
        let KernelMap { out_sizes, stride, dilation, kernel_size, origin } = self.kernel_map;
        let moves = out_sizes.into_iter().zip(stride).chain(kernel_size.into_iter().zip(dilation));
        let spans = moves.map(|(size, step)| size.saturating_mul(step.abs()));
        spans.chain(self.in_sizes).chain(origin.map(i64::abs)).all(|span| span < 1 << 28)
    }

    /// Elements from the first to the last of the images.
    pub fn elements(&self) -> i64 {
        let reach = |size: i64, stride: i64| (size - 1).max(0) * stride;
        let inside: i64 = self.in_sizes.iter().zip(self.strides).map(|(&size, stride)| reach(size, stride)).sum();
        1 + inside + reach(self.channels, self.channel_stride) + reach(self.images, self.image_stride)
    }

    /// The layout as kernels take it.
    pub fn layout(&self) -> Im2colLayout {
        let KernelMap { out_sizes, kernel_size, stride, origin, dilation } = self.kernel_map;
        let (kernel_step, channel_step) = match self.order() {
            Im2colOrder::ChannelsInnermost => (self.channels, 1),
            Im2colOrder::KernelInnermost => (1, kernel_size.iter().product()),
        };
        let divisors = out_sizes.map(Divisor::of);
        // A dilation beyond 32 bits only matters for a tensor of more elements.
        let in_32_bits = |value: i64| value.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
        Im2colLayout {
            out_sizes,
            kernel_size: kernel_size.map(in_32_bits),
            stride,
            origin,
            dilation: dilation.map(in_32_bits),
            in_sizes: self.in_sizes,
            in_strides: self.strides,
            channels: self.channels,
            channel_stride: self.channel_stride,
            image_stride: self.image_stride,
            kernel_step,
            channel_step,
            elements: self.elements(),
            multipliers: divisors.map(|divisor| divisor.multiplier),
            shifts: divisors.map(|divisor| divisor.shift),
        }
    }
}

/// Returns true if tiles of one image's positions are nearly full, and their chunks whole. A choice: with 512
/// positions, at most a fifth of all results of tiles is unused.
pub const fn fills_tiles(positions: i64) -> bool {
    positions >= LEAST_POSITIONS && positions % CHUNK == 0
}

/// Returns true if 31 bits hold one for each kernel element along each dimension.
pub fn has_few_kernel_elements(kernel_size: Spatial) -> bool {
    kernel_size.into_iter().fold(0, i64::saturating_add) < 32
}

/// A division by a constant, as a multiplication: see `Im2colLayout`.
#[derive(Clone, Copy)]
struct Divisor {
    multiplier: u32,
    shift: u32,
}

impl Divisor {
    /// Larger sizes than 2^31 have no such division, and need none.
    fn of(size: i64) -> Self {
        let size = size.clamp(1, 1 << 31) as u64;
        let shift = size.next_power_of_two().trailing_zeros();
        Self { multiplier: (1u64 << (31 + shift)).div_ceil(size) as u32, shift }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_elements_have_31_bits() {
        assert!(has_few_kernel_elements([15, 15, 1]));
        assert!(!has_few_kernel_elements([16, 15, 1]));
    }

    #[test]
    fn multiplications_divide_numbers_below_two_to_the_31() {
        let largest = (1u64 << 31) - 1;
        for size in [1, 2, 3, 7, 8, 28, 56, 112, 1009, 65535, 65536, 65537, (1 << 31) - 1] {
            let Divisor { multiplier, shift } = Divisor::of(size as i64);
            let near = [0, 1, size - 1, size, size + 1, 3 * size - 1, 3 * size];
            let multiples = [largest / size * size, (largest / size * size).wrapping_sub(1)];
            for number in near.into_iter().chain(multiples).chain([largest]).filter(|number| *number <= largest) {
                let found = ((2 * number * u64::from(multiplier)) >> 32) >> shift;
                assert_eq!(found, number / size, "{number} / {size}");
            }
        }
    }
}
