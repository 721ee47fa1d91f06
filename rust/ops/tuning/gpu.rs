//! Tuning of matmuls on GPUs.

use super::field::{clash, Field};
use crate::cl::DeviceInfo;
use crate::error::Result;
use crate::kernels::Class;

/// Items of a work-group that all of today's GPUs support.
const COMMON_GROUP: usize = 256;
/// Bytes of a `Position` of `gemm_local.cl` with 64-bit offsets.
const POSITION_BYTES: i64 = 24;

/// Tiling of matmuls, as `rust/ops/matmul/gemm_local.rs` uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuTuning {
    /// Items per side of a work-group.
    pub side: i64,
    /// Rows, and columns, of C that an item computes for floats, if that leaves no compute unit idle; else
    /// [`Self::SMALL_ITEM`] is used.
    pub item: i64,
    /// Bytes of K that are copied into local memory at a time for items of [`Self::SMALL_ITEM`] rows; half for twice as
    /// many rows and for complex numbers, so that the loads in flight take as few registers.
    pub step_bytes: i64,
    /// Rows of square tiles of C whose groups run at the same time, and share what they read of B.
    pub band: i64,
    /// Work-groups per compute unit from which on K is not split.
    pub groups_per_unit: i64,
}

impl GpuTuning {
    /// Rows, and columns, of an item of small matmuls, and of wider dtypes.
    pub const SMALL_ITEM: i64 = 4;

    /// 8 x 8 sums per item, for four loads from local memory per step, and one or two sectors of a GPU's memory of K.
    /// For matrices they take at most 128 registers with ptxas for sm_90, which leaves space for two groups. Intel's
    /// GPUs, where 16 items share 4 KiB of registers, cannot hold them. Not measured on a GPU yet.
    pub fn of(info: &DeviceInfo) -> Self {
        let side = if info.max_work_group >= COMMON_GROUP { 16 } else { 8 };
        let item = if info.vendor.starts_with("Intel") { Self::SMALL_ITEM } else { 8 };
        let usual = Self { side, item, step_bytes: 64, band: 8, groups_per_unit: 2 };
        if usual.check(info).is_ok() {
            usual
        } else {
            Self { side: 8, item: Self::SMALL_ITEM, step_bytes: 32, ..usual }
        }
    }

    /// The parameters. Items take rows and columns in groups of 4.
    pub(super) fn fields(&mut self) -> [Field<'_>; 5] {
        let field = |name, value, least, most, step| Field { name, value, least, most, step };
        [
            field("side", &mut self.side, 8, 32, 8),
            field("item", &mut self.item, 4, 8, 4),
            field("step_bytes", &mut self.step_bytes, 16, 256, 16),
            field("band", &mut self.band, 1, 64, 1),
            field("groups_per_unit", &mut self.groups_per_unit, 1, 64, 1),
        ]
    }

    /// Checks that a device supports such groups, and has memory for them.
    pub(super) fn check(&self, info: &DeviceInfo) -> Result<()> {
        let Self { side, item, .. } = *self;
        let (items, most) = (side * side, info.max_work_group as i64);
        if !(side as u64).is_power_of_two() {
            return Err(clash(format!("side = {side} is not a power of two")));
        }
        if items > most {
            return Err(clash(format!("side = {side} makes work-groups of {items} items; the limit is {most}")));
        }
        let widest = if info.fp64 { Class::ComplexDouble } else { Class::Complex };
        for (class, item) in [(Class::Float, item), (widest, Self::SMALL_ITEM)] {
            let bytes = self.local_bytes(class, item);
            if bytes > info.local_mem as i64 {
                return Err(clash(format!(
                    "side = {side}, item = {item} and step_bytes = {} take {bytes} bytes of local memory; it has {}",
                    self.step_bytes, info.local_mem
                )));
            }
        }
        Ok(())
    }

    /// Elements of K that are copied at a time, a power of two. Every item copies equally many elements of a block, and
    /// the group a whole number of the block's rows at a time.
    pub fn step(&self, class: Class, item: i64) -> i64 {
        let parts = if class.is_complex() { 2 } else { 1 };
        let bytes = self.step_bytes * Self::SMALL_ITEM / (item.max(1) * parts);
        let elements = (bytes / class.size() as i64).max(self.side / Self::SMALL_ITEM);
        1 << elements.ilog2()
    }

    /// Local memory of a group of `gemm_local.cl`: two blocks of each operand, and the `Position`s along K.
    fn local_bytes(&self, class: Class, item: i64) -> i64 {
        let (step, square) = (self.step(class, item), self.side * item);
        4 * step * ((square + 4) * class.size() as i64 + POSITION_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cl::DeviceType;

    fn device(max_work_group: usize, local_mem: u64) -> DeviceInfo {
        let info = DeviceInfo::imagined(1, "device", "platform", DeviceType::Gpu);
        DeviceInfo { max_work_group, local_mem, ..info }
    }

    #[test]
    fn defaults_suit_every_device() {
        for (group, local) in [(64, 32 << 10), (256, 32 << 10), (1024, 48 << 10), (256, 16 << 10), (128, 64 << 10)] {
            for fp64 in [false, true] {
                let info = DeviceInfo { fp64, ..device(group, local) };
                assert_eq!(GpuTuning::of(&info).check(&info), Ok(()));
            }
        }
        assert_eq!(GpuTuning::of(&device(256, 32 << 10)).item, 8);
        let intel = DeviceInfo { vendor: "Intel(R) Corporation".to_owned(), ..device(1024, 64 << 10) };
        assert_eq!(GpuTuning::of(&intel).item, GpuTuning::SMALL_ITEM);
    }

    #[test]
    fn every_item_copies_equally_many_elements() {
        for side in [8, 16, 32] {
            for step_bytes in [16, 32, 64, 256] {
                let tuning = GpuTuning { side, step_bytes, ..GpuTuning::of(&device(1024, 48 << 10)) };
                for class in [Class::Float, Class::Double, Class::ComplexDouble] {
                    for item in [GpuTuning::SMALL_ITEM, 8] {
                        let step = tuning.step(class, item);
                        assert_eq!((item * step % side, side * side % step), (0, 0));
                    }
                }
            }
        }
    }

    #[test]
    fn groups_and_blocks_that_a_device_has_no_room_for_are_refused() {
        let (small, large) = (device(256, 32 << 10), device(1024, 96 << 10));
        let wide = GpuTuning { side: 32, ..GpuTuning::of(&large) };
        assert_eq!(wide.check(&large), Ok(()));
        assert!(wide.check(&small).is_err_and(|error| error.message().contains("work-groups of 1024 items")));
        let deep = GpuTuning { step_bytes: 256, ..GpuTuning::of(&small) };
        assert!(deep.check(&small).is_err_and(|error| error.message().contains("local memory; it has 32768")));
    }
}
