#include "runtime/graph.h"

#include <c10/core/Stream.h>
#include <torch/custom_class.h>
#include <torch/library.h>
#include <fstream>
#include <tuple>

#include "runtime/compat.h"
#include "runtime/error.h"
#include "runtime/generator.h"

#if TORCH_OPENCL_TORCH_AT_LEAST(13)
#include <ATen/core/GraphImplInterface.h>
#endif

namespace torch_opencl {

void Graph::capture_begin(c10::MempoolId_t pool) {
  checked([&] { bridge::begin_capture(*graph_, bridge::current_device(), {pool.first, pool.second}); });
}

void Graph::capture_end() {
  checked([&] { graph_->end(); });
}

void Graph::replay() {
  std::vector<bridge::RandomStream> streams;
  // Keeps the generators alive: a reset by another thread would free them.
  const rust::Box<bridge::GraphDraws> draws = checked([&] { return bridge::graph_draws(*graph_); });
  for (const bridge::GeneratorDraw& draw : draws->list()) {
    auto* generator = reinterpret_cast<GeneratorImpl*>(draw.generator);
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    const uint64_t first = generator->advance(draw.blocks);
    streams.push_back({generator->current_seed(), first});
  }
  checked([&] { bridge::replay_graph(*graph_, {streams.data(), streams.size()}); });
}

void Graph::instantiate() const {
  describe();
}

void Graph::reset() {
  checked([&] { graph_->reset(); });
}

c10::MempoolId_t Graph::pool() const {
  const auto pool = checked([&] { return bridge::graph_pool(*graph_); });
  return {pool[0], pool[1]};
}

std::string Graph::describe() const {
  const rust::String text = checked([&] { return graph_->describe(); });
  return {text.data(), text.size()};
}

void Graph::dump(const std::string& path) const {
  std::ofstream file(path);
  file << describe();
  file.close();
  TORCH_CHECK(file.good(), "OpenCL: the graph cannot be written to ", path);
}

std::vector<int64_t> Graph::kernels() const {
  const auto indices = checked([&] { return bridge::graph_kernels(*graph_); });
  return {indices.begin(), indices.end()};
}

namespace {

using PoolTuple = std::tuple<int64_t, int64_t>;

PoolTuple as_tuple(c10::MempoolId_t pool) {
  return {static_cast<int64_t>(pool.first), static_cast<int64_t>(pool.second)};
}

bool is_capturing() {
  return bridge::device_count() > 0 && checked([] { return bridge::is_capturing(bridge::current_device()); });
}

// torch.classes.torch_opencl.Graph, which torch.opencl.OpenCLGraph holds.
struct GraphHolder final : torch::CustomClassHolder {
  Graph graph;
};
using Holder = c10::intrusive_ptr<GraphHolder>;

TORCH_LIBRARY_FRAGMENT(torch_opencl, m) {
  m.class_<GraphHolder>("Graph")
      .def(torch::init<>())
      .def(
          "capture_begin",
          [](const Holder& self, int64_t first, int64_t second) {
            self->graph.capture_begin({static_cast<uint64_t>(first), static_cast<uint64_t>(second)});
          })
      .def("capture_end", [](const Holder& self) { self->graph.capture_end(); })
      .def("instantiate", [](const Holder& self) { self->graph.instantiate(); })
      .def("replay", [](const Holder& self) { self->graph.replay(); })
      .def("reset", [](const Holder& self) { self->graph.reset(); })
      .def("pool", [](const Holder& self) { return as_tuple(self->graph.pool()); })
      .def("kernels", [](const Holder& self) { return self->graph.kernels(); })
      .def("describe", [](const Holder& self) { return self->graph.describe(); })
      .def("dump", [](const Holder& self, const std::string& path) { self->graph.dump(path); });
  m.def("new_graph_pool() -> (int, int)", [] {
    const auto pool = bridge::new_graph_pool();
    return as_tuple({pool[0], pool[1]});
  });
  m.def("is_current_stream_capturing() -> bool", &is_capturing);
}

#if TORCH_OPENCL_TORCH_AT_LEAST(13)
// torch.accelerator.Graph.
struct GraphImpl final : at::GraphImplInterface {
  explicit GraphImpl(const at::GraphImplArgs&) {}

  // Every mode means the same here: calls that a graph cannot hold are errors on the capturing streams only.
  void capture_begin(at::MempoolId_t pool, at::GraphCaptureMode) override {
    graph_.capture_begin(pool);
  }

  void capture_end() override {
    graph_.capture_end();
  }

  void instantiate() override {
    graph_.instantiate();
  }

  void replay() override {
    graph_.replay();
  }

  void reset() override {
    graph_.reset();
  }

  at::MempoolId_t pool() const override {
    return graph_.pool();
  }

  // A graph can always be described.
  void enable_debug_mode() override {}

  void debug_dump(const std::string& path) override {
    graph_.dump(path);
  }

 private:
  Graph graph_;
};

// The device's name in capitals. Loading the package gives the device this name.
using at::GraphImplRegistry;
using at::RegistererGraphImplRegistry;
REGISTER_GRAPH_IMPL(OPENCL, GraphImpl);
#endif

} // namespace
} // namespace torch_opencl
