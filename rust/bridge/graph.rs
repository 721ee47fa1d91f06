//! Graphs for C++.

use std::sync::Arc;

use crate::abi::RandomStream;
use crate::error::Result;
use crate::runtime::{self, current_stream, new_mempool, Drawn, Kept, MemPool};

pub use crate::runtime::Graph;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Placeholders for seed and offset of a recorded launch.
    struct CapturedDraw {
        seed: u64,
        offset: u64,
        /// True at the first draw of a capture from this generator.
        is_first: bool,
    }

    /// The random numbers that one replay draws from a generator.
    struct GeneratorDraw {
        generator: u64,
        blocks: u64,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type RandomStream = crate::abi::RandomStream;

        include!("runtime/generator.h");
        #[namespace = "torch_opencl"]
        type GeneratorHold;
    }

    extern "Rust" {
        type Graph;
        fn new_graph() -> Box<Graph>;
        fn begin_capture(graph: &Graph, device: i32, pool: [u64; 2]) -> Result<()>;
        fn end(self: &Graph) -> Result<()>;
        fn replay_graph(graph: &Graph, streams: &[RandomStream]) -> Result<()>;
        fn reset(self: &Graph) -> Result<()>;
        fn graph_pool(graph: &Graph) -> Result<[u64; 2]>;
        type GraphDraws;
        fn graph_draws(graph: &Graph) -> Result<Box<GraphDraws>>;
        fn list(self: &GraphDraws) -> &[GeneratorDraw];
        fn describe(self: &Graph) -> Result<String>;
        fn graph_kernels(graph: &Graph) -> Result<Vec<i64>>;
        fn new_graph_pool() -> [u64; 2];
        fn is_capturing(device: i32) -> Result<bool>;
        fn refuse_host_in_capture(device: i32, op: &str) -> Result<()>;
        fn hold_generator(device: i32, generator: UniquePtr<GeneratorHold>) -> Result<()>;
        fn draw_captured(device: i32, generator: u64, blocks: u64) -> Result<CapturedDraw>;
    }
}

use ffi::{CapturedDraw, GeneratorDraw};

fn new_graph() -> Box<Graph> {
    Box::default()
}

fn begin_capture(graph: &Graph, device: i32, pool: [u64; 2]) -> Result<()> {
    graph.begin(device, MemPool(pool))
}

fn replay_graph(graph: &Graph, streams: &[RandomStream]) -> Result<()> {
    let streams: Vec<[u64; 2]> = streams.iter().map(|stream| [stream.seed, stream.offset]).collect();
    graph.replay(&streams)
}

fn graph_pool(graph: &Graph) -> Result<[u64; 2]> {
    graph.mempool().map(|pool| pool.0)
}

/// The random numbers that one replay draws from generators, which are kept alive by this value.
struct GraphDraws {
    draws: Vec<GeneratorDraw>,
    _kept: Vec<Kept>,
}

impl GraphDraws {
    fn list(&self) -> &[GeneratorDraw] {
        &self.draws
    }
}

fn graph_draws(graph: &Graph) -> Result<Box<GraphDraws>> {
    let (drawn, kept) = graph.generators()?;
    let draw = |drawn: Drawn| GeneratorDraw { generator: drawn.generator, blocks: drawn.blocks };
    Ok(Box::new(GraphDraws { draws: drawn.into_iter().map(draw).collect(), _kept: kept }))
}

/// Eight integers for each launch, in the format of [`crate::cl::Recording::kernels`].
fn graph_kernels(graph: &Graph) -> Result<Vec<i64>> {
    Ok(graph.kernels()?.into_iter().flatten().map(|number| number as i64).collect())
}

fn new_graph_pool() -> [u64; 2] {
    new_mempool().0
}

/// Returns true if this thread's current stream of a device is capturing. Does not initialise the device.
pub fn is_capturing(device: i32) -> Result<bool> {
    let device = runtime::device(device)?;
    Ok(device.initialised().is_some() && current_stream(device.index)?.capture().is_some())
}

/// Returns an error if a graph is being captured: it cannot record an operator that the host computes.
fn refuse_host_in_capture(device: i32, op: &str) -> Result<()> {
    current_stream(device)?.refuse_capture(&format!("{op} is computed by the host, and was called"))
}

// SAFETY: a generator's references are counted by atomics, and its state has a lock.
unsafe impl Send for ffi::GeneratorHold {}
// SAFETY: as above.
unsafe impl Sync for ffi::GeneratorHold {}

/// Keeps a generator alive as long as the graph that is being captured.
fn hold_generator(device: i32, generator: cxx::UniquePtr<ffi::GeneratorHold>) -> Result<()> {
    current_stream(device)?.keep(&Arc::new(generator));
    Ok(())
}

/// Reserves counters of a generator for a launch that is recorded.
fn draw_captured(device: i32, generator: u64, blocks: u64) -> Result<CapturedDraw> {
    let Some(capture) = current_stream(device)?.capture() else {
        return Err(crate::error::Error::Invalid("OpenCL: no graph is being captured on this stream".to_owned()));
    };
    let ([seed, offset], is_first) = capture.draw(generator, blocks);
    Ok(CapturedDraw { seed, offset, is_first })
}
