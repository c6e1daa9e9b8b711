#include "runtime/cuda/launch/relaxation_on_gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "compiler/graph/axes.h"
#include "compiler/plan/plan_products.h"
#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/launch/choose_relaxation.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/row_difference.h"
#include "runtime/strategy/relaxation_progress.h"

namespace cellc {

namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kBlocks = 16;  ///< of a multiprocessor

// RowDifference of row_differences.cuh.
struct DifferenceArguments {
  GpuAddress from, to, offsets;
  std::int64_t sequences, steps, entries, reverse;
  double absolute;
  GpuAddress most, sizes;
};
constexpr std::int64_t kPartSteps = 64;
/// An iterate that moves by more is multiplied by TF32, which takes less than half as long as 3xTF32: what that rounds,
/// some 2e-4 of an LSTM's states, is then less than what the next iteration changes.
constexpr double kCoarseChange = 2e-3;

Structure structure_of(CellGraph& cell) { return analyse(cell, differentiate(cell)); }

/// Rows of an input as a solver takes them.
PlacedRows placed(const NestArray& a, std::int64_t row, const CudaRunArrays& arrays) {
  const std::int64_t stride = a.row_stride < 0 ? row : a.row_stride;
  return {a.data, arrays.uniform ? stride * arrays.longest : 0, stride};
}

}  // namespace

std::unique_ptr<RelaxationOnGpu> RelaxationOnGpu::make(Gpu& gpu, const CellGraph& cell, const Structure& structure,
                                                       int stage, Dtype arithmetic, const SourceText* source,
                                                       const DeriveHooks& derive) {
  std::optional<RelaxedCell> relaxed = relax(cell, structure, stage, derive);
  if (!relaxed) return nullptr;
  return std::unique_ptr<RelaxationOnGpu>(new RelaxationOnGpu(gpu, cell,
                                                              structure.stages[static_cast<std::size_t>(stage)].states,
                                                              stage, std::move(*relaxed), arithmetic, source, derive));
}

RelaxationOnGpu::RelaxationOnGpu(Gpu& gpu, const CellGraph& cell, const std::vector<int>& states, int stage,
                                 RelaxedCell relaxed, Dtype arithmetic, const SourceText* source,
                                 const DeriveHooks& derive)
    : gpu_(gpu),
      cell_(cell),
      states_(states),
      stage_(stage),
      relaxed_(std::move(relaxed)),
      structure_(structure_of(relaxed_.relaxed.cell)),
      mixing_plan_(make_plan(relaxed_.mixing.cell, Structure{})),
      arithmetic_(arithmetic),
      source_(source),
      inner_(gpu, relaxed_.relaxed.cell, structure_, arithmetic, source, derive) {}
RelaxationOnGpu::~RelaxationOnGpu() = default;

