#include "runtime/cuda/launch/timed_gpu.h"

#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/bind.h"

namespace cellc {

namespace {

double copy_ms(Gpu& gpu, const Traffic& traffic, int calls) {
  const auto bytes = [](std::int64_t n) { return static_cast<std::size_t>(n + 256); };
  const GpuBuffer from(gpu, bytes(traffic.read)), to(gpu, bytes(traffic.written));
  gpu.zero(from.address(), from.bytes(), 0);
  return FloorCopy(gpu).ms(from.address(), traffic.read, to.address(), traffic.written, calls);
}

class TimedGpu : public TimedCell {
 public:
  TimedGpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype, const BoundRun& run,
           const SourceText* source)
      : gpu_(gpu), run_(run), solver_(gpu, cell, structure, dtype, source) {}

  std::string device() const override { return "cuda"; }
  std::string processor() const override { return gpu_.facts().name; }
  std::optional<std::string> refusal(int stage, Strategy strategy) override {
    return solver_.refusal(stage, strategy, run_);
  }

  double time(const SolveOptions& options, int calls, SolveReport& report) override {
    // What is relaxed is stored in another way.
    const bool asked = asks_for(options, Strategy::Relaxation);
    const bool replanned = uploaded_ && !asked && !relaxed_;
    if (replanned) solver_.replan(options);
    if (!replanned || !solver_.is_stored_as_planned()) solver_.upload(run_, options);
    uploaded_ = true;
    relaxed_ = asked;
    if (options.solver == Strategy::Auto && options.plan.empty() && solver_.runs_stepwise()) {
      // A run tries iterations first, and only a whole run can tell whether they end.
      solver_.run(run_, options, report);
      SolveOptions settled = options;
      if (solver_.relaxes()) settled.solver = Strategy::Relaxation;
      solver_.upload(run_, settled);
      relaxed_ = solver_.relaxes();
      uploaded_ = true;
      return time_uploaded(settled, calls, report);
    }
    return time_uploaded(options, calls, report);
  }

  double floor_ms(const Traffic& traffic, int calls) override { return copy_ms(gpu_, traffic, calls); }

 private:
  double time_uploaded(const SolveOptions& options, int calls, SolveReport& report) {
    // What a call saw may change the plan of the next; two are enough to settle it.
    for (int i = 0; i < 2; ++i) {
      solver_.launch(0);
      solver_.report(report, 0);
      solver_.replan(options);
    }
    const double ms = ms_a_call(gpu_, calls, [&] { solver_.launch(0); });
    solver_.report(report, 0);
    return ms;
  }

  Gpu& gpu_;
  const BoundRun& run_;
  CudaSolver solver_;
  bool uploaded_ = false, relaxed_ = false;
};

class TimedBackwardGpu : public TimedCell {
 public:
  TimedBackwardGpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, const AdjointRun& adjoint, Dtype dtype,
                   const BoundRun& run, const SourceText* source)
      : gpu_(gpu),
        run_(run),
        backward_(gpu, cell, adjoint, arithmetic_of(dtype)),
        dtype_(dtype),
        cotangents_(random_cotangents(cell, run, dtype, 1)) {
    SolveReport report;
    output_ = CudaSolver(gpu, cell, structure, dtype, source).run(run, {}, report);
  }

  std::string device() const override { return "cuda"; }
  std::string processor() const override { return gpu_.facts().name; }
  std::optional<std::string> refusal(int stage, Strategy strategy) override {
    return backward_.refusal(stage, strategy, run_);
  }
  double time(const SolveOptions& asked, int calls, SolveReport& report) override {
    SolveOptions options = asked;
    options.products = gradient_products(asked.products, dtype_);
    backward_.upload(run_, output_, cotangents_, options);
    for (int i = 0; i < 2; ++i) {
      backward_.launch(0);
      backward_.report(report, 0);
    }
    const double ms = ms_a_call(gpu_, calls, [&] { backward_.launch(0); });
    backward_.report(report, 0);
    return ms;
  }
  double floor_ms(const Traffic& traffic, int calls) override { return copy_ms(gpu_, traffic, calls); }

 private:
  Gpu& gpu_;
  const BoundRun& run_;
  BackwardOnGpu backward_;
  const Dtype dtype_;
  const Cotangents cotangents_;
  RunOutput output_;
};

}  // namespace

std::unique_ptr<TimedCell> timed_backward_on_gpu(Gpu& gpu, const CellGraph& cell, const Structure& structure,
                                                 const AdjointRun& adjoint, Dtype dtype, const BoundRun& run,
                                                 const SourceText* source) {
  return std::make_unique<TimedBackwardGpu>(gpu, cell, structure, adjoint, dtype, run, source);
}

std::unique_ptr<TimedCell> timed_on_gpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                                        const BoundRun& run, const SourceText* source) {
  return std::make_unique<TimedGpu>(gpu, cell, structure, dtype, run, source);
}

}  // namespace cellc
