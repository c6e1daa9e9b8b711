#include "runtime/cpu/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "runtime/build/compile_orc.h"
#include "runtime/cpu/cpu_strategy.h"
#include "runtime/cpu/probe_stage.h"
#include "runtime/cpu/relax_stage.h"
#include "runtime/cpu/scan_along_time.h"
#include "runtime/cpu/strategy_relaxation.h"
#include "runtime/cpu/time_window.h"
#include "runtime/data/bind.h"
#include "runtime/data/threads.h"
#include "runtime/evaluate/row_difference.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

namespace {

/// A run of a cell derived from `cell`, with arrays and trajectories of that.
BoundRun derived_run(const CellGraph& cell, const BoundRun& run, const RunArrays& arrays,
                     const std::vector<ArraySource>& sources) {
  BoundRun result;
  result.sizes = run.sizes;
  result.offsets = run.offsets;
  result.reverse = run.reverse;
  result.threads = run.threads;
  for (const ArraySource s : sources) {
    if (s.kind == ArraySource::Kind::Symbol) {
      result.symbols.push_back(run.symbols[s.id]);
      result.histories.push_back(static_cast<std::size_t>(s.id) < run.histories.size() ? run.histories[s.id] : Array());
    } else {
      const Array& start = run.symbols[cell.updates[s.id].symbol];
      std::vector<std::int64_t> shape = start.shape();
      shape.insert(shape.begin() + 1, 1);
      result.symbols.push_back(arrays.trajectories[s.id]);
      result.histories.push_back(start.with_shape(shape));
    }
  }
  return result;
}

/// Runs of narrow storage are solved in the precision that they compute in.
BoundRun widened(const BoundRun& run, Dtype arithmetic) {
  BoundRun result = run;
  for (Array& a : result.symbols)
    if (a.data()) a = convert(a, arithmetic);
  for (Array& a : result.histories)
    if (a.data()) a = convert(a, arithmetic);
  return result;
}

/// Trajectories for all states, those of `reuse` where they fit.
RunArrays run_arrays(const CellGraph& cell, const BoundRun& run, Dtype arithmetic, RunOutput& reuse) {
  RunArrays arrays;
  arrays.cell = &cell;
  arrays.run = &run;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    std::vector<std::int64_t> shape{run.offsets.back()};
    for (const AxisId a : cell.symbols[cell.updates[u].symbol].axes)
      shape.push_back(run.sizes.at(cell.graph.axis(a).extent_of));
    const bool fits = u < reuse.states.size() && reuse.states[u].dtype() == arithmetic &&
                      reuse.states[u].shape() == shape && reuse.states[u].is_sole_owner();
    arrays.trajectories.push_back(fits ? std::move(reuse.states[u]) : Array::uninitialised(arithmetic, shape));
  }
  return arrays;
}

/// Adds the outcome of a stage to the report of the run.
void gather(SolveReport& report, StageOutcome outcome) {
  report.max_residual = std::max(report.max_residual, outcome.report.max_residual);
  report.error_estimate = std::max(report.error_estimate, outcome.report.error_estimate);
  report.repaired += outcome.report.repaired;
  for (const Unconverged& u : outcome.unconverged) merge(report.unconverged, u);
  report.converged = report.unconverged.empty();
  report.stages.push_back(std::move(outcome.report));
}

