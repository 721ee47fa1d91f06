//! Interpolation of images of bytes along one dimension.
//!
//! Sums are computed in whole numbers, and the weights are rounded as by ATen's kernels for the CPU, so results are
//! the same. The weights are computed on the host in float64, which not all devices have.

use super::{ResampleRule, ResampleStep};
use crate::error::{Error, Result};
use crate::kernels::{entry, Class, Family, Spec};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::kept::KeptTables;
use crate::ops::core::space::div_ceil;
use crate::ops::{Target, Tensor};

/// A step between two sizes: rule, `align_corners`, scale, `coarse` and `fine`.
type Key = (i32, bool, f64, i32, i32);

static KEPT: KeptTables<Key> = KeptTables::new(16 << 20);

/// The largest shift of sums.
const MOST_SHIFT: u32 = 22;

/// Interpolates images from `coarse` to `fine` positions that are `inner` bytes apart. Both tensors are dense.
///
/// # Errors
/// [`Error::Unsupported`] for dimensions of 2^31 elements; else as the driver reports.
pub fn resample_bytes(
    output: &Tensor<'_>,
    input: &Tensor<'_>,
    step: &ResampleStep,
    coarse: i64,
    fine: i64,
    inner: i64,
) -> Result<()> {
    if output.numel() == 0 {
        return Ok(());
    }
    let outer = output.numel() / (fine * inner);
    let (Ok(coarse), Ok(fine)) = (i32::try_from(coarse), i32::try_from(fine)) else {
        let size = coarse.max(fine);
        return Err(Error::Unsupported(format!("OpenCL: a dimension of {size} elements cannot be resampled")));
    };
    let target = Target::of(output.address)?;
    let width = width(step, coarse, fine);
    let key = (step.rule.repr, step.align_corners, step.scale, coarse, fine);
    let content = || table(step, coarse, fine).into_iter().flat_map(i32::to_ne_bytes).collect();
    let table = KEPT.get(&target, key, content)?;
    let table = target.memory(table.address)?;
    let program = target.program(Family::ResampleBytes, Class::Integer, &Spec::generic())?;
    // A number for any run: more items than runs end at once.
    let items = Geometry::of(&target, Class::Integer).items_for(outer * i64::from(fine) * div_ceil(inner, 4));
    let (output, input) = (target.tensor(output)?, target.tensor(input)?);
    let args = entry::ResampleBytes { output, input, table, outer, inner, coarse, fine, width: width as i32 };
    target.launch(&program, entry::RESAMPLE_BYTES, &args, &items, None)
}

/// Number of inputs of a position.
fn width(step: &ResampleStep, coarse: i32, fine: i32) -> usize {
    step.width(i64::from(coarse), i64::from(fine), false).min(i64::from(coarse)) as usize
}

/// The kernel's table: the shift of sums, the first input of each position, and the weights by inputs.
fn table(step: &ResampleStep, coarse: i32, fine: i32) -> Vec<i32> {
    let width = width(step, coarse, fine);
    let positions: Vec<Position> = (0..fine).map(|o| Position::of(step, coarse, o)).collect();
    let shift = shift(positions.iter().map(|position| position.largest).fold(0.0, f64::max));
    let begins: Vec<i32> = positions.iter().map(|position| position.first.min(coarse - width as i32)).collect();
    let weight = |k: usize, position: &Position, begin: i32| {
        let at = k.checked_sub((position.first - begin) as usize);
        rounded(at.and_then(|at| position.weights.get(at)).copied().unwrap_or(0.0), shift)
    };
    let weights = (0..width).flat_map(|k| positions.iter().zip(&begins).map(move |(p, begin)| weight(k, p, *begin)));
    let mut table = vec![shift as i32];
    table.extend(&begins);
    table.extend(weights);
    table
}

/// The largest shift with which no positive weight exceeds 16 bits.
fn shift(largest: f64) -> u32 {
    let fits = |shift: &u32| 0.5 + largest * f64::from(2_u32 << shift) < f64::from(1 << 15);
    (0..MOST_SHIFT).find(|shift| !fits(shift)).unwrap_or(MOST_SHIFT)
}

fn rounded(weight: f64, shift: u32) -> i32 {
    let scaled = weight * f64::from(1_u32 << shift);
    // Large negative weights, of steps that do not fit the sizes, wrap as ATen's do.
    i32::from((scaled + 0.5_f64.copysign(scaled)) as i32 as i16)
}

/// The inputs of a position of the result.
struct Position {
    first: i32,
    weights: Vec<f64>,
    /// The largest weight while weights of equal inputs are added.
    largest: f64,
}

impl Position {
    fn of(step: &ResampleStep, coarse: i32, o: i32) -> Self {
        match step.rule {
            ResampleRule::Linear | ResampleRule::Cubic => Self::between(step, coarse, o),
            _ => Self::smooth(step, coarse, o),
        }
    }

