//! Lists of tensors (`multi_tensor_apply` in PyTorch): the table that gives a kernel the addresses of several tensors
//! of each list.
//!
//! A launch costs the host 5 us and more; the elements of a small tensor are a small part of that. A model with a
//! hundred parameters would pay it a hundred times in each step of an optimizer.

use super::space::div_ceil;
use super::target::Target;
use super::vectors::Vectors;
use crate::abi::{Tensor, TensorList};
use crate::cl::{MemHandle, Memory};
use crate::error::Result;
use crate::kernels::entry::MultiTensorArguments;
use crate::kernels::{DType, Spec};

/// Different buffers of a launch; as in `multi_tensor.cl`. Small tensors share buffers.
const BUFFERS: usize = 8;
/// Minimum number of elements that a group computes.
pub const CHUNK: i64 = 1024;

impl TensorList<'_> {
    /// Address of the n-th tensor; 0 in an absent list.
    pub fn address(&self, index: usize) -> usize {
        let index = if self.is_one { 0 } else { index };
        self.addresses.get(index).copied().unwrap_or(0)
    }
}

/// Memory of the tensors at one index of each list.
#[derive(Clone, Debug)]
pub struct ListedTensor {
    /// Index in the lists.
    pub index: usize,
    /// Number of elements.
    pub count: i64,
    /// Absent for an absent list.
    memories: Vec<Memory>,
}