/// States and finals of a run, from its trajectories.
void put_states(RunOutput& output, const CellGraph& cell, const RunArrays& arrays, const BoundRun& run,
                Dtype arithmetic, Dtype storage) {
  const std::int64_t sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Array& start = run.symbols[cell.updates[u].symbol];
    const Array& steps = arrays.trajectories[u];
    Array last = Array::uninitialised(arithmetic, start.shape());
    const std::size_t bytes = sequences ? static_cast<std::size_t>(start.count() / sequences) * size_of(arithmetic) : 0;
    for (std::int64_t s = 0; s < sequences; ++s) {
      const bool empty = run.offsets[s] == run.offsets[s + 1];
      const std::int64_t row = empty ? s : run.reverse ? run.offsets[s] : run.offsets[s + 1] - 1;
      std::memcpy(static_cast<std::byte*>(last.data()) + static_cast<std::size_t>(s) * bytes,
                  static_cast<const std::byte*>((empty ? start : steps).data()) + static_cast<std::size_t>(row) * bytes,
                  bytes);
    }
    output.finals.push_back(std::move(last));
    output.states.push_back(storage == arithmetic ? steps : convert(steps, storage));
  }
  if (storage != arithmetic)
    for (Array& a : output.outs) a = convert(a, storage);
}

}  // namespace

struct Solver::Impl {
  const CellGraph& cell;
  const Structure& structure;
  const CompileOptions options;
  CompileOptions arithmetic;
  std::optional<Program> program;
  std::optional<StagedCell> staged;
  std::vector<std::unique_ptr<StageKernels>> kernels;
  std::vector<std::optional<Program>> before, once;
  std::optional<Program> after, step;
  std::vector<std::optional<std::unique_ptr<Relaxation>>> relaxations;  ///< asked for; null: nothing to relax
  double compile_ms = 0;
  std::vector<CacheState> caches;
  RelaxationChoice relaxation_choice;
  std::optional<StagePlan> relaxed_first;  ///< of stage 0, where a run found it to be faster
  std::vector<double> run_up;              ///< by stage: what the misses of earlier runs called for

  Impl(const CellGraph& cell, const Structure& structure, const CompileOptions& options)
      : cell(cell), structure(structure), options(options), arithmetic(options) {
    arithmetic.dtype = arithmetic_of(options.dtype);
  }

  // Made on demand ---------------------------------------------------------------------------------

  const Program& whole() {
    if (!program) {
      program.emplace(Program::compile(cell, structure, options));
      compile_ms += program->compile_ms();
      caches.push_back(program->cache());
    }
    return *program;
  }

  const StagedCell& stages() {
    if (staged) return *staged;
    const auto start = std::chrono::steady_clock::now();
    staged.emplace(split_stages(cell, structure, options.derive));
    compile_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    for (std::size_t k = 0; k < staged->stages.size(); ++k)
      kernels.push_back(std::make_unique<StageKernels>(staged->stages[k], structure.stages[k].scannable, arithmetic));
    before.resize(staged->stages.size());
    once.resize(staged->stages.size());
    return *staged;
  }

  const Program& stateless(std::optional<Program>& program, const DerivedCell& cell) {
    if (!program) {
      program.emplace(Program::compile(cell.cell, Structure{}, arithmetic));
      compile_ms += program->compile_ms();
      caches.push_back(program->cache());
    }
    return *program;
  }

  double compiled_ms() const {
    double ms = compile_ms;
    for (const auto& k : kernels) ms += k->compile_ms();
    for (const auto& r : relaxations)
      if (r && *r) ms += (*r)->compile_ms();
    return ms;
  }

  Relaxation* relaxation(int k) {
    relaxations.resize(structure.stages.size());
    if (!relaxations[k]) relaxations[k] = Relaxation::make(cell, structure, k, arithmetic);
    return relaxations[k]->get();
  }

  // Shapes -----------------------------------------------------------------------------------------

  std::int64_t entries(const std::vector<AxisId>& axes, const BoundRun& run) const {
    std::int64_t n = 1;
    for (AxisId a : axes) n *= run.sizes.at(cell.graph.axis(a).extent_of);
    return n;
  }

