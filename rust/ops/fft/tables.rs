//! Tables of roots of unity, computed in double precision and kept on the device.

use std::f64::consts::FRAC_PI_4;
use std::sync::Arc;

use super::plan;
use crate::error::Result;
use crate::kernels::Class;
use crate::ops::core::kept::KeptTables;
use crate::ops::core::target::Workspace;
use crate::ops::Target;

/// A complex number.
type Pair = [f64; 2];

/// Contents of a table, for forward transforms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The twiddle factors of the passes over a work-group's transforms of a length, one pass after the other.
    Twiddles(i64),
    /// The roots of unity of a long transform: those of the lower bits of a power, then those of the upper ones.
    Roots(i64),
    /// exp(-pi i k^2 / length), for all k of a transform of any length.
    Chirp(i64),
    /// The transform of the conjugate of a chirp, divided by the length of the convolution with it.
    Spectrum(i64),
}

impl Table {
    /// The table in a device's memory.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn on(self, target: &Target, class: Class) -> Result<Arc<Workspace>> {
        KEPT.get(target, (class, self), || encoded(&self.values(), class))
    }

    fn values(self) -> Vec<Pair> {
        match self {
            Self::Twiddles(length) => twiddles(&plan::radices(length).unwrap_or_default()),
            Self::Roots(length) => {
                let low = 1 << root_bits(length);
                let upper = (0..length).step_by(low as usize).map(|power| root(power, length));
                (0..low).map(|power| root(power % length, length)).chain(upper).collect()
            }
            Self::Chirp(length) => chirp(length),
            Self::Spectrum(length) => spectrum(length),
        }
    }
}

static KEPT: KeptTables<(Class, Table)> = KeptTables::new(64 << 20);

fn encoded(values: &[Pair], class: Class) -> Vec<u8> {
    let parts = values.iter().flatten();
    if class.needs_fp64() {
        parts.flat_map(|part| part.to_ne_bytes()).collect()
    } else {
        parts.flat_map(|part| (*part as f32).to_ne_bytes()).collect()
    }
}

/// Number of lower bits of an exponent in the roots of a long transform: half of all bits.
pub fn root_bits(length: i64) -> i32 {
    (64 - length.leading_zeros()).div_ceil(2) as i32
}

/// exp(-2 pi i power / length), for powers below `length`. Sines and cosines are computed for at most an eighth of a
/// turn, whose angle is exact to the last bit.
fn root(power: i64, length: i64) -> Pair {
    let (octant, rest) = (8 * power / length, 8 * power % length);
    let angle = |part: i64| FRAC_PI_4 * (part as f64 / length as f64);
    let [cosine, sine] = if octant % 2 == 0 {
        let (sine, cosine) = angle(rest).sin_cos();
        [cosine, sine]
    } else {
        let (sine, cosine) = angle(length - rest).sin_cos();
        [cosine, -sine]
    };
    match (octant + 1) / 2 % 4 {
        0 => [cosine, -sine],
        1 => [-sine, -cosine],
        2 => [-cosine, sine],
        _ => [sine, cosine],
    }
}

fn twiddles(radices: &[i64]) -> Vec<Pair> {
    let mut span = 1;
    let mut table = Vec::new();
    for radix in radices {
        for r in 1..*radix {
            table.extend((0..span).map(|k| root(r * k, span * radix)));
        }
        span *= radix;
    }
    // A buffer must not be empty.
    table.push([1.0, 0.0]);
    table
}

fn chirp(length: i64) -> Vec<Pair> {
    (0..length).map(|k| root(k * k % (2 * length), 2 * length)).collect()
}

fn spectrum(length: i64) -> Vec<Pair> {
    let padded = plan::convolution_length(length);
    let scale = 1.0 / padded as f64;
    let chirp = chirp(length);
    let sequence: Vec<Pair> = (0..padded)
        .map(|k| {
            let [real, imag] = chirp.get(k.min(padded - k) as usize).copied().unwrap_or_default();
            [real * scale, -imag * scale]
        })
        .collect();
    let roots: Vec<Pair> = (0..padded).map(|power| root(power, padded)).collect();
    transform(&sequence, &roots)
}

/// The transform of `values`, from the roots of unity of a multiple of their length.
fn transform(values: &[Pair], roots: &[Pair]) -> Vec<Pair> {
    let length = values.len();
    let Some(radix) = [2, 3, 5, 7].into_iter().find(|radix| length > 1 && length.is_multiple_of(*radix)) else {
        return values.to_vec();
    };
    let parts: Vec<Vec<Pair>> = (0..radix)
        .map(|r| transform(&values.iter().skip(r).step_by(radix).copied().collect::<Vec<_>>(), roots))
        .collect();
    let at = |list: &[Pair], i: usize| list.get(i).copied().unwrap_or_default();
    let (part, step) = (length / radix, roots.len() / length);
    (0..length)
        .map(|k| {
            parts.iter().enumerate().fold([0.0, 0.0], |[real, imag], (r, values)| {
                let ([a, b], [c, d]) = (at(values, k % part), at(roots, r * k * step % roots.len()));
                [real + a * c - b * d, imag + a * d + b * c]
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(got: &[Pair], expected: &[Pair]) {
        assert_eq!(got.len(), expected.len());
        for (a, b) in got.iter().flatten().zip(expected.iter().flatten()) {
            assert!((a - b).abs() < 1e-12, "{got:?} is not {expected:?}");
        }
    }

    #[test]
    fn roots_of_unity_are_exact_on_the_axes() {
        assert_eq!(
            [0, 1, 2, 3].map(|power| root(power, 4).map(|part| part + 0.0)),
            [[1.0, 0.0], [0.0, -1.0], [-1.0, 0.0], [0.0, 1.0]]
        );
        let expected: Vec<Pair> =
            (0..15).map(|k| -std::f64::consts::TAU * f64::from(k) / 15.0).map(|x| [x.cos(), x.sin()]).collect();
        assert_near(&(0..15).map(|power| root(power, 15)).collect::<Vec<_>>(), &expected);
    }

    #[test]
    fn twiddles_of_a_pass_follow_those_of_the_previous_pass() {
        let table = twiddles(&[4, 3]);
        assert_eq!(table.len(), 12);
        assert_near(&table[3..11], &[0, 1, 2, 3, 0, 2, 4, 6].map(|power| root(power, 12)));
    }

    #[test]
    fn the_lower_and_the_upper_bits_of_a_power_have_a_root_each() {
        let (length, low) = (1000, 1 << root_bits(1000));
        let table = Table::Roots(length).values();
        for power in [0, 1, 31, 32, 777, 999_usize] {
            let ([a, b], [c, d]) = (table[power % low], table[low + power / low]);
            assert_near(&[[a * c - b * d, a * d + b * c]], &[root(power as i64, length)]);
        }
    }

    #[test]
    fn transforms_of_an_impulse_are_roots_of_unity() {
        let roots: Vec<Pair> = (0..30).map(|power| root(power, 30)).collect();
        let mut impulse = vec![[0.0, 0.0]; 30];
        impulse[1] = [1.0, 0.0];
        assert_near(&transform(&impulse, &roots), &roots);
    }
}
