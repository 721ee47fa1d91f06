//! Splits lengths into factors that work-groups can transform.

use crate::kernels::Class;
use crate::ops::Target;

/// Radices, in the order in which they are used; a work-item holds `VALUES` of `butterfly.cl`.
const RADICES: [i64; 6] = [8, 7, 5, 4, 3, 2];
const VALUES: i64 = 8;
/// Sizes of work-groups. The smallest one that holds a transform is used, so that more groups fit a compute unit.
pub(super) const GROUPS: [i64; 4] = [64, 128, 256, 512];
/// Local memory that every GPU has. If there is more, more groups share it.
const LOCAL_BYTES: i64 = 32 << 10;
/// Neighbours that are moved together if a transform's elements are not contiguous: 32 bytes of complex64, a sector.
pub const NEIGHBOURS: i64 = 4;
/// Maximum number of parts of a long transform: 4^8 elements with the shortest parts.
const MOST_PARTS: u32 = 8;

/// Resources of a device for a work-group.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    group: i64,
    local_bytes: i64,
    class: Class,
}

impl Limits {
    /// The limits of a device, for transforms in a class.
    pub fn of(target: &Target, class: Class) -> Self {
        let info = &target.device.info;
        Self { group: info.max_work_group as i64, local_bytes: (info.local_mem as i64).min(LOCAL_BYTES), class }
    }
}

/// Transforms of one length by a work-group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Elements of a transform.
    pub length: i64,
    /// Work-items.
    pub group: i64,
    /// Transforms.
    pub tile: i64,
    /// Local memory.
    pub bytes: i64,
}

/// The radices of the passes of a transform, or `None` for a length with a greater prime factor.
pub fn radices(length: i64) -> Option<Vec<i64>> {
    let (mut rest, mut radices) = (length, Vec::new());
    for radix in RADICES {
        while rest % radix == 0 && rest > 1 {
            radices.push(radix);
            rest /= radix;
        }
    }
    if radices.is_empty() {
        radices.push(1);
    }
    (rest == 1 && length > 0).then_some(radices)
}

/// Radices as a kernel argument: four bits each, the first one lowest.
pub fn packed(radices: &[i64]) -> i64 {
    radices.iter().rev().fold(0, |packed, radix| packed << 4 | radix)
}

/// The smallest group that computes `wanted` transforms at a time; if none does, the group that computes the most.
pub fn block(limits: Limits, length: i64, wanted: i64) -> Option<Block> {
    let radices = radices(length)?;
    let values = radices.iter().map(|radix| VALUES / radix * radix).min()?;
    // Whole blocks of local memory's banks, of 128 bytes.
    let bytes = (length * limits.class.size() as i64 + 127) / 128 * 128;
    let blocks = GROUPS.into_iter().filter(|&group| group <= limits.group).map(|group| {
        let tile = (values * group / length).min(limits.local_bytes / bytes);
        Block { length, group, tile, bytes: tile * bytes }
    });
    let mut widest: Option<Block> = None;
    for block in blocks.filter(|block| block.tile > 0) {
        if widest.is_none_or(|widest| widest.tile < wanted && widest.tile < block.tile) {
            widest = Some(block);
        }
    }
    widest
}

/// The lengths of the launches of a transform: one, or as few as possible so that a work-group can transform
/// `NEIGHBOURS` at a time.
pub fn parts(limits: Limits, length: i64) -> Option<Vec<i64>> {
    // Kernels take 32-bit indices.
    i32::try_from(length).ok().and_then(|_| radices(length))?;
    if block(limits, length, 1).is_some() {
        return Some(vec![length]);
    }
    (2..=MOST_PARTS).find_map(|count| split(limits, length, count))
}

/// `length` as a product of `count` lengths that are near to one another.
fn split(limits: Limits, length: i64, count: u32) -> Option<Vec<i64>> {
    let fits = |part: i64| block(limits, part, NEIGHBOURS).is_some_and(|block| block.tile >= NEIGHBOURS);
    if count == 1 {
        return fits(length).then(|| vec![length]);
    }
    let even = (length as f64).powf(1.0 / f64::from(count));
    let distance = |part: i64| (part as f64 / even).ln().abs();
    // No group holds a greater part.
    let mut divisors: Vec<i64> = (2..=(VALUES * 512).min(length)).filter(|part| length % part == 0).collect();
    divisors.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    divisors.into_iter().filter(|&part| fits(part)).find_map(|part| {
        let mut parts = split(limits, length / part, count - 1)?;
        parts.insert(0, part);
        Some(parts)
    })
}

/// A length that has a plan and holds the convolution of two sequences of `length` elements.
pub fn convolution_length(length: i64) -> i64 {
    let least = 2 * length - 1;
    let padded =
        |factor: i64| factor * ((least + factor - 1) / factor).max(1).unsigned_abs().next_power_of_two() as i64;
    [1, 3, 5, 9].into_iter().map(padded).fold(i64::MAX, i64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: Limits = Limits { group: 1024, local_bytes: LOCAL_BYTES, class: Class::Complex };
    const SMALL: Limits = Limits { group: 256, local_bytes: 16 << 10, class: Class::ComplexDouble };

    #[test]
    fn radices_multiply_to_the_length() {
        assert_eq!(radices(1), Some(vec![1]));
        assert_eq!(radices(2), Some(vec![2]));
        assert_eq!(radices(1024), Some(vec![8, 8, 8, 2]));
        assert_eq!(radices(630), Some(vec![7, 5, 3, 3, 2]));
        assert_eq!(radices(11), None);
        assert_eq!(packed(&[8, 7, 2]), 0x278);
    }

    #[test]
    fn short_transforms_share_a_small_group() {
        assert_eq!(block(GPU, 64, 1), Some(Block { length: 64, group: 64, tile: 8, bytes: 8 * 64 * 8 }));
        assert_eq!(block(GPU, 1024, 1).map(|block| (block.group, block.tile)), Some((128, 1)));
        assert_eq!(block(GPU, 1024, NEIGHBOURS).map(|block| (block.group, block.tile)), Some((512, 4)));
        assert_eq!(block(GPU, 4096, NEIGHBOURS).map(|block| (block.group, block.tile)), Some((512, 1)));
        assert_eq!(block(GPU, 8192, 1), None);
        assert_eq!(block(SMALL, 2048, 1), None, "its local memory holds fewer");
    }

    #[test]
    fn long_transforms_are_products_of_such_as_groups_hold() {
        assert_eq!(parts(GPU, 4096), Some(vec![4096]));
        assert_eq!(parts(GPU, 1 << 20), Some(vec![1024, 1024]));
        assert_eq!(parts(GPU, 22), None);
        for (limits, length) in [(GPU, 1 << 13), (GPU, 105 << 16), (SMALL, 1 << 24), (SMALL, 1_000_000)] {
            let parts = parts(limits, length).unwrap();
            assert_eq!(parts.iter().product::<i64>(), length);
            assert!(parts.iter().all(|&part| block(limits, part, NEIGHBOURS).unwrap().tile >= NEIGHBOURS), "{parts:?}");
        }
    }

    #[test]
    fn convolutions_have_room_for_all_products() {
        assert_eq!(convolution_length(11), 24);
        for length in [11, 13, 97, 1021, 65537] {
            let padded = convolution_length(length);
            assert!(padded >= 2 * length - 1 && padded < 3 * length && radices(padded).is_some());
        }
    }
}
