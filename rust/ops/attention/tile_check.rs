//! Checks that the programs of `attention_tile.cl` and `attention_tile_backward.cl` compute right results, for each
//! form before its first use.
//!
//! The inputs are multiples of 1/4, which 16-bit floats represent, and the results are compared with those of float64.

use half::{bf16, f16};

use super::tile::Form;
use super::tile_backward::BackwardForm;
use super::tile_form::Operands;
use crate::cl::{Buffer, Memory};
use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::structs::attention_arguments::{Attention, RowStrides};
use crate::kernels::{Class, DType, Family};
use crate::ops::core::checked::{start_of, Outcomes, Subject, Trial};
use crate::ops::core::space::div_ceil;
use crate::ops::Target;

static OUTCOMES: Outcomes<Form> = Outcomes::empty();
static BACKWARD_OUTCOMES: Outcomes<BackwardForm> = Outcomes::empty();

const HEADS: i64 = 2;
/// More than two blocks, and a part of one.
const KEYS: i64 = 165;
/// Elements after each row of results, and rows after the last, which nothing may write.
const GAP: i64 = 8;
const GAP_ROWS: i64 = 64;
const UNTOUCHED: u16 = 0x1234;
const UNTOUCHED_LOG: f32 = -12345.0;
/// Weights and results are rounded to 16 bits, with an error of at most 2^-9 of values up to 3.
const TOLERANCE: f64 = 0.03;
const LOG_TOLERANCE: f64 = 1e-3;

/// Returns true if a form may be used on a device. The first use on a driver checks it.
pub(super) fn is_right(target: &Target, form: &Form) -> bool {
    let subject = Subject { family: Family::AttentionTile, kernel: "attention", kind: form.operands.unit.kind.name() };
    OUTCOMES.is_right(target, form, subject, || check(target, form))
}

/// Returns true if a form of the backward pass may be used on a device. The first use on a driver checks it.
pub(super) fn backward_is_right(target: &Target, form: &BackwardForm) -> bool {
    let kind = form.operands.unit.kind.name();
    let subject = Subject { family: Family::AttentionTileBackward, kernel: "attention's backward", kind };
    BACKWARD_OUTCOMES.is_right(target, form, subject, || check_backward(target, form))
}

/// Quarters from -`most` to `most`, different along rows and columns.
fn value_of(row: i64, column: i64, most: i64) -> f64 {
    let hash = (row * 7919 + column * 104_729 + 12_345).wrapping_mul(2_654_435_761);
    ((hash >> 16).rem_euclid(8 * most + 1) - 4 * most) as f64 / 4.0
}

fn bytes_of(dtype: DType, value: f64) -> Vec<u8> {
    match dtype {
        DType::F16 => f16::from_f64(value).to_ne_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(value).to_ne_bytes().to_vec(),
        _ => (value as f32).to_ne_bytes().to_vec(),
    }
}

fn value_of_bits(dtype: DType, bits: u16) -> f64 {
    match dtype {
        DType::BF16 => bf16::from_bits(bits).to_f64(),
        _ => f16::from_bits(bits).to_f64(),
    }
}

/// A tensor of rows: its values and their bytes.
struct Rows {
    values: Vec<Vec<f64>>,
    bytes: Vec<u8>,
    row_bytes: i64,
}

impl Rows {
    fn new(dtype: DType, rows: i64, columns: i64, seed: i64, most: i64) -> Self {
        let values: Vec<Vec<f64>> =
            (0..rows).map(|row| (0..columns).map(|column| value_of(row + seed, column, most)).collect()).collect();
        let bytes = values.iter().flatten().flat_map(|value| bytes_of(dtype, *value)).collect();
        Self { values, bytes, row_bytes: columns * dtype.size() as i64 }
    }

    const fn strides(&self, head: i64) -> RowStrides {
        RowStrides { batch: 0, head: head * self.row_bytes, row: self.row_bytes }
    }

    fn row(&self, row: i64) -> &[f64] {
        self.values.get(row as usize).map_or(&[], Vec::as_slice)
    }
}

/// The inputs of a check on the device.
struct Inputs {
    rows: [Buffer; 3],
    bias: Option<Buffer>,
}

impl Inputs {
    fn upload(trial: &Trial<'_>, [query, key, value]: [&Rows; 3], bias: Option<&Rows>) -> Result<Self> {
        let upload = |rows: &Rows| trial.upload(&rows.bytes);
        Ok(Self { rows: [upload(query)?, upload(key)?, upload(value)?], bias: bias.map(upload).transpose()? })
    }
}

