//! Bounding how far the host runs ahead of a queue.
//!
//! Drivers keep what is enqueued in host memory, some 500 bytes a command with PoCL 3.1, and take any number of them: a
//! thread that never waits fills the memory, and whoever then waits does so for minutes. CUDA's driver holds the
//! host back after about a thousand launches.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::Event;

/// Commands from one mark to the next.
const PERIOD: u64 = 1024;
/// Marks that the device may be behind by.
const MOST: usize = 4;

/// Marks in a queue of which the device has not been seen to reach the first.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    marks: Mutex<VecDeque<Event>>,
}

impl Backlog {
    /// Whether a mark is due after so many commands.
    pub fn is_due(enqueued: u64) -> bool {
        enqueued.is_multiple_of(PERIOD)
    }

    /// Notes a mark at the end of the queue. Returns the one to wait for, outside of every lock, before more is enqueued.
    pub fn push(&self, mark: Event) -> Option<Event> {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.push_back(mark);
        if marks.len() > MOST {
            marks.pop_front()
        } else {
            None
        }
    }
}
