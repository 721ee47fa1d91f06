//! Checks that a weight has the tensors of its format.

use super::QuantizedWeight;
use crate::error::{Error, Result};
use crate::kernels::DType;
use crate::ops::Tensor;

/// Values of a table of codes; one with nested scales has also 256 values of the scales' codes, and their offset.
const TABLE_VALUES: i64 = 16;
const NESTED_VALUES: i64 = TABLE_VALUES + 256 + 1;
/// Nested scales that have one scale.
const NESTED_BLOCK: i64 = 256;
/// Columns of the smallest group.
const LEAST_GROUP: i64 = 32;

/// How scales belong to a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scales {
    /// In the blocks of the codes.
    InBlocks,
    /// By rows and groups of columns.
    OfGroups,
    /// By blocks that ignore rows; the codes are positions in a table.
    OfTable,
}

/// A format: its name, its number in `formats.cl`, and the columns and bytes of a block.
struct Format {
    name: &'static str,
    code: i64,
    columns: i64,
    bytes: i64,
    scales: Scales,
}

/// `TILES4` of `formats.cl`.
const TILES4: i64 = 103;

const fn ggml(name: &'static str, code: i64, columns: i64, bytes: i64) -> Format {
    Format { name, code, columns, bytes, scales: Scales::InBlocks }
}

const FORMATS: [Format; 15] = [
    ggml("q4_0", 2, 32, 18),
    ggml("q4_1", 3, 32, 20),
    ggml("q5_0", 6, 32, 22),
    ggml("q5_1", 7, 32, 24),
    ggml("q8_0", 8, 32, 34),
    ggml("q2_k", 10, 256, 84),
    ggml("q3_k", 11, 256, 110),
    ggml("q4_k", 12, 256, 144),
    ggml("q5_k", 13, 256, 176),
    ggml("q6_k", 14, 256, 210),
    ggml("iq4_nl", 20, 32, 18),
    Format { name: "table4", code: 100, columns: 32, bytes: 16, scales: Scales::OfTable },
    Format { name: "affine4", code: 101, columns: 32, bytes: 16, scales: Scales::OfGroups },
    Format { name: "affine8", code: 102, columns: 32, bytes: 32, scales: Scales::OfGroups },
    Format { name: "tiles4", code: TILES4, columns: 32, bytes: 16, scales: Scales::OfGroups },
];

/// The constants of a weight's program, and the positions of its scales.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Checked {
    /// `FORMAT`, `ZEROS` and `NESTED` of `formats.cl`.
    pub format: i64,
    pub zeros: i64,
    pub is_nested: bool,
    /// Chunks that alternate in tiles of 8 rows, or 0.
    pub pairs: i64,
    pub log2_group: i32,
    /// Elements between the scales of rows, and of the groups of a row.
    pub scale_row: i64,
    pub scale_group: i64,
}

/// Checks everything that kernels assume.
///
/// # Errors
/// [`Error::Invalid`] with what the format needs.
pub(super) fn check(weight: &QuantizedWeight<'_>) -> Result<Checked> {
    let QuantizedWeight { format: name, rows, k, .. } = *weight;
    let format = FORMATS.iter().find(|format| format.name == name).ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        invalid(format!("unknown format '{name}': the formats are {}", names.join(", ")))
    })?;
    ensure(rows >= 0 && k > 0, || format!("expected a weight of at least 0 x 1, got {rows} x {k}"))?;
    ensure(k % format.columns == 0, || {
        format!("a row of format '{name}' has a multiple of {} columns, got {k}", format.columns)
    })?;
    let expected = (k / format.columns).checked_mul(format.bytes).and_then(|row| row.checked_mul(rows));
    let bytes = weight.codes.numel() * weight.codes.dtype.size() as i64;
    ensure(expected == Some(bytes), || {
        let expected = expected.map_or("too many".to_owned(), |expected| expected.to_string());
        format!("a weight of {rows} x {k} in format '{name}' has {expected} bytes, got {bytes}")
    })?;
    let largest_bias = if matches!(name, "affine4" | "tiles4") { 15 } else { 0 };
    ensure((0..=largest_bias).contains(&weight.bias), || {
        format!("the bias of format '{name}' is 0 to {largest_bias}, got {}", weight.bias)
    })?;
    let pairs = if format.code == TILES4 { pairs(weight)? } else { 0 };
    let checked = Checked { format: format.code, pairs, ..Checked::default() };
    let has_zeros = is_present(&weight.zeros);
    if format.scales != Scales::OfGroups {
        ensure(weight.zeros_kind == "absent", || format!("format '{name}' has no zeros_kind"))?;
    }
    ensure(is_present(&weight.table) == (format.scales == Scales::OfTable), || {
        "format 'table4' needs a table, and others have none".to_owned()
    })?;
    if format.scales == Scales::InBlocks {
        let has_none = !is_present(&weight.scales) && !has_zeros;
        ensure(has_none, || format!("format '{name}' has its scales in the weight"))?;
        ensure(weight.codes.address.is_multiple_of(2), || {
            format!("the weight of format '{name}' starts at an odd byte of memory: clone() it")
        })?;
        return Ok(checked);
    }
    ensure(is_present(&weight.scales), || format!("format '{name}' needs scales"))?;
    expect_dtype("scales", &weight.scales, &[DType::F32, DType::F16, DType::BF16])?;
    let checked = Checked { log2_group: log2_group(weight)?, ..checked };
    if format.scales == Scales::OfTable {
        of_table(weight, checked)
    } else {
        of_groups(weight, checked)
    }
}

