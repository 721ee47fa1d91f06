//! Checks that the programs of `attention_tile.cl` compute right results, for each form before its first use.
//!
//! The inputs are multiples of 1/4, which 16-bit floats represent, and the results are compared with those of float64.

use half::{bf16, f16};

use super::tile::Form;
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::structs::attention_arguments::{Attention, RowStrides};
use crate::kernels::{Class, DType, Family};
use crate::ops::core::checked::{start_of, Outcomes, Subject, Trial};
use crate::ops::core::space::div_ceil;
use crate::ops::Target;

static OUTCOMES: Outcomes<Form> = Outcomes::empty();

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
    let subject = Subject { family: Family::AttentionTile, kernel: "attention", kind: form.unit.kind.name() };
    OUTCOMES.is_right(target, form, subject, || check(target, form))
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

/// The result of a query, and the logarithm of its sum of weights.
fn expected(query: &[f64], keys: &Rows, values: &Rows, bias: Option<&[f64]>, seen: i64, scale: f64) -> (Vec<f64>, f64) {
    let dot = |key: &[f64]| query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() * scale;
    let added = |key: i64| bias.and_then(|row| row.get(key as usize)).copied().unwrap_or_default();
    let weights: Vec<f64> = (0..seen).map(|key| (dot(keys.row(key)) + added(key)).exp()).collect();
    let total: f64 = weights.iter().sum();
    let columns = values.row(0).len();
    let at = |row: i64, column: usize| values.row(row).get(column).copied().unwrap_or_default();
    let sum = |column| (0..).zip(&weights).map(|(key, weight)| weight * at(key, column)).sum::<f64>() / total;
    ((0..columns).map(sum).collect(), total.ln())
}

/// Computes two heads that share their keys, with a causal mask, and compares all results.
fn check(target: &Target, form: &Form) -> Result<bool> {
    let Form { dtype, bias: bias_dtype, width, .. } = *form;
    // A part of a block of queries too, and rows that are shorter than in local memory.
    let (queries, head_dim, value_head_dim) = (form.queries() + 21, width - 8, width);
    let query = Rows::new(dtype, HEADS * queries, head_dim, 0, 1);
    let key = Rows::new(dtype, KEYS, head_dim, 5000, 1);
    let value = Rows::new(dtype, KEYS, value_head_dim, 9000, 3);
    let bias = bias_dtype.map(|dtype| Rows::new(dtype, queries, KEYS, 13_000, 1));
    let scale = 2.0 / (head_dim as f64).sqrt();
    let pitch = value_head_dim + GAP;
    let mut out = vec![UNTOUCHED; ((HEADS * queries + GAP_ROWS) * pitch) as usize];
    let mut logs = vec![UNTOUCHED_LOG; (HEADS * queries + GAP_ROWS) as usize];

    let trial = Trial::new(target)?;
    let [query_memory, key_memory, value_memory] =
        [trial.upload(&query.bytes)?, trial.upload(&key.bytes)?, trial.upload(&value.bytes)?];
    let bias_memory = bias.as_ref().map(|bias| trial.upload(&bias.bytes)).transpose()?;
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
        attention: entry::AttentionArguments {
            p: attention,
            query: start_of(&query_memory),
            key: start_of(&key_memory),
            value: start_of(&value_memory),
            dtype0: dtype,
            bias: bias_memory.as_ref().map_or(Memory::ABSENT, start_of),
            dtype1: bias_dtype.unwrap_or(dtype),
            scale: Value::real(Class::Float, scale),
        },
        out: start_of(&out_memory),
        logsumexp: start_of(&logs_memory),
    };
    let kernel = form.program(target)?.kernel(entry::ATTENTION_TILE.name)?;
    let groups = (HEADS * div_ceil(queries, form.queries())) as usize;
    trial.run(&kernel, &args, groups, form.items() as usize)?;
    trial.download(&out_memory, &mut out)?;
    trial.download(&logs_memory, &mut logs)?;

    let is_near = |bits: u16, expected: f64| {
        let found = if dtype == DType::BF16 { bf16::from_bits(bits).to_f64() } else { f16::from_bits(bits).to_f64() };
        (found - expected).abs() <= TOLERANCE
    };
    let is_row = |(index, (found, log)): (i64, (&[u16], &f32))| {
        if index >= HEADS * queries {
            return found.iter().all(|bits| *bits == UNTOUCHED) && *log == UNTOUCHED_LOG;
        }
        let at = index % queries;
        let added = bias.as_ref().map(|bias| bias.row(at));
        let (row, sum) = expected(query.row(index), &key, &value, added, KEYS.min(at + 1), scale);
        let (results, gap) = found.split_at(value_head_dim as usize);
        results.iter().zip(row).all(|(bits, expected)| is_near(*bits, expected))
            && (f64::from(*log) - sum).abs() <= LOG_TOLERANCE
            && gap.iter().all(|bits| *bits == UNTOUCHED)
    };
    Ok((0..).zip(out.chunks_exact(pitch as usize).zip(&logs)).all(is_row))
}
