#pragma once
// Kernels of a card through the driver: source is compiled or taken from the cache, loaded, and its kernels launched.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cuda/device/driver_context.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/data/object_cache.h"

namespace cellc {

/// What Gpu promises of modules, functions and launches.
class DriverModules {
 public:
  DriverModules(std::shared_ptr<const DriverContext> context, const GpuFacts& facts, std::shared_ptr<const Nvrtc> nvrtc,
                const std::string& cache_directory);

  GpuModule load(const GpuSource& source);
  double compile_ahead(const std::vector<GpuSource>& sources);
  GpuFunction function(const GpuModule& module, const std::string& name) const;
  GpuFunctionFacts facts(const GpuFunction& function) const;
  int resident_blocks(const GpuFunction& function, int threads, std::int64_t shared_bytes) const;
  int resident_clusters(const GpuFunction& function, int threads, std::int64_t shared_bytes, int blocks) const;
  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments);

 private:
  template <typename Doing>
  void check(int result, const Doing& doing) const {
    context_->check(result, doing);
  }
  struct Loaded;
  std::pair<std::string, CompiledKind> compiled_for() const;
  static Loaded& loaded(const std::shared_ptr<void>& module);
  void load_code(const GpuSource& source, const std::string& code, Loaded& module) const;
  int architecture() const;
  int attribute(const GpuFunction& function, CudaFunctionAttribute which) const;
  bool opt_in(const GpuFunction& function, std::int64_t bytes) const;
  bool allow_cluster(const GpuFunction& function, int blocks) const;

  std::shared_ptr<const DriverContext> context_;
  const Driver& driver_;
  const GpuFacts& facts_;
  std::shared_ptr<const Nvrtc> nvrtc_;
  ObjectCache cache_;
  std::mutex mutex_;
  std::map<ObjectKey, CompiledKernels> ahead_;  ///< compiled, and not asked for yet
  /// Whether kernels may begin before what is ahead of them has ended: from sm_90 on, in graphs that are captured
  /// from 12.3 on. Code for less does not wait (await_stream of preamble.cuh).
  std::atomic<bool> starts_early_;
};

}  // namespace cellc
