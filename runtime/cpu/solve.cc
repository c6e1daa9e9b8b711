#include "runtime/cpu/solve.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "runtime/build/compile_orc.h"
#include "runtime/cpu/probe_stage.h"
#include "runtime/cpu/relax_stage.h"
#include "runtime/cpu/scan_along_time.h"
#include "runtime/cpu/solve_stage.h"
#include "runtime/cpu/time_window.h"
#include "runtime/data/bind.h"
#include "runtime/data/threads.h"
#include "runtime/evaluate/row_difference.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

namespace {

/// Blocks up to this many coupled entries have transitions worth multiplying.
constexpr std::int64_t kLargestBlock = 64;
/// Multiplications of a whole run below which relaxation is not even looked at: a tenth of a second.
constexpr double kSmallMixing = 1e9;
constexpr std::int64_t kShortMixing = 512;  ///< steps
constexpr double kFewestIterations =
    4;  ///< that relaxation ever took to a tolerance of use; a look at the data takes as many

std::int64_t second_level_cache_bytes() {
  const long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return bytes > 0 ? bytes : 1 << 20;
}

/// What mixing costs in runs of one shape.
struct WeighedMixing {
  std::map<AxisId, std::int64_t> sizes;
  std::vector<std::int64_t> offsets;
  int threads = 0;
  double worth = 0;  ///< iterations
};

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
  std::optional<StagePlan> relaxed_first;  ///< of stage 0, where a run found it to be faster
  std::string not_relaxed;                 ///< why not
  std::optional<WeighedMixing> weighed;    ///< of the last shape that was asked for
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
    staged.emplace(split_stages(cell, structure));
    compile_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    for (std::size_t k = 0; k < staged->stages.size(); ++k)
      kernels.push_back(std::make_unique<StageKernels>(staged->stages[k], structure.stages[k].scannable, arithmetic));
    before.resize(staged->stages.size());
    once.resize(staged->stages.size());
    return *staged;
  }

  const Program& stateless(std::optional<Program>& program, const StatelessCell& cell) {
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

  std::optional<std::string> refusal(int stage, Strategy strategy, const BoundRun& run) {
    if (strategy == Strategy::Sequential || strategy == Strategy::Auto) return std::nullopt;
    const Stage& s = structure.stages[stage];
    if (strategy == Strategy::Relaxation) {
      for (std::size_t k = 0; k < structure.stages.size(); ++k)
        if (relaxation(static_cast<int>(k))) return std::nullopt;
      return "no stage has a term that mixes its channels, so there is nothing to relax";
    }
    const std::int64_t block = shape(stage, run).block;
    if (block > kLargestBlock)
      return fmt::format(
          "the stage {{{}}} couples {} entries with each other, and blocks of more than {} are run sequentially",
          states_of(stage), block, kLargestBlock);
    if (strategy == Strategy::Scan) return no_scan(s, "{" + states_of(stage) + "}");
    return std::nullopt;
  }

  // The run ----------------------------------------------------------------------------------------

  BoundRun derived_run(const BoundRun& run, const RunArrays& arrays, const std::vector<ArraySource>& sources) const {
    BoundRun result;
    result.sizes = run.sizes;
    result.offsets = run.offsets;
    result.reverse = run.reverse;
    result.threads = run.threads;
    for (const ArraySource s : sources) {
      if (s.kind == ArraySource::Kind::Symbol) {
        result.symbols.push_back(run.symbols[s.id]);
        result.histories.push_back(static_cast<std::size_t>(s.id) < run.histories.size() ? run.histories[s.id]
                                                                                         : Array());
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
  BoundRun widened(const BoundRun& run) const {
    BoundRun result = run;
    for (Array& a : result.symbols)
      if (a.data()) a = convert(a, arithmetic.dtype);
    for (Array& a : result.histories)
      if (a.data()) a = convert(a, arithmetic.dtype);
    return result;
  }

  std::vector<Array> run_once(int k, const BoundRun& run, const RunArrays& arrays) {
    const StatelessCell& c = stages().stages[k].once;
    if (c.cell.outs.empty()) return {};
    BoundRun one = derived_run(run, arrays, c.sources);
    one.offsets = {0, 1};
    return stateless(once[k], c).run(one).outs;
  }

  std::vector<Array> run_before(int k, const BoundRun& run, const RunArrays& arrays) {
    const StatelessCell& c = stages().stages[k].before;
    if (c.cell.outs.empty()) return {};
    return stateless(before[k], c).run(derived_run(run, arrays, c.sources)).outs;
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

  /// Whether the first stage is to be relaxed: a dense one whose matrices do not stay in cache, and which a
  /// look at the first steps shows to contract. Others behind it must not be dense.
  void weigh_relaxation(const SolveOptions& solve, const BoundRun& run, double tolerance) {
    relaxed_first.reset();
    not_relaxed.clear();
    if (solve.solver != Strategy::Auto || !solve.plan.empty()) return;
    for (std::size_t k = 0; k < structure.stages.size(); ++k)
      if ((shape(static_cast<int>(k), run).block > kLargestBlock) != (k == 0)) return;
    const StageShape s = shape(0, run);
    if (s.longest < kShortMixing || static_cast<double>(s.rows * s.block * s.block) < kSmallMixing) return;
    Relaxation* const r = relaxation(0);
    if (!r) return;
    const double entries = r->product_entries(run);
    if (entries * static_cast<double>(s.rows) < kSmallMixing) return;
    if (entries * static_cast<double>(size_of(arithmetic.dtype)) <= static_cast<double>(second_level_cache_bytes())) {
      not_relaxed = "; step by step their matrices stay in the second-level cache";
      return;
    }
    // Measured once a shape: runs that are alike choose alike.
    if (!weighed || weighed->sizes != run.sizes || weighed->offsets != run.offsets || weighed->threads != s.threads)
      weighed = {run.sizes, run.offsets, s.threads, iterations_worth({step_ns(run), r->iteration_ns(run)})};
    const double worth = weighed->worth;
    if (worth < kFewestIterations) {
      not_relaxed =
          fmt::format("; relaxation would have to end after {:.0f} iterations to be faster", std::max(0.0, worth));
      return;
    }
    const std::optional<int> predicted = r->predict(run, tolerance);
    if (!predicted) {
      not_relaxed = "; relaxation does not contract";
    } else if (*predicted > worth) {
      not_relaxed = fmt::format("; relaxation would take {} iterations, and {:.0f} take as long as running through",
                                *predicted, worth);
    } else {
      relaxed_first = {Strategy::Relaxation, Relaxation::window_steps(run), 0,
                       fmt::format("{} coupled entries; relaxation is predicted to take {} iterations, and {:.0f} take "
                                   "as long as running through",
                                   s.block, *predicted, worth)};
    }
  }

  /// Of a stage that is relaxed.
  std::optional<StagePlan> relaxed_plan(int k, const SolveOptions& solve, const BoundRun& run) {
    if (static_cast<std::size_t>(k) < solve.plan.size())
      return solve.plan[k].strategy == Strategy::Relaxation ? std::optional(solve.plan[k]) : std::nullopt;
    if (k == 0 && relaxed_first) return relaxed_first;
    if (solve.solver != Strategy::Relaxation || !relaxation(k)) return std::nullopt;
    return StagePlan{Strategy::Relaxation, solve.fixed_iterations ? 0 : Relaxation::window_steps(run), 0, "asked for"};
  }

  /// The plan of a stage; reads the data where shape alone does not decide.
  StagePlan plan_stage(int k, const SolveOptions& solve, StageData* data, const BoundRun& run, double tolerance) {
    const Stage& stage = structure.stages[k];
    if (static_cast<std::size_t>(k) < solve.plan.size()) return solve.plan[k];
    if (const auto plan = relaxed_plan(k, solve, run)) return *plan;
    const StageShape s = shape(k, run);
    if (solve.solver != Strategy::Auto && solve.solver != Strategy::Relaxation)
      return forced_plan(stage, s, solve.solver);
    if (s.block > kLargestBlock) {
      StagePlan plan;
      plan.reason = fmt::format("{} coupled entries are too many for transitions{}", s.block, not_relaxed);
      return plan;
    }
    if (auto plan = plan_from_shape(stage, s)) return *plan;
    if (!data) return {Strategy::Auto, 0, 0, ""};
    StagePlan guess = plan_from_data(s, {});
    const std::int64_t segment = std::max<std::int64_t>(guess.segment, 64);
    Forgetting seen = probe_stage(*data, *kernels[k], tolerance, segment, s.threads);
    seen.remembered = run_up.empty() ? 0 : run_up[k];
    return plan_from_data(s, seen);
  }

  RunOutput run(const BoundRun& given, const SolveOptions& solve, SolveReport& report, RunOutput reuse) {
    report = {};
    const double tolerance = solve.tolerance.value_or(default_tolerance(options.dtype));
    const int count = static_cast<int>(structure.stages.size());
    if (solve.solver != Strategy::Auto && solve.solver != Strategy::Sequential)
      for (int k = 0; k < count; ++k)
        if (auto why = refusal(k, solve.solver, given)) throw SolverError(*why);
    // A plan names each stage's own strategy: one that the stage does not admit is refused, not replaced.
    if (!solve.plan.empty() && static_cast<int>(solve.plan.size()) != count)
      throw SolverError(fmt::format("the plan has {} stages, the cell {}", solve.plan.size(), count));
    for (int k = 0; k < static_cast<int>(solve.plan.size()); ++k) {
      const Strategy strategy = solve.plan[k].strategy;
      if (strategy == Strategy::Relaxation && !relaxation(k))
        throw SolverError(fmt::format(
            "the stage {{{}}} has no term that mixes its channels, so there is nothing to relax", states_of(k)));
      if (auto why = refusal(k, strategy, given)) throw SolverError(*why);
    }
    if (given.offsets.back() == 0) return sequentially(given, report, std::move(reuse), "no steps");
    if (tolerance <= 0)
      return sequentially(given, report, std::move(reuse),
                          "tolerance 0 asks for the sequential kernel's bits, and it gives them at the least cost");

    weigh_relaxation(solve, given, tolerance);
    // Without stages to cut the fused kernel is the best there is.
    bool all_sequential = true, dense = false;
    std::vector<std::string> reasons;
    std::vector<StagePlan> plans;
    std::vector<StageShape> shapes;
    for (int k = 0; k < count; ++k) {
      const StagePlan plan =
          solve.solver == Strategy::Sequential ? StagePlan{} : plan_stage(k, solve, nullptr, given, tolerance);
      all_sequential &= plan.strategy == Strategy::Sequential;
      // A dense stage that is not relaxed runs in the fused kernel, and everything with it.
      dense |= plan.strategy != Strategy::Relaxation && shape(k, given).block > kLargestBlock;
      reasons.push_back(plan.reason.empty() ? "asked for" : plan.reason);
      plans.push_back(plan);
      shapes.push_back(shape(k, given));
    }
    const bool weighs = solve.solver == Strategy::Auto && solve.plan.empty() && !relaxed_first;
    const auto worth_cutting = [&] {
      const auto why = keeps_fused(plans, shapes);
      for (int k = 0; why && k < count; ++k)
        if (plans[k].strategy != Strategy::Sequential) reasons[k] = *why;
      return !why;
    };
    const auto fused = [&](RunOutput reuse) {
      RunOutput output = sequentially(given, report, std::move(reuse), "");
      for (int k = 0; k < count; ++k) report.stages[k].plan.reason = reasons[k];
      return output;
    };
    if (all_sequential || dense || (weighs && !worth_cutting())) return fused(std::move(reuse));

    const bool narrow = options.dtype != arithmetic.dtype;
    const BoundRun wide = narrow ? widened(given) : BoundRun{};
    const BoundRun& run = narrow ? wide : given;
    RunArrays arrays;
    arrays.cell = &cell;
    arrays.run = &run;
    const auto rows_of = [&](const std::vector<AxisId>& axes) {
      std::vector<std::int64_t> shape{run.offsets.back()};
      for (AxisId a : axes) shape.push_back(run.sizes.at(cell.graph.axis(a).extent_of));
      return shape;
    };
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const std::vector<std::int64_t> shape = rows_of(cell.symbols[cell.updates[u].symbol].axes);
      const bool fits = u < reuse.states.size() && reuse.states[u].dtype() == arithmetic.dtype &&
                        reuse.states[u].shape() == shape && reuse.states[u].is_sole_owner();
      arrays.trajectories.push_back(fits ? std::move(reuse.states[u]) : Array::uninitialised(arithmetic.dtype, shape));
    }
    for (int k = 0; k < count; ++k) {
      if (const auto relaxed = relaxed_plan(k, solve, run)) {
        if (Relaxation* r = relaxation(k)) {
          StageOutcome outcome = r->run(arrays, solve, tolerance, relaxed->segment);
          outcome.report.plan = *relaxed;
          const bool repair = !outcome.unconverged.empty() && solve.repair && !solve.fixed_iterations;
          if (repair) {
            // What does not contract is a matter for the sequential kernel, from the first step on.
            StageReport tried = std::move(outcome.report);
            tried.repaired = static_cast<std::int64_t>(outcome.unconverged.size());
            tried.plan.reason +=
                fmt::format("; not converged after {} iterations (residual {:.1e}), so run step by step",
                            tried.iterations, tried.max_residual);
            tried.max_residual = tried.error_estimate = 0;
            RunOutput output = sequentially(given, report, {}, "with the stage that did not converge");
            report.repaired = tried.repaired;
            report.stages[k] = std::move(tried);
            return output;
          }
          gather(report, std::move(outcome));
          continue;
        }
      }
      {
        StageData data(stages().stages[k], arrays, run_before(k, run, arrays), run_once(k, run, arrays));
        plans[k] = plan_stage(k, solve, &data, run, tolerance);
        if (!weighs || plans[k].strategy != Strategy::Sequential || worth_cutting()) {
          StageOutcome outcome = solve_stage(data, *kernels[k], plans[k], solve, tolerance, thread_count(run.threads));
          remember(k, outcome.report);
          gather(report, std::move(outcome));
          continue;
        }
      }
      // The data speak against cutting, and with this stage the others stay fused too.
      reasons[k] = plans[k].reason;
      report = {};
      RunOutput pages;
      if (!narrow) pages.states = std::move(arrays.trajectories);
      return fused(std::move(pages));
    }
    if (count > 1 &&
        report.max_residual > 0) {  // of a run that is off somewhere as well: it has to say where else it is
      check_whole_steps(report, arrays, run, tolerance);
      if (!report.converged && solve.repair && !solve.fixed_iterations) {
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
      output.outs = stateless(after, stages().after).run(derived_run(run, arrays, stages().after.sources)).outs;
    finish(output, arrays, run, narrow);
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
    const RunOutput f = stateless(step, stages().step).run(derived_run(run, arrays, stages().step.sources));
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      report.max_residual = std::max(report.max_residual, check_steps(arrays.trajectories[u], f.outs[u], run.offsets,
                                                                      tolerance, run.reverse, report.unconverged));
    report.error_estimate = std::max(report.error_estimate, report.max_residual);
    report.converged = report.unconverged.empty();
  }

  static void gather(SolveReport& report, StageOutcome outcome) {
    report.max_residual = std::max(report.max_residual, outcome.report.max_residual);
    report.error_estimate = std::max(report.error_estimate, outcome.report.error_estimate);
    report.repaired += outcome.report.repaired;
    for (const Unconverged& u : outcome.unconverged) merge(report.unconverged, u);
    report.converged = report.unconverged.empty();
    report.stages.push_back(std::move(outcome.report));
  }

  void finish(RunOutput& output, const RunArrays& arrays, const BoundRun& run, bool narrow) {
    const std::int64_t sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const Array& start = run.symbols[cell.updates[u].symbol];
      const Array& steps = arrays.trajectories[u];
      Array last = Array::uninitialised(arithmetic.dtype, start.shape());
      const std::size_t bytes =
          sequences ? static_cast<std::size_t>(start.count() / sequences) * size_of(arithmetic.dtype) : 0;
      for (std::int64_t s = 0; s < sequences; ++s) {
        const bool empty = run.offsets[s] == run.offsets[s + 1];
        const std::int64_t row = empty ? s : run.reverse ? run.offsets[s] : run.offsets[s + 1] - 1;
        std::memcpy(
            static_cast<std::byte*>(last.data()) + static_cast<std::size_t>(s) * bytes,
            static_cast<const std::byte*>((empty ? start : steps).data()) + static_cast<std::size_t>(row) * bytes,
            bytes);
      }
      output.finals.push_back(std::move(last));
      output.states.push_back(narrow ? convert(steps, options.dtype) : steps);
    }
    if (narrow)
      for (Array& a : output.outs) a = convert(a, options.dtype);
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
