//! Tables in a device's memory that later calls use again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::target::{Target, Workspace};
use crate::error::Result;

/// Each table counts as so many bytes at least: short lists are searched.
const LEAST_BYTES: usize = 16 << 10;

/// Tables by their keys, least recently used first.
#[derive(Debug)]
pub struct KeptTables<K> {
    tables: Mutex<VecDeque<Kept<K>>>,
    /// Tables with more bytes in all are dropped, except for the last used one.
    most_bytes: usize,
}

#[derive(Debug)]
struct Kept<K> {
    device: i32,
    /// A workspace belongs to the stream, whose commands are in order: it may be freed while kernels read it.
    stream: i64,
    key: K,
    memory: Arc<Workspace>,
    bytes: usize,
}

impl<K: Copy + PartialEq> KeptTables<K> {
    /// No tables yet.
    pub const fn new(most_bytes: usize) -> Self {
        Self { tables: Mutex::new(VecDeque::new()), most_bytes }
    }

    /// The table of `key` for commands of the target's stream. If there is none, `content` is written.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn get(&self, target: &Target, key: K, content: impl FnOnce() -> Vec<u8>) -> Result<Arc<Workspace>> {
        let memory = match self.find(target, key) {
            Some(memory) => memory,
            None => self.add(target, key, content())?,
        };
        target.stream.keep(&memory);
        Ok(memory)
    }

    fn find(&self, target: &Target, key: K) -> Option<Arc<Workspace>> {
        let (device, stream) = (target.device.index, target.stream.id());
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |table: &Kept<K>| table.device == device && table.stream == stream && table.key == key;
        let found = tables.iter().position(is_same).and_then(|i| tables.remove(i))?;
        let memory = found.memory.clone();
        tables.push_back(found);
        Some(memory)
    }

    fn add(&self, target: &Target, key: K, content: Vec<u8>) -> Result<Arc<Workspace>> {
        let (device, stream, bytes) = (target.device.index, target.stream.id(), content.len().max(LEAST_BYTES));
        let memory = Arc::new(target.constants(content)?);
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.push_back(Kept { device, stream, key, memory: memory.clone(), bytes });
        while tables.len() > 1 && tables.iter().map(|table| table.bytes).sum::<usize>() > self.most_bytes {
            tables.pop_front();
        }
        Ok(memory)
    }
}
