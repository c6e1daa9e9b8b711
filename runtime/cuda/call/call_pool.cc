#include "runtime/cuda/call/call_pool.h"

#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/run_control.h"

namespace cellc {

namespace {

/// Workspaces after which streams wait for each other on the device. A thread always finds one.
constexpr std::size_t kMostForStreams = 8;

}  // namespace

struct CallPool::Place {
  explicit Place(Gpu& gpu) : gpu(gpu), fence(gpu.make_fence()) {}
  ~Place() {
    call.reset();
    gpu.release_fence(fence);
  }
  Gpu& gpu;
  const GpuFence fence;  ///< at the end of the last run
  std::unique_ptr<QueuedCall> call;
  std::uint64_t stream = 0;  ///< number of the last run's
  std::uint64_t graph = 0;   ///< that keeps the workspace
  bool busy = true;          ///< some thread is queueing a run
  bool ready = false;        ///< the call is there, for whoever holds the pool's mutex
  /// A run ended before its last kernel was queued, so what kernels leave for those after them may be there: once the
  /// device has passed the fence another call takes this one's place.
  bool spoiled = false;
};

struct CallPool::Taken {
  ~Taken() {
    const std::lock_guard lock(pool.mutex_);
    place.busy = false;
    place.ready = place.call != nullptr;
  }
  CallPool& pool;
  Place& place;
};

CallPool::CallPool(Gpu& gpu, std::function<std::unique_ptr<QueuedCall>()> make) : gpu_(gpu), make_(std::move(make)) {
  places_.push_back(std::make_unique<Place>(gpu_));
  places_.back()->call = make_();
  places_.back()->busy = false;
  places_.back()->ready = true;
}
CallPool::~CallPool() = default;

bool CallPool::captured() {
  const std::lock_guard lock(mutex_);
  for (const auto& p : places_)
    if (p->graph) return true;
  return false;
}

void CallPool::clear(Place& place) {
  const AllowedInCapture allowed(gpu_);
  place.ready = place.spoiled = false;
  place.call.reset();
}

void CallPool::trim() {
  const std::lock_guard lock(mutex_);
  for (const auto& p : places_)
    if (!p->busy && p->graph == 0 && gpu_.passed(p->fence)) clear(*p);
}

std::int64_t CallPool::held_bytes() {
  const std::lock_guard lock(mutex_);
  std::int64_t bytes = 0;
  for (const auto& p : places_)
    if (p->ready) bytes += p->call->held_bytes();
  return bytes;
}

CallPool::Place& CallPool::take(std::span<const CallArray> arrays, std::uint64_t stream, GpuAddress status,
                                std::uint64_t graph) {
  const std::lock_guard lock(mutex_);
  Place* found = nullptr;
  std::size_t eager = 0;
  for (const auto& p : places_) {
    eager += p->graph == 0;
    if (p->busy || p->graph != graph) continue;
    if (p->spoiled) {
      if (graph || !gpu_.passed(p->fence)) continue;
      clear(*p);
    }
    if (p->stream == stream && (graph == 0 || (p->call && p->call->knows(arrays, status)))) {
      found = p.get();
      break;
    }
    if (graph == 0 && (!found || (!gpu_.passed(found->fence) && gpu_.passed(p->fence)))) found = p.get();
  }
  if (found && graph == 0 && found->stream != stream && !gpu_.passed(found->fence) && eager < kMostForStreams)
    found = nullptr;
  if (!found) {
    const AllowedInCapture allowed(gpu_);
    places_.push_back(std::make_unique<Place>(gpu_));
    found = places_.back().get();
    found->graph = graph;
  }
  found->busy = true;
  return *found;
}

void CallPool::run(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status, SolveReport* report) {
  const std::uint64_t graph = gpu_.capturing(stream);
  if (graph && report)
    throw UsageError("a report has to be waited for, and a graph that is being captured cannot wait");
  // Streams that are captured into one graph may overlap there, and their handles last as long as the capture.
  const std::uint64_t number = graph ? stream : gpu_.stream_number(stream);
  go_on_after(0);
  Place& place = take(arrays, number, status, graph);
  const Taken taken{*this, place};
  if (!place.call) place.call = make_();
  // What a stream did before is done before what it does next.
  if (graph == 0 && place.stream != number && !gpu_.passed(place.fence)) gpu_.wait(place.fence, stream);
  place.stream = number;
  try {
    place.call->queue(arrays, stream, status);
  } catch (const Cancelled&) {
    mark(place, graph, stream);
    const std::lock_guard lock(mutex_);
    place.spoiled = true;
    throw;
  } catch (...) {
    mark(place, graph, stream);
    throw;
  }
  if (graph == 0) gpu_.signal(place.fence, stream);
  if (report) place.call->report(*report, stream);
}

/// After a run that ended early: some kernels may be under way.
void CallPool::mark(Place& place, std::uint64_t graph, GpuStream stream) {
  try {
    if (graph == 0) gpu_.signal(place.fence, stream);
  } catch (...) {
    // Where not even this works, the context is lost.
  }
}

void CallPool::rehearse(std::span<const CallArray> arrays, GpuAddress status) {
  Place& place = take(arrays, gpu_.stream_number(0), status, 0);
  const Taken taken{*this, place};
  if (!place.call) place.call = make_();
  place.call->rehearse(arrays, status);
}

}  // namespace cellc
