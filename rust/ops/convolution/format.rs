//! The memory format in which a convolution needs its operands.

use crate::ops::matmul::gemm_tile::computes;
use crate::ops::matmul::im2col::{fills_tiles, has_few_kernel_elements, spatial};
use crate::ops::matmul::tile_form::CHUNK;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn convolution_needs_channels_last(input: &Tensor, weight: &Tensor, groups: i64) -> bool;
        fn convolution_reads_images(positions: i64) -> bool;
    }
}

/// Returns true if matrix instructions can compute a convolution, of operands whose channels are neighbours in memory. A
/// device that cannot be used is reported by the convolution itself.
fn convolution_needs_channels_last(input: &Tensor<'_>, weight: &Tensor<'_>, groups: i64) -> bool {
    let Ok(target) = Target::of(input.address) else { return false };
    // The channels of a group that are summed, and those of the result, in either order.
    let (first, second) = (weight.size(0) / groups, weight.size(1));
    let kernel_elements: i64 = weight.sizes.iter().skip(2).product();
    let least = first.min(second);
    first % CHUNK == 0
        && second % CHUNK == 0
        && has_few_kernel_elements(spatial(weight.sizes.get(2..).unwrap_or_default(), 1))
        && computes(&target, input.dtype, least, least * kernel_elements)
}

/// Returns true if matrix instructions should multiply contiguous images of so many positions by a weight of one kernel
/// element, without a copy: each is a matrix of channels by positions.
const fn convolution_reads_images(positions: i64) -> bool {
    fills_tiles(positions)
}
