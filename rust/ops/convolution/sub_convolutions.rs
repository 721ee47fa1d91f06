//! Splits a convolution into sub-convolutions, in which output positions and kernel elements are evenly spaced: one for
//! a convolution, and one for each remainder of the stride for a transposed one.

use super::{ConvDirection, ConvParameters};
use crate::ops::matmul::im2col::{spatial, Spatial};

/// One dimension of a sub-convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubConvolutionDim {
    /// First output position.
    pub first_out: i64,
    /// From one output position to the next.
    pub out_step: i64,
    /// Number of output positions.
    pub out_size: i64,
    /// First kernel element.
    pub first_element: i64,
    /// From one kernel element to the next.
    pub element_step: i64,
    /// Number of kernel elements.
    pub kernel_size: i64,
    /// Input positions between neighbouring output positions.
    pub stride: i64,
    /// Input position of the first kernel element of the first output position.
    pub origin: i64,
    /// Input positions between neighbouring kernel elements.
    pub dilation: i64,
}

impl SubConvolutionDim {
    /// A whole dimension of a convolution.
    const fn whole(stride: i64, padding: i64, dilation: i64, kernel_size: i64, out_size: i64) -> Self {
        Self {
            first_out: 0,
            out_step: 1,
            out_size,
            first_element: 0,
            element_step: 1,
            kernel_size,
            stride,
            origin: -padding,
            dilation,
        }
    }

    /// The output positions p of a transposed convolution with p % stride == remainder, and the kernel elements that
    /// reach them. Kernel element t reads position (p + padding - t * dilation) / stride, where that is whole; all
    /// other products are with zeros.
    fn of_remainder(remainder: i64, stride: i64, padding: i64, dilation: i64, kernel_size: i64, out_size: i64) -> Self {
        let element_step = stride / gcd(dilation, stride);
        let first_element =
            (0..element_step.min(kernel_size)).find(|element| (remainder + padding - element * dilation) % stride == 0);
        let (first_element, kernel_size) =
            first_element.map_or((0, 0), |first| (first, (kernel_size - first + element_step - 1) / element_step));
        Self {
            first_out: remainder,
            out_step: stride,
            out_size: ((out_size - remainder + stride - 1) / stride).max(0),
            first_element,
            element_step,
            kernel_size,
            stride: 1,
            origin: (remainder + padding - first_element * dilation) / stride,
            dilation: -(element_step * dilation / stride),
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 {
        a
    } else {
        gcd(b, a % b)
    }
}

/// The sub-convolutions along each dimension.
pub fn sub_convolution_dims(
    direction: ConvDirection,
    parameters: &ConvParameters<'_>,
    kernel_size: Spatial,
    out_size: Spatial,
) -> [Vec<SubConvolutionDim>; 3] {
    let (stride, padding) = (spatial(parameters.stride, 1), spatial(parameters.padding, 0));
    let dilation = spatial(parameters.dilation, 1);
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    let dims = stride.into_iter().zip(padding).zip(dilation).zip(kernel_size).zip(out_size);
    for (slot, ((((stride, padding), dilation), kernel_size), out_size)) in all.iter_mut().zip(dims) {
        *slot = match direction {
            ConvDirection::Forward => vec![SubConvolutionDim::whole(stride, padding, dilation, kernel_size, out_size)],
            _ => (0..stride)
                .map(|remainder| {
                    SubConvolutionDim::of_remainder(remainder, stride, padding, dilation, kernel_size, out_size)
                })
                .collect(),
        };
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every (output position, kernel element) pair of a transposed convolution is in exactly one sub-convolution, at
    /// the right position.
    #[test]
    fn sub_convolutions_cover_every_pair() {
        for (stride, padding, dilation, kernel_size, out_size) in
            [(1, 1, 1, 3, 7), (2, 1, 1, 3, 8), (3, 0, 2, 4, 11), (4, 3, 2, 3, 9), (5, 0, 1, 2, 13)]
        {
            let mut seen = Vec::new();
            for remainder in 0..stride {
                let dim = SubConvolutionDim::of_remainder(remainder, stride, padding, dilation, kernel_size, out_size);
                for i in 0..dim.out_size {
                    for j in 0..dim.kernel_size {
                        let position = dim.first_out + i * dim.out_step;
                        let element = dim.first_element + j * dim.element_step;
                        assert_eq!(
                            (i + dim.origin + j * dim.dilation) * stride,
                            position + padding - element * dilation
                        );
                        seen.push((position, element));
                    }
                }
            }
            seen.sort_unstable();
            let all: Vec<_> = (0..out_size)
                .flat_map(|position| (0..kernel_size).map(move |element| (position, element)))
                .filter(|(position, element)| (position + padding - element * dilation) % stride == 0)
                .collect();
            assert_eq!(seen, all);
        }
    }
}
