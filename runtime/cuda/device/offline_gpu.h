#pragma once
// A card that is known by its architecture alone. It answers what emitting and planning ask; it runs nothing.
#include <string>

#include "runtime/cuda/device/gpu.h"

namespace cellc {

/// Facts that follow from the compute capability; 132 multiprocessors. `architecture`: "sm_90".
GpuFacts facts_of_architecture(const std::string& architecture);

class OfflineGpu : public Gpu {
 public:
  explicit OfflineGpu(GpuFacts facts) : facts_(std::move(facts)) {}
  const GpuFacts& facts() const override { return facts_; }
  GpuModule load(const GpuSource&) override { none(); }
  GpuFunction function(const GpuModule&, const std::string&) override { none(); }
  GpuFunctionFacts facts(const GpuFunction&) override { none(); }
  int resident_blocks(const GpuFunction&, int, std::int64_t) override { none(); }
  int resident_clusters(const GpuFunction&, int, std::int64_t, int) override { none(); }
  GpuAddress allocate(std::size_t) override { none(); }
  void release(GpuAddress) noexcept override {}
  void copy_in(GpuAddress, const void*, std::size_t, GpuStream) override { none(); }
  void copy_out(void*, GpuAddress, std::size_t, GpuStream) override { none(); }
  void copy(GpuAddress, GpuAddress, std::size_t, GpuStream) override { none(); }
  void zero(GpuAddress, std::size_t, GpuStream) override { none(); }
  void launch(const GpuFunction&, const GpuLaunch&, void**) override { none(); }
  void synchronize(GpuStream) override { none(); }
  void record(int, GpuStream) override { none(); }
  double elapsed_ms(int, int) override { none(); }

 private:
  [[noreturn]] static void none();
  GpuFacts facts_;
};

}  // namespace cellc