  StageShape shape(int stage, const BoundRun& run) {
    const StageCells& s = stages().stages[stage];
    StageShape shape;
    shape.sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
    shape.rows = run.offsets.back();
    for (std::int64_t i = 0; i < shape.sequences; ++i)
      shape.longest = std::max(shape.longest, run.offsets[i + 1] - run.offsets[i]);
    shape.channels = entries(s.channels, run);
    shape.block = 0;
    for (int u : s.states) {
      const std::int64_t mixed =
          entries(cell.symbols[cell.updates[u].symbol].index, run) / std::max<std::int64_t>(1, shape.channels);
      shape.block += mixed;
      shape.mixed = std::max(shape.mixed, mixed);
    }
    shape.vector_lanes = host_vector_bits(options.cpu) / (arithmetic.dtype == Dtype::F64 ? 64 : 32);
    shape.threads = thread_count(run.threads);
    shape.along_time = shape.channels == 1 && shape.block == 1 && !run.reverse && has_step_composer(arithmetic.dtype);
    return shape;
  }

  std::string states_of(int stage) const {
    std::string names;
    for (int u : structure.stages[stage].states)
      names += (names.empty() ? "" : ", ") + cell.symbol_of(cell.updates[u]).name;
    return names;
  }

  /// The stages at the sizes of a run.
  class Asked final : public StagesOfRun {
   public:
    Asked(Impl& solver, const BoundRun& run) : solver_(solver), run_(run) {}
    int count() const override { return static_cast<int>(solver_.structure.stages.size()); }
    const Stage& stage(int k) const override { return solver_.structure.stages[k]; }
    StageShape shape(int k) override { return solver_.shape(k, run_); }
    std::string states(int k) const override { return "{" + solver_.states_of(k) + "}"; }
    const BoundRun& run() const override { return run_; }
    Relaxation* relaxation(int k) override { return solver_.relaxation(k); }

   private:
    Impl& solver_;
    const BoundRun& run_;
  };

  /// Why a plan cannot name the strategy for the stage.
  std::optional<std::string> refusal_of_stage(int k, Strategy strategy, const BoundRun& run) {
    if (strategy == Strategy::Auto) return std::nullopt;
    if (!facts_of(strategy).on_cpu)
      return fmt::format("{} does not run on the CPU in this version; use --device cuda", to_string(strategy));
    Asked cell(*this, run);
    return on_cpu(strategy).refusal(cell, k);
  }

  /// Why a run cannot request it: one stage has to admit a strategy that takes some, each one that takes all.
  std::optional<std::string> refusal(int k, Strategy strategy, const BoundRun& run) {
    const bool takes_some = strategy != Strategy::Auto && facts_of(strategy).takes == StrategyFacts::Takes::SomeStages;
    for (std::size_t j = 0; takes_some && j < structure.stages.size(); ++j)
      if (!refusal_of_stage(static_cast<int>(j), strategy, run)) return std::nullopt;
    return refusal_of_stage(k, strategy, run);
  }

  // The run ----------------------------------------------------------------------------------------

  std::vector<Array> run_once(int k, const BoundRun& run, const RunArrays& arrays) {
    const DerivedCell& c = stages().stages[k].once;
    if (c.cell.outs.empty()) return {};
    BoundRun one = derived_run(cell, run, arrays, c.sources);
    one.offsets = {0, 1};
    return stateless(once[k], c).run(one).outs;
  }

  std::vector<Array> run_before(int k, const BoundRun& run, const RunArrays& arrays) {
    const DerivedCell& c = stages().stages[k].before;
    if (c.cell.outs.empty()) return {};
    return stateless(before[k], c).run(derived_run(cell, run, arrays, c.sources)).outs;
  }

  RunOutput sequentially(const BoundRun& run, SolveReport& report, RunOutput reuse, const std::string& reason) {
    RunOutput output = whole().run(run, std::move(reuse));
    report.stages.clear();
    for (std::size_t k = 0; k < structure.stages.size(); ++k) {
      StageReport s;
      s.plan.reason = reason;
      report.stages.push_back(std::move(s));
    }
    return output;
  }

