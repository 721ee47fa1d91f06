//! Cells of recurrent networks for C++.

use super::ffi::{RecurrentGates, TensorArg};
use crate::error::Result;
use crate::ops::recurrent;

impl<'a> RecurrentGates<'a> {
    fn gates(&self) -> Result<recurrent::Gates<'a>> {
        let (input, state) = (self.input.tensor()?, self.state.tensor()?);
        let (input_bias, state_bias) = (self.input_bias.tensor()?, self.state_bias.tensor()?);
        Ok(recurrent::Gates { input, state, input_bias, state_bias })
    }
}

pub fn lstm_cell(
    hy: &TensorArg<'_>,
    cy: &TensorArg<'_>,
    saved: &TensorArg<'_>,
    gates: RecurrentGates<'_>,
    cx: &TensorArg<'_>,
) -> Result<()> {
    recurrent::lstm(&hy.tensor()?, &cy.tensor()?, &saved.tensor()?, &gates.gates()?, &cx.tensor()?)
}

pub fn lstm_cell_backward(
    grad_gates: &TensorArg<'_>,
    grad_cx: &TensorArg<'_>,
    grad_hy: &TensorArg<'_>,
    grad_cy: &TensorArg<'_>,
    cx: &TensorArg<'_>,
    cy: &TensorArg<'_>,
    saved: &TensorArg<'_>,
) -> Result<()> {
    let results = [&grad_gates.tensor()?, &grad_cx.tensor()?];
    let gradients = [&grad_hy.tensor()?, &grad_cy.tensor()?];
    recurrent::lstm_backward(results, gradients, [&cx.tensor()?, &cy.tensor()?, &saved.tensor()?])
}

pub fn gru_cell(
    hy: &TensorArg<'_>,
    saved: &TensorArg<'_>,
    gates: RecurrentGates<'_>,
    hx: &TensorArg<'_>,
) -> Result<()> {
    recurrent::gru(&hy.tensor()?, &saved.tensor()?, &gates.gates()?, &hx.tensor()?)
}

pub fn gru_cell_backward(
    grad_input: &TensorArg<'_>,
    grad_state: &TensorArg<'_>,
    grad_hx: &TensorArg<'_>,
    grad_hy: &TensorArg<'_>,
    saved: &TensorArg<'_>,
) -> Result<()> {
    let results = [&grad_input.tensor()?, &grad_state.tensor()?, &grad_hx.tensor()?];
    recurrent::gru_backward(results, &grad_hy.tensor()?, &saved.tensor()?)
}
