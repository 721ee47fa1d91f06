//! Random numbers in recorded commands: a launch is recorded with placeholders for the seed and the offset of its
//! generator, which each replay replaces by their current values.
//!
//! Launchers pass seed and offset among a kernel's arguments, in a struct of any layout. The placeholders are random
//! 64-bit values, by which the recorder finds them there: a launch contains a placeholder of a live graph by chance
//! only as likely as a guess of a 64-bit key is right.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use foldhash::HashMap;

/// The random numbers that one launch draws from a generator.
#[derive(Debug)]
pub struct Draw {
    /// Index of the generator in its graph's list.
    pub generator: usize,
    /// Counters that the graph's earlier draws from this generator consume.
    pub before: u64,
    /// The placeholders for seed and offset.
    pub stand_ins: [u64; 2],
    /// Seed and offset of the last replay.
    now: [AtomicU64; 2],
}

/// One of the two words of a [`Draw`].
#[derive(Clone, Debug)]
pub struct Word {
    draw: Arc<Draw>,
    which: usize,
}

/// The draw of each placeholder, and which of its words it is.
type Words = HashMap<u64, (Weak<Draw>, usize)>;

/// Placeholders of live graphs.
static WORDS: Mutex<Option<Words>> = Mutex::new(None);
/// Number of live draws: usually none, and then no argument is searched for placeholders.
static DRAWS: AtomicUsize = AtomicUsize::new(0);

impl Draw {
    /// A draw with new placeholders.
    pub fn new(generator: usize, before: u64) -> Arc<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let keys = RandomState::new();
        let number = || keys.hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
        let stand_ins = [number(), number()];
        let draw = Arc::new(Self { generator, before, stand_ins, now: [AtomicU64::new(0), AtomicU64::new(0)] });
        let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let words = words.get_or_insert_default();
        for (which, word) in stand_ins.into_iter().enumerate() {
            words.insert(word, (Arc::downgrade(&draw), which));
        }
        DRAWS.fetch_add(1, Ordering::Release);
        draw
    }

    /// Sets the seed, and the first counter that the graph consumes.
    pub fn set(&self, seed: u64, first: u64) {
        let [own_seed, own_offset] = &self.now;
        own_seed.store(seed, Ordering::Release);
        own_offset.store(first.wrapping_add(self.before), Ordering::Release);
    }
}

impl Drop for Draw {
    fn drop(&mut self) {
        DRAWS.fetch_sub(1, Ordering::Release);
        if let Some(words) = WORDS.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            self.stand_ins.iter().for_each(|word| drop(words.remove(word)));
        }
    }
}

impl Word {
    fn find(value: u64) -> Option<Self> {
        let words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let (draw, which) = words.as_ref()?.get(&value)?;
        Some(Self { draw: draw.upgrade()?, which: *which })
    }

    /// The draw that the word belongs to.
    pub fn draw(&self) -> &Arc<Draw> {
        &self.draw
    }

    /// Its value in the last replay.
    pub fn value(&self) -> u64 {
        self.draw.now.get(self.which).map_or(0, |word| word.load(Ordering::Acquire))
    }
}

/// The placeholders in an argument, each with the byte at which it starts.
pub fn find_words(bytes: &[u8]) -> Vec<(usize, Word)> {
    if DRAWS.load(Ordering::Acquire) == 0 {
        return Vec::new();
    }
    let offsets = bytes.windows(8).enumerate().step_by(4);
    let value = |window: &[u8]| window.try_into().map(u64::from_ne_bytes).ok();
    offsets.filter_map(|(start, window)| Some((start, Word::find(value(window)?)?))).collect()
}

/// The value that a placeholder had in the last replay of its graph; any other value is returned unchanged.
pub fn drawn(value: u64) -> u64 {
    if DRAWS.load(Ordering::Acquire) == 0 {
        return value;
    }
    Word::find(value).map_or(value, |word| word.value())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn stand_ins_are_found_where_they_are_and_stand_for_the_last_replay() {
        let draw = Draw::new(0, 5);
        let [seed, offset] = draw.stand_ins;
        let mut bytes = vec![7_u8; 4];
        bytes.extend(seed.to_ne_bytes());
        bytes.extend([9; 8]);
        bytes.extend(offset.to_ne_bytes());
        draw.set(42, 100);
        let found: Vec<_> = find_words(&bytes).into_iter().map(|(start, word)| (start, word.value())).collect();
        assert_eq!(found, [(4, 42), (20, 105)]);
        assert_eq!((drawn(seed), drawn(offset), drawn(3)), (42, 105, 3));
        drop(draw);
        assert!(find_words(&bytes).is_empty());
        assert_eq!(drawn(seed), seed);
    }
}
