#pragma once
// The passes of a run as a device sees them: which kernels are launched, in which order, with which grids. A kernel is
// told by its text, without its name, so that those of a run and of shipped code can be compared. Copies of rows,
// offsets and defaults are no passes and are left out: a run and a shipped call make them by kernels of their own.
#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/device/wrapped_gpu.h"

namespace cellc {

struct LaunchedPass {
  std::string kernel;  ///< its line, for people
  std::string text;    ///< and all that is its own: macros and steps of lanes, the body of nests
  unsigned blocks = 0, threads = 0;
  std::int64_t shared_bytes = 0;
  bool cooperative = false;
  bool operator==(const LaunchedPass&) const = default;
};
std::string to_string(const LaunchedPass& pass);
/// Where two runs differ, or nothing.
std::string difference(const std::vector<LaunchedPass>& run, const std::vector<LaunchedPass>& shipped);

/// Passes everything on and writes passes down. Without clusters, as shipped code is launched.
class PassRecorder final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  GpuModule load(const GpuSource& source) override;
  GpuFunction function(const GpuModule& module, const std::string& name) override;
  int resident_clusters(const GpuFunction&, int, std::int64_t, int) override { return 0; }
  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) override;

  std::vector<LaunchedPass> passes;

 private:
  struct Kernel {
    bool is_pass = false;
    LaunchedPass pass;
  };
  std::map<void*, GpuSource> sources_;
  std::vector<GpuModule> kept_;  ///< so that no other has the address of one
  std::map<std::pair<void*, std::uint64_t>, Kernel> kernels_;
};

/// A card that compiles and runs nothing, and says that it did.
class PaperGpu final : public OfflineGpu {
 public:
  using OfflineGpu::OfflineGpu;
  GpuModule load(const GpuSource&) override;
  GpuFunction function(const GpuModule& module, const std::string& name) override;
  int resident_blocks(const GpuFunction&, int, std::int64_t) override { return 2; }
  int resident_clusters(const GpuFunction&, int, std::int64_t, int) override { return 0; }
  GpuAddress allocate(std::size_t bytes) override;
  void copy_in(GpuAddress, const void*, std::size_t, GpuStream) override {}
  void copy(GpuAddress, GpuAddress, std::size_t, GpuStream) override {}
  void zero(GpuAddress, std::size_t, GpuStream) override {}
  void launch(const GpuFunction&, const GpuLaunch&, void**) override {}
  void synchronize(GpuStream) override {}

 private:
  GpuAddress next_ = GpuAddress{1} << 40;
  std::uint64_t functions_ = 0;
};

}  // namespace cellc
