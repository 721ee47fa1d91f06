//! The streams of a capture: those that join it, and their return to enqueueing at its end.

use std::sync::Arc;

use super::capture::{Capture, Content};
use super::device::{device, Device};
use super::draws::Draw;
use super::stream::Stream;
use crate::error::{Error, Result};

impl Capture {
    /// Returns true until the capture has ended.
    pub(super) fn is_active(self: &Arc<Self>) -> bool {
        let origin = device(self.device).and_then(Device::state).and_then(|state| state.stream(self.origin));
        origin.is_ok_and(|stream| stream.capture().is_some_and(|capture| Arc::ptr_eq(&capture, self)))
    }

    /// Lets another stream of the device join.
    pub(super) fn join(self: &Arc<Self>, stream: &Stream) -> Result<()> {
        match stream.capture() {
            Some(capture) if Arc::ptr_eq(&capture, self) => return Ok(()),
            Some(_) => return Err(self.refuse("another capturing stream was to wait for this one")),
            None => {}
        }
        if stream.device() != self.device {
            return Err(self.refuse("a stream of another device was to wait for this one"));
        }
        self.content().joined.push(stream.id());
        stream.set_capture(Some(Arc::clone(self)));
        Ok(())
    }

    /// Ends the capture: its streams enqueue again.
    ///
    /// # Errors
    /// The first call that could not be recorded.
    pub(super) fn end(&self) -> (Content, Result<()>) {
        let joined = self.content().joined.clone();
        if let Ok(state) = device(self.device).and_then(Device::state) {
            for id in joined.iter().chain([&self.origin]) {
                if let Ok(stream) = state.stream(*id) {
                    stream.set_capture(None);
                }
            }
        }
        let mut content = std::mem::take(&mut *self.content());
        let failure = content.failure.take();
        let used = |draw: &&Arc<Draw>| {
            content.patches.iter().flat_map(|patch| &patch.words).any(|(_, word)| Arc::ptr_eq(word.draw(), draw))
        };
        let result = match failure {
            Some(error) => Err(error),
            None if content.draws.iter().any(|draw| !used(&draw)) => Err(Error::Invalid(
                "OpenCL: an operation drew random numbers that a graph cannot draw again at each replay.".to_owned(),
            )),
            None => Ok(()),
        };
        (content, result)
    }
}
