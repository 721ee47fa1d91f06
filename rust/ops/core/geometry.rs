//! Work-groups and vectors of the kernels that share `vector.cl`.

use super::target::{Target, ITEM_GROUP};
use crate::error::Result;
use crate::kernels::entry::{Arguments, EntryPoint};
use crate::kernels::{CachedProgram, Class, Spec};

/// Bytes that a work-item processes at a time: a register of today's CPUs, a load of today's GPUs.
const CPU_VECTOR: usize = 64;
const GPU_VECTOR: usize = 16;
/// Maximum number of elements of narrow dtypes that a work-item of a GPU processes at a time.
const MOST_GPU_LANES: usize = 8;
/// Items that share a reduction on GPUs. On CPUs each item works alone, as barriers cost more than they save.
const GPU_GROUP: usize = 256;
/// Shortest row for which such a group is faster than one item per row.
const SHORT_FOR_GROUP: i64 = 64;
/// Items of a GPU's group that read neighbouring columns of a row: a subgroup, or half of one.
const COLUMN_ITEMS: i64 = 32;
/// Vectors of columns are worth taking if their items are this fraction of those that fill a device: two groups for each
/// compute unit.
const VECTORS_FOR_DEVICE: usize = OCCUPANCY_TARGET / 2;
/// Rows of a column that are worth a separate item.
const ROWS_OF_PART: i64 = 4;
/// Occupancy target, groups for each compute unit: enough for even shares when tasks differ or cores are busy.
const OCCUPANCY_TARGET: usize = 16;

/// Work of a kernel of `columns.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Strips of neighbouring columns, each in one row or split.
    pub tasks: i64,
    /// Strips that lie side by side.
    pub beside: i64,
    /// Elements of a column.
    pub length: i64,
    /// True if the elements of a column are contiguous, so that columns are really short rows.
    pub is_row: bool,
}

fn power_of_two(size: i64) -> i64 {
    (size.max(1) as u64).next_power_of_two() as i64
}

/// Launch geometry of a family's kernels on a device: the `LSIZE` and `VEC` that its programs are built with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Items of a work-group.
    pub group: usize,
    /// Elements of a vector.
    pub lanes: usize,
    /// Work-groups that fill the device.
    pub groups: usize,
    is_cpu: bool,
}

impl Geometry {
    /// The geometry of a device for a compute class.
    pub fn of(target: &Target, class: Class) -> Self {
        let is_cpu = target.is_cpu();
        let limit = target.device.info.max_work_group.max(1);
        let group = if is_cpu { 1 } else { GPU_GROUP.min(1 << limit.ilog2()) };
        let lanes = match class {
            Class::Complex | Class::ComplexDouble => 1,
            _ if is_cpu => CPU_VECTOR / class.size(),
            _ => GPU_VECTOR / class.size(),
        };
        Self { group, lanes, groups: target.compute_units() * OCCUPANCY_TARGET, is_cpu }
    }

    /// Adds the constants to the spec of a program.
    pub fn define(&self, spec: Spec) -> Spec {
        spec.define("LSIZE", self.group as i64).define("VEC", self.lanes as i64)
    }

    /// (global, local) size for kernels whose groups take whole tasks.
    pub fn groups_for(&self, tasks: i64) -> ([usize; 1], [usize; 1]) {
        let groups = self.groups.min(tasks.max(0) as usize);
        ([groups * self.group], [self.group])
    }

    /// Global size for kernels whose items take whole tasks: many tasks each on CPUs; one each on GPUs, or none for
    /// items that fill up a group.
    pub fn items_for(&self, tasks: i64) -> [usize; 1] {
        let tasks = tasks.max(0) as usize;
        [if self.is_cpu { tasks.min(self.groups) } else { tasks.next_multiple_of(ITEM_GROUP) }]
    }

    /// The geometry of kernels whose items take neighbouring columns. On GPUs an item takes a vector of them if the
    /// `beside` contiguous ones are enough for a subgroup, and all `columns` (those of every row and every possible
    /// split) for the device; else an item takes one column.
    pub const fn for_columns(self, beside: i64, columns: i64) -> Self {
        let vectors = columns / self.lanes as i64;
        let fills = beside >= COLUMN_ITEMS * self.lanes as i64
            && vectors * self.most_column_parts() >= (self.groups * self.group / VECTORS_FOR_DEVICE) as i64;
        Self { lanes: if self.is_cpu || fills { self.lanes } else { 1 }, ..self }
    }

    /// Items of a group that share a task if a subgroup's columns lie side by side.
    pub const fn most_column_parts(&self) -> i64 {
        self.group as i64 / COLUMN_ITEMS
    }

    /// Items of a group that share each task: `parts` of `columns.cl`, a power of two.
    pub fn column_parts(&self, columns: Columns) -> i64 {
        let tasks = columns.tasks.max(1);
        let (beside, wanted) = if columns.is_row {
            // A short enough row takes one step.
            (self.group as i64 / COLUMN_ITEMS, power_of_two(columns.length))
        } else {
            let wanted = (self.occupancy_target(false) / tasks).min(columns.length / ROWS_OF_PART);
            (power_of_two(columns.beside).min(COLUMN_ITEMS), wanted)
        };
        let most = self.group as i64 / beside.max(1);
        most.max(1).min(1 << wanted.max(1).ilog2())
    }

