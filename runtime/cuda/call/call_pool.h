#pragma once
// One prepared call for any number of threads and streams at once. Runs that may overlap on the device have a
// workspace each. Runs of one stream share one; if there are more streams than workspaces, runs of several streams
// share one in turn, and the device waits, never the host. A graph keeps the workspace that it captured: no
// later run and no other graph gets it.
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/cuda/call/queued_call.h"
#include "runtime/data/errors.h"

namespace cellc {

class CallPool {
 public:
  /// `make` gives another call of the same shape. The first is made at once.
  CallPool(Gpu& gpu, std::function<std::unique_ptr<QueuedCall>()> make);
  ~CallPool();

  /// QueuedCall::queue. With a report, waits and fills it, which a graph cannot capture: UsageError.
  void run(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status, SolveReport* report);

  /// Graphs hold memory of this pool.
  bool captured();
  /// Memory of the device that all workspaces hold.
  std::int64_t held_bytes();

 private:
  struct Place;
  Place& take(std::span<const CallArray> arrays, std::uint64_t stream, GpuAddress status, std::uint64_t graph);

  Gpu& gpu_;
  const std::function<std::unique_ptr<QueuedCall>()> make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace cellc
