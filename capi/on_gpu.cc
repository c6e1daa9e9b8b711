#include "capi/on_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <utility>

#include "capi/guard.h"
#include "runtime/cuda/call/backward_call.h"
#include "runtime/cuda/call/device_call.h"
#include "runtime/cuda/call/tangent_call.h"
#include "runtime/cuda/call/viewed_call.h"
#include "runtime/cuda/device/gpu_driver.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/launch/view_copy.h"
#include "runtime/data/errors.h"

namespace cellc::capi {

namespace {

constexpr std::int64_t kKeptShapes = 8;

thread_local std::int64_t shapes_of_one_call = 0;

int number_of(const std::string& device) {
  if (device == "cuda") return 0;
  int number = -1;
  const char *const begin = device.data() + std::string("cuda:").size(), *const end = device.data() + device.size();
  if (!device.starts_with("cuda:") || begin == end || std::from_chars(begin, end, number).ptr != end || number < 0)
    throw Misuse(fmt::format("device '{}': expected cpu, cuda, or cuda:1 for another GPU than the first", device));
  return number;
}

}  // namespace

PartsOfOneCall::PartsOfOneCall(std::int64_t shapes) : before_(std::exchange(shapes_of_one_call, shapes)) {}
PartsOfOneCall::~PartsOfOneCall() { shapes_of_one_call = before_; }

OpenGpu& gpu_opener() {
  static OpenGpu open = [](int number, const std::string& cache_directory,
                           std::string& reason) -> std::shared_ptr<Gpu> {
    return open_gpu(cache_directory, reason, number);
  };
  return open;
}

std::shared_ptr<Gpu> gpu_named(const std::string& device, const std::string& cache_directory) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, std::weak_ptr<Gpu>> open;
  const int number = number_of(device);
  const std::lock_guard lock(mutex);
  std::weak_ptr<Gpu>& known = open[{number, cache_directory}];
  if (std::shared_ptr<Gpu> gpu = known.lock()) return gpu;
  std::string reason;
  std::shared_ptr<Gpu> gpu = gpu_opener()(number, cache_directory, reason);
  if (!gpu && is_compiler_missing(reason)) throw NoCompiler(fmt::format("device '{}': {}", device, reason));
  if (!gpu) throw NoDevice(fmt::format("device '{}': {}", device, reason));
  known = gpu;
  return gpu;
}

GpuKernel::GpuKernel(std::shared_ptr<Gpu> gpu, const AnalysedCell& cell, Dtype dtype, const SolveOptions& solve)
    : gpu_(std::move(gpu)), cell_(cell), dtype_(dtype), solve_(solve) {}

std::unique_ptr<QueuedCall> GpuKernel::viewed(std::unique_ptr<QueuedCall> call) const {
  return std::make_unique<ViewedCall>(*gpu_, modules_, std::move(call));
}

std::shared_ptr<CallPool> GpuKernel::make_pool(const CallShape& shape, const SolveOptions& solve) {
  // Calls may outlive the kernel's handle, but not what it points at: cellc_call holds both.
  return std::make_shared<CallPool>(*gpu_, [this, shape, solve] {
    return viewed(std::make_unique<DeviceCall>(*gpu_, modules_, cell_.cell, cell_.structure, dtype_, &cell_.source,
                                               shape, solve));
  });
}

std::shared_ptr<CallPool> GpuKernel::prepare(const CallShape& shape) { return make_pool(shape, solve_); }

GpuKernel::Wish GpuKernel::wish_of(const SolveOptions& solve) {
  Wish wish{solve.solver, solve.tolerance, solve.max_iterations, solve.fixed_iterations, {}, solve.repeat_bits};
  for (const StagePlan& stage : solve.plan) wish.plan.emplace_back(stage.strategy, stage.segment, stage.burn_in);
  return wish;
}

std::shared_ptr<CallPool> GpuKernel::kept(const CallShape& shape, const SolveOptions& solve) {
  return kept(nullptr, shape, wish_of(solve), [&] { return make_pool(shape, solve); });
}

RunOutput GpuKernel::run_on_host_arrays(const CellGraph& cell, const Structure& structure, const BoundRun& run,
                                        std::optional<double> tolerance) {
  SolveOptions solve;
  solve.tolerance = tolerance;
  solve.check_scans = solve_.check_scans;
  solve.products = tangent_products(solve_.products, dtype_);
  CallGpu gpu(*gpu_, modules_);
  CudaSolver solver(gpu, cell, structure, arithmetic_of(dtype_));
  solver.repeat_bits();
  SolveReport report;
  return solver.run(run, solve, report);
}

