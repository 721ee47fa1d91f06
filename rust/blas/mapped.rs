//! Device memory mapped for the host.

use crate::error::Result;
use crate::ops::Tensor;
use crate::runtime::{map_all, unmap_all, Mapping, Range};

/// Mapped memory of some tensors, each from its first element to its last; unmapped when dropped.
#[derive(Debug)]
pub struct Mapped<const N: usize> {
    mappings: Vec<Mapping>,
    pointers: [*mut u8; N],
}

impl<const N: usize> Mapped<N> {
    /// Maps tensors of one device, each with a flag whether the host writes to it, after all work of the current
    /// stream. Blocks.
    pub fn open(tensors: [(&Tensor<'_>, bool); N]) -> Result<Self> {
        let present = tensors.iter().filter(|(tensor, _)| tensor.is_present());
        let ranges: Vec<Range> = present
            .map(|(tensor, writable)| Range { address: tensor.address, size: tensor.span(), writable: *writable })
            .collect();
        let mappings = map_all(&ranges)?;
        let mut found = mappings.iter().map(|mapping| mapping.pointer() as *mut u8);
        let pointers = tensors.map(|(tensor, _)| {
            let pointer = if tensor.is_present() { found.next() } else { None };
            pointer.unwrap_or(std::ptr::null_mut())
        });
        Ok(Self { mappings, pointers })
    }

    /// Host addresses of the first elements; null for an absent tensor. Valid as long as `self`.
    pub fn pointers(&self) -> [*mut u8; N] {
        self.pointers
    }

    /// Unmaps the memory.
    ///
    /// # Errors
    /// Errors of the driver; after an error the device may not see what the host wrote.
    pub fn close(mut self) -> Result<()> {
        self.unmap()
    }

    fn unmap(&mut self) -> Result<()> {
        let mappings = std::mem::take(&mut self.mappings);
        // SAFETY: the pointers are valid only as long as `self`, which is closing.
        unsafe { unmap_all(&mappings) }
    }
}

impl<const N: usize> Drop for Mapped<N> {
    fn drop(&mut self) {
        // Finds mappings only after another error, which is the one that is reported.
        let _ = self.unmap();
    }
}