NestProgram& RelaxationOnGpu::program(std::optional<NestProgram>& program, const DerivedCell& cell,
                                      ProductFactors factors) {
  if (!program) {
    NestOptions options;
    options.source = source_;
    options.factors = factors;
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

/// Products of 16 bits, or by TF32, round the iterate, and then it moves by what that makes of a term, about a tenth of
/// a place, for ever: an LSTM of 768 units by 2e-4, whether h is of bf16 or not. Whether there were others to go on
/// with.
bool RelaxationOnGpu::refine(CudaRunArrays& arrays, GpuStream stream) {
  if (factors_ == ProductFactors::Real || factors_ == ProductFactors::Tf32x3) return false;
  factors_ = ProductFactors::Tf32x3;
  make_fixed_sums(arrays, stream);
  return true;
}

void RelaxationOnGpu::make_fixed_sums(CudaRunArrays& arrays, GpuStream stream) {
  if (relaxed_.fixed.cell.outs.empty()) return;
  NestRun r = arrays.rows_run(relaxed_.fixed.sources, stage_);
  r.outs = arrays.fixed_sums(stage_, relaxed_.fixed);
  program(products().fixed, relaxed_.fixed, factors_).run(r, stream);
}

double RelaxationOnGpu::product_entries(const std::map<AxisId, std::int64_t>& sizes) const {
  const AxisLengths lengths(mixing_plan_.cell.graph, sizes);
  double entries = 0;
  for (const Product& p : mixing_plan_.products)
    entries += static_cast<double>(lengths.entries(result_dims(p)) * lengths.entries(p.sums));
  return entries;
}

std::vector<CacheState> RelaxationOnGpu::caches() const {
  std::vector<CacheState> all = caches_;
  if (!inner_report_.stages.empty()) all.push_back(inner_report_.cache);
  return all;
}

/// The shape of a run of what is left: sequences as they are, and how far back its inputs are known.
void RelaxationOnGpu::prepare_inner(const CudaRunArrays& arrays, double tolerance, bool repeats) {
  const CellGraph& cell = relaxed_.relaxed.cell;
  BoundRun run;
  run.sizes = arrays.bound.sizes;
  run.offsets = arrays.bound.offsets;
  run.reverse = arrays.bound.reverse;
  run.symbols.resize(cell.symbols.size());
  run.histories.resize(cell.symbols.size());
  const AxisLengths lengths(cell.graph, arrays.bound.sizes);
  for (std::size_t s = states_.size(); s < cell.symbols.size(); ++s) {
    const ArraySource source = relaxed_.relaxed.sources[s];
    if (source.kind == ArraySource::Kind::Symbol && static_cast<std::size_t>(source.id) < arrays.bound.histories.size())
      run.histories[s] = arrays.bound.histories[static_cast<std::size_t>(source.id)];
    if (source.kind == ArraySource::Kind::Trajectory || source.kind == ArraySource::Kind::Remade)
      run.histories[s] = Array::view(arithmetic_, lengths.shape({arrays.sequences, 1}, cell.symbols[s].axes), nullptr);
  }
  SolveOptions options;
  options.tolerance = tolerance / 8;
  options.repeat_bits = repeats;
  inner_.prepare(run, options);
}

void RelaxationOnGpu::place_inner(const CudaRunArrays& arrays, const std::vector<GpuAddress>& into) {
  const CellGraph& cell = relaxed_.relaxed.cell;
  const NestRun sources = arrays.rows_run(relaxed_.relaxed.sources, stage_);
  const AxisLengths lengths(cell.graph, arrays.bound.sizes);
  DeviceArrays device;
  device.inputs.resize(cell.symbols.size());
  device.values.resize(cell.symbols.size());
  device.histories.resize(cell.symbols.size());
  device.trajectories.resize(cell.updates.size());
  device.finals.resize(cell.updates.size());
  device.outs.resize(cell.outs.size());
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const NestArray& a = sources.symbols[s];
    const std::int64_t row = lengths.entries(cell.symbols[s].axes);
    if (s < states_.size()) {
      device.values[s] = a.history;  // a trajectory's history is its start
      device.trajectories[s] = placed({into[s]}, row, arrays);
      device.finals[s] = arrays.final_of(static_cast<std::size_t>(states_[s]));
    } else if (cell.symbols[s].kind == SymbolKind::Param) {
      device.values[s] = a.data;
    } else {
      device.inputs[s] = placed(a, row, arrays);
      device.histories[s] = a.history;
    }
  }
  inner_.place_all(device);
}

/// The arrays of a cell that reads trajectories, the stage's own from an iterate.
NestRun RelaxationOnGpu::reading(const CudaRunArrays& arrays, const DerivedCell& cell,
                                 const std::vector<GpuAddress>& iterate) const {
  NestRun r = arrays.rows_run(cell.sources, stage_);
  for (std::size_t s = 0; s < cell.sources.size(); ++s)
    for (std::size_t i = 0; i < states_.size(); ++i)
      if (cell.sources[s] == ArraySource{ArraySource::Kind::Trajectory, states_[i]}) {
        r.symbols[s].data = iterate[i];
        r.symbols[s].row_stride = -1;
      }
  return r;
}

void RelaxationOnGpu::start_difference(GpuStream stream) {
  if (!most_.address()) most_ = GpuBuffer(gpu_, sizeof(std::uint32_t));
  gpu_.zero(most_.address(), sizeof(std::uint32_t), stream);
}

void RelaxationOnGpu::difference(const char* measure, const CudaRunArrays& arrays, int state, GpuAddress from,
                                 GpuAddress to, double absolute, GpuStream stream) {
  if (!differences_) {
    std::string text = storage_macro(arithmetic_);
    for (const char* part : {"preamble.cuh", "row_differences.cuh"})
      text += fmt::format("#line 1 \"{}\"\n{}\n", part, kernel_template(part));
    differences_ = gpu_.load({"row_differences.cu", std::move(text), {}});
  }
  const std::int64_t entries =
      AxisLengths(cell_.graph, arrays.bound.sizes)
          .entries(
              cell_.symbols[cell_.updates[static_cast<std::size_t>(states_[static_cast<std::size_t>(state)])].symbol]
                  .axes);
  const std::int64_t parts = (arrays.longest + kPartSteps - 1) / kPartSteps * arrays.sequences * entries;
  const auto needed = static_cast<std::size_t>(parts) * size_of(arithmetic_);
  if (sizes_.bytes() < needed) sizes_ = GpuBuffer(gpu_, needed);
  DifferenceArguments d{from,
                        to,
                        arrays.offsets(),
                        arrays.sequences,
                        arrays.longest,
                        entries,
                        arrays.bound.reverse,
                        absolute,
                        most_.address(),
                        sizes_.address()};
  const auto launch = [&](const char* name, std::int64_t threads) {
    GpuLaunch one;
    one.grid.x = static_cast<unsigned>(
        std::clamp<std::int64_t>((threads + kThreads - 1) / kThreads, 1, kBlocks * gpu_.facts().multiprocessors));
    one.block.x = kThreads;
    one.stream = stream;
    one.early = true;
    GpuFunction& function = kernels_[name];
    if (!function) function = gpu_.function(differences_, name);
    void* argument = &d;
    gpu_.launch(function, one, &argument);
  };
  launch("cellc_row_sizes", parts);
  launch("cellc_row_sizes_before", arrays.sequences * entries);
  launch(measure, parts);
}

double RelaxationOnGpu::largest_difference(GpuStream stream) {
  std::uint32_t bits = 0;
  gpu_.copy_out(&bits, most_.address(), sizeof bits, stream);
  return static_cast<double>(std::bit_cast<float>(bits));
}

double RelaxationOnGpu::change(const CudaRunArrays& arrays, const std::vector<GpuAddress>& from,
                               const std::vector<GpuAddress>& to, GpuStream stream) {
  start_difference(stream);
  for (std::size_t i = 0; i < states_.size(); ++i)
    difference("cellc_row_change", arrays, static_cast<int>(i), from[i], to[i], 0, stream);
  return largest_difference(stream);
}

/// Every step against f of the iterate itself; returns the largest residual.
double RelaxationOnGpu::check(CudaRunArrays& arrays, const std::vector<GpuAddress>& iterate,
                              const SolveOptions& options, double tolerance, GpuStream stream) {
  const DerivedCell& step = relaxed_.step;
  made_.resize(states_.size());
  NestRun r = reading(arrays, step, iterate);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    arrays.reserve_rows(made_[i], step.cell.outs[i].index);
    r.outs.push_back(made_[i].address());
  }
  program(products().step, step, factors_).run(r, stream);
  const auto absolute = [&](std::size_t i) {
    return absolute_tolerance(options, cell_.symbol_of(cell_.updates[static_cast<std::size_t>(states_[i])]).name);
  };
  start_difference(stream);
  for (std::size_t i = 0; i < states_.size(); ++i)
    difference("cellc_row_residual", arrays, static_cast<int>(i), made_[i].address(), iterate[i], absolute(i), stream);
  const double most = largest_difference(stream);
  if (most <= tolerance) return most;
  // Over rows that are small beside earlier ones, or off: where, and by how much, the host finds out.
  double exact = 0;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const std::vector<AxisId>& axes = step.cell.outs[i].index;
    exact = std::max(exact, check_steps(arrays.fetch_rows(iterate[i], axes, stream),
                                        arrays.fetch_rows(made_[i].address(), axes, stream), arrays.bound.offsets,
                                        {tolerance, absolute(i)}, arrays.bound.reverse, unconverged_));
  }
  return exact;
}

