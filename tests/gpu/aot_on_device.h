#pragma once
// A shipped cell on any Gpu: its kernels compiled there, its calls made by the tables in memory, as a program
// would make them.
#include <map>
#include <string>
#include <vector>

#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/ship/aot_backward.h"
#include "runtime/cuda/ship/aot_cell.h"
#include "runtime/data/bind.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// A device as shipped code sees it: it launches without clusters, so that short scans draw their pieces, in another
/// order of sums. What has its bits runs on this.
class WithoutClusters final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  int resident_clusters(const GpuFunction&, int, std::int64_t, int) override { return 0; }
};

/// How a run has those bits: a file knows neither sequences nor mostly lengths, and so keeps no weights on chip; nor
/// has it the instructions of one card for products of many rows.
inline SolveOptions as_shipped() {
  SolveOptions options;
  options.persistent.blocks = -1;
  options.wide_products = WideProducts::Never;
  return options;
}

class AotOnDevice {
 public:
  AotOnDevice(Gpu& gpu, const AotCell& cell);

  struct Options {
    std::int64_t gap = 0;      ///< entries between rows, and between sequences
    bool descending = false;   ///< a sequence's rows lie from its last step to its first
    bool defaults = false;     ///< starts, and params that have a default, are left out
    bool in_place = false;     ///< finals are written where starts were read
    bool no_states = false;    ///< rows of states are not wanted
    bool less_memory = false;  ///< the workspace is what these arrays need, not what any would
  };
  /// What a call writes, under the names of written_arrays(), each as a flat array.
  std::map<std::string, Array> run(const Binding& binding, Dtype dtype, const Options& options);

  /// A call from scratch: lengths and arrays are words, as the structs of the header lay them out.
  int workspace(const void* lengths, const void* arrays, std::int64_t* bytes);
  int forward(const void* lengths, const void* arrays, GpuAddress workspace, std::int64_t bytes, GpuAddress status);

  /// A backward call, whose adjoint the cell is.
  int count_backward(const AotBackward& backward, const void* lengths, const void* arrays, std::int64_t* bytes);
  int run_backward(const AotBackward& backward, const void* lengths, const void* arrays, GpuAddress workspace,
                   std::int64_t bytes);

  std::vector<int> launched;  ///< kernels by number, of the last call
  bool trusts = false;        ///< all memory is taken for the device's

 private:
  struct Room;
  class Caller;
  cellc_device_call begin();
  Gpu& gpu_;
  const AotCell& cell_;
  GpuModule module_;
  std::vector<GpuFunction> functions_;
  cellc_device device_{};
  std::vector<std::pair<GpuAddress, std::size_t>> owned_;
};

}  // namespace cellc
