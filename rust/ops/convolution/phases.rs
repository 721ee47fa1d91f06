//! Splits a convolution into parts in which output positions and kernel elements are evenly spaced: one part where
//! output positions gather, one for each remainder of the stride where source positions scatter.

use super::{ConvDirection, ConvParameters};
use crate::ops::matmul::patches::{spatial, Spatial};

/// One dimension of a part of a convolution in which output positions and kernel elements are evenly spaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// First output position.
    pub first_pixel: i64,
    /// From one output position to the next.
    pub pixel_step: i64,
    /// Number of output positions.
    pub pixels: i64,
    /// First kernel element.
    pub first_tap: i64,
    /// From one kernel element to the next.
    pub tap_step: i64,
    /// Number of kernel elements.
    pub taps: i64,
    /// Source positions between neighbouring output positions.
    pub scale: i64,
    /// Source position of the first kernel element of the first output position.
    pub origin: i64,
    /// Source positions between neighbouring kernel elements.
    pub step: i64,
}

impl Phase {
    /// A whole dimension of a gathering convolution.
    const fn whole(stride: i64, padding: i64, dilation: i64, taps: i64, pixels: i64) -> Self {
        Self {
            first_pixel: 0,
            pixel_step: 1,
            pixels,
            first_tap: 0,
            tap_step: 1,
            taps,
            scale: stride,
            origin: -padding,
            step: dilation,
        }
    }

    /// The output positions p of a scattering convolution with p % stride == remainder, and the kernel elements that
    /// reach them. Kernel element t reads position (p + padding - t * dilation) / stride, where that is whole; all
    /// other products are with zeros.
    fn of_remainder(remainder: i64, stride: i64, padding: i64, dilation: i64, taps: i64, pixels: i64) -> Self {
        let tap_step = stride / greatest_divisor(dilation, stride);
        let first_tap = (0..tap_step.min(taps)).find(|tap| (remainder + padding - tap * dilation) % stride == 0);
        let (first_tap, taps) = first_tap.map_or((0, 0), |first| (first, (taps - first + tap_step - 1) / tap_step));
        Self {
            first_pixel: remainder,
            pixel_step: stride,
            pixels: ((pixels - remainder + stride - 1) / stride).max(0),
            first_tap,
            tap_step,
            taps,
            scale: 1,
            origin: (remainder + padding - first_tap * dilation) / stride,
            step: -(tap_step * dilation / stride),
        }
    }
}

fn greatest_divisor(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        greatest_divisor(b, a % b)
    }
}

/// The phases of each dimension.
pub fn phases(
    direction: ConvDirection,
    parameters: &ConvParameters<'_>,
    taps: Spatial,
    pixels: Spatial,
) -> [Vec<Phase>; 3] {
    let (stride, padding) = (spatial(parameters.stride, 1), spatial(parameters.padding, 0));
    let dilation = spatial(parameters.dilation, 1);
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    let dims = stride.into_iter().zip(padding).zip(dilation).zip(taps).zip(pixels);
    for (slot, ((((stride, padding), dilation), taps), pixels)) in all.iter_mut().zip(dims) {
        *slot = match direction {
            ConvDirection::Forward => vec![Phase::whole(stride, padding, dilation, taps, pixels)],
            _ => (0..stride)
                .map(|remainder| Phase::of_remainder(remainder, stride, padding, dilation, taps, pixels))
                .collect(),
        };
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every (output position, kernel element) pair of a scattering convolution is in exactly one phase, at the right
    /// position.
    #[test]
    fn phases_cover_every_pair() {
        for (stride, padding, dilation, taps, pixels) in
            [(1, 1, 1, 3, 7), (2, 1, 1, 3, 8), (3, 0, 2, 4, 11), (4, 3, 2, 3, 9), (5, 0, 1, 2, 13)]
        {
            let mut seen = Vec::new();
            for remainder in 0..stride {
                let phase = Phase::of_remainder(remainder, stride, padding, dilation, taps, pixels);
                for i in 0..phase.pixels {
                    for j in 0..phase.taps {
                        let pixel = phase.first_pixel + i * phase.pixel_step;
                        let tap = phase.first_tap + j * phase.tap_step;
                        assert_eq!((i + phase.origin + j * phase.step) * stride, pixel + padding - tap * dilation);
                        seen.push((pixel, tap));
                    }
                }
            }
            seen.sort_unstable();
            let all: Vec<_> = (0..pixels)
                .flat_map(|pixel| (0..taps).map(move |tap| (pixel, tap)))
                .filter(|(pixel, tap)| (pixel + padding - tap * dilation) % stride == 0)
                .collect();
            assert_eq!(seen, all);
        }
    }
}