/// Where no iteration will write them: zeros, as rows are before the first; of a sequence without steps its start.
void RelaxationOnGpu::place_first_finals(const CudaRunArrays& arrays, GpuStream stream) {
  const AxisLengths lengths(cell_.graph, arrays.bound.sizes);
  const NestRun starts = arrays.rows_run(relaxed_.relaxed.sources, stage_);
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const auto update = static_cast<std::size_t>(states_[i]);
    const GpuAddress finals = arrays.final_of(update);
    const std::size_t bytes =
        static_cast<std::size_t>(lengths.entries(cell_.symbol_of(cell_.updates[update]).axes)) * size_of(arithmetic_);
    gpu_.copy(finals, starts.symbols[i].history, bytes * static_cast<std::size_t>(arrays.sequences), stream);
    for (std::size_t s = 0; s + 1 < arrays.bound.offsets.size(); ++s)
      if (arrays.bound.offsets[s] < arrays.bound.offsets[s + 1]) gpu_.zero(finals + s * bytes, bytes, stream);
  }
}

void RelaxationOnGpu::run(CudaRunArrays& arrays, ProductFactors factors, const SolveOptions& options, double tolerance,
                          int worth, GpuStream stream) {
  report_ = {};
  unconverged_.clear();
  if (factors != asked_ || options.wide_products != wide_) {
    gpu_.synchronize(stream);  // their kernels may still run
    for (ProductPrograms* programs : {&coarse_, &fine_})
      for (std::optional<NestProgram>* one : {&programs->fixed, &programs->mixing, &programs->step}) one->reset();
    first_mixing_.reset();
    asked_ = factors;
    wide_ = options.wide_products;
  }
  factors_ = asked_;
  arrays.reserve_fixed(stage_, relaxed_.fixed);
  arrays.reserve_mixing(stage_, relaxed_.mixing);
  others_.resize(states_.size());
  std::vector<GpuAddress> now, next;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const std::vector<AxisId>& axes = cell_.symbol_of(cell_.updates[static_cast<std::size_t>(states_[i])]).axes;
    arrays.reserve_rows(others_[i], axes);
    now.push_back(arrays.trajectory_of(states_[i]).data);
    next.push_back(others_[i].address());
    gpu_.zero(now[i], arrays.bytes_of_rows(axes), stream);
  }
  const std::vector<GpuAddress> wanted = now;
  prepare_inner(arrays, tolerance, options.repeat_bits);
  make_fixed_sums(arrays, stream);
  RelaxationProgress progress(options, tolerance, report_, worth);
  // Not of a number of iterations that is asked for, whose last must be one of the map that is.
  bool coarse = factors_ == ProductFactors::Tf32x3 && arithmetic_ == Dtype::F32 && !mixing_plan_.products.empty() &&
                tolerance < kCoarseChange / 8 && !options.fixed_iterations;
  if (!progress.goes_on()) place_first_finals(arrays, stream);
  for (;;) {
    while (progress.goes_on() && !progress.settled()) {
      if (progress.stalls() && (std::exchange(coarse, false) || refine(arrays, stream))) progress.resume();
      NestRun mixed = reading(arrays, relaxed_.mixing, now);
      mixed.outs = arrays.mixing_terms(stage_, relaxed_.mixing);
      if (coarse)
        program(first_mixing_, relaxed_.mixing, ProductFactors::Tf32).run(mixed, stream);
      else
        program(products().mixing, relaxed_.mixing, factors_).run(mixed, stream);
      place_inner(arrays, next);
      inner_.launch(stream);
      const double moved = change(arrays, now, next, stream);
      progress.moved(moved, arrays.rows);
      if (coarse && moved <= kCoarseChange) {
        coarse = false;
        progress.resume();
      }
      std::swap(now, next);
    }
    unconverged_.clear();
    report_.max_residual = check(arrays, now, options, tolerance, stream);
    if (unconverged_.empty() || progress.careful() || !progress.goes_on()) break;
    progress.be_careful();
  }
  report_.error_estimate = progress.error_estimate(report_.max_residual);
  if (report_.iterations > 0) inner_.report(inner_report_, stream);
  for (std::size_t i = 0; i < states_.size() && now != wanted; ++i)
    gpu_.copy(wanted[i], now[i],
              arrays.bytes_of_rows(cell_.symbol_of(cell_.updates[static_cast<std::size_t>(states_[i])]).axes), stream);
}