/// The arguments that both kernels take.
fn arguments(p: Attention, operands: &Operands, inputs: &Inputs, scale: f64) -> entry::AttentionArguments {
    let [query, key, value] = inputs.rows.each_ref().map(start_of);
    entry::AttentionArguments {
        p,
        query,
        key,
        value,
        dtype0: operands.dtype,
        bias: inputs.bias.as_ref().map_or(Memory::ABSENT, start_of),
        dtype1: operands.bias.unwrap_or(operands.dtype),
        scale: Value::real(Class::Float, scale),
    }
}

/// The dropout of a check. It draws as `attention_arguments.cl` describes.
struct Dropout {
    keep_prob: f64,
    queries: i64,
    keys: i64,
}

impl Dropout {
    const SEED: u64 = 0x1234_5678_9abc_def0;
    const OFFSET: u64 = (1 << 32) - 100;

    fn of(operands: &Operands, queries: i64, keys: i64) -> Self {
        Self { keep_prob: if operands.drops { 0.5 } else { 1.0 }, queries, keys }
    }

    fn arguments(&self) -> entry::DropoutArguments {
        let keep_prob = Value::real(Class::Float, self.keep_prob);
        entry::DropoutArguments { seed: Self::SEED, offset: Self::OFFSET, keep_prob }
    }

    fn factor(&self, head: i64, query: i64, key: i64) -> f64 {
        let row = div_ceil(self.queries, 16);
        let block = (head * div_ceil(self.keys, 2) + key / 2) * row + query / 16;
        let [a, b, c, d] = philox(Self::SEED, Self::OFFSET + (block * 8 + query % 8) as u64);
        let word = match (key % 2, query % 16 / 8) {
            (0, 0) => a,
            (0, _) => b,
            (_, 0) => c,
            _ => d,
        };
        if f64::from(word >> 8) < self.keep_prob * f64::from(1 << 24) {
            1.0 / self.keep_prob
        } else {
            0.0
        }
    }
}