    /// Launches a kernel of `columns.cl`, and computes its argument `parts`.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn launch_columns<A: Arguments>(
        &self,
        target: &Target,
        program: &CachedProgram,
        kernel: EntryPoint<A>,
        args: impl FnOnce(i32) -> A,
        columns: Columns,
    ) -> Result<()> {
        let parts = self.column_parts(columns);
        let args = args(parts as i32);
        if self.group == 1 {
            return target.launch(program, kernel, &args, &self.items_for(columns.tasks), None);
        }
        let items = (columns.tasks.max(0) * parts) as usize;
        target.launch(program, kernel, &args, &[items.next_multiple_of(self.group)], Some(&[self.group]))
    }

    /// Launches a kernel that joins the `splits` of each of `results`: on CPUs with one item for each result.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn launch_join<A: Arguments>(
        &self,
        target: &Target,
        program: &CachedProgram,
        kernel: EntryPoint<A>,
        args: impl FnOnce(i32) -> A,
        (results, splits): (i64, i64),
    ) -> Result<()> {
        if self.group == 1 {
            return target.launch(program, kernel, &args(1), &[results.max(0) as usize], None);
        }
        self.launch_columns(
            target,
            program,
            kernel,
            args,
            Columns { tasks: results, beside: results, length: splits, is_row: false },
        )
    }

    /// Returns true if rows of `length` elements would leave most of a group idle; each item then takes a separate row.
    pub fn starves(&self, length: i64) -> bool {
        self.group > 1 && length < SHORT_FOR_GROUP
    }

    /// Items of a group that share a run of `length` elements; the other items take the next runs.
    pub fn run_items(&self, length: i64) -> i32 {
        let vectors = (length.max(1) as usize).div_ceil(self.lanes);
        self.group.min(vectors.next_power_of_two()) as i32
    }

    /// Independent pieces of work that keep the device busy, for kernels whose items (or groups) take whole tasks.
    pub fn occupancy_target(&self, by_group: bool) -> i64 {
        let pieces = if by_group || self.is_cpu { self.groups } else { self.groups * GPU_GROUP };
        pieces as i64
    }
}

/// Elements of `size` bytes that an item of a GPU loads at a time in a specialised program, if generic programs load
/// `lanes`: as many as fill a load, since more bytes in flight hide the latency of memory.
pub fn filling_lanes(lanes: usize, size: usize) -> usize {
    (GPU_VECTOR / size).min(MOST_GPU_LANES).max(lanes)
}

/// Elements of a vector that fits a register of the device, or two registers on CPUs; complex numbers have no vectors.
pub fn native_lanes(target: &Target, class: Class) -> i64 {
    let floats = i64::from(target.device.info.native_vector_floats.clamp(8, 16));
    match class {
        Class::Complex | Class::ComplexDouble => 1,
        _ if target.is_cpu() => floats * 4 / class.size() as i64,
        _ => 4,
    }
}

#[cfg(test)]
impl Geometry {
    /// A made-up device.
    pub const fn for_tests(group: usize, lanes: usize, groups: usize) -> Self {
        Self { group, lanes, groups, is_cpu: group == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(tasks: i64, length: i64) -> Columns {
        Columns { tasks, beside: tasks, length, is_row: false }
    }

    #[test]
    fn items_of_cpus_share_no_columns() {
        let cpu = Geometry::for_tests(1, 16, 32);
        assert_eq!(cpu.for_columns(1, 1), cpu);
        assert_eq!(cpu.column_parts(columns(1, 1 << 20)), 1);
        assert_eq!(cpu.column_parts(Columns { tasks: 1500, beside: 1500, length: 33, is_row: true }), 1);
    }

    #[test]
    fn items_of_gpus_share_columns_where_these_are_few() {
        let gpu = Geometry::for_tests(256, 4, 32);
        assert_eq!([1, 127, 128, 512].map(|beside| gpu.for_columns(beside, 512).lanes), [1, 1, 4, 4]);
        assert_eq!(gpu.for_columns(511, 511).lanes, 1);
        assert_eq!(gpu.column_parts(columns(1, 1 << 20)), 256);
        assert_eq!(gpu.column_parts(columns(5, 1 << 20)), 32);
        assert_eq!(gpu.column_parts(columns(300, 1 << 20)), 8);
        assert_eq!(gpu.column_parts(Columns { beside: 5, ..columns(100, 1 << 20) }), 32);
        assert_eq!(gpu.column_parts(columns(2500, 1 << 20)), 2);
        assert_eq!(gpu.column_parts(columns(1 << 20, 1 << 20)), 1);
    }

    #[test]
    fn items_of_gpus_share_short_rows() {
        let gpu = Geometry::for_tests(256, 4, 32);
        let parts = |length| gpu.column_parts(Columns { tasks: 1 << 20, beside: 1 << 20, length, is_row: true });
        assert_eq!([1, 3, 9, 32, 63].map(parts), [1, 4, 16, 32, 32]);
    }

    #[test]
    fn short_columns_are_not_shared() {
        let gpu = Geometry::for_tests(256, 4, 32);
        assert_eq!(gpu.column_parts(columns(5, 3)), 1);
        assert_eq!(gpu.column_parts(columns(5, 17)), 4);
    }
}
