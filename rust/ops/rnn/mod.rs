//! Steps of recurrent cells, after the matmuls of input and state with their weights.
//!
//! All tensors are contiguous and have one dtype; states are [rows, hidden], gates [rows, gates * hidden].

use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::Family;
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The kinds of cells.
    #[derive(Debug)]
    #[repr(i64)]
    pub enum Cell {
        /// Long short-term memory.
        Lstm,
        /// Gated recurrent unit.
        Gru,
        /// One gate with tanh.
        Tanh,
        /// One gate with ReLU.
        Relu,
    }

    /// Inputs of a step.
    #[derive(Clone, Copy, Debug)]
    pub struct CellInputs<'a> {
        /// Matmul of the input.
        pub input_gates: Tensor<'a>,
        /// Matmul of the state.
        pub hidden_gates: Tensor<'a>,
        /// Bias of the input's matmul; may be absent.
        pub input_bias: Tensor<'a>,
        /// Bias of the state's matmul; may be absent.
        pub hidden_bias: Tensor<'a>,
        /// The state that the step changes: the cell state of an LSTM, the hidden state of a GRU.
        pub state: Tensor<'a>,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn lstm_cell(inputs: &CellInputs, hy: &Tensor, cy: &Tensor, gates: &Tensor) -> Result<()>;
        fn lstm_cell_backward(
            grad_hy: &Tensor,
            grad_cy: &Tensor,
            cx: &Tensor,
            cy: &Tensor,
            gates: &Tensor,
            grad_gates: &Tensor,
            grad_cx: &Tensor,
        ) -> Result<()>;
        fn gru_cell(inputs: &CellInputs, hy: &Tensor, saved: &Tensor) -> Result<()>;
        fn gru_cell_backward(
            grad_hy: &Tensor,
            saved: &Tensor,
            grad_added: &Tensor,
            grad_input_gates: &Tensor,
            grad_hidden_gates: &Tensor,
            grad_hx: &Tensor,
        ) -> Result<()>;
    }
}

pub use ffi::{Cell, CellInputs};

