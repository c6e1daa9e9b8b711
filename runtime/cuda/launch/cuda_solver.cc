#include "runtime/cuda/launch/cuda_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "compiler/derive/stage_cells.h"
#include "runtime/cuda/launch/choose_cuda_plan.h"
#include "runtime/cuda/launch/run_arrays.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"
#include "runtime/evaluate/row_difference.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

struct CudaSolver::Impl {
  Gpu& gpu;
  const CellGraph& cell;
  const Structure& structure;
  const Dtype dtype, arithmetic;
  const SourceText* source;
  std::optional<StagedCell> staged;
  std::vector<std::unique_ptr<StageProgram>> stages;
  std::vector<std::optional<FusedStage>> summed;       ///< by stage, where it has sums in its lanes
  std::vector<std::unique_ptr<StageProgram>> summing;  ///< those, as programs; else null
  std::vector<std::optional<NestProgram>> before, once, before_summing, once_summing;
  std::optional<NestProgram> after, step, whole;
  std::vector<Observed> observed;  ///< by stage, for the shape of the last run
  double compile_ms = 0;
  std::vector<CacheState> caches;

  // The run that is on the device.
  CudaRunArrays arrays;
  SolveOptions solve;
  double tolerance = 0;
  Dtype running = Dtype::F32;  ///< storage that programs have code for
  bool runs_stepwise = false;  ///< the whole cell as row kernels
  std::vector<CudaPlan> plans;
  using SumParts = std::vector<int>;  ///< by stage: of each sum that its lanes make; 0: they make none
  struct AfterSums {
    StatelessCell cell;  ///< what is left of `after` then
    std::optional<NestProgram> program;
  };
  SumParts sum_parts;
  std::map<SumParts, AfterSums> after_summing;  ///< never dropped by another plan: its kernels may still run
  bool reserved = false;                        ///< memory for what stages and sums pass on, as planned
  std::vector<GpuBuffer> step_arrays;
  bool on_device = false;  ///< all arrays are the caller's, unless place_all() says else
  bool outs_wanted = true;

  Impl(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype, const SourceText* source)
      : gpu(gpu),
        cell(cell),
        structure(structure),
        dtype(dtype),
        arithmetic(arithmetic_of(dtype)),
        source(source),
        arrays(gpu, cell, arithmetic) {}

  // Made on demand -----------------------------------------------------------------------------------

  const StagedCell& stages_of_cell() {
    if (staged) return *staged;
    staged.emplace(split_stages(cell, structure));
    before.resize(staged->stages.size());
    once.resize(staged->stages.size());
    before_summing.resize(staged->stages.size());
    once_summing.resize(staged->stages.size());
    observed.resize(staged->stages.size());
    for (std::size_t k = 0; k < staged->stages.size(); ++k)
      summed.push_back(fuse_reductions(*staged, static_cast<int>(k)));
    return *staged;
  }

