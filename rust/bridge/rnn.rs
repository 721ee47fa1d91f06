//! Recurrent cells for C++.

use super::ffi::TensorArg;
use super::fused::ffi::CellInputs;
use crate::error::Result;
use crate::ops::rnn::{self, Inputs};

impl<'a> CellInputs<'a> {
    fn tensors(&self) -> Result<Inputs<'a>> {
        Ok(Inputs {
            input_gates: self.input_gates.tensor()?,
            hidden_gates: self.hidden_gates.tensor()?,
            input_bias: self.input_bias.tensor()?,
            hidden_bias: self.hidden_bias.tensor()?,
            state: self.state.tensor()?,
        })
    }
}

pub fn lstm_cell(
    inputs: CellInputs<'_>,
    hy: &TensorArg<'_>,
    cy: &TensorArg<'_>,
    workspace: &TensorArg<'_>,
) -> Result<()> {
    rnn::lstm_cell(&inputs.tensors()?, &hy.tensor()?, &cy.tensor()?, &workspace.tensor()?)
}

pub fn lstm_cell_backward(
    grad_hy: &TensorArg<'_>,
    grad_cy: &TensorArg<'_>,
    cx: &TensorArg<'_>,
    cy: &TensorArg<'_>,
    workspace: &TensorArg<'_>,
    grad_gates: &TensorArg<'_>,
    grad_cx: &TensorArg<'_>,
) -> Result<()> {
    let saved = rnn::LstmSaved { cx: cx.tensor()?, cy: cy.tensor()?, gates: workspace.tensor()? };
    rnn::lstm_cell_backward(&grad_hy.tensor()?, &grad_cy.tensor()?, &saved, &grad_gates.tensor()?, &grad_cx.tensor()?)
}

pub fn gru_cell(inputs: CellInputs<'_>, hy: &TensorArg<'_>, workspace: &TensorArg<'_>) -> Result<()> {
    rnn::gru_cell(&inputs.tensors()?, &hy.tensor()?, &workspace.tensor()?)
}

pub fn gru_cell_backward(
    grad_hy: &TensorArg<'_>,
    workspace: &TensorArg<'_>,
    grad_input_gates: &TensorArg<'_>,
    grad_hidden_gates: &TensorArg<'_>,
    grad_hx: &TensorArg<'_>,
) -> Result<()> {
    rnn::gru_cell_backward(
        &grad_hy.tensor()?,
        &workspace.tensor()?,
        &grad_input_gates.tensor()?,
        &grad_hidden_gates.tensor()?,
        &grad_hx.tensor()?,
    )
}