/// Launches a kernel over every element of `state`. `args` makes its arguments from the memory of `tensors`.
fn launch<A: Arguments, const N: usize>(
    kernel: EntryPoint<A>,
    state: &Tensor<'_>,
    tensors: [&Tensor<'_>; N],
    args: impl FnOnce([Memory; N], entry::CellArguments) -> A,
) -> Result<()> {
    if state.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(state.address)?;
    let geometry = Geometry::of(&target, state.class());
    // A step reads and writes many times the size of its state.
    let elements = tensors.iter().map(|tensor| tensor.numel()).sum();
    let spec = geometry.define(tier(elements, &[("SPEC_DTYPE0", state.dtype.code())]));
    let program = target.program(Family::Rnn, state.class(), &spec)?;
    let (rows, hidden) = (state.size(0), state.size(1));
    let mut memories = [Memory::ABSENT; N];
    for (memory, tensor) in memories.iter_mut().zip(tensors) {
        *memory = target.tensor(tensor)?;
    }
    let args = args(memories, entry::CellArguments { dtype0: state.dtype, rows, hidden });
    let vectors = div_ceil(hidden, geometry.lanes as i64);
    target.launch(&program, kernel, &args, &geometry.items_for(rows * vectors), None)
}

/// The new hidden and cell state of LSTM cells; `gates` keeps the activated gates.
///
/// # Errors
/// Errors reported by the driver.
pub fn lstm_cell(inputs: &CellInputs<'_>, hy: &Tensor<'_>, cy: &Tensor<'_>, gates: &Tensor<'_>) -> Result<()> {
    let CellInputs { input_gates, hidden_gates, input_bias, hidden_bias, state } = inputs;
    let tensors = [input_gates, hidden_gates, input_bias, hidden_bias, state, hy, cy, gates];
    launch(entry::LSTM_CELL, state, tensors, |memories, cell| {
        let [input_gates, hidden_gates, input_bias, hidden_bias, cx, hy, cy, workspace] = memories;
        entry::LstmCell { input_gates, hidden_gates, input_bias, hidden_bias, cx, hy, cy, workspace, cell }
    })
}

/// The gradients of gates and cell state, from the gradients of the outputs of `lstm_cell`, one of which may be absent.
/// `cx` and `cy` are the cell state before and after the step, `gates` the gates that `lstm_cell` saved.
///
/// # Errors
/// Errors reported by the driver.
pub fn lstm_cell_backward(
    grad_hy: &Tensor<'_>,
    grad_cy: &Tensor<'_>,
    cx: &Tensor<'_>,
    cy: &Tensor<'_>,
    gates: &Tensor<'_>,
    grad_gates: &Tensor<'_>,
    grad_cx: &Tensor<'_>,
) -> Result<()> {
    let tensors = [grad_hy, grad_cy, cx, cy, gates, grad_gates, grad_cx];
    launch(entry::LSTM_CELL_BACKWARD, cx, tensors, |memories, cell| {
        let [grad_hy, grad_cy, cx, cy, workspace, grad_gates, grad_cx] = memories;
        entry::LstmCellBackward { grad_hy, grad_cy, cx, cy, workspace, grad_gates, grad_cx, cell }
    })
}

/// The new hidden state of GRU cells; `saved` is [rows, 5 * hidden].
///
/// # Errors
/// Errors reported by the driver.
pub fn gru_cell(inputs: &CellInputs<'_>, hy: &Tensor<'_>, saved: &Tensor<'_>) -> Result<()> {
    let CellInputs { input_gates, hidden_gates, input_bias, hidden_bias, state } = inputs;
    let tensors = [input_gates, hidden_gates, input_bias, hidden_bias, state, hy, saved];
    launch(entry::GRU_CELL, state, tensors, |memories, cell| {
        let [input_gates, hidden_gates, input_bias, hidden_bias, hx, hy, workspace] = memories;
        entry::GruCell { input_gates, hidden_gates, input_bias, hidden_bias, hx, hy, workspace, cell }
    })
}

/// The gradients of both matmuls and of the state, to which `grad_added` is added; it may be absent, or `grad_hx`.
///
/// # Errors
/// Errors reported by the driver.
pub fn gru_cell_backward(
    grad_hy: &Tensor<'_>,
    saved: &Tensor<'_>,
    grad_added: &Tensor<'_>,
    grad_input_gates: &Tensor<'_>,
    grad_hidden_gates: &Tensor<'_>,
    grad_hx: &Tensor<'_>,
) -> Result<()> {
    let tensors = [grad_hy, saved, grad_added, grad_input_gates, grad_hidden_gates, grad_hx];
    launch(entry::GRU_CELL_BACKWARD, grad_hx, tensors, |memories, cell| {
        let [grad_hy, workspace, grad_added, grad_input_gates, grad_hidden_gates, grad_hx] = memories;
        entry::GruCellBackward { grad_hy, workspace, grad_added, grad_input_gates, grad_hidden_gates, grad_hx, cell }
    })
}

/// Applies the activation of a cell with one gate to the sum of both matmuls, in place.
///
/// # Errors
/// Errors reported by the driver.
pub fn plain_cell(cell: Cell, hy: &Tensor<'_>) -> Result<()> {
    let is_relu = i64::from(cell == Cell::Relu);
    launch(entry::PLAIN_CELL, hy, [hy], |[hy], cell| entry::PlainCell { hy, is_relu, cell })
}

/// The gradient of the gate of a cell with one gate, whose new state is `hy`.
///
/// # Errors
/// Errors reported by the driver.
pub fn plain_cell_backward(cell: Cell, grad_hy: &Tensor<'_>, hy: &Tensor<'_>, grad_gates: &Tensor<'_>) -> Result<()> {
    let is_relu = i64::from(cell == Cell::Relu);
    launch(entry::PLAIN_CELL_BACKWARD, hy, [grad_hy, hy, grad_gates], |[grad_hy, hy, grad_gates], cell| {
        entry::PlainCellBackward { grad_hy, hy, grad_gates, is_relu, cell }
    })
}