  /// Nanoseconds that the fused kernel takes a row, from its first steps.
  double step_ns(const BoundRun& run) {
    constexpr std::int64_t kSteps = 32;
    TimeWindow part;
    cut_window(cell, run, {}, 0, kSteps, part);
    RunOutput output = whole().run(part.run);  // and touches the pages
    const auto start = std::chrono::steady_clock::now();
    output = whole().run(part.run, std::move(output));
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() /
           static_cast<double>(part.run.offsets.back());
  }

  /// The plan of a stage; reads the data where shape alone does not decide. `data`: empty, to leave that open.
  StagePlan plan_stage(int k, const SolveOptions& solve, const std::function<StageData&()>& data, const BoundRun& run,
                       double tolerance) {
    const Stage& stage = structure.stages[k];
    if (static_cast<std::size_t>(k) < solve.plan.size()) return solve.plan[k];
    if (k == 0 && relaxed_first) return *relaxed_first;
    if (solve.solver != Strategy::Auto && !refusal_of_stage(k, solve.solver, run)) {
      Asked cell(*this, run);
      return on_cpu(solve.solver).forced(cell, k, solve);
    }
    const StageShape s = shape(k, run);
    if (s.block > kLargestBlock) {
      StagePlan plan;
      plan.reason =
          fmt::format("{} coupled entries are too many for transitions{}", s.block, relaxation_choice.why_not());
      return plan;
    }
    if (auto plan = plan_from_shape(s, offers(stage, s))) return *plan;
    if (!data) return {Strategy::Auto, 0, 0, ""};
    const StagePlan guess = plan_from_data(s, {}, offers(s, Forgetting{}));
    const std::int64_t segment = std::max<std::int64_t>(guess.segment, 64);
    Forgetting seen = probe_stage(data(), *kernels[k], tolerance, segment, s.threads);
    seen.remembered = run_up.empty() ? 0 : run_up[k];
    return plan_from_data(s, seen, offers(s, seen));
  }

  /// Throws SolverError for what the cell does not admit.
  void check_request(const BoundRun& run, const SolveOptions& solve) {
    const int count = static_cast<int>(structure.stages.size());
    for (int k = 0; k < count; ++k)
      if (auto why = refusal(k, solve.solver, run)) throw SolverError(*why);
    // A plan names each stage's own strategy: one that the stage does not admit is refused, not replaced.
    if (!solve.plan.empty() && static_cast<int>(solve.plan.size()) != count)
      throw SolverError(fmt::format("the plan has {} stages, the cell {}", solve.plan.size(), count));
    for (int k = 0; k < static_cast<int>(solve.plan.size()); ++k)
      if (auto why = refusal_of_stage(k, solve.plan[k].strategy, run)) throw SolverError(*why);
  }

  /// What a run decided before it began.
  struct Choice {
    std::vector<StagePlan> plans;  ///< Auto where the data decide
    std::vector<StageShape> shapes;
    std::vector<std::string> reasons;
    bool weighs = false;  ///< a stage leaves the fused kernel only if that is worth it
    bool fused = true;    ///< all stages are sequential, or one is too wide to be cut out
  };

  Choice choose(const BoundRun& run, const SolveOptions& solve, double tolerance) {
    Asked cell(*this, run);
    relaxed_first.reset();
    relaxation_choice.forget();
    const bool free = solve.solver == Strategy::Auto && solve.plan.empty();
    if (free)
      relaxed_first =
          relaxation_choice.choose(cell, tolerance, size_of(arithmetic.dtype), [&] { return step_ns(run); });
    Choice choice;
    choice.weighs = free && !relaxed_first;
    bool all_sequential = true, dense = false;
    for (int k = 0; k < cell.count(); ++k) {
      const StagePlan plan = plan_stage(k, solve, {}, run, tolerance);
      const bool sequential = plan.strategy == Strategy::Sequential;
      all_sequential &= sequential;
      // A dense stage that is not relaxed runs in the fused kernel, and everything with it.
      dense |= sequential && cell.shape(k).block > kLargestBlock;
      choice.reasons.push_back(plan.reason.empty() ? "asked for" : plan.reason);
      choice.plans.push_back(plan);
      choice.shapes.push_back(cell.shape(k));
    }
    choice.fused = all_sequential || dense || !is_worth_cutting(choice);
    return choice;
  }

