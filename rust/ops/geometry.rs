//! Work-groups and vectors of the kernels that share `cl/vector.cl`.

use super::Target;
use crate::cl::Arg;
use crate::kernels::{Class, Spec};

/// Bytes that a work-item takes at a time: a register of today's CPUs, a load of today's GPUs.
const CPU_VECTOR: usize = 64;
const GPU_VECTOR: usize = 16;
/// Items that share a reduction on GPUs. On CPUs each works alone: barriers cost more there than they save.
const GPU_GROUP: usize = 256;
/// Items of a group on GPUs where each works alone.
pub const ITEM_GROUP: usize = 64;
/// Elements of a row from which a group of that many items is worth more than items that each take a row.
const SHORT_FOR_GROUP: i64 = 64;
/// Groups for each compute unit: enough for even shares when tasks differ or cores are busy.
const GROUPS_PER_UNIT: usize = 16;

/// How a family's kernels are cut for a device: the `LSIZE` and `VEC` that its programs are built with.
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
        Self { group, lanes, groups: target.compute_units() * GROUPS_PER_UNIT, is_cpu }
    }

    /// Adds the constants to what a program is built with.
    pub fn define(&self, spec: Spec) -> Spec {
        spec.define("LSIZE", self.group as i64).define("VEC", self.lanes as i64)
    }

    /// (global, local) size for kernels whose groups take whole tasks.
    pub fn groups_for(&self, tasks: i64) -> ([usize; 1], [usize; 1]) {
        let groups = self.groups.min(tasks.max(0) as usize);
        ([groups * self.group], [self.group])
    }

    /// Global size for kernels whose items take whole tasks: on CPUs each many, on GPUs each one, or none where that
    /// fills up a group.
    pub fn items_for(&self, tasks: i64) -> [usize; 1] {
        let tasks = tasks.max(0) as usize;
        [if self.is_cpu { tasks.min(self.groups) } else { tasks.next_multiple_of(ITEM_GROUP) }]
    }

    /// Whether rows of `length` elements would leave most of a group idle: items take rows of their own then.
    pub fn starves(&self, length: i64) -> bool {
        self.group > 1 && length < SHORT_FOR_GROUP
    }

    /// Items of a group that share a run of `length` elements; the others take the next runs.
    pub fn run_items(&self, length: i64) -> i32 {
        let vectors = (length.max(1) as usize).div_ceil(self.lanes);
        self.group.min(vectors.next_power_of_two()) as i32
    }

    /// Independent pieces of work that keep the device busy, for kernels whose items (or groups) take whole tasks.
    pub fn busy(&self, by_group: bool) -> i64 {
        let pieces = if by_group || self.is_cpu { self.groups } else { self.groups * GPU_GROUP };
        pieces as i64
    }
}

/// Elements of a vector that a device has a register for, or two on CPUs; complex numbers have no vectors.
pub fn native_lanes(target: &Target, class: Class) -> i64 {
    let floats = i64::from(target.device.info.native_vector_floats.clamp(8, 16));
    match class {
        Class::Complex | Class::ComplexDouble => 1,
        _ if target.is_cpu() => floats * 4 / class.size() as i64,
        _ => 4,
    }
}

/// A `TR` argument: the real type of a compute class.
pub fn real(class: Class, value: f64) -> Arg<'static> {
    match class {
        Class::Float | Class::Complex => Arg::Float(value as f32),
        Class::Double | Class::ComplexDouble => Arg::Double(value),
        Class::Integer | Class::Unsigned => Arg::Long(value as i64),
    }
}

#[cfg(test)]
impl Geometry {
    /// A made-up device.
    pub const fn for_tests(group: usize, lanes: usize, groups: usize) -> Self {
        Self { group, lanes, groups, is_cpu: group == 1 }
    }
}