  /// Programs that hold code for `storage`, the type on the device.
  void use_storage(Dtype storage) {
    stages_of_cell();
    if (running == storage && !stages.empty()) return;
    running = storage;
    stages.clear();
    summing.clear();
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      const Scannable scannable = structure.stages[k].scannable;
      stages.push_back(std::make_unique<StageProgram>(gpu, cell, staged->stages[k], scannable, storage, source));
      summing.push_back(summed[k]
                            ? std::make_unique<StageProgram>(gpu, cell, summed[k]->stage, scannable, storage, source)
                            : nullptr);
    }
    after.reset();
    after_summing.clear();
    step.reset();
    for (auto* programs : {&before, &once, &before_summing, &once_summing})
      for (auto& p : *programs) p.reset();
  }

  NestProgram& nest_program(std::optional<NestProgram>& program, const CellGraph& graph, const Structure& of,
                            Dtype storage) {
    if (!program) {
      NestOptions options;
      options.source = source;
      program.emplace(NestProgram::compile(gpu, graph, of, storage, options));
      compile_ms += program->compile_ms();
      caches.push_back(program->cache());
    }
    return *program;
  }

  double compiled_ms() const {
    double ms = compile_ms;
    for (const auto& s : stages) ms += s->compile_ms();
    for (const auto& s : summing) ms += s ? s->compile_ms() : 0;
    return ms;
  }

  // Shapes -------------------------------------------------------------------------------------------

  StageShape shape(int k) {
    StageShape s;
    s.sequences = arrays.sequences;
    s.longest = arrays.longest;
    s.rows = arrays.rows;
    s.channels = stages[k]->channels(arrays.bound.sizes);
    s.block = stages[k]->block(arrays.bound.sizes);
    s.storage_bytes = stages[k]->storage_bytes();
    return s;
  }

  std::string states_of(int stage) const {
    std::string names;
    for (int u : structure.stages[stage].states)
      names += (names.empty() ? "" : ", ") + cell.symbol_of(cell.updates[u]).name;
    return names;
  }

  std::optional<std::string> refusal(int k, Strategy strategy) {
    if (strategy == Strategy::Sequential || strategy == Strategy::Auto) return std::nullopt;
    if (strategy == Strategy::Relaxation) return "relaxation runs on the CPU only in this version; use --device cpu";
    const Stage& s = structure.stages[k];
    if (const auto why = stages[k]->refusal(arrays.bound.sizes))
      return fmt::format("the stage {{{}}} is run step by step on this device: {}", states_of(k), *why);
    if (strategy == Strategy::Scan) return no_scan(s, "{" + states_of(k) + "}");
    return std::nullopt;
  }

  // To the device ------------------------------------------------------------------------------------

  void upload(const BoundRun& run, const SolveOptions& options) {
    const auto shape_of = [&] { return std::tuple(arrays.bound.sizes, arrays.sequences, arrays.longest); };
    const auto before = shape_of();
    arrays.begin(run);
    if (arrays.sequences > std::numeric_limits<int>::max())
      throw RequestError(
          fmt::format("{} sequences: a GPU takes {} in one run", arrays.sequences, std::numeric_limits<int>::max()));
    // Times of another shape tell nothing.
    if (shape_of() != before) observed.assign(observed.size(), {});
    outs_wanted = true;
    // Sixteen bits are kept on the device where nothing but the stage itself reads what it writes: what a
    // second stage or an out would read was rounded.
    const StagedCell& parts = stages_of_cell();
    const bool alone = parts.stages.size() == 1 && parts.stages[0].before.cell.outs.empty() && cell.outs.empty();
    use_storage(alone ? dtype : arithmetic);
    runs_stepwise = false;
    for (const auto& s : stages) runs_stepwise = runs_stepwise || s->refusal(arrays.bound.sizes);
    if (runs_stepwise && running != dtype) use_storage(dtype);
    arrays.copy_in(run, running);
    if (!on_device) reserve_written();
    replan(options);
  }

  /// Memory for what is written and is not the caller's.
  void reserve_written() {
    std::vector<bool> unwritten;
    for (std::size_t u = 0; u < cell.updates.size(); ++u) unwritten.push_back(needs_no_trajectory(static_cast<int>(u)));
    arrays.reserve_written(unwritten, outs_wanted || runs_stepwise);
  }

  /// Lanes that walk their whole sequence may leave a state unwritten, if nothing else reads it.
  bool needs_no_trajectory(int update) const {
    if (!on_device || runs_stepwise || is_read_in_rows(cell.updates[update].symbol, true)) return false;
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      const StageCells& s = lanes_of(k, sums(k));
      const bool own = std::find(s.states.begin(), s.states.end(), update) != s.states.end();
      if (own && plans[k].plan.strategy != Strategy::Sequential) return false;
      for (const LaneSymbol& symbol : s.symbols)
        if (!own && symbol.source.kind == ArraySource::Kind::Trajectory && symbol.source.id == update) return false;
    }
    return true;
  }

  /// No kernel but lanes touches the rows of a symbol, whatever the plan: what sums need before a stage is otherwise
  /// read after it.
  bool any_strides(int symbol) const { return !runs_stepwise && !is_read_in_rows(symbol, false); }
  bool is_read_in_rows(int symbol, bool as_planned) const {
    const auto reads = [&](const std::vector<ArraySource>& sources) {
      return std::any_of(sources.begin(), sources.end(), [&](const ArraySource& s) {
        return (s.kind == ArraySource::Kind::Symbol && s.id == symbol) ||
               (s.kind == ArraySource::Kind::Trajectory && cell.updates[s.id].symbol == symbol);
      });
    };
    for (std::size_t k = 0; k < staged->stages.size(); ++k)
      if (reads(lanes_of(k, as_planned && sums(k)).before.sources)) return true;
    return as_planned ? outs_wanted && reads(after_cell().sources) : reads(staged->after.sources);
  }

  bool overlaps_starts() const {
    if (runs_stepwise) return false;
    return staged->stages.size() > 1 || !staged->stages[0].before.cell.outs.empty() ||
           !staged->after.cell.outs.empty() || cell.updates.size() > 1 ||
           plans[0].plan.strategy != Strategy::Sequential;
  }

  bool replan(const SolveOptions& options) {
    solve = options;
    tolerance = options.tolerance.value_or(default_tolerance(dtype));
    const std::vector<CudaPlan> before = std::move(plans);
    plan();
    return !std::equal(plans.begin(), plans.end(), before.begin(), before.end(),
                       [](const CudaPlan& a, const CudaPlan& b) {
                         return a.plan.strategy == b.plan.strategy && a.plan.segment == b.plan.segment &&
                                a.plan.burn_in == b.plan.burn_in;
                       });
  }

  void plan() {
    const int count = static_cast<int>(structure.stages.size());
    if (!solve.plan.empty() && static_cast<int>(solve.plan.size()) != count)
      throw SolverError(fmt::format("the plan has {} stages, the cell {}", solve.plan.size(), count));
    plans.clear();
    for (int k = 0; k < count; ++k) {
      const bool pinned = !solve.plan.empty();
      const Strategy strategy = pinned ? solve.plan[k].strategy : solve.solver;
      if (const auto why = refusal(k, strategy)) throw SolverError(*why);
      CudaPlan plan;
      if (runs_stepwise) {
        std::string why;
        for (int j = 0; j < count; ++j)
          if (const auto r = stages[j]->refusal(arrays.bound.sizes))
            why = fmt::format("the stage {{{}}}: {}", states_of(j), *r);
        plan.plan.reason = why;
        if (strategy != Strategy::Sequential && strategy != Strategy::Auto)
          throw SolverError(fmt::format("the cell is run step by step on this device: {}", why));
      } else if (arrays.rows == 0) {
        plan.plan.reason = "no steps";
      } else if (tolerance <= 0) {
        plan.plan.reason = "tolerance 0 asks for the sequential kernel's bits, and it gives them at the least cost";
      } else if (strategy != Strategy::Auto) {
        plan = forced_cuda_plan(structure.stages[k], shape(k), gpu.facts(), strategy, solve);
        if (pinned) pin(plan, solve.plan[k], arrays.longest, solve);
      } else {
        plan = choose_cuda_plan(structure.stages[k], shape(k), gpu.facts(), observed[k]);
        if (solve.fixed_iterations) {
          // What is chosen, as if it had been asked for: a plan that learns may find that rounds are no use.
          const std::string reason = plan.plan.reason;
          plan = forced_cuda_plan(structure.stages[k], shape(k), gpu.facts(), plan.plan.strategy, solve);
          plan.plan.reason = reason;
        }
        if (!plan.fixed && !solve.fixed_iterations) plan.rounds = std::min(plan.rounds, most_rounds(solve));
        plan.repairs = solve.repair && !solve.fixed_iterations;
      }
      // Whole runs in f32 and f64 look at whole steps afterwards in any case; rows of 16 bits would not tell.
      const bool only_then = !on_device && running != arithmetic;
      plan.checks = only_then || solve.check_scans;
      if (on_device && k + 1 < count && !runs_stepwise && arrays.rows > 0 && !is_exact(k, plan)) {
        plan = {};
        plan.plan.reason =
            "later stages read this one, and nobody looks at the whole step afterwards: no residual is left";
      }
      plans.push_back(std::move(plan));
    }
    choose_sums();
  }

  /// Lanes that walk their whole sequence have every new state at hand for what comes after them. Segments and scans
  /// run steps more than once, and would make sums anew each time.
  void choose_sums() {
    reserved = false;
    sum_parts.assign(plans.size(), 0);
    for (std::size_t k = 0; k < plans.size() && !runs_stepwise && arrays.rows > 0; ++k)
      if (summing[k] && plans[k].plan.strategy == Strategy::Sequential)
        sum_parts[k] = summing[k]->sum_parts(arrays.bound.sizes);
    std::vector<PartialSum> made;
    for (std::size_t k = 0; k < plans.size(); ++k)
      for (std::size_t i = 0; sum_parts[k] > 0 && i < summed[k]->sums.size(); ++i)
        made.push_back({summed[k]->sums[i], sum_parts[k]});
    if (!made.empty() && !after_summing.contains(sum_parts))
      after_summing.emplace(sum_parts, AfterSums{with_reduced_outs(staged->after, made), std::nullopt});
  }
  /// With the launch, not with the plan: a call that is replanned is rehearsed before it runs, and may find no memory
  /// only there.
  void reserve_between() {
    if (reserved) return;
    std::vector<const StageCells*> all;
    for (std::size_t k = 0; k < plans.size(); ++k) all.push_back(&lanes_of(k, sum_parts[k] > 0));
    arrays.reserve_sums(summed, sum_parts);
    arrays.reserve_between(all);
    reserved = true;
  }
  bool sums_in_lanes() const {
    return outs_wanted && std::any_of(sum_parts.begin(), sum_parts.end(), [](int parts) { return parts > 0; });
  }
  bool sums(std::size_t k) const { return sums_in_lanes() && sum_parts[k] > 0; }
  const StageCells& lanes_of(std::size_t k, bool fuse_reductions) const {
    return fuse_reductions ? summed[k]->stage : staged->stages[k];
  }
  StageProgram& program(std::size_t k) const { return sums(k) ? *summing[k] : *stages[k]; }
  const StatelessCell& after_cell() const { return sums_in_lanes() ? after_summing.at(sum_parts).cell : staged->after; }

  /// The plan leaves no residual: exact maps in a single pass, or starts that one step back decides.
  bool is_exact(int k, const CudaPlan& plan) {
    const Stage& s = structure.stages[k];
    if (plan.plan.strategy == Strategy::Sequential) return true;
    if (s.linear && s.norm_bound && *s.norm_bound == 0) return plan.plan.burn_in > 0;
    return plan.plan.strategy == Strategy::Scan && stages[k]->scans_in_one_pass(arrays.bound.sizes);
  }

  std::vector<GpuAddress> first_bad_steps() const {
    std::vector<GpuAddress> result;
    for (std::size_t k = 0; k < plans.size() && !runs_stepwise; ++k)
      if (const GpuAddress at = program(k).first_bad_steps()) result.push_back(at);
    return result;
  }

  // On the device ------------------------------------------------------------------------------------

  void launch(GpuStream stream) {
    if (arrays.rows == 0) return;
    if (runs_stepwise) {
      nest_program(whole, cell, structure, dtype).run(arrays.whole_run(), stream);
      return;
    }
    reserve_between();
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      const StageCells& s = lanes_of(k, sums(k));
      const int number = static_cast<int>(k);
      if (!s.once.cell.outs.empty())
        nest_program((sums(k) ? once_summing : once)[k], s.once.cell, Structure{}, arithmetic)
            .run(arrays.once_run(s, number), stream);
      if (!s.before.cell.outs.empty())
        nest_program((sums(k) ? before_summing : before)[k], s.before.cell, Structure{}, running)
            .run(arrays.before_run(s, number), stream);
      program(k).run(arrays.stage_run(s, number), plans[k], tolerance, stream);
    }
    if (!staged->after.cell.outs.empty() && outs_wanted)
      nest_program(sums_in_lanes() ? after_summing.at(sum_parts).program : after, after_cell().cell, Structure{},
                   running)
          .run(arrays.after_run(after_cell()), stream);
  }

  // And back -----------------------------------------------------------------------------------------

  void report(SolveReport& report, GpuStream stream) {
    report = {};
    for (std::size_t k = 0; k < plans.size(); ++k) {
      StageReport r;
      r.plan = plans[k].plan;
      if (!runs_stepwise && arrays.rows > 0) {
        const CudaOutcome o = program(k).outcome(stream);
        const bool segmented = plans[k].plan.strategy != Strategy::Sequential && r.plan.segment > 0;
        if (o.tile > 0) r.plan.segment = o.tile;
        r.iterations = o.rounds;
        r.repair_rounds = o.rounds;
        r.misses = o.misses;
        r.repaired = o.repaired + o.tails;
        r.max_residual = o.max_residual;
        if (segmented) {
          const std::int64_t segments = (arrays.longest + r.plan.segment - 1) / r.plan.segment;
          r.boundaries =
              std::max<std::int64_t>(0, segments - 1) * arrays.sequences * stages[k]->channels(arrays.bound.sizes);
          r.plan.burn_in = o.burn_in;
          // A residual grows from boundary to boundary at most as the largest transition does.
          double sum = 0, power = 1;
          for (std::int64_t s = 0; s < segments && sum < 1e30; ++s, power *= o.growth) sum += power;
          r.error_estimate = o.max_residual * std::max(1.0, sum);
          if (o.growth > 0 && r.plan.segment > 0) r.lyapunov = std::log(o.growth) / static_cast<double>(r.plan.segment);
          Observed& seen = observed[k];
          ++seen.calls;
          seen.tails = o.tails;
          seen.walked = static_cast<double>(o.tails) / static_cast<double>(std::max<std::int64_t>(1, r.boundaries));
          seen.tail_ns = o.tails > 0 && !o.phase_ns.empty() ? o.phase_ns.back() : 0;
          seen.measures_slope = o.measures_slope && !o.multistarts;
          for (const double ns : o.phase_ns) r.phases_us.push_back(ns * 1e-3);
          seen.took(std::accumulate(o.phase_ns.begin(), o.phase_ns.end(), 0.0));
          // Where multistarts came first, their composition did, too.
          seen.sweep_ns = o.phase_ns.size() <= (o.multistarts ? 2 : 0) ? 0 : o.phase_ns[o.multistarts ? 2 : 0];
          seen.sweep_steps = r.plan.segment + o.burn_in;
          const std::int64_t lanes = arrays.sequences * stages[k]->channels(arrays.bound.sizes);
          if (o.tile > 0)
            seen.scan_walked = static_cast<double>(o.repaired) / static_cast<double>(std::max<std::int64_t>(1, lanes));
          if (o.tile == 0 && seen.scan_walked > 0)
            seen.went_another_way();
          else
            seen.walks = 0;
        } else {
          observed[k].went_another_way();
        }
        for (const Unconverged& u : o.unconverged) merge(report.unconverged, u);
      }
      report.max_residual = std::max(report.max_residual, r.max_residual);
      report.error_estimate = std::max(report.error_estimate, r.error_estimate);
      report.repaired += r.repaired;
      report.stages.push_back(std::move(r));
    }
    report.converged = report.unconverged.empty();
    report.compile_ms = compiled_ms();
    std::vector<CacheState> all = caches;
    for (const auto* programs : {&stages, &summing})
      for (const auto& s : *programs)
        if (s) all.insert(all.end(), s->caches().begin(), s->caches().end());
    const auto any = [&](CacheState state) { return std::find(all.begin(), all.end(), state) != all.end(); };
    report.cache = any(CacheState::Miss)                 ? CacheState::Miss
                   : any(CacheState::Off) || all.empty() ? CacheState::Off
                                                         : CacheState::Hit;
  }

  /// Why steps may be further off than `report` says, or null. Also of a run that is known to be off somewhere: it has
  /// to say where else it is.
  const char* unchecked(const SolveReport& report) {
    if (runs_stepwise || arrays.rows == 0) return nullptr;
    if (plans.size() > 1 && report.max_residual > 0) return "a later stage amplifies what the stages before it left";
    // A scan's starts come from composed maps, which round by the largest state they pass: where a chain comes from
    // large states to small ones, or grows, that can be several tolerances (8e-6 was seen of h' = a*h + x in f32, |a|
    // up to 2).
    for (std::size_t k = 0; k < plans.size() && running == arithmetic; ++k)
      if (plans[k].plan.strategy == Strategy::Scan && stages[k]->scans_in_one_pass(arrays.bound.sizes))
        return "composed maps were rounded by more than the tolerance";
    return nullptr;
  }

  /// After unchecked(): scans give way to segments, whose boundaries are checked; where there are none, all is walked.
  void replace_plans(const char* why) {
    bool scans = false;
    for (std::size_t k = 0; k < plans.size(); ++k) {
      if (plans[k].plan.strategy != Strategy::Scan || refusal(static_cast<int>(k), Strategy::Shooting)) continue;
      scans = true;
      plans[k] =
          forced_cuda_plan(structure.stages[k], shape(static_cast<int>(k)), gpu.facts(), Strategy::Shooting, solve);
      plans[k].plan.reason = fmt::format("{}, so cut into segments whose boundaries are checked", why);
    }
    for (std::size_t k = 0; k < plans.size() && !scans; ++k) {
      plans[k] = {};
      plans[k].plan.reason = fmt::format("{}, so run step by step", why);
    }
  }

  /// Each stage was checked against what the stages before it wrote. What is promised is the residual of
  /// the whole step, in which a later stage may amplify what an earlier one left.
  void check_whole_steps(SolveReport& report, GpuStream stream) {
    const StatelessCell& c = staged->step;
    step_arrays.resize(c.cell.outs.size());
    NestRun r = arrays.rows_run(c.sources, -1);
    for (std::size_t o = 0; o < step_arrays.size(); ++o) {
      arrays.reserve_rows(step_arrays[o], c.cell.outs[o].index);
      r.outs.push_back(step_arrays[o].address());
    }
    nest_program(step, c.cell, Structure{}, running).run(r, stream);
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const Array written = arrays.fetch_trajectory(u, stream),
                  made = arrays.fetch_rows(step_arrays[u], cell.symbols[cell.updates[u].symbol].axes, stream);
      report.max_residual = std::max(report.max_residual, check_steps(written, made, arrays.bound.offsets, tolerance,
                                                                      arrays.bound.reverse, report.unconverged));
    }
    report.error_estimate = std::max(report.error_estimate, report.max_residual);
    report.converged = report.unconverged.empty();
  }
};

