//! The streams of a device: a fixed number of our own, and one for each external queue.

use std::sync::{PoisonError, RwLock};

use super::stream::{Stream, POOL_STREAMS};
use crate::cl::Queue;

#[derive(Debug)]
pub(super) struct Streams {
    device: i32,
    own: Vec<Stream>,
    /// Never freed, as a tensor or an event may refer to a stream at any time; one for each queue.
    adopted: RwLock<Vec<&'static Stream>>,
}

impl Streams {
    pub fn new(device: i32) -> Self {
        let own = (0..=POOL_STREAMS).map(|id| Stream::new(device, id)).collect();
        Self { device, own, adopted: RwLock::default() }
    }

    /// The stream with an id: 0 is the default stream.
    pub fn get(&self, id: i64) -> Option<&Stream> {
        let index = usize::try_from(id).ok()?;
        self.own.get(index).or_else(|| self.adopted().get(index - self.own.len()).copied())
    }

    /// All streams.
    pub fn all(&self) -> impl Iterator<Item = &Stream> {
        self.own.iter().chain(self.adopted())
    }

    /// The id of a queue's stream; the queue may be one that we have lent to other code.
    pub fn adopt(&self, queue: Queue) -> i64 {
        let mut adopted = self.adopted.write().unwrap_or_else(PoisonError::into_inner);
        let mut known = self.own.iter().chain(adopted.iter().copied());
        if let Some(known) = known.find(|stream| stream.trace_id() == Some(queue.trace_id())) {
            return known.id();
        }
        let id = (self.own.len() + adopted.len()) as i64;
        adopted.push(Box::leak(Box::new(Stream::of_queue(self.device, id, queue))));
        id
    }

    fn adopted(&self) -> Vec<&'static Stream> {
        self.adopted.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
