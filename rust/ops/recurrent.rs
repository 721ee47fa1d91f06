//! The elementwise part of LSTM and GRU cells. All tensors are contiguous.

use super::geometry::Geometry;
use super::tier::tier;
use super::{Target, Tensor};
use crate::cl::Arg;
use crate::error::Result;
use crate::kernels::Family;

/// Runs a kernel over the cells of `shape` [batch, hidden]; the first of `tensors` is written.
fn launch(kernel: &'static str, shape: &Tensor<'_>, tensors: &[&Tensor<'_>]) -> Result<()> {
    let (batch, hidden) = (shape.size(0), shape.size(1));
    if batch * hidden == 0 {
        return Ok(());
    }
    let target = Target::of(shape.address)?;
    let geometry = Geometry::of(&target, shape.class());
    let spec = geometry.define(tier(shape.numel(), &[("SPEC_DTYPE0", shape.dtype.code())]));
    let program = target.program(Family::Recurrent, shape.class(), &spec)?;
    let mut args = tensors.iter().map(|tensor| target.tensor(tensor)).collect::<Result<Vec<_>>>()?;
    args.extend([Arg::Int(shape.dtype.code()), Arg::Long(batch), Arg::Long(hidden)]);
    let strips = (hidden as u64).div_ceil(geometry.lanes as u64) as i64;
    target.launch(&program, kernel, &args, &geometry.items_for(batch * strips), None)
}

/// The two products that make the gates, and their biases, which may be absent.
#[derive(Clone, Copy, Debug)]
pub struct Gates<'a> {
    /// From the input.
    pub input: Tensor<'a>,
    /// From the hidden state.
    pub state: Tensor<'a>,
    /// Bias of the first.
    pub input_bias: Tensor<'a>,
    /// Bias of the second.
    pub state_bias: Tensor<'a>,
}

/// New hidden state and cell state of an LSTM; `saved` [batch, 4 hidden] keeps the gates.
///
/// # Errors
/// As the driver reports.
pub fn lstm(hy: &Tensor<'_>, cy: &Tensor<'_>, saved: &Tensor<'_>, gates: &Gates<'_>, cx: &Tensor<'_>) -> Result<()> {
    let Gates { input, state, input_bias, state_bias } = gates;
    launch("lstm_cell", hy, &[hy, cy, saved, input, state, input_bias, state_bias, cx])
}

/// Gradients of an LSTM's gates and cell state; either incoming gradient may be absent.
///
/// # Errors
/// As the driver reports.
pub fn lstm_backward(
    [grad_gates, grad_cx]: [&Tensor<'_>; 2],
    [grad_hy, grad_cy]: [&Tensor<'_>; 2],
    [cx, cy, saved]: [&Tensor<'_>; 3],
) -> Result<()> {
    launch("lstm_cell_backward", grad_cx, &[grad_gates, grad_cx, grad_hy, grad_cy, cx, cy, saved])
}

/// New hidden state of a GRU; `saved` [batch, 5 hidden] keeps what the backward needs.
///
/// # Errors
/// As the driver reports.
pub fn gru(hy: &Tensor<'_>, saved: &Tensor<'_>, gates: &Gates<'_>, hx: &Tensor<'_>) -> Result<()> {
    let Gates { input, state, input_bias, state_bias } = gates;
    launch("gru_cell", hy, &[hy, saved, input, state, input_bias, state_bias, hx])
}

/// Gradients of a GRU's gates, from the input and from the state, and of the state itself.
///
/// # Errors
/// As the driver reports.
pub fn gru_backward(
    [grad_input, grad_state, grad_hx]: [&Tensor<'_>; 3],
    grad_hy: &Tensor<'_>,
    saved: &Tensor<'_>,
) -> Result<()> {
    launch("gru_cell_backward", grad_hx, &[grad_input, grad_state, grad_hx, grad_hy, saved])
}