CudaSolver::CudaSolver(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                       const SourceText* source)
    : impl_(std::make_unique<Impl>(gpu, cell, structure, dtype, source)) {}
CudaSolver::~CudaSolver() = default;
CudaSolver::CudaSolver(CudaSolver&&) noexcept = default;

void CudaSolver::upload(const BoundRun& run, const SolveOptions& options) {
  impl_->on_device = false;
  impl_->upload(run, options);
}
void CudaSolver::prepare(const BoundRun& shape, const SolveOptions& options) {
  impl_->on_device = true;
  impl_->upload(shape, options);
}
void CudaSolver::place_all(const DeviceArrays& arrays) {
  impl_->arrays.placed = arrays;
  impl_->outs_wanted = arrays.outs_wanted;
  impl_->reserve_written();
}
Dtype CudaSolver::storage() const { return impl_->running; }
bool CudaSolver::any_strides(int symbol) const { return impl_->any_strides(symbol); }
bool CudaSolver::overlaps_starts() const { return impl_->overlaps_starts(); }
std::vector<GpuAddress> CudaSolver::first_bad_steps() const { return impl_->first_bad_steps(); }
bool CudaSolver::replan(const SolveOptions& options) { return impl_->replan(options); }
void CudaSolver::place(int symbol, GpuAddress data, std::int64_t row_stride) {
  impl_->arrays.placed.inputs[symbol] = {data, impl_->arrays.uniform ? row_stride * impl_->arrays.longest : 0,
                                         row_stride};
}
GpuAddress CudaSolver::trajectory(int update) const { return impl_->arrays.trajectory_of(update).data; }
GpuAddress CudaSolver::final_state(int update) const {
  return impl_->arrays.final_of(static_cast<std::size_t>(update));
}
GpuAddress CudaSolver::out(int number) const { return impl_->arrays.out_of(static_cast<std::size_t>(number)); }
void CudaSolver::launch(GpuStream stream) { impl_->launch(stream); }
void CudaSolver::report(SolveReport& report, GpuStream stream) { impl_->report(report, stream); }
RunOutput CudaSolver::download(GpuStream stream) { return impl_->arrays.download(impl_->dtype, stream); }