impl ListedTensor {
    /// The tensors of an index.
    ///
    /// # Errors
    /// If an address does not belong to the device.
    pub fn of(target: &Target, lists: &[TensorList<'_>], index: usize, count: i64) -> Result<Self> {
        let memories = lists.iter().map(|list| target.memory(list.address(index))).collect::<Result<Vec<_>>>()?;
        Ok(Self { index, count, memories })
    }

    /// Tensors shared by all indices, as a [`ListedTensor`] without elements; `None` if all are absent.
    ///
    /// # Errors
    /// If an address does not belong to the device.
    pub fn shared(target: &Target, tensors: &[Tensor<'_>]) -> Result<Option<Self>> {
        let memories = tensors.iter().map(|tensor| target.tensor(tensor)).collect::<Result<Vec<_>>>()?;
        let is_present = tensors.iter().any(|tensor| tensor.address != 0);
        Ok(is_present.then_some(Self { index: 0, count: 0, memories }))
    }
}

/// The tensors of one launch of a kernel that is built for `LIMIT` tensors of `LISTS` lists each.
#[derive(Debug, Default)]
pub struct MultiTensorBatch<const LIMIT: usize, const LISTS: usize> {
    /// The tensors.
    pub tensors: Vec<ListedTensor>,
    buffers: Vec<MemHandle>,
}

impl<const LIMIT: usize, const LISTS: usize> MultiTensorBatch<LIMIT, LISTS> {
    /// Runs `launch` on the tensors of all indices with elements in `counts`, as many at a time as a launch takes.
    ///
    /// # Errors
    /// Errors of `launch` and of [`ListedTensor::of`].
    pub fn for_each(
        target: &Target,
        lists: &[TensorList<'_>],
        counts: impl Iterator<Item = (usize, i64)>,
        launch: impl FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        Self::for_each_with_shared(None, target, lists, counts, launch)
    }

    /// Does the same as [`Self::for_each`], with `shared` as the first tensor of each launch.
    ///
    /// # Errors
    /// Errors of [`Self::for_each`].
    pub fn for_each_with_shared(
        shared: Option<&ListedTensor>,
        target: &Target,
        lists: &[TensorList<'_>],
        counts: impl Iterator<Item = (usize, i64)>,
        mut launch: impl FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        let mut batch = Self::beside(shared);
        for (index, count) in counts.filter(|(_, count)| *count > 0) {
            let tensor = ListedTensor::of(target, lists, index, count)?;
            if !batch.takes(&tensor) {
                launch(&batch)?;
                batch = Self::beside(shared);
            }
            batch.push(tensor);
        }
        if batch.elements() == 0 {
            return Ok(());
        }
        launch(&batch)
    }

    fn beside(shared: Option<&ListedTensor>) -> Self {
        let mut batch = Self::default();
        shared.into_iter().for_each(|tensor| batch.push(tensor.clone()));
        batch
    }

    /// Adds the two constants to the spec of a program.
    pub fn define(spec: Spec) -> Spec {
        spec.define("TENSORS", LIMIT as i64).define("TENSOR_LISTS", LISTS as i64)
    }

    fn takes(&self, tensor: &ListedTensor) -> bool {
        let mut buffers = self.buffers.clone();
        add_new(&mut buffers, tensor);
        self.tensors.len() < LIMIT && buffers.len() <= BUFFERS
    }

    fn push(&mut self, tensor: ListedTensor) {
        add_new(&mut self.buffers, &tensor);
        self.tensors.push(tensor);
    }

    fn buffer(&self, memory: MemHandle) -> u8 {
        self.buffers.iter().zip(0..).find_map(|(buffer, index)| (*buffer == memory).then_some(index)).unwrap_or(0)
    }

    /// Adds the tensors to the operands that `vectors` knows.
    pub fn add_to(&self, vectors: Vectors, dtype: DType) -> Vectors {
        let memories = self.tensors.iter().flat_map(|tensor| &tensor.memories);
        // Buffers begin at multiples of more bytes than a vector has.
        memories.fold(vectors, |vectors, memory| vectors.with(memory.offset as usize, dtype, []))
    }

    /// Elements of all tensors.
    pub fn elements(&self) -> i64 {
        self.tensors.iter().map(|tensor| tensor.count).sum()
    }

    /// Groups of a launch in which each takes `chunk` elements of one tensor.
    pub fn groups(&self, chunk: i64) -> usize {
        self.tensors.iter().map(|tensor| div_ceil(tensor.count, chunk)).sum::<i64>().max(0) as usize
    }

    /// Kernel arguments of the batch, with the `table` from [`Self::table`]. Some drivers reject null for a buffer that
    /// is not read.
    pub fn arguments<'a>(&self, table: &'a [u8]) -> MultiTensorArguments<'a> {
        let first = self.buffers.first().copied().unwrap_or(MemHandle::NULL);
        let mut buffers = [first; BUFFERS];
        for (slot, buffer) in buffers.iter_mut().zip(&self.buffers) {
            *slot = *buffer;
        }
        let [b0, b1, b2, b3, b4, b5, b6, b7] = buffers;
        MultiTensorArguments { table, b0, b1, b2, b3, b4, b5, b6, b7 }
    }

    /// The struct `MultiTensorTable` of `multi_tensor.cl`.
    pub fn table(&self, chunk: i64) -> Vec<u8> {
        let mut offsets = [[0_u64; LISTS]; LIMIT];
        let mut buffers = [[0_u8; LISTS]; LIMIT];
        let (mut counts, mut ends) = ([0_i64; LIMIT], [0_u32; LIMIT]);
        let mut end = 0;
        let rows = counts.iter_mut().zip(&mut ends).zip(offsets.iter_mut().zip(&mut buffers));
        for (tensor, ((count, last), (starts, indices))) in self.tensors.iter().zip(rows) {
            end += div_ceil(tensor.count, chunk) as u32;
            (*count, *last) = (tensor.count, end);
            for ((start, index), memory) in starts.iter_mut().zip(indices).zip(&tensor.memories) {
                (*start, *index) = (memory.offset, self.buffer(memory.handle));
            }
        }
        let mut bytes = Vec::with_capacity(1024);
        bytes.extend(offsets.as_flattened().iter().flat_map(|value| value.to_ne_bytes()));
        bytes.extend(counts.iter().chain([&chunk]).flat_map(|value| value.to_ne_bytes()));
        bytes.extend(ends.iter().flat_map(|value| value.to_ne_bytes()));
        bytes.extend(buffers.as_flattened());
        bytes.resize(bytes.len().next_multiple_of(size_of::<u64>()), 0);
        bytes
    }
}

/// Adds the buffers of a tensor that are not in the list yet; absent lists have none.
fn add_new(buffers: &mut Vec<MemHandle>, tensor: &ListedTensor) {
    for Memory { handle, .. } in &tensor.memories {
        if *handle != MemHandle::NULL && !buffers.contains(handle) {
            buffers.push(*handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(index: usize, count: i64, offset: u64) -> ListedTensor {
        ListedTensor { index, count, memories: vec![Memory { offset, ..Memory::ABSENT }] }
    }

    #[test]
    fn a_table_says_where_tensors_lie_and_which_groups_are_theirs() {
        let mut batch = MultiTensorBatch::<2, 1>::default();
        batch.push(tensor(0, 1025, 64));
        batch.push(tensor(1, 1, 8));
        assert!(!batch.takes(&tensor(2, 1, 0)));
        assert_eq!((batch.elements(), batch.groups(CHUNK)), (1026, 3));
        let longs: Vec<u8> = [64_u64, 8, 1025, 1, 1024].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let ends: Vec<u8> = [2_u32, 3].iter().flat_map(|value| value.to_ne_bytes()).collect();
        // Two buffer indices, and the padding of the struct.
        assert_eq!(batch.table(CHUNK), [longs, ends, vec![0; 8]].concat());
    }
}
