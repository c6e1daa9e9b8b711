#pragma once
// A Gpu that compiles what is alike once: stages of a cascade, layers of one kind, and whatever else differs in names
// alone.
#include <map>
#include <memory>
#include <vector>

#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/data/object_cache.h"

namespace cellc {

class SharedModules final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  /// A module that somebody holds, where its source was alike: it took nothing to compile.
  GpuModule load(const GpuSource& source) override;
  /// One of each kind, and only kinds that nobody holds.
  double compile_ahead(const std::vector<GpuSource>& sources) override;

 private:
  struct Known {
    std::weak_ptr<void> module;
    CacheState cache = CacheState::Off;
  };
  std::map<ObjectKey, Known> known_;  ///< by what is alike
};

}  // namespace cellc
