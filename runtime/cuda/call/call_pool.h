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

  /// QueuedCall::rehearse, of a workspace that later runs find.
  void rehearse(std::span<const CallArray> arrays, GpuAddress status);

  /// Graphs hold memory of this pool.
  bool captured();
  /// Frees workspaces that no run uses and no graph holds; later runs make others.
  void trim();
  /// Memory of the device that all workspaces hold.
  std::int64_t held_bytes();

 private:
  struct Place;
  /// A place is free again when this goes.
  struct Taken;
  /// Frees the workspace of an idle place, whose fence the device has passed.
  void clear(Place& place);
  void mark(Place& place, std::uint64_t graph, GpuStream stream);
  Place& take(std::span<const CallArray> arrays, std::uint64_t stream, GpuAddress status, std::uint64_t graph);

  Gpu& gpu_;
  const std::function<std::unique_ptr<QueuedCall>()> make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Place>> places_;
};

}  // namespace cellc
