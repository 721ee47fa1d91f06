//! The steps of one direction of a recurrent layer: a matmul of the state, and the cell.
//!
//! All tensors have one dtype and are contiguous, except that weights may be transposed and saved gates may share the
//! memory of one step. States are [batch, hidden], gates [batch, gates * hidden]; tensors of the whole sequence have
//! the steps in front.

use crate::blas::matmul;
use crate::error::Result;
use crate::ops::matmul::epilogue::Activation;
use crate::ops::rnn::{self, Cell, CellInputs};
use crate::ops::{Scalar, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The forward pass of a layer.
    #[derive(Clone, Copy, Debug)]
    pub struct RnnSteps<'a> {
        pub cell: Cell,
        /// From the last step to the first.
        pub reverse: bool,
        /// State before the first step.
        pub hx: Tensor<'a>,
        /// Cell state before the first step of an LSTM.
        pub cx: Tensor<'a>,
        /// The state's weight, [hidden, gates * hidden].
        pub weight: Tensor<'a>,
        /// The state's bias of an LSTM or a GRU; may be absent.
        pub bias: Tensor<'a>,
        /// The input's part of the gates at all steps, with its bias; a plain cell expects both biases in it.
        pub gates: Tensor<'a>,
        /// Memory for the state's part of the gates at a step of an LSTM or a GRU.
        pub workspace: Tensor<'a>,
        /// Receives the states.
        pub output: Tensor<'a>,
        /// Receives the cell states of an LSTM.
        pub cells: Tensor<'a>,
        /// Receives what the backward pass of an LSTM or a GRU reads; may be `gates` of an LSTM.
        pub saved: Tensor<'a>,
    }

    /// The backward pass through the steps of a layer.
    #[derive(Clone, Copy, Debug)]
    pub struct RnnStepsBackward<'a> {
        pub cell: Cell,
        pub reverse: bool,
        /// Cell state before the first step of an LSTM.
        pub cx: Tensor<'a>,
        /// The state's weight, [gates * hidden, hidden].
        pub weight: Tensor<'a>,
        /// Results of the forward pass.
        pub output: Tensor<'a>,
        pub cells: Tensor<'a>,
        pub saved: Tensor<'a>,
        /// Gradient of the output, to which each step adds the gradient of its state.
        pub grad_output: Tensor<'a>,
        /// Receives the gradient of `hx`.
        pub grad_hx: Tensor<'a>,
        /// Receives the gradient of `cx`; holds the gradient of the last cell state, if there is one.
        pub grad_cx: Tensor<'a>,
        pub has_grad_cy: bool,
        /// Receives the gradients of the input's part of the gates.
        pub grad_input_gates: Tensor<'a>,
        /// Receives the gradients of the state's part; the same tensor, except for a GRU.
        pub grad_hidden_gates: Tensor<'a>,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        include!("torch_opencl/rust/ops/rnn/mod.rs.h");
        type Cell = crate::ops::rnn::Cell;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn rnn_steps(steps: &RnnSteps) -> Result<()>;
        fn rnn_steps_backward(steps: &RnnStepsBackward) -> Result<()>;
    }
}

use ffi::{RnnSteps, RnnStepsBackward};

const ONE: Scalar = Scalar { real: 1.0, imag: 0.0, integer: 1 };

/// Index in memory of the n-th step of `count`.
const fn step_index(n: i64, count: i64, reverse: bool) -> i64 {
    if reverse {
        count - 1 - n
    } else {
        n
    }
}

/// Computes all states, in the order of the steps.
///
/// # Errors
/// See [`matmul`]; errors of the driver.
fn rnn_steps(steps: &RnnSteps<'_>) -> Result<()> {
    let RnnSteps { cell, ref weight, ref workspace, .. } = *steps;
    let count = steps.output.size(0);
    let (mut state, mut cell_state) = (steps.hx, steps.cx);
    for n in 0..count {
        let t = step_index(n, count, steps.reverse);
        let (gates, hy) = (steps.gates.at(t), steps.output.at(t));
        if matches!(cell, Cell::Tanh | Cell::Relu) {
            let activation = if cell == Cell::Relu { Activation::Relu } else { Activation::None };
            let is_activated = matmul(&hy, &state, weight, &gates, ONE, ONE, activation)?;
            if cell == Cell::Tanh || !is_activated {
                rnn::plain_cell(cell, &hy)?;
            }
        } else {
            matmul(workspace, &state, weight, &Tensor::ABSENT, ONE, ONE, Activation::None)?;
            let inputs = |state| CellInputs {
                input_gates: gates,
                hidden_gates: *workspace,
                input_bias: Tensor::ABSENT,
                hidden_bias: steps.bias,
                state,
            };
            let saved = steps.saved.at(t);
            if cell == Cell::Lstm {
                let cy = steps.cells.at(t);
                rnn::lstm_cell(&inputs(cell_state), &hy, &cy, &saved)?;
                cell_state = cy;
            } else {
                rnn::gru_cell(&inputs(state), &hy, &saved)?;
            }
        }
        state = hy;
    }
    Ok(())
}

/// Computes the gradients of the gates at all steps, and of the first states, from the last step to the first.
///
/// # Errors
/// See [`matmul`]; errors of the driver.
fn rnn_steps_backward(steps: &RnnStepsBackward<'_>) -> Result<()> {
    let RnnStepsBackward { cell, ref grad_cx, .. } = *steps;
    let count = steps.output.size(0);
    for n in (0..count).rev() {
        let t = step_index(n, count, steps.reverse);
        let before = (n > 0).then(|| step_index(n - 1, count, steps.reverse));
        let (grad, saved) = (steps.grad_output.at(t), steps.saved.at(t));
        let (to_input, to_state) = (steps.grad_input_gates.at(t), steps.grad_hidden_gates.at(t));
        let grad_before = before.map_or(steps.grad_hx, |before| steps.grad_output.at(before));
        // The state before the first step has no other gradient.
        let added = before.map_or(Tensor::ABSENT, |_| grad_before);
        match cell {
            Cell::Lstm => {
                let has_grad_cy = steps.has_grad_cy || n + 1 < count;
                let grad_cy = if has_grad_cy { *grad_cx } else { Tensor::ABSENT };
                let cx = before.map_or(steps.cx, |before| steps.cells.at(before));
                rnn::lstm_cell_backward(&grad, &grad_cy, &cx, &steps.cells.at(t), &saved, &to_input, grad_cx)?;
            }
            Cell::Gru => rnn::gru_cell_backward(&grad, &saved, &added, &to_input, &to_state, &grad_before)?,
            _ => rnn::plain_cell_backward(cell, &grad, &steps.output.at(t), &to_input)?,
        }
        let added = if cell == Cell::Gru { grad_before } else { added };
        matmul(&grad_before, &to_state, &steps.weight, &added, ONE, ONE, Activation::None)?;
    }
    Ok(())
}