std::optional<std::string> CudaSolver::refusal(int stage, Strategy strategy, const BoundRun& run) {
  impl_->arrays.bound.sizes = run.sizes;
  if (impl_->stages.empty()) impl_->use_storage(impl_->dtype);
  return impl_->refusal(stage, strategy);
}

RunOutput CudaSolver::run(const BoundRun& run, const SolveOptions& options, SolveReport& report) {
  impl_->upload(run, options);
  const auto start = std::chrono::steady_clock::now();
  const double compiled_before = impl_->compiled_ms();
  impl_->launch(0);
  impl_->report(report, 0);
  for (const char* why; (why = impl_->unchecked(report));) {
    impl_->check_whole_steps(report, 0);
    if (report.converged || !options.repair || options.fixed_iterations) break;
    const std::int64_t bad = static_cast<std::int64_t>(report.unconverged.size());
    impl_->replace_plans(why);
    impl_->launch(0);
    impl_->report(report, 0);
    report.repaired = std::max(report.repaired, bad);
  }
  impl_->gpu.synchronize(0);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  RunOutput output = impl_->arrays.download(impl_->dtype, 0);
  report.compile_ms = impl_->compiled_ms();
  output.run_ms = ms - (report.compile_ms - compiled_before);
  return output;
}

}  // namespace cellc
