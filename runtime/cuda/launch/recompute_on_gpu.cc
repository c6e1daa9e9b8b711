#include "runtime/cuda/launch/recompute_on_gpu.h"

#include <algorithm>
#include <map>

#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/bind.h"

namespace cellc {
namespace {

/// Counts what is held of another one's memory.
class CountingGpu final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;

  GpuAddress allocate(std::size_t bytes) override {
    const GpuAddress address = WrappedGpu::allocate(bytes);
    held_[address] = static_cast<std::int64_t>(bytes);
    now_ += static_cast<std::int64_t>(bytes);
    most_ = std::max(most_, now_);
    return address;
  }
  void release(GpuAddress address) noexcept override {
    if (const auto found = held_.find(address); found != held_.end()) {
      now_ -= found->second;
      held_.erase(found);
    }
    WrappedGpu::release(address);
  }
  std::int64_t most() const { return most_; }

 private:
  std::map<GpuAddress, std::int64_t> held_;
  std::int64_t now_ = 0, most_ = 0;
};

/// A segment takes some launches and copies, whatever its length.
constexpr std::int64_t kShortestSegment = 512;

}  // namespace

struct RecomputeOnGpu::Impl {
  Impl(Gpu& below, const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint, Dtype arithmetic,
       const DeriveHooks& derive)
      : gpu(below),
        solver(gpu, cell, structure, arithmetic, nullptr, derive),
        backward(gpu, cell, adjoint, arithmetic, derive),
        segments(cell, adjoint, arithmetic,
                 {[this](const BoundRun& run, const SolveOptions& options, SolveReport& report) {
                    return solver.run(run, options, report);
                  },
                  [this](const BoundRun& run, const RunOutput& output, const Cotangents& cotangents,
                         const SolveOptions& options, SolveReport& report) {
                    backward.upload(run, output, cotangents, options);
                    backward.launch(0);
                    backward.settle(report);
                    return backward.download(run);
                  }},
                 kShortestSegment) {}

  CountingGpu gpu;
  CudaSolver solver;
  BackwardOnGpu backward;
  SegmentGradients segments;
};

RecomputeOnGpu::RecomputeOnGpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint,
                               Dtype storage, const DeriveHooks& derive)
    : impl_(std::make_unique<Impl>(gpu, cell, structure, adjoint, arithmetic_of(storage), derive)) {}
RecomputeOnGpu::~RecomputeOnGpu() = default;

Gradients RecomputeOnGpu::run(const BoundRun& run, const Cotangents& cotangents, const SolveOptions& forward,
                              const SolveOptions& backward, SolveReport& report, std::int64_t segment) {
  return impl_->segments.run(run, cotangents, forward, backward, report, segment);
}

double RecomputeOnGpu::run_ms() const { return impl_->segments.run_ms(); }
std::int64_t RecomputeOnGpu::segment() const { return impl_->segments.segment(); }
std::int64_t RecomputeOnGpu::device_bytes() const { return impl_->gpu.most(); }

}  // namespace cellc