/// The logarithm of the group size. A row that is one group, and whose length is no power of two, has a larger one.
fn log2_group(weight: &QuantizedWeight<'_>) -> Result<i32> {
    let (size, k) = (weight.group_size, weight.k);
    let is_power = size >= LEAST_GROUP && size.count_ones() == 1;
    ensure(is_power || size == k, || {
        format!("expected a group size of 32, 64, 128 or another power of two, or {k} (a row), got {size}")
    })?;
    Ok(if is_power { size.ilog2() as i32 } else { k.ilog2() as i32 + 1 })
}

/// Codes are int32 of shape [rows / 8, k / (32 * pairs), 32, pairs].
fn pairs(weight: &QuantizedWeight<'_>) -> Result<i64> {
    let (codes, rows, k) = (&weight.codes, weight.rows, weight.k);
    if let [tiles, outer, 32, pairs @ (1 | 2 | 4)] = *codes.sizes {
        if tiles * 8 == rows && outer * pairs * 32 == k && codes.dtype == DType::I32 {
            return Ok(pairs);
        }
    }
    Err(invalid(format!(
        "expected int32 codes of shape [{rows} / 8, {k} / (32 * pairs), 32, pairs] in format 'tiles4', got {} {:?}",
        codes.dtype.name(),
        codes.sizes
    )))
}

fn of_table(weight: &QuantizedWeight<'_>, checked: Checked) -> Result<Checked> {
    let (size, is_nested) = (weight.group_size, is_present(&weight.zeros));
    ensure(size.count_ones() == 1, || format!("expected a block size that is a power of two, got {size}"))?;
    expect_dtype("the table", &weight.table, &[DType::F32])?;
    expect_count("values of the table", &weight.table, if is_nested { NESTED_VALUES } else { TABLE_VALUES })?;
    let blocks = (weight.rows * weight.k + size - 1) / size;
    if is_nested {
        expect_dtype("nested scales", &weight.zeros, &[DType::U8])?;
        expect_count("nested scales", &weight.zeros, blocks)?;
    }
    let scales = if is_nested { (blocks + NESTED_BLOCK - 1) / NESTED_BLOCK } else { blocks };
    expect_count(&format!("scales for blocks of {size}"), &weight.scales, scales)?;
    Ok(Checked { is_nested, ..checked })
}

fn of_groups(weight: &QuantizedWeight<'_>, checked: Checked) -> Result<Checked> {
    let (rows, k, size, scales) = (weight.rows, weight.k, weight.group_size, &weight.scales);
    ensure(k % size == 0, || format!("expected groups of {size} to divide a row of {k}"))?;
    let groups = k / size;
    let fits = scales.sizes == [rows, groups] || groups == 1 && scales.sizes == [rows];
    ensure(fits, || format!("expected scales of shape [{rows}, {groups}], got {:?}", scales.sizes))?;
    let zeros = match (weight.zeros_kind, is_present(&weight.zeros)) {
        ("absent", false) => 0,
        ("codes", true) => 1,
        ("values", true) => 2,
        ("absent" | "codes" | "values", _) => {
            let kind = weight.zeros_kind;
            return Err(invalid(format!("zeros_kind '{kind}' does not fit the argument zeros")));
        }
        (kind, _) => {
            return Err(invalid(format!("expected zeros_kind 'absent', 'codes' or 'values', got '{kind}'")));
        }
    };
    if zeros != 0 {
        let integers = [DType::U8, DType::I8, DType::I16, DType::I32, DType::I64];
        expect_dtype("zeros", &weight.zeros, &[&integers[..], &[DType::F32, DType::F16, DType::BF16]].concat())?;
        let same = weight.zeros.sizes == scales.sizes && weight.zeros.strides == scales.strides;
        ensure(same, || format!("expected zeros of shape {:?}, got {:?}", scales.sizes, weight.zeros.sizes))?;
    }
    let stride = |at: usize| scales.strides.get(at).copied().unwrap_or_default();
    Ok(Checked { zeros, scale_row: stride(0), scale_group: stride(1), ..checked })
}

/// False for an absent argument: its struct is empty.
fn is_present(tensor: &Tensor<'_>) -> bool {
    tensor.address != 0 || !tensor.sizes.is_empty()
}

fn expect_dtype(what: &str, tensor: &Tensor<'_>, allowed: &[DType]) -> Result<()> {
    ensure(allowed.contains(&tensor.dtype), || {
        let names: Vec<_> = allowed.iter().map(|dtype| dtype.name()).collect();
        format!("expected {what} to be {}, got {}", names.join(", "), tensor.dtype.name())
    })
}

fn expect_count(what: &str, tensor: &Tensor<'_>, expected: i64) -> Result<()> {
    ensure(tensor.numel() == expected, || format!("expected {expected} {what}, got {}", tensor.numel()))
}

fn ensure(is_right: bool, message: impl FnOnce() -> String) -> Result<()> {
    if is_right {
        Ok(())
    } else {
        Err(invalid(message()))
    }
}

fn invalid(message: String) -> Error {
    Error::Invalid(format!("quantised weight: {message}"))
}