  /// Whether the stages that would leave the fused kernel gain more than the others lose.
  bool is_worth_cutting(Choice& choice) const {
    if (!choice.weighs) return true;
    const auto why = keeps_fused(choice.plans, choice.shapes);
    for (std::size_t k = 0; why && k < choice.plans.size(); ++k)
      if (choice.plans[k].strategy != Strategy::Sequential) choice.reasons[k] = *why;
    return !why;
  }

  RunOutput fused(const BoundRun& run, const Choice& choice, SolveReport& report, RunOutput reuse) {
    RunOutput output = sequentially(run, report, std::move(reuse), "");
    for (std::size_t k = 0; k < choice.reasons.size(); ++k) report.stages[k].plan.reason = choice.reasons[k];
    return output;
  }

  RunOutput run(const BoundRun& given, const SolveOptions& solve, SolveReport& report, RunOutput reuse) {
    report = {};
    const double tolerance = solve.tolerance.value_or(default_tolerance(options.dtype));
    check_request(given, solve);
    if (given.offsets.back() == 0) return sequentially(given, report, std::move(reuse), "no steps");
    if (tolerance <= 0)
      return sequentially(given, report, std::move(reuse),
                          "tolerance 0 asks for the sequential kernel's bits, and it gives them at the least cost");
    // Without stages to cut the fused kernel is the best there is.
    Choice choice = choose(given, solve, tolerance);
    if (choice.fused) return fused(given, choice, report, std::move(reuse));

    const bool narrow = options.dtype != arithmetic.dtype;
    const BoundRun wide = narrow ? widened(given, arithmetic.dtype) : BoundRun{};
    const BoundRun& run = narrow ? wide : given;
    RunArrays arrays = run_arrays(cell, run, arithmetic.dtype, reuse);
    const bool repairs = solve.repair && !solve.fixed_iterations;
    for (int k = 0; k < static_cast<int>(structure.stages.size()); ++k) {
      std::optional<StageData> made;
      const std::function<StageData&()> data = [&]() -> StageData& {
        if (!made) made.emplace(stages().stages[k], arrays, run_before(k, run, arrays), run_once(k, run, arrays));
        return *made;
      };
      StagePlan& plan = choice.plans[k];
      plan = plan_stage(k, solve, data, run, tolerance);
      if (plan.strategy == Strategy::Sequential && choice.weighs && !is_worth_cutting(choice)) {
        // The data speak against cutting, and with this stage the others stay fused too.
        made.reset();
        choice.reasons[k] = plan.reason;
        report = {};
        RunOutput pages;
        if (!narrow) pages.states = std::move(arrays.trajectories);
        return fused(given, choice, report, std::move(pages));
      }
      Relaxation* const relaxed = plan.strategy == Strategy::Relaxation ? relaxation(k) : nullptr;
      StageRun stage{arrays, data, *kernels[k], relaxed, plan, solve, tolerance, thread_count(run.threads)};
      StageOutcome outcome = on_cpu(plan.strategy).run(stage);
      if (!outcome.unconverged.empty() && repairs) return instead_of(std::move(outcome), k, given, report);
      remember(k, outcome.report);
      gather(report, std::move(outcome));
    }
    if (structure.stages.size() > 1 &&
        report.max_residual > 0) {  // of a run that is off somewhere as well: it has to say where else it is
      check_whole_steps(report, arrays, run, tolerance);
      if (!report.converged && repairs) {
        const std::int64_t bad = static_cast<std::int64_t>(report.unconverged.size());
        report = {};
        RunOutput output = sequentially(given, report, {},
                                        "a later stage amplifies what the stages before it left, so run step by step");
        report.repaired = bad;
        return output;
      }
    }
    RunOutput output;
    if (!stages().after.cell.outs.empty())
      output.outs = stateless(after, stages().after).run(derived_run(cell, run, arrays, stages().after.sources)).outs;
    put_states(output, cell, arrays, run, arithmetic.dtype, options.dtype);
    return output;
  }

