//! Queue throttle: bounds how far the host runs ahead of a queue.
//!
//! Drivers keep enqueued commands in host memory, some 500 bytes each with PoCL 3.1, without a limit: a thread that
//! never waits fills the memory, and the next wait takes minutes. CUDA's driver blocks the host after about a thousand
//! launches.
//!
//! On CPU devices the enqueued work is bounded too, to about [`MOST_WORK`]: a matmul may take a second there, and a
//! process with a thousand of them cannot be stopped. The duration of a command is not known before it has run, so each
//! command that is not short counts as many short ones; the number is lower on a device that was measured to be fast.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::launch_batch::Start;
use super::Event;

/// Short commands from one marker to the next.
const PERIOD: u64 = 1024;
/// Markers by which the device may lag.
const MOST_BEHIND: u32 = 4;
/// Work that may be pending on a CPU device.
const MOST_WORK: Duration = Duration::from_secs(1);
/// Minimum number of short commands that any other counts as on a CPU: 32 of them keep it busy while the host is woken.
const LEAST_WEIGHT: u64 = PERIOD / 8;

/// Markers in a queue; the device is not known to have reached the first.
#[derive(Debug)]
pub(super) struct QueueThrottle {
    /// True if the duration of commands is bounded, not only their number.
    bounds_work: AtomicBool,
    /// Short commands so far, including the equivalents of others.
    commands: AtomicU64,
    /// Number of short commands that any other counts as.
    weight: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    markers: VecDeque<Arc<Event>>,
    most_behind: u32,
    /// Time at which the device reached the marker that was last waited for, in nanoseconds of its clock.
    reached: Option<u64>,
}

impl QueueThrottle {
    /// `bounds_work` bounds the duration of the commands, not only their number.
    pub fn new(bounds_work: bool) -> Self {
        let state = State { markers: VecDeque::new(), most_behind: MOST_BEHIND, reached: None };
        let weight = AtomicU64::new(if bounds_work { PERIOD } else { 1 });
        let bounds_work = AtomicBool::new(bounds_work);
        Self { bounds_work, commands: AtomicU64::new(0), weight, state: Mutex::new(state) }
    }

    fn bounds_work(&self) -> bool {
        self.bounds_work.load(Ordering::Relaxed)
    }

    /// Bounds only the number of commands from now on: other code enqueues here too, and its commands may wait for the
    /// host.
    pub fn leave_work_unbounded(&self) {
        self.bounds_work.store(false, Ordering::Relaxed);
        self.weight.store(1, Ordering::Relaxed);
        self.state().most_behind = MOST_BEHIND;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a command that is about to be enqueued; returns true if a marker is due before it.
    pub fn is_due(&self, start: Start) -> bool {
        let cost = if start == Start::Now { self.weight.load(Ordering::Relaxed) } else { 1 };
        let before = self.commands.fetch_add(cost, Ordering::Relaxed);
        before / PERIOD != (before + cost) / PERIOD
    }

    /// Called when the device is idle: forgets the measurements, as the next work may differ.
    pub fn reset(&self) {
        if self.bounds_work() {
            self.weight.store(PERIOD, Ordering::Relaxed);
        }
        *self.state() = State { markers: VecDeque::new(), most_behind: MOST_BEHIND, reached: None };
    }

    /// Adds a marker at the end of the queue.
    pub fn push(&self, marker: Event) {
        self.state().markers.push_back(Arc::new(marker));
    }

    /// The marker to wait for, without a lock, before more is enqueued; [`Self::pop`] removes it. Half of the work may
    /// still be pending then, so that the host, which takes time to wake, waits seldom.
    pub fn awaited(&self) -> Option<Arc<Event>> {
        let state = self.state();
        let most = state.most_behind as usize;
        let position = state.markers.len().checked_sub(1 + (most / 2).max(1))?;
        (state.markers.len() > most).then(|| state.markers.get(position).cloned()).flatten()
    }

    /// Removes a marker that the device has reached, and those before it. If the host had to wait for it, the device
    /// was busy since the previous marker that was waited for, and the time between the two determines how much work
    /// may be pending.
    pub fn pop(&self, marker: &Arc<Event>, waited: bool) {
        let mut state = self.state();
        let Some(position) = state.markers.iter().position(|known| Arc::ptr_eq(known, marker)) else {
            return; // another thread has also waited for it
        };
        let count = state.markers.drain(..=position).count() as u32;
        if !self.bounds_work() {
            return;
        }
        // After a marker that was not waited for, the device may have been idle.
        let reached = if waited { marker.end_time().ok() } else { None };
        let before = std::mem::replace(&mut state.reached, reached);
        let interval = match (before, reached) {
            (Some(before), Some(reached)) if waited => Duration::from_nanos(reached.saturating_sub(before)) / count,
            _ if waited => return,
            _ => Duration::ZERO,
        };
        let (weight, most_behind) = adapted(self.weight.load(Ordering::Relaxed), interval);
        self.weight.store(weight, Ordering::Relaxed);
        state.most_behind = most_behind;
    }
}

/// The weight of a command, and the number of pending markers allowed, if the device took `interval` from one marker to
/// the next.
fn adapted(weight: u64, interval: Duration) -> (u64, u32) {
    let most = MOST_WORK / MOST_BEHIND;
    let weight = if interval > most {
        (2 * weight).min(PERIOD)
    } else if interval < most / 4 {
        (weight / 2).max(LEAST_WEIGHT)
    } else {
        weight
    };
    let fit = MOST_WORK.as_nanos() / interval.as_nanos().max(1);
    (weight, u32::try_from(fit).unwrap_or(u32::MAX).clamp(1, MOST_BEHIND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_commands_count_more_than_quick_ones() {
        let ms = Duration::from_millis;
        assert_eq!(adapted(1024, ms(0)), (512, 4));
        assert_eq!(adapted(128, ms(1)), (128, 4));
        assert_eq!(adapted(512, ms(100)), (512, 4));
        assert_eq!(adapted(512, ms(400)), (1024, 2));
        assert_eq!(adapted(1024, ms(3000)), (1024, 1));
    }

    #[test]
    fn a_marker_is_due_once_a_period() {
        let throttle = QueueThrottle::new(false);
        let due = (0..4 * PERIOD).filter(|_| throttle.is_due(Start::Now)).count();
        assert_eq!(due, 4);
        let throttle = QueueThrottle::new(true);
        assert!(throttle.is_due(Start::Now) && !throttle.is_due(Start::Batched) && throttle.is_due(Start::Now));
    }
}
