#include "runtime/cuda/launch/stepped_on_gpu.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/graph/axes.h"
#include "compiler/plan/plan.h"
#include "runtime/cuda/build/kernel_templates.h"

namespace cellc {

namespace {

/// Windows of a run, of so many steps; with few of them capturing one saves nothing, for it takes as long as queueing
/// its steps.
constexpr std::int64_t kWindows = 8, kLeastWindows = 3, kLeastSteps = 4, kMostSteps = 32;
/// Windows that are kept: of callers whose arrays lie elsewhere in turn.
constexpr std::size_t kMostWindows = 4;
constexpr unsigned kThreads = 256;

// StepCount and FinalRows of step_windows.cuh.
struct StepCountArguments {
  GpuAddress steps;
  std::int64_t from, add;
};
struct FinalRowsArguments {
  GpuAddress rows, starts, finals, offsets;
  std::int64_t sequences, entries, reverse;
};

/// Ends a capture that an error has left open.
class Capture {
 public:
  Capture(Gpu& gpu, GpuStream stream) : gpu_(gpu), stream_(stream), open_(gpu.begin_capture(stream)) {}
  ~Capture() {
    if (!open_) return;
    try {
      gpu_.release_graph(gpu_.end_capture(stream_));
    } catch (const DeviceError&) {  // the first error is the one to tell
    }
  }
  Capture(const Capture&) = delete;
  bool open() const { return open_; }
  GpuGraph end() {
    open_ = false;
    return gpu_.end_capture(stream_);
  }

 private:
  Gpu& gpu_;
  GpuStream stream_;
  bool open_;
};

}  // namespace

SteppedOnGpu::SteppedOnGpu(Gpu& gpu, const CellGraph& cell, const Structure& structure, int stage, Dtype arithmetic,
                           const SourceText* source, const DeriveHooks& derive)
    : gpu_(gpu),
      cell_(cell),
      states_(structure.stages[static_cast<std::size_t>(stage)].states),
      stage_(stage),
      cells_(step_of(cell, structure, stage, derive)),
      plan_(make_plan(cells_.step.cell, Structure{})),
      arithmetic_(arithmetic),
      source_(source) {}

SteppedOnGpu::~SteppedOnGpu() {
  forget_programs();
  gpu_.release_stream(capturing_);
}

/// No kernel of theirs may still run.
void SteppedOnGpu::forget_programs() {
  for (Window& w : windows_) {
    gpu_.release_graph(w.graph);
    gpu_.release_fence(w.done);
  }
  windows_.clear();
  fixed_.reset();
  step_.reset();
}

SteppedStage SteppedOnGpu::costs(const std::map<AxisId, std::int64_t>& sizes) {
  if (kernels_ == 0) kernels_ = NestProgram::kernels_of_window(cells_.step.cell, arithmetic_);
  SteppedStage stage;
  stage.kernels = kernels_;
  const AxisLengths step(plan_.cell.graph, sizes);
  for (const Product& p : plan_.products)
    stage.products.push_back(
        {step.entries(p.rows) * step.entries(p.shared), step.entries(p.sums), step.entries(p.batch)});
  const AxisLengths fixed(cells_.fixed.cell.graph, sizes);
  for (const Out& out : cells_.fixed.cell.outs)
    stage.fixed_bytes += fixed.entries(out.index) * static_cast<std::int64_t>(size_of(arithmetic_));
  return stage;
}

bool SteppedOnGpu::reads(int symbol) const {
  for (const DerivedCell* cell : {&cells_.fixed, &cells_.step})
    for (const ArraySource& s : cell->sources)
      if ((s.kind == ArraySource::Kind::Symbol && s.id == symbol) ||
          ((s.kind == ArraySource::Kind::Trajectory || s.kind == ArraySource::Kind::Remade) &&
           cell_.updates[static_cast<std::size_t>(s.id)].symbol == symbol))
        return true;
  return std::any_of(states_.begin(), states_.end(),
                     [&](int u) { return cell_.updates[static_cast<std::size_t>(u)].symbol == symbol; });
}

NestProgram& SteppedOnGpu::program(std::optional<NestProgram>& program, const DerivedCell& cell) {
  if (!program) {
    NestOptions options;
    options.source = source_;
    options.factors = factors_;
    options.wide = wide_;
    options.compiled = [this](const GpuModule& module) {
      compile_ms_ += module.compile_ms;
      caches_.push_back(module.cache);
    };
    program.emplace(NestProgram::compile(gpu_, cell.cell, Structure{}, arithmetic_, options));
    compile_ms_ += program->compile_ms();
    caches_.push_back(program->cache());
  }
  return *program;
}

void SteppedOnGpu::launch(const char* kernel, std::int64_t threads, void* argument, std::size_t bytes,
                          GpuStream stream) {
  if (!beside_) {
    std::string text = storage_macro(arithmetic_);
    for (const char* part : {"preamble.cuh", "step_windows.cuh"})
      text += fmt::format("#line 1 \"{}\"\n{}\n", part, kernel_template(part));
    beside_ = gpu_.load({"step_windows.cu", std::move(text), {}});
    compile_ms_ += beside_.compile_ms;
    caches_.push_back(beside_.cache);
  }
  GpuFunction& function = kernels_beside_[kernel];
  if (!function) function = gpu_.function(beside_, kernel);
  GpuLaunch one;
  one.grid.x = static_cast<unsigned>(
      std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, 16 * gpu_.facts().multiprocessors));
  one.block.x = threads == 1 ? 32 : kThreads;
  one.stream = stream;
  one.early = true;
  one.argument_bytes = bytes;
  gpu_.launch(function, one, &argument);
}

