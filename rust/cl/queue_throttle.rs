//! Queue throttle: bounds how far the host runs ahead of a queue.
//!
//! Drivers keep enqueued commands in host memory, some 500 bytes each with PoCL 3.1, and take any number of them: a
//! thread that never waits fills the memory, and the next wait takes minutes. CUDA's driver blocks the host after about
//! a thousand launches.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::Event;

/// Commands from one marker to the next.
const PERIOD: u64 = 1024;
/// Markers that the device may be behind by.
const MOST_BEHIND: usize = 4;

/// Markers in a queue, the first of which the device has not been seen to reach.
#[derive(Debug, Default)]
pub(super) struct QueueThrottle {
    markers: Mutex<VecDeque<Event>>,
}

impl QueueThrottle {
    /// Returns true if a marker is due after so many commands.
    pub fn is_due(enqueued: u64) -> bool {
        enqueued.is_multiple_of(PERIOD)
    }

    /// Adds a marker at the end of the queue. Returns the one to wait for, outside of every lock, before more is
    /// enqueued.
    pub fn push(&self, marker: Event) -> Option<Event> {
        let mut markers = self.markers.lock().unwrap_or_else(PoisonError::into_inner);
        markers.push_back(marker);
        if markers.len() > MOST_BEHIND {
            markers.pop_front()
        } else {
            None
        }
    }
}
