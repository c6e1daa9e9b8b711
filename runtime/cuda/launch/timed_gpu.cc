#include "runtime/cuda/launch/timed_gpu.h"

#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/launch/cuda_solver.h"

namespace cellc {

namespace {

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
    if (uploaded_) {
      solver_.replan(options);
    } else {
      solver_.upload(run_, options);
      uploaded_ = true;
    }
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

  double floor_ms(const Traffic& traffic, int calls) override {
    const auto bytes = [](std::int64_t n) { return static_cast<std::size_t>(n + 256); };
    const GpuBuffer from(gpu_, bytes(traffic.read)), to(gpu_, bytes(traffic.written));
    gpu_.zero(from.address(), from.bytes(), 0);
    return FloorCopy(gpu_).ms(from.address(), traffic.read, to.address(), traffic.written, calls);
  }

 private:
  Gpu& gpu_;
  const BoundRun& run_;
  CudaSolver solver_;
  bool uploaded_ = false;
};

}  // namespace

std::unique_ptr<TimedCell> timed_on_gpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                                        const BoundRun& run, const SourceText* source) {
  return std::make_unique<TimedGpu>(gpu, cell, structure, dtype, run, source);
}

}  // namespace cellc
