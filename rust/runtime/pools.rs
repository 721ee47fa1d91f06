//! Memory pools that users create, and the pool in which each thread allocates.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::blocks::MemPool;
use super::capture::new_mempool;

/// The options of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolOptions {
    /// Gives its free buffers to other allocations when memory is short.
    pub use_on_oom: bool,
    /// Uses a buffer for one block at a time.
    pub no_split: bool,
}

static OPEN: Mutex<BTreeMap<MemPool, PoolOptions>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The pools that the thread has entered, each with its device; the last pool of a device is used.
    static ENTERED: RefCell<Vec<(i32, MemPool)>> = const { RefCell::new(Vec::new()) };
}

fn open() -> MutexGuard<'static, BTreeMap<MemPool, PoolOptions>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a pool.
pub fn open_pool(options: PoolOptions) -> MemPool {
    let pool = new_mempool();
    open().insert(pool, options);
    pool
}

/// Removes a pool from the open ones: its free buffers are no longer kept.
pub(super) fn forget_pool(pool: MemPool) {
    open().remove(&pool);
}

/// Lets the calling thread allocate in a pool on a device, until [`leave_pool`].
pub fn enter_pool(index: i32, pool: MemPool) {
    ENTERED.with_borrow_mut(|entered| entered.push((index, pool)));
}

/// Ends the last [`enter_pool`] of the thread with the same arguments.
pub fn leave_pool(index: i32, pool: MemPool) {
    ENTERED.with_borrow_mut(|entered| {
        if let Some(last) = entered.iter().rposition(|entry| *entry == (index, pool)) {
            entered.remove(last);
        }
    });
}

/// The pool in which the calling thread allocates.
pub(super) fn active_pool(index: i32) -> MemPool {
    // A thread that is exiting no longer has the list.
    let last = ENTERED.try_with(|entered| entered.borrow().iter().rfind(|(device, _)| *device == index).copied());
    last.ok().flatten().map_or_else(MemPool::default, |(_, pool)| pool)
}

/// Returns true for an open pool, whose free buffers are kept.
pub(super) fn is_open(pool: MemPool) -> bool {
    options(pool).is_some()
}

/// The options of an open pool; `None` for all others.
pub(super) fn options(pool: MemPool) -> Option<PoolOptions> {
    // Most allocations are in no pool, and need no lock.
    (pool != MemPool::default()).then(|| open().get(&pool).copied()).flatten()
}
