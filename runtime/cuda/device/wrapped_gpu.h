#pragma once
// A Gpu that passes everything on to another one. A class that changes one or two answers derives from it.
#include <string>
#include <vector>

#include "runtime/cuda/device/gpu.h"

namespace cellc {

class WrappedGpu : public Gpu {
 public:
  explicit WrappedGpu(Gpu& below) : below_(below) {}

  const GpuFacts& facts() const override { return below_.facts(); }
  GpuModule load(const GpuSource& source) override { return below_.load(source); }
  double compile_ahead(const std::vector<GpuSource>& sources) override { return below_.compile_ahead(sources); }
  GpuFunction function(const GpuModule& module, const std::string& name) override {
    return below_.function(module, name);
  }
  GpuFunctionFacts facts(const GpuFunction& function) override { return below_.facts(function); }
  int resident_blocks(const GpuFunction& function, int threads, std::int64_t shared_bytes) override {
    return below_.resident_blocks(function, threads, shared_bytes);
  }
  int resident_clusters(const GpuFunction& function, int threads, std::int64_t shared_bytes, int blocks) override {
    return below_.resident_clusters(function, threads, shared_bytes, blocks);
  }
  GpuAddress allocate(std::size_t bytes) override { return below_.allocate(bytes); }
  void release(GpuAddress address) noexcept override { below_.release(address); }
  void copy_in(GpuAddress to, const void* from, std::size_t bytes, GpuStream stream) override {
    below_.copy_in(to, from, bytes, stream);
  }
  void copy_out(void* to, GpuAddress from, std::size_t bytes, GpuStream stream) override {
    below_.copy_out(to, from, bytes, stream);
  }
  void copy(GpuAddress to, GpuAddress from, std::size_t bytes, GpuStream stream) override {
    below_.copy(to, from, bytes, stream);
  }
  void zero(GpuAddress to, std::size_t bytes, GpuStream stream) override { below_.zero(to, bytes, stream); }
  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) override {
    below_.launch(function, launch, arguments);
  }
  void synchronize(GpuStream stream) override { below_.synchronize(stream); }
  void record(int mark, GpuStream stream) override { below_.record(mark, stream); }
  double elapsed_ms(int from, int to) override { return below_.elapsed_ms(from, to); }
  std::optional<std::string> pointer_fault(GpuAddress address, std::size_t bytes) override {
    return below_.pointer_fault(address, bytes);
  }
  std::uint64_t capturing(GpuStream stream) override { return below_.capturing(stream); }
  void allow_in_capture(bool allowed) override { below_.allow_in_capture(allowed); }
  std::uint64_t stream_number(GpuStream stream) override { return below_.stream_number(stream); }
  GpuStream make_stream() override { return below_.make_stream(); }
  void release_stream(GpuStream stream) noexcept override { below_.release_stream(stream); }
  GpuFence make_fence() override { return below_.make_fence(); }
  void release_fence(GpuFence fence) noexcept override { below_.release_fence(fence); }
  void signal(GpuFence fence, GpuStream stream) override { below_.signal(fence, stream); }
  bool passed(GpuFence fence) override { return below_.passed(fence); }
  void wait(GpuFence fence, GpuStream stream) override { below_.wait(fence, stream); }
  bool begin_capture(GpuStream stream) override { return below_.begin_capture(stream); }
  GpuGraph end_capture(GpuStream stream) override { return below_.end_capture(stream); }
  void launch_graph(GpuGraph graph, GpuStream stream) override { below_.launch_graph(graph, stream); }
  void release_graph(GpuGraph graph) noexcept override { below_.release_graph(graph); }

 protected:
  Gpu& below_;
};

}  // namespace cellc
