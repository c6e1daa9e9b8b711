#pragma once
// What a kernel needs on a GPU. Private to capi/.
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "capi/derivatives.h"
#include "compiler/front_end.h"
#include "runtime/cuda/call/call_pool.h"
#include "runtime/data/array.h"
#include "runtime/strategy/solve_options.h"

namespace cellc::capi {

/// Opens GPU `number`, or returns null with a reason. Tests put their own device in its place.
using OpenGpu =
    std::function<std::shared_ptr<Gpu>(int number, const std::string& cache_directory, std::string& reason)>;
OpenGpu& gpu_opener();

/// "cuda", "cuda:1". One handle on a device for all kernels that keep their code in the same place. Throws
/// Misuse where there is no such name, DeviceError where there is no such device.
std::shared_ptr<Gpu> gpu_named(const std::string& device, const std::string& cache_directory);

/// For as long as it lives, calls that the thread makes are parts of one call, of so many shapes: kernels keep
/// workspaces of all of these for the next such call, besides the last few of other calls.
class PartsOfOneCall {
 public:
  explicit PartsOfOneCall(std::int64_t shapes);
  ~PartsOfOneCall();
  PartsOfOneCall(const PartsOfOneCall&) = delete;
  PartsOfOneCall& operator=(const PartsOfOneCall&) = delete;

 private:
  const std::int64_t before_;
};

class GpuKernel {
 public:
  /// `cell` must outlive it.
  GpuKernel(std::shared_ptr<Gpu> gpu, const AnalysedCell& cell, Dtype dtype, const SolveOptions& solve);

  Gpu& gpu() { return *gpu_; }
  /// Workspace of its own for a shape.
  std::shared_ptr<CallPool> prepare(const CallShape& shape);
  /// The same for calls that name a shape each time, and may go otherwise than the kernel: kept for the last few.
  std::shared_ptr<CallPool> kept(const CallShape& shape, const SolveOptions& solve);
  /// The same of backward and tangent calls by this plan, of whose options the tolerance counts.
  std::shared_ptr<CallPool> kept(const CallShape& shape, const DirectedCall& call, const AdjointPlan& plan,
                                 const SolveOptions& solve);
  std::shared_ptr<CallPool> kept(const CallShape& shape, const DirectedCall& call, const TangentPlan& plan,
                                 const SolveOptions& solve);
  /// A run of a cell that was derived of the kernel's, from arrays of the host to arrays of the host. Derives nothing
  /// and keeps nothing but code. Waits.
  RunOutput run_on_host_arrays(const CellGraph& cell, const Structure& structure, const BoundRun& run,
                               std::optional<double> tolerance);
  /// Numbers without gaps of the host, into an array of the GPU that lies `as` says. Waits.
  void write(GpuAddress to, const CallView& as, const Array& from);
  /// Memory of the GPU of at least so many bytes, for arrays of one call; given back when nothing uses it.
  std::unique_ptr<GpuBuffer> take_block(std::size_t bytes);
  void give_block(std::unique_ptr<GpuBuffer> block) { blocks_.give(std::move(block)); }
  /// Frees what is kept of shapes that nobody runs and no graph holds, and blocks that no call has.
  void trim();

 private:
  /// The same on arrays with any strides.
  std::unique_ptr<QueuedCall> viewed(std::unique_ptr<QueuedCall> call) const;
  template <typename Call, typename Plan>
  std::shared_ptr<CallPool> kept_for(const CallShape& shape, const DirectedCall& call, const Plan& plan,
                                     const SolveOptions& solve);
  std::shared_ptr<CallPool> make_pool(const CallShape& shape, const SolveOptions& solve);
  /// What calls may ask for each.
  struct Wish {
    Strategy solver = Strategy::Auto;
    std::optional<double> tolerance;
    int max_iterations = 0;
    std::optional<int> fixed_iterations;
    std::vector<std::tuple<Strategy, std::int64_t, std::int64_t>> plan;  ///< by stage, where pinned
    bool repeat_bits = false;
    bool operator==(const Wish&) const = default;
  };
  static Wish wish_of(const SolveOptions& solve);
  using MakePool = std::function<std::shared_ptr<CallPool>()>;
  std::shared_ptr<CallPool> kept(const void* plan, const CallShape& shape, const Wish& wish, const MakePool& make);

  struct Kept {
    const void* plan;  ///< null: forward
    CallShape shape;
    Wish wish;
    bool part = false;               ///< of a call of several shapes
    std::mutex making;               ///< held by who makes the pool
    std::shared_ptr<CallPool> pool;  ///< read and set under mutex_
  };

  const std::shared_ptr<Gpu> gpu_;
  const AnalysedCell& cell_;
  const Dtype dtype_;
  const SolveOptions solve_;
  const std::shared_ptr<LoadedModules> modules_ = std::make_shared<LoadedModules>();
  Pool<GpuBuffer> blocks_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Kept>> shapes_;  ///< the latest first
};

}  // namespace cellc::capi