void SteppedOnGpu::count_steps(std::int64_t from, std::int64_t add, GpuStream stream) {
  StepCountArguments count{counted_.address(), from, add};
  launch("cellc_count_steps", 1, &count, sizeof count, stream);
}

void SteppedOnGpu::write_finals(const CudaRunArrays& arrays, GpuStream stream) {
  const AxisLengths lengths(cell_.graph, arrays.bound.sizes);
  for (const int u : states_) {
    const auto update = static_cast<std::size_t>(u);
    const NestArray rows = arrays.rows_run({{ArraySource::Kind::Trajectory, u}}, stage_).symbols[0];
    FinalRowsArguments f{rows.data,
                         rows.history,  // of a trajectory its start
                         arrays.final_of(update),
                         arrays.offsets(),
                         arrays.sequences,
                         lengths.entries(cell_.symbol_of(cell_.updates[update]).axes),
                         arrays.bound.reverse};
    if (f.sequences * f.entries > 0) launch("cellc_final_rows", f.sequences * f.entries, &f, sizeof f, stream);
  }
}

/// The arrays of a step: the stage's own trajectories are read a step earlier, and written.
NestRun SteppedOnGpu::one_step(const CudaRunArrays& arrays) const {
  NestRun r = arrays.rows_run(cells_.step.sources, stage_);
  for (const int u : states_) r.outs.push_back(arrays.trajectory_of(u).data);
  return r;
}

/// The captured window for these arrays; null: it must be queued.
SteppedOnGpu::Window* SteppedOnGpu::window_of(const NestRun& run, std::int64_t steps) {
  std::vector<std::uint64_t> of{static_cast<std::uint64_t>(steps), run.device_offsets, run.reverse};
  for (const auto& [axis, length] : run.sizes) of.push_back(static_cast<std::uint64_t>(length));
  for (const NestArray& a : run.symbols)
    for (const std::uint64_t number :
         {a.data, static_cast<std::uint64_t>(a.row_stride), a.history, static_cast<std::uint64_t>(a.history_depth)})
      of.push_back(number);
  of.insert(of.end(), run.outs.begin(), run.outs.end());
  for (const std::int64_t offset : run.offsets) of.push_back(static_cast<std::uint64_t>(offset));
  of.push_back(step_->memory());
  for (Window& w : windows_)
    if (w.of == of) return &w;
  if (windows_.size() >= kMostWindows) {
    const auto old = std::find_if(windows_.begin(), windows_.end(), [&](Window& w) { return gpu_.passed(w.done); });
    if (old == windows_.end()) return nullptr;  // all of them still run
    gpu_.release_graph(old->graph);
    gpu_.release_fence(old->done);
    windows_.erase(old);
  }
  if (!capturing_) capturing_ = gpu_.make_stream();
  Capture capture(gpu_, capturing_);
  if (!capture.open()) return nullptr;
  for (std::int64_t s = 0; s < steps; ++s) step_->run_window(run, 1, s, counted_.address(), capturing_);
  count_steps(-1, steps, capturing_);
  Window made;
  made.of = std::move(of);
  made.graph = capture.end();
  windows_.push_back(std::move(made));
  windows_.back().done = gpu_.make_fence();
  return &windows_.back();
}

void SteppedOnGpu::run(const CudaRunArrays& arrays, ProductFactors factors, WideProducts wide, GpuStream stream) {
  if (factors != factors_ || wide != wide_) {
    if (step_) gpu_.synchronize(stream);  // their kernels may still run
    forget_programs();
    factors_ = factors;
    wide_ = wide;
  }
  if (!counted_.address()) counted_ = GpuBuffer(gpu_, sizeof(std::int64_t));
  if (!cells_.fixed.cell.outs.empty()) {
    NestRun r = arrays.rows_run(cells_.fixed.sources, stage_);
    r.outs = arrays.fixed_sums(stage_, cells_.fixed);
    program(fixed_, cells_.fixed).run(r, stream);
  }
  const NestRun run = one_step(arrays);
  NestProgram& step = program(step_, cells_.step);
  step.prepare_windows(run, 1, stream);
  // The first step by itself, so that whatever a launch makes on its way is there before one is captured.
  std::int64_t at = 0;
  if (arrays.longest > 0) step.run_window(run, 1, at++, 0, stream);
  const std::int64_t steps = std::clamp(arrays.longest / kWindows, kLeastSteps, kMostSteps),
                     windows = (arrays.longest - at) / steps;
  if (windows >= kLeastWindows && gpu_.capturing(stream) == 0) {
    count_steps(at, 0, stream);
    if (Window* const window = window_of(run, steps)) {
      for (std::int64_t w = 0; w < windows; ++w, at += steps) gpu_.launch_graph(window->graph, stream);
      gpu_.signal(window->done, stream);
    }
  }
  for (; at < arrays.longest; ++at) step.run_window(run, 1, at, 0, stream);
  write_finals(arrays, stream);
}

SteppedOnGpu& SteppedStages::of(std::size_t stage) {
  std::unique_ptr<SteppedOnGpu>& one = made_[stage];
  if (!one)
    one =
        std::make_unique<SteppedOnGpu>(gpu_, cell_, structure_, static_cast<int>(stage), arithmetic_, source_, derive_);
  return *one;
}

const SteppedOnGpu* SteppedStages::made(std::size_t stage) const {
  const auto at = made_.find(stage);
  return at == made_.end() ? nullptr : at->second.get();
}

double SteppedStages::compile_ms() const {
  double ms = 0;
  for (const auto& [stage, one] : made_) ms += one ? one->compile_ms() : 0;
  return ms;
}

std::vector<CacheState> SteppedStages::caches() const {
  std::vector<CacheState> all;
  for (const auto& [stage, one] : made_)
    if (one) all.insert(all.end(), one->caches().begin(), one->caches().end());
  return all;
}

}  // namespace cellc
