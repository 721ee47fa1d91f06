//! Tensors of images, and which of their elements a convolution reads.
//!
//! Everything here has three spatial dimensions, innermost first (w, h, d); missing ones have size 1.

use super::matrix::{advance, Axis, Matrix};
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::structs::patch_grid::Patches as PatchGrid;
use crate::kernels::DType;
use crate::ops::{Target, Tensor};

/// Spatial dimensions.
pub const SPATIAL: usize = 3;
/// One value for each spatial dimension.
pub type Spatial = [i64; SPATIAL];

/// From outermost-first values of fewer dimensions.
pub fn spatial(numbers: &[i64], missing: i64) -> Spatial {
    let mut all = [missing; SPATIAL];
    for (slot, number) in all.iter_mut().zip(numbers.iter().rev()) {
        *slot = *number;
    }
    all
}

/// A tensor of (images, channels, spatial dimensions); a weight has result channels for images.
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

    /// Every `step`th position from `first` on, `sizes` of them.
    #[must_use]
    pub fn every(self, first: Spatial, step: Spatial, sizes: Spatial) -> Self {
        let offset: i64 = first.iter().zip(self.strides).map(|(at, stride)| at * stride).sum();
        let mut strides = self.strides;
        for (stride, step) in strides.iter_mut().zip(step) {
            *stride *= step;
        }
        Self { memory: advance(self.memory, offset, self.dtype), sizes, strides, ..self }
    }

    /// The positions of all images as one index.
    ///
    /// # Errors
    /// Never for three spatial dimensions.
    pub fn pixels(&self) -> Result<Axis> {
        let [w, h, d] = self.sizes;
        let [w_stride, h_stride, d_stride] = self.strides;
        Axis::nest(&[(w, w_stride), (h, h_stride), (d, d_stride), (self.images, self.image_stride)])
    }

    /// `channels` channels, `stride` apart, under every position as one index, in the order of the patch matrix.
    ///
    /// # Errors
    /// Never for three spatial dimensions.
    pub fn features(&self, channels: i64, stride: i64, order: FeatureOrder) -> Result<Axis> {
        let [w, h, d] = self.sizes;
        let [w_stride, h_stride, d_stride] = self.strides;
        let taps = [(w, w_stride), (h, h_stride), (d, d_stride)];
        let [w, h, d] = taps;
        match order {
            FeatureOrder::ChannelsInnermost => Axis::nest(&[(channels, stride), w, h, d]),
            FeatureOrder::TapsInnermost => Axis::nest(&[w, h, d, (channels, stride)]),
        }
    }
}

/// How kernel elements map to source positions: element t of output position p reads position
/// p * scale + origin + t * step of the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Output positions.
    pub pixels: Spatial,
    /// Kernel elements.
    pub taps: Spatial,
    /// Source positions from one output position to the next.
    pub scale: Spatial,
    /// Source position of kernel element 0 of output position 0.
    pub origin: Spatial,
    /// Source positions from one kernel element to the next.
    pub step: Spatial,
}

/// Order of features, each a channel at a kernel element: along the source's memory, and with it the weight's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureOrder {
    /// For channels-last tensors.
    ChannelsInnermost,
    /// For contiguous ones.
    TapsInnermost,
}

/// The patch matrix (im2col) of a group: a row for each output position, a column for each channel at each kernel
/// element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patches {
    /// How kernel elements map to source positions.
    pub window: Window,
    extents: Spatial,
    strides: Spatial,
    /// Channels of a group.
    pub channels: i64,
    channel_stride: i64,
    image_stride: i64,
    images: i64,
    /// Elements from one group to the next.
    pub group_stride: i64,
}

impl Patches {
    /// The patches of a source whose channels make up `groups` groups.
    pub fn of(source: &Volume, window: Window, groups: i64) -> Self {
        let channels = source.channels / groups.max(1);
        Self {
            window,
            extents: source.sizes,
            strides: source.strides,
            channels,
            channel_stride: source.channel_stride,
            image_stride: source.image_stride,
            images: source.images,
            group_stride: channels * source.channel_stride,
        }
    }

    /// The order of features that suits the source.
    pub const fn order(&self) -> FeatureOrder {
        if self.channel_stride == 1 {
            FeatureOrder::ChannelsInnermost
        } else {
            FeatureOrder::TapsInnermost
        }
    }

    /// The patch matrix as a strided one, output positions by channels, where the kernel has one element and each
    /// output position reads inside the source.
    ///
    /// # Errors
    /// Never for three spatial dimensions.
    pub fn matrix(&self) -> Result<Option<Matrix>> {
        let Window { pixels, taps, scale, origin, .. } = self.window;
        let dims = pixels.iter().zip(scale).zip(self.extents);
        let is_inside = dims.fold(true, |all, ((pixels, scale), extent)| all && (pixels - 1) * scale < extent);
        // Output positions that are not adjacent are packed faster as patches, which loads vectors of them.
        let is_dense = scale == [1; SPATIAL] || self.channel_stride == 1;
        if taps != [1; SPATIAL] || origin != [0; SPATIAL] || !is_inside || !is_dense {
            return Ok(None);
        }
        let [w, h, d] = pixels;
        let [w_stride, h_stride, d_stride] = self.strides;
        let [w_scale, h_scale, d_scale] = scale;
        let rows = Axis::nest(&[
            (w, w_stride * w_scale),
            (h, h_stride * h_scale),
            (d, d_stride * d_scale),
            (self.images, self.image_stride),
        ])?;
        let columns = Axis::line(self.channels, self.channel_stride);
        Ok(Some(Matrix { rows, columns, batch_stride: self.group_stride }))
    }

    /// As kernels take them.
    pub fn grid(&self) -> PatchGrid {
        let Window { pixels, taps, scale, origin, step } = self.window;
        let (tap_stride, feature_stride) = match self.order() {
            FeatureOrder::ChannelsInnermost => (self.channels, 1),
            FeatureOrder::TapsInnermost => (1, taps.iter().product()),
        };
        let reach = |size: i64, stride: i64| (size - 1).max(0) * stride;
        let inside: i64 = self.extents.iter().zip(self.strides).map(|(&size, stride)| reach(size, stride)).sum();
        PatchGrid {
            pixels,
            taps,
            scale,
            origin,
            step,
            extents: self.extents,
            strides: self.strides,
            channels: self.channels,
            channel_stride: self.channel_stride,
            image_stride: self.image_stride,
            tap_stride,
            feature_stride,
            elements: 1 + inside + reach(self.channels, self.channel_stride) + reach(self.images, self.image_stride),
        }
    }
}