/// Philox 4x32-10, as in `philox.cl`.
fn philox(seed: u64, counter: u64) -> [u32; 4] {
    let (mut words, mut keys) = ([counter as u32, (counter >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32]);
    for _ in 0..10 {
        let ([a, b, c, d], [key0, key1]) = (words, keys);
        let (product0, product1) = (u64::from(a) * 0xd251_1f53, u64::from(c) * 0xcd9e_8d57);
        let (high0, high1) = ((product0 >> 32) as u32, (product1 >> 32) as u32);
        words = [high1 ^ b ^ key0, product1 as u32, high0 ^ d ^ key1, product0 as u32];
        keys = [key0.wrapping_add(0x9e37_79b9), key1.wrapping_add(0xbb67_ae85)];
    }
    words
}

/// The result of a query, and the logarithm of its sum of weights. `kept` is what dropout multiplies a key's weight by.
fn expected(
    query: &[f64],
    [keys, values]: [&Rows; 2],
    bias: Option<&[f64]>,
    kept: impl Fn(i64) -> f64,
    seen: i64,
    scale: f64,
) -> (Vec<f64>, f64) {
    let added = |key: i64| bias.and_then(|row| row.get(key as usize)).copied().unwrap_or_default();
    let weights: Vec<f64> = (0..seen).map(|key| (dot(query, keys.row(key)) * scale + added(key)).exp()).collect();
    let total: f64 = weights.iter().sum();
    let columns = values.row(0).len();
    let at = |row: i64, column: usize| values.row(row).get(column).copied().unwrap_or_default();
    let sum = |column| (0..).zip(&weights).map(|(key, w)| w * kept(key) * at(key, column)).sum::<f64>() / total;
    ((0..columns).map(sum).collect(), total.ln())
}

/// Computes two heads that share their keys, with a causal mask, and compares all results.
fn check(target: &Target, form: &Form) -> Result<bool> {
    let Operands { dtype, bias: bias_dtype, width, unit, .. } = form.operands;
    let group = form.group();
    // A part of a block of queries too, and rows that are shorter than in local memory.
    let (queries, head_dim, value_head_dim) = (group.own_rows() + 21, width - 8, width);
    let query = Rows::new(dtype, HEADS * queries, head_dim, 0, 1);
    let key = Rows::new(dtype, KEYS, head_dim, 5000, 1);
    let value = Rows::new(dtype, KEYS, value_head_dim, 9000, 3);
    let bias = bias_dtype.map(|dtype| Rows::new(dtype, queries, KEYS, 13_000, 1));
    let dropout = Dropout::of(&form.operands, queries, KEYS);
    let scale = 2.0 / (head_dim as f64).sqrt();
    let pitch = value_head_dim + GAP;
    let mut out = vec![UNTOUCHED; ((HEADS * queries + GAP_ROWS) * pitch) as usize];
    let mut logs = vec![UNTOUCHED_LOG; (HEADS * queries + GAP_ROWS) as usize];

    let trial = Trial::new(target)?;
    let inputs = Inputs::upload(&trial, [&query, &key, &value], bias.as_ref())?;
    let (out_memory, logs_memory) = (trial.upload(&out)?, trial.upload(&logs)?);
    let attention = Attention {
        heads: HEADS,
        group: HEADS,
        queries,
        keys: KEYS,
        head_dim,
        value_head_dim,
        is_causal: 1,
        query: query.strides(queries),
        key: key.strides(KEYS),
        value: value.strides(KEYS),
        out: RowStrides { batch: 0, head: queries * pitch * 2, row: pitch * 2 },
        bias: bias.as_ref().map_or_else(RowStrides::default, |bias| bias.strides(0)),
        bias_column: bias_dtype.map_or(0, |dtype| dtype.size() as i64),
        ..Attention::default()
    };
    let args = entry::AttentionTile {
        attention: arguments(attention, &form.operands, &inputs, scale),
        out: start_of(&out_memory),
        logsumexp: start_of(&logs_memory),
        dropout: dropout.arguments(),
    };
    let kernel = form.program(target)?.kernel(entry::ATTENTION_TILE.name)?;
    let groups = (HEADS * div_ceil(queries, group.own_rows())) as usize;
    trial.run(&kernel, &args, groups, group.items(unit) as usize)?;
    trial.download(&out_memory, &mut out)?;
    trial.download(&logs_memory, &mut logs)?;

    let is_near = |bits: u16, expected: f64| (value_of_bits(dtype, bits) - expected).abs() <= TOLERANCE;
    let is_row = |(index, (found, log)): (i64, (&[u16], &f32))| {
        if index >= HEADS * queries {
            return found.iter().all(|bits| *bits == UNTOUCHED) && *log == UNTOUCHED_LOG;
        }
        let at = index % queries;
        let added = bias.as_ref().map(|bias| bias.row(at));
        let kept = |key| dropout.factor(index / queries, at, key);
        let (row, sum) = expected(query.row(index), [&key, &value], added, kept, KEYS.min(at + 1), scale);
        let (results, gap) = found.split_at(value_head_dim as usize);
        results.iter().zip(row).all(|(bits, expected)| is_near(*bits, expected))
            && (f64::from(*log) - sum).abs() <= LOG_TOLERANCE
            && gap.iter().all(|bits| *bits == UNTOUCHED)
    };
    Ok((0..).zip(out.chunks_exact(pitch as usize).zip(&logs)).all(is_row))
}

/// The gradients of a head's queries, and what the head adds to those of keys and values, for dense tensors.
struct Gradients {
    query: Vec<Vec<f64>>,
    key: Vec<Vec<f64>>,
    value: Vec<Vec<f64>>,
    /// The terms of each query: its logsumexp, no correction, and delta.
    terms: Vec<f32>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, row: &[f64]) {
    to.iter_mut().zip(row).for_each(|(to, x)| *to += factor * x);
}

/// The gradients of a head with a causal mask. It has as many rows as `dropout` has queries and keys.
fn gradients(inputs: [&Rows; 4], bias: Option<&Rows>, head: i64, dropout: &Dropout, scale: f64) -> Gradients {
    let [query, key, value, grad_out] = inputs;
    let (rows, first) = (dropout.queries, head * dropout.queries);
    let zeros = |like: &Rows| vec![vec![0.0; like.row(0).len()]; rows as usize];
    let mut all = Gradients { query: zeros(query), key: zeros(key), value: zeros(value), terms: Vec::new() };
    for q in 0..rows {
        let (own, grad) = (query.row(first + q), grad_out.row(first + q));
        let kept = |k| dropout.factor(head, q, k);
        let (out, log) = expected(own, [key, value], bias.map(|bias| bias.row(q)), kept, q + 1, scale);
        let delta = dot(grad, &out);
        all.terms.extend([log as f32, 0.0, delta as f32]);
        for k in 0..=q {
            let added = bias.and_then(|bias| bias.row(q).get(k as usize)).copied().unwrap_or_default();
            let weight = (dot(own, key.row(k)) * scale + added - log).exp();
            let grad_score = weight * (kept(k) * dot(grad, value.row(k)) - delta) * scale;
            if let (Some(to_query), Some(to_key), Some(to_value)) =
                (all.query.get_mut(q as usize), all.key.get_mut(k as usize), all.value.get_mut(k as usize))
            {
                add(to_query, grad_score, key.row(k));
                add(to_key, grad_score, own);
                add(to_value, weight * kept(k), grad);
            }
        }
    }
    all
}

/// Computes the gradients of two heads that share their keys, with a causal mask, and compares them.
fn check_backward(target: &Target, form: &BackwardForm) -> Result<bool> {
    let BackwardForm { operands: Operands { dtype, bias: bias_dtype, width, unit, .. }, owns_keys } = *form;
    let group = form.group();
    let (rows, head_dim, value_head_dim) = (group.own_rows() + 21, width - 8, width);
    let query = Rows::new(dtype, HEADS * rows, head_dim, 0, 1);
    let key = Rows::new(dtype, rows, head_dim, 5000, 1);
    let value = Rows::new(dtype, rows, value_head_dim, 9000, 1);
    let grad_out = Rows::new(dtype, HEADS * rows, value_head_dim, 17_000, 1);
    let bias = bias_dtype.map(|dtype| Rows::new(dtype, rows, rows, 13_000, 1));
    let dropout = Dropout::of(&form.operands, rows, rows);
    let scale = 2.0 / (head_dim as f64).sqrt();
    let heads: Vec<Gradients> = (0..HEADS)
        .map(|head| gradients([&query, &key, &value, &grad_out], bias.as_ref(), head, &dropout, scale))
        .collect();
    let terms: Vec<f32> = heads.iter().flat_map(|head| head.terms.iter().copied()).collect();
    let sum = |part: fn(&Gradients) -> &Vec<Vec<f64>>| -> Vec<Vec<f64>> {
        let mut total: Vec<Vec<f64>> = heads.first().map(|head| part(head).clone()).unwrap_or_default();
        for head in heads.iter().skip(1) {
            total.iter_mut().zip(part(head)).for_each(|(to, row)| add(to, 1.0, row));
        }
        total
    };
    let (owned, values) = if owns_keys {
        (sum(|head| &head.key), sum(|head| &head.value))
    } else {
        (heads.iter().flat_map(|head| head.query.iter().cloned()).collect(), Vec::new())
    };

    let trial = Trial::new(target)?;
    let inputs = Inputs::upload(&trial, [&query, &key, &value], bias.as_ref())?;
    let (grad_memory, terms_memory) = (trial.upload(&grad_out.bytes)?, trial.upload(&terms)?);
    let untouched = |rows: usize, columns: i64| vec![UNTOUCHED; (rows as i64 + GAP_ROWS) as usize * columns as usize];
    let (mut out, mut value_out) = (untouched(owned.len(), head_dim), untouched(values.len(), value_head_dim));
    let (out_memory, value_out_memory) = (trial.upload(&out)?, trial.upload(&value_out)?);
    let attention = Attention {
        heads: HEADS,
        group: HEADS,
        queries: rows,
        keys: rows,
        head_dim,
        value_head_dim,
        is_causal: 1,
        query: query.strides(rows),
        key: key.strides(rows),
        value: value.strides(rows),
        grad_query: query.strides(rows),
        grad_key: key.strides(rows),
        grad_value: value.strides(rows),
        grad_out: grad_out.strides(rows),
        bias: bias.as_ref().map_or_else(RowStrides::default, |bias| bias.strides(0)),
        bias_column: bias_dtype.map_or(0, |dtype| dtype.size() as i64),
        ..Attention::default()
    };
    let args = entry::AttentionTileBackward {
        attention: arguments(attention, &form.operands, &inputs, scale),
        grad_out: start_of(&grad_memory),
        row_terms: start_of(&terms_memory),
        grad_owned: start_of(&out_memory),
        grad_value: start_of(&value_out_memory),
        dropout: dropout.arguments(),
    };
    let kernel = form.program(target)?.kernel(entry::ATTENTION_TILE_BACKWARD.name)?;
    let owners = if owns_keys { 1 } else { HEADS };
    let groups = (owners * div_ceil(rows, group.own_rows())) as usize;
    trial.run(&kernel, &args, groups, group.items(unit) as usize)?;
    trial.download(&out_memory, &mut out)?;
    trial.download(&value_out_memory, &mut value_out)?;
    Ok(are_near(dtype, &out, &owned) && are_near(dtype, &value_out, &values))
}

/// Returns true if dense results are near to those expected, relative to the largest, and nothing comes after them.
fn are_near(dtype: DType, found: &[u16], expected: &[Vec<f64>]) -> bool {
    let largest = expected.iter().flatten().fold(0.0f64, |most, value| most.max(value.abs()));
    let (results, after) = found.split_at_checked(expected.iter().map(Vec::len).sum()).unwrap_or((&[], &[]));
    let value = |bits: u16| value_of_bits(dtype, bits);
    results
        .iter()
        .zip(expected.iter().flatten())
        .all(|(bits, right)| (value(*bits) - right).abs() <= TOLERANCE * largest)
        && after.iter().all(|bits| *bits == UNTOUCHED)
}

#[cfg(test)]
mod tests {
    use super::philox;

    #[test]
    fn random_words_are_those_of_the_authors() {
        // The first of the known answers of Random123.
        assert_eq!(philox(0, 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    }
}
