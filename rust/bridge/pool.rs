//! Pooling for C++.

use super::ffi::{TensorArg, Windows};
use crate::error::Result;
use crate::ops::pool::{self, Divisor, Fixed, Pool};

impl<'a> Windows<'a> {
    fn pool(&self) -> Pool<'a> {
        let fixed = Fixed {
            kernel_size: self.kernel_size,
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
        };
        let windows = if self.kernel_size.is_empty() { pool::Windows::Adaptive } else { pool::Windows::Fixed(fixed) };
        Pool { spatial: self.spatial, windows }
    }
}

pub fn max_pool(
    windows: Windows<'_>,
    output: &TensorArg<'_>,
    indices: &TensorArg<'_>,
    input: &TensorArg<'_>,
) -> Result<()> {
    windows.pool().max(&output.tensor()?, &indices.tensor()?, &input.tensor()?)
}

pub fn max_pool_backward(
    windows: Windows<'_>,
    grad_input: &TensorArg<'_>,
    grad: &TensorArg<'_>,
    indices: &TensorArg<'_>,
) -> Result<()> {
    windows.pool().max_backward(&grad_input.tensor()?, &grad.tensor()?, &indices.tensor()?)
}

pub fn avg_pool(
    windows: Windows<'_>,
    output: &TensorArg<'_>,
    input: &TensorArg<'_>,
    count_padding: bool,
    divisor: i64,
) -> Result<()> {
    let divisor = Divisor { count_padding, override_with: divisor };
    windows.pool().average(&output.tensor()?, &input.tensor()?, divisor)
}

pub fn avg_pool_backward(
    windows: Windows<'_>,
    grad_input: &TensorArg<'_>,
    grad: &TensorArg<'_>,
    count_padding: bool,
    divisor: i64,
) -> Result<()> {
    let divisor = Divisor { count_padding, override_with: divisor };
    windows.pool().average_backward(&grad_input.tensor()?, &grad.tensor()?, divisor)
}