  /// What a strategy left that has no repair of its own is a matter for the sequential kernel, from the first step on.
  RunOutput instead_of(StageOutcome outcome, int k, const BoundRun& run, SolveReport& report) {
    StageReport tried = std::move(outcome.report);
    tried.repaired = static_cast<std::int64_t>(outcome.unconverged.size());
    tried.plan.reason += fmt::format("; not converged after {} iterations (residual {:.1e}), so run step by step",
                                     tried.iterations, tried.max_residual);
    tried.max_residual = tried.error_estimate = 0;
    RunOutput output = sequentially(run, report, {}, "with the stage that did not converge");
    report.repaired = tried.repaired;
    report.stages[k] = std::move(tried);
    return output;
  }

  /// Where more than one boundary in fifty missed, the next run starts earlier; where none did, a
  /// little later again, since data change.
  void remember(int k, const StageReport& report) {
    if (report.plan.strategy != Strategy::Segmented || report.boundaries == 0) return;
    run_up.resize(structure.stages.size(), 0);
    const double used = static_cast<double>(report.plan.burn_in);
    run_up[k] = report.misses * 50 > report.boundaries ? 2 * std::max(used, 32.0)
                : report.misses == 0                   ? 0.75 * run_up[k]
                                                       : run_up[k];
  }

  /// Each stage was checked against what the stages before it wrote. What is promised is the residual of
  /// the whole step, in which a later stage may amplify what an earlier one left.
  void check_whole_steps(SolveReport& report, const RunArrays& arrays, const BoundRun& run, double tolerance) {
    const RunOutput f = stateless(step, stages().step).run(derived_run(cell, run, arrays, stages().step.sources));
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      report.max_residual = std::max(report.max_residual, check_steps(arrays.trajectories[u], f.outs[u], run.offsets,
                                                                      tolerance, run.reverse, report.unconverged));
    report.error_estimate = std::max(report.error_estimate, report.max_residual);
    report.converged = report.unconverged.empty();
  }
};

Solver::Solver(const CellGraph& cell, const Structure& structure, const CompileOptions& options)
    : impl_(std::make_unique<Impl>(cell, structure, options)) {}
Solver::~Solver() = default;
Solver::Solver(Solver&&) noexcept = default;

RunOutput Solver::run(const BoundRun& run, const SolveOptions& options, SolveReport& report, RunOutput reuse) {
  const auto start = std::chrono::steady_clock::now();
  const double compiled_before = impl_->compiled_ms();
  RunOutput output = impl_->run(run, options, report, std::move(reuse));
  report.compile_ms = impl_->compiled_ms();
  std::vector<CacheState> caches = impl_->caches;
  for (const auto& k : impl_->kernels) caches.insert(caches.end(), k->caches().begin(), k->caches().end());
  for (const auto& r : impl_->relaxations)
    if (r && *r) caches.insert(caches.end(), (*r)->caches().begin(), (*r)->caches().end());
  const auto any = [&](CacheState state) { return std::find(caches.begin(), caches.end(), state) != caches.end(); };
  report.cache = any(CacheState::Miss)                    ? CacheState::Miss
                 : any(CacheState::Off) || caches.empty() ? CacheState::Off
                                                          : CacheState::Hit;
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  output.run_ms = ms - (report.compile_ms - compiled_before);
  return output;
}

std::optional<std::string> Solver::refusal(int stage, Strategy strategy, const BoundRun& run) {
  return impl_->refusal(stage, strategy, run);
}

}  // namespace cellc