void GpuKernel::write(GpuAddress to, const CallView& as, const Array& from) {
  if (from.count() == 0) return;
  const std::size_t bytes = static_cast<std::size_t>(from.count()) * size_of(from.dtype());
  const std::vector<std::int64_t> dense = dense_strides(as.lengths);
  if (as.strides == dense) {
    gpu_->copy_in(to, from.data(), bytes, 0);
    gpu_->synchronize(0);
    return;
  }
  CallGpu gpu(*gpu_, modules_);
  const GpuBuffer without_gaps(gpu, bytes);
  gpu.copy_in(without_gaps.address(), from.data(), bytes, 0);
  ViewCopies(gpu).copy({to, from.dtype(), as.strides}, {without_gaps.address(), from.dtype(), dense}, as.lengths, 0);
  gpu.synchronize(0);
}

std::unique_ptr<GpuBuffer> GpuKernel::take_block(std::size_t bytes) {
  auto block = blocks_.take([] { return std::make_unique<GpuBuffer>(); });
  if (block->bytes() >= bytes && block->bytes() > 0) return block;
  block.reset();  // before, not beside it
  return std::make_unique<GpuBuffer>(*gpu_, std::max<std::size_t>(bytes, 256));
}

void GpuKernel::trim() {
  blocks_.trim();
  std::list<std::shared_ptr<Kept>> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = shapes_.begin(); it != shapes_.end();) {
      const auto next = std::next(it);
      const std::shared_ptr<CallPool>& pool = (*it)->pool;
      if (it->use_count() == 1 && pool && pool.use_count() == 1 && !pool->captured())
        gone.splice(gone.end(), shapes_, it);
      it = next;
    }
  }
  const AllowedInCapture allowed(*gpu_);
  gone.clear();
}

template <typename Call, typename Plan>
std::shared_ptr<CallPool> GpuKernel::kept_for(const CallShape& shape, const DirectedCall& call, const Plan& plan,
                                              const SolveOptions& given) {
  SolveOptions solve;  // what pins the forward run says nothing of another cell; what is accepted holds for both
  solve.tolerance = given.tolerance;
  solve.check_scans = given.check_scans;
  solve.products = std::is_same_v<Plan, AdjointPlan> ? gradient_products(given.products, dtype_)
                                                     : tangent_products(given.products, dtype_);
  return kept(&plan, shape, wish_of(solve), [&] {
    return std::make_shared<CallPool>(*gpu_, [this, shape, solve, &call, &plan] {
      return viewed(
          std::make_unique<Call>(*gpu_, modules_, cell_.cell, call, plan.run, plan.reads, dtype_, shape, solve));
    });
  });
}

std::shared_ptr<CallPool> GpuKernel::kept(const CallShape& shape, const DirectedCall& call, const AdjointPlan& plan,
                                          const SolveOptions& solve) {
  return kept_for<BackwardCall>(shape, call, plan, solve);
}
std::shared_ptr<CallPool> GpuKernel::kept(const CallShape& shape, const DirectedCall& call, const TangentPlan& plan,
                                          const SolveOptions& solve) {
  return kept_for<TangentCall>(shape, call, plan, solve);
}

std::shared_ptr<CallPool> GpuKernel::kept(const void* plan, const CallShape& shape, const Wish& wish,
                                          const MakePool& make) {
  std::shared_ptr<Kept> entry;
  std::list<std::shared_ptr<Kept>> gone;
  const bool part = shapes_of_one_call > 0;
  const std::int64_t most = std::max(kKeptShapes, shapes_of_one_call);
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(shapes_.begin(), shapes_.end(), [&](const auto& k) {
      return k->plan == plan && k->wish == wish && k->shape == shape;
    });
    if (found != shapes_.end()) {
      shapes_.splice(shapes_.begin(), shapes_, found);
    } else {
      shapes_.push_front(std::make_shared<Kept>());
      shapes_.front()->plan = plan;
      shapes_.front()->shape = shape;
      shapes_.front()->wish = wish;
    }
    entry = shapes_.front();
    entry->part |= part;
    // The oldest go, unless somebody is about to run them or a graph still holds their memory.
    const auto is_alike = [&](const auto& k) { return k->plan == plan && k->part == part; };
    std::int64_t alike = std::count_if(shapes_.begin(), shapes_.end(), is_alike);
    for (auto it = shapes_.end(); alike > most && it != shapes_.begin();) {
      const auto oldest = --it;
      if (!is_alike(*oldest)) continue;
      const std::shared_ptr<CallPool>& pool = (*oldest)->pool;
      if (oldest->use_count() > 1 || (pool && (pool.use_count() > 1 || pool->captured()))) continue;
      ++it;
      gone.splice(gone.end(), shapes_, oldest);
      --alike;
    }
  }
  if (!gone.empty()) {
    const AllowedInCapture allowed(*gpu_);
    gone.clear();
  }
  const std::lock_guard making(entry->making);
  std::shared_ptr<CallPool> made;
  {
    const std::lock_guard lock(mutex_);
    if (entry->pool) return entry->pool;
  }
  made = make();
  const std::lock_guard lock(mutex_);
  return entry->pool = made;
}

}  // namespace cellc::capi