RelaxationOnGpu* Relaxations::of(std::size_t stage) {
  if (const auto known = made_.find(stage); known != made_.end()) return known->second.get();
  std::unique_ptr<RelaxationOnGpu> made;  // kept when it is there: making it may throw
  if (!cell_.has_lines())
    made = RelaxationOnGpu::make(gpu_, cell_, structure_, static_cast<int>(stage), arithmetic_, source_, derive_);
  return made_.emplace(stage, std::move(made)).first->second.get();
}

int Relaxations::worth(const ExecutionRequest& request, const CudaRunArrays& arrays, ProductFactors factors) {
  RelaxationRequest of;
  const AxisLengths lengths(cell_.graph, arrays.bound.sizes);
  for (std::size_t k = 0; k < request.stages.size(); ++k) {
    if (!request.stages[k].refusal) continue;
    if (!request.stages[k].mixes) return 0;
    of.product_entries += this->of(k)->product_entries(arrays.bound.sizes);
    for (const int u : structure_.stages[k].states)
      of.state_entries +=
          static_cast<double>(lengths.entries(cell_.symbol_of(cell_.updates[static_cast<std::size_t>(u)]).axes));
  }
  of.rows = arrays.rows;
  of.longest = arrays.longest;
  of.sequences = arrays.sequences;
  of.arithmetic = arithmetic_;
  of.factors = factors;
  of.other_step_ns = request.persistent.step_ns > 0 ? request.persistent.step_ns
                     : request.stepped.pays         ? request.stepped.step_ns
                                                    : 0;
  of.multiprocessors = request.card.multiprocessors;
  return iterations_worth_on_gpu(of);
}

void Relaxations::drop() {
  gpu_.synchronize(0);  // their kernels may still run
  dropped_ms_ = compile_ms();
  dropped_ = caches();
  made_.clear();
}

double Relaxations::compile_ms() const {
  double ms = dropped_ms_;
  for (const auto& [stage, relaxation] : made_) ms += relaxation ? relaxation->compile_ms() : 0;
  return ms;
}

std::vector<CacheState> Relaxations::caches() const {
  std::vector<CacheState> all = dropped_;
  for (const auto& [stage, relaxation] : made_)
    if (relaxation)
      for (const CacheState state : relaxation->caches()) all.push_back(state);
  return all;
}

}  // namespace cellc