    /// Two or four neighbours; inputs outside are moved inside, where their weights are added.
    fn between(step: &ResampleStep, coarse: i32, o: i32) -> Self {
        let is_linear = step.rule == ResampleRule::Linear;
        let o = f64::from(o);
        let at = if step.align_corners { step.scale * o } else { step.scale * (o + 0.5) - 0.5 };
        let at = if is_linear { at.max(0.0) } else { at };
        let low = (at.floor() as i32).min(coarse - 1);
        let part = (at - f64::from(low)).clamp(0.0, 1.0);
        let reach = if is_linear { 1 } else { 2 };
        let first = (low - reach + 1).clamp(0, coarse - 1);
        let mut position = Self { first, weights: Vec::new(), largest: 0.0 };
        for k in 1 - reach..=reach {
            let distance = f64::from(k) - part;
            position.add(
                (low + k).clamp(0, coarse - 1),
                if is_linear { triangle(distance) } else { keys(distance, -0.75) },
            );
        }
        position
    }

    /// All inputs under a kernel as wide as the step.
    fn smooth(step: &ResampleStep, coarse: i32, o: i32) -> Self {
        let wide = step.scale.max(1.0);
        let (center, reach) = (step.scale * (f64::from(o) + 0.5), step.rule.reach() * wide);
        let first = ((center - reach + 0.5) as i32).max(0);
        let most = (reach.ceil() as i32).saturating_mul(2).saturating_add(1);
        let count = (((center + reach + 0.5) as i32).min(coarse).saturating_sub(first)).clamp(0, most);
        let slope = 1.0 / wide;
        let weight = |i: i32| {
            let distance = (f64::from(i) - center + 0.5) * slope;
            match step.rule {
                ResampleRule::SmoothLinear => triangle(distance),
                ResampleRule::SmoothCubic => keys(distance, -0.5),
                _ => lanczos(distance),
            }
        };
        let weights: Vec<f64> = (first..first + count).map(weight).collect();
        let total: f64 = weights.iter().sum();
        let total = if total == 0.0 { 1.0 } else { total };
        let mut position = Self { first, weights: Vec::new(), largest: 0.0 };
        (first..).zip(weights).for_each(|(i, weight)| position.add(i, weight / total));
        position
    }

    /// Adds a weight to that of input `i`, which is one of those before or the next.
    fn add(&mut self, i: i32, weight: f64) {
        let at = (i - self.first) as usize;
        self.weights.resize(self.weights.len().max(at + 1), 0.0);
        if let Some(sum) = self.weights.get_mut(at) {
            *sum += weight;
            self.largest = self.largest.max(*sum);
        }
    }
}

fn triangle(x: f64) -> f64 {
    (1.0 - x.abs()).max(0.0)
}

/// Keys' cubic convolution, with his parameter `a`: Cubic convolution interpolation for digital image processing (1981).
fn keys(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

fn lanczos(x: f64) -> f64 {
    let sinc = |x: f64| if x == 0.0 { 1.0 } else { (std::f64::consts::PI * x).sin() / (std::f64::consts::PI * x) };
    if x.abs() < 3.0 {
        sinc(x) * sinc(x / 3.0)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rule: ResampleRule, scale: f64) -> ResampleStep {
        ResampleStep { rule, align_corners: false, scale, shift: 0 }
    }

    #[test]
    fn weights_are_rounded_to_16_bits() {
        // Twice as many positions: a quarter and three quarters, and the ends themselves.
        let (quarter, unit) = (1 << 12, 1 << 14);
        let expected =
            [[14, 0, 0, 0, 0].as_slice(), &[unit, 3 * quarter, quarter, 0], &[0, quarter, 3 * quarter, unit]];
        assert_eq!(table(&step(ResampleRule::Linear, 0.5), 2, 4), expected.concat());
        assert_eq!(rounded(-0.7, 1), -1);
    }

    #[test]
    fn the_shift_is_the_largest_that_fits() {
        assert_eq!(shift(1.0), 14);
        assert_eq!(shift(0.25), 16);
        assert_eq!(shift(1e-9), MOST_SHIFT);
    }

    #[test]
    fn weights_of_inputs_outside_are_added_to_those_of_the_ends() {
        let position = Position::of(&step(ResampleRule::Cubic, 0.5), 5, 0);
        assert_eq!(position.first, 0);
        assert_eq!(position.weights.len(), 2);
        assert!((position.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn no_position_reads_after_the_last_input() {
        for rule in [ResampleRule::SmoothLinear, ResampleRule::SmoothCubic, ResampleRule::SmoothLanczos] {
            for (coarse, fine) in [(1, 3), (3, 2), (50, 7), (7, 50)] {
                let step = step(rule, f64::from(coarse) / f64::from(fine));
                let table = table(&step, coarse, fine);
                let width = width(&step, coarse, fine) as i32;
                assert_eq!(table.len() as i32, 1 + fine * (1 + width));
                assert!(table[1..=fine as usize].iter().all(|first| (0..=coarse - width).contains(first)));
            }
        }
    }
}
