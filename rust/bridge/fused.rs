//! The part of the bridge for operators that do the work of several: attention, recurrent cells, optimizers, lists of
//! tensors.

use super::attention::*;
use super::optimizer::*;
use super::pointwise::{foreach, foreach_norm};
use super::rnn::*;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
pub mod ffi {
    /// Numbers of an optimizer, for its first state and its second; what they mean is said in `ops/optimizer.rs`.
    #[derive(Clone, Copy)]
    struct OptimizerSettings {
        rate: f64,
        maximize: bool,
        weight_decay: f64,
        epsilon: f64,
        momentum: f64,
        damping: f64,
        momentum2: f64,
        rate_decay: f64,
        is_first: bool,
        nesterov: bool,
    }

    /// What a recurrent step starts from: products of input and state, biases that may be absent, and the state.
    #[derive(Clone, Copy)]
    struct CellInputs<'a> {
        input_gates: TensorArg<'a>,
        hidden_gates: TensorArg<'a>,
        input_bias: TensorArg<'a>,
        hidden_bias: TensorArg<'a>,
        state: TensorArg<'a>,
    }

    /// What is attended to: `ops::attention::Inputs`.
    #[derive(Clone, Copy)]
    struct AttentionInputs<'a> {
        query: TensorArg<'a>,
        key: TensorArg<'a>,
        value: TensorArg<'a>,
        bias: TensorArg<'a>,
    }

    /// How it is attended to: `ops::attention::Mode`.
    #[derive(Clone, Copy)]
    struct AttentionMode {
        scale: f64,
        causal: bool,
        keep: f64,
        stream: RandomStream,
    }

    /// Where its gradients go: `ops::attention::Gradients`.
    #[derive(Clone, Copy)]
    struct AttentionGradients<'a> {
        query: TensorArg<'a>,
        key: TensorArg<'a>,
        value: TensorArg<'a>,
        bias: TensorArg<'a>,
    }

    /// One operand of an operation on lists of tensors: `ops::List`.
    #[derive(Clone, Copy)]
    struct ListOperand<'a> {
        addresses: &'a [usize],
        dtype: i32,
        is_one: bool,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/bridge.rs.h");
        type TensorArg<'a> = crate::bridge::ffi::TensorArg<'a>;
        type Scalar = crate::bridge::ffi::Scalar;
        type RandomStream = crate::bridge::ffi::RandomStream;
    }

    extern "Rust" {
        fn foreach(
            op: u32,
            counts: &[i64],
            lists: &[ListOperand],
            numbers: &[Scalar],
            number_is_input: bool,
        ) -> Result<()>;
        fn foreach_norm(order: f64, counts: &[i64], out: &ListOperand, tensors: &ListOperand) -> Result<()>;
        fn optimizer_step(
            rule: i32,
            settings: &OptimizerSettings,
            counts: &[i64],
            lists: &[ListOperand],
            rate: &TensorArg,
            scale: &TensorArg,
            found_inf: &TensorArg,
        ) -> Result<()>;
        fn lstm_cell(inputs: CellInputs, hy: &TensorArg, cy: &TensorArg, workspace: &TensorArg) -> Result<()>;
        fn lstm_cell_backward(
            grad_hy: &TensorArg,
            grad_cy: &TensorArg,
            cx: &TensorArg,
            cy: &TensorArg,
            workspace: &TensorArg,
            grad_gates: &TensorArg,
            grad_cx: &TensorArg,
        ) -> Result<()>;
        fn gru_cell(inputs: CellInputs, hy: &TensorArg, workspace: &TensorArg) -> Result<()>;
        fn gru_cell_backward(
            grad_hy: &TensorArg,
            workspace: &TensorArg,
            grad_input_gates: &TensorArg,
            grad_hidden_gates: &TensorArg,
            grad_hx: &TensorArg,
        ) -> Result<()>;
        fn attention_fits(device: i32, dtype: i32, width: i64, value_width: i64) -> Result<bool>;
        fn attention_counters(batch: i64, heads: i64, queries: i64, keys: i64) -> u64;
        fn attention(inputs: AttentionInputs, mode: AttentionMode, out: &TensorArg, log_sums: &TensorArg)
            -> Result<()>;
        fn attention_backward(
            inputs: AttentionInputs,
            mode: AttentionMode,
            out: &TensorArg,
            log_sums: &TensorArg,
            grad_out: &TensorArg,
            gradients: AttentionGradients,
        ) -> Result<()>;
    }
}
