// Graphs: recorded lists of commands. Replays draw from the generators that were used during the capture.
#pragma once

#include <c10/core/Allocator.h>
#include <string>
#include <vector>

#include "torch_opencl/rust/bridge/graph.rs.h"

namespace torch_opencl {

class Graph final {
 public:
  Graph() : graph_(bridge::new_graph()) {}

  // Captures the current stream of the current device. A pool of (0, 0) gives the graph its own pool.
  void capture_begin(c10::MempoolId_t pool);
  void capture_end();
  // Enqueues the commands on the current stream of the graph's device.
  void replay();
  // Raises if nothing has been captured. A graph needs no further preparation.
  void instantiate() const;
  void reset();
  c10::MempoolId_t pool() const;
  std::string describe() const;
  void dump(const std::string& path) const;
  // For each launch: the cl_kernel, the number of dimensions, three global sizes and three local sizes.
  std::vector<int64_t> kernels() const;

 private:
  rust::Box<bridge::Graph> graph_;
};

} // namespace torch_opencl
