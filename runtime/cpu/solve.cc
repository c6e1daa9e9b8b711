// Larger than most (Solver::Impl): who plans a run, makes its passes and looks at what they left reads the same
// programs and arrays; an object between them would be handed all of these.
#include "runtime/cpu/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "compiler/graph/delay_lines.h"
#include "compiler/inspect.h"
#include "runtime/build/compile_orc.h"
#include "runtime/cpu/cell_programs.h"
#include "runtime/cpu/joined_stages.h"
#include "runtime/cpu/lagged_rows.h"
#include "runtime/cpu/leave_out_rows.h"
#include "runtime/cpu/measure_passes.h"
#include "runtime/cpu/plan_stages.h"
#include "runtime/cpu/probe_stage.h"
#include "runtime/cpu/run_in_blocks.h"
#include "runtime/cpu/scan_along_time.h"
#include "runtime/cpu/segment_sweep.h"
#include "runtime/cpu/strategy_relaxation.h"
#include "runtime/cpu/time_window.h"
#include "runtime/data/bind.h"
#include "runtime/data/call_shape.h"
#include "runtime/data/offsets.h"
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

/// What is tolerated of each state of a stage besides.
std::vector<double> absolute_of_stage(const CellGraph& cell, const Stage& stage, const SolveOptions& solve) {
  std::vector<double> all;
  for (const int u : stage.states) all.push_back(absolute_tolerance(solve, cell, u));
  return all;
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

/// States and finals of a run, from its trajectories, and in the report those that nobody wants.
RunOutput with_states(RunOutput output, const CellPrograms& programs, const RunArrays& arrays, const BoundRun& run,
                      SolveReport& report) {
  const CellGraph& cell = programs.cell();
  const Dtype arithmetic = programs.arithmetic(), storage = programs.options().dtype;
  const std::int64_t sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Array& steps = arrays.trajectories[u];
    output.states.push_back(!run.wanted.state(u) ? Array() : storage == arithmetic ? steps : convert(steps, storage));
    if (!run.wanted.final(u)) {
      output.finals.emplace_back();
      continue;
    }
    const Array& start = run.symbols[cell.updates[u].symbol];
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
  }
  if (storage != arithmetic)
    for (Array& a : output.outs)
      if (!a.shape().empty()) a = convert(a, storage);
  say_what_stays(cell, programs.structure(), run.wanted, report);
  return output;
}

/// The stages of a cell at the sizes of a run.
class StagesAtSizes final : public StagesOfRun {
 public:
  StagesAtSizes(CellPrograms& programs, const BoundRun& run) : programs_(programs), run_(run) {}
  int count() const override { return static_cast<int>(programs_.structure().stages.size()); }
  const Stage& stage(int k) const override { return programs_.structure().stages[k]; }
  std::string states(int k) const override { return name_of_stage(programs_.cell(), stage(k).states); }
  const BoundRun& run() const override { return run_; }
  Relaxation* relaxation(int k) override { return programs_.relaxation(k); }
  bool joins() override { return programs_.joined() != nullptr; }

  StageShape shape(int k) override {
    const StageCells& s = programs_.stages().stages[k];
    const CellGraph& cell = programs_.cell();
    const Dtype arithmetic = programs_.arithmetic();
    StageShape shape;
    const SequenceExtent extent = extent_of(run_.offsets);
    const AxisLengths lengths(cell.graph, run_.sizes);
    shape.sequences = extent.sequences;
    shape.rows = extent.rows;
    shape.longest = extent.longest;
    shape.channels = lengths.entries(s.channels);
    shape.block = 0;
    for (int u : s.states) {
      const std::int64_t mixed =
          lengths.entries(cell.symbols[cell.updates[u].symbol].index) / std::max<std::int64_t>(1, shape.channels);
      shape.block += mixed;
      shape.mixed = std::max(shape.mixed, mixed);
    }
    // Every entry of J times every column, of states; along axes there are loops.
    for (const std::vector<Coupling>& row : programs_.structure().stages[k].mask)
      for (const Coupling c : row) shape.look_values += c == Coupling::None ? 0 : static_cast<std::int64_t>(row.size());
    shape.vector_lanes = host_vector_bits(programs_.options().cpu) / (arithmetic == Dtype::F64 ? 64 : 32);
    shape.threads = thread_count(run_.threads);
    shape.in_registers = programs_.in_registers();
    shape.along_time = shape.channels == 1 && shape.block == 1 && !run_.reverse && has_step_composer(arithmetic);
    return shape;
  }

 private:
  CellPrograms& programs_;
  const BoundRun& run_;
};

/// The plan of the last run of which the shape alone decided: short runs take less than choosing does.
struct LastPlan {
  std::map<AxisId, std::int64_t> sizes;
  std::vector<std::int64_t> offsets;  ///< empty: there was none
  bool reverse = false;
  int threads = 0;
  double tolerance = 0;
  StagesPlan plan;

  bool holds_for(const BoundRun& run, double asked) const {
    return !offsets.empty() && run.threads == threads && run.reverse == reverse && asked == tolerance &&
           run.offsets == offsets && run.sizes == sizes;
  }
};

/// Whether no look at the data is left open.
bool is_decided(const StagesPlan& plan) {
  return std::none_of(plan.stages.begin(), plan.stages.end(),
                      [](const StagePlan& s) { return s.strategy == Strategy::Auto; });
}

/// Whether a cell with delay lines is to run in blocks of steps: by any strategy that has segments.
bool asks_for_blocks(const SolveOptions& solve) {
  const auto cuts = [](Strategy s) { return s != Strategy::Auto && s != Strategy::Sequential; };
  return cuts(solve.solver) ||
         std::any_of(solve.plan.begin(), solve.plan.end(), [&](const StagePlan& p) { return cuts(p.strategy); });
}

std::vector<StagePlan> step_by_step(const CellGraph& cell, int stages) {
  StagePlan plan;
  plan.reason = fmt::format("delay lines bring what is {} steps old and older, from the rows that were written",
                            independent_steps(cell));
  return std::vector<StagePlan>(static_cast<std::size_t>(stages), plan);
}

/// How many steps early the segments of stage `k` had better start, from how those of a run went.
void remember(std::vector<double>& warm_up, int stages, int k, const StageReport& report) {
  if (report.plan.strategy != Strategy::Segmented || report.boundaries == 0) return;
  warm_up.resize(static_cast<std::size_t>(stages), 0);
  const double used = static_cast<double>(report.plan.burn_in);
  warm_up[k] = report.misses * 50 > report.boundaries ? 2 * std::max(used, 32.0)
               : report.misses == 0                   ? 0.75 * warm_up[k]
                                                      : warm_up[k];
}

constexpr std::int64_t kTimedSteps = 32;

template <typename Pass>
double ns_a_row(const BoundRun& run, Pass&& pass) {
  const auto start = std::chrono::steady_clock::now();
  pass();
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() /
         static_cast<double>(run.offsets.back());
}

/// Nanoseconds that the fused kernel takes a row, from its first steps.
double step_ns(CellPrograms& programs, const BoundRun& run) {
  TimeWindow part;
  cut_window(programs.cell(), run, {}, 0, kTimedSteps, part);
  RunOutput output = programs.whole().run(part.run);  // and touches the pages
  return ns_a_row(part.run, [&] { output = programs.whole().run(part.run, std::move(output)); });
}

/// Nanoseconds that the look at a row takes, with all threads at work: steps wait for none. Those of the first are few
/// for several threads, so one takes them.
double look_ns(CellPrograms& programs, const BoundRun& given) {
  const int threads = thread_count(given.threads);
  const Dtype arithmetic = programs.arithmetic();
  TimeWindow part;
  cut_window(programs.cell(), given, {}, 0, kTimedSteps, part);
  BoundRun run = programs.options().dtype == arithmetic ? part.run : widened(part.run, arithmetic);
  run.threads = 1;
  RunOutput none;
  RunArrays arrays = run_arrays(programs.cell(), run, arithmetic, none);
  for (Array& rows : arrays.trajectories) rows = Array(arithmetic, rows.shape());  // numbers
  const StepsFromRows& step = programs.step();
  step(run, arrays.trajectories);
  return ns_a_row(run, [&] { step(run, arrays.trajectories); }) / threads;
}

}  // namespace

struct Solver::Impl {
  CellPrograms programs;
  const CellGraph& cell;
  const Dtype storage, arithmetic;
  RelaxationChoice relaxation_choice;
  LastPlan last_plan;
  std::unique_ptr<BlocksOfSteps> blocks;                  ///< of a cell with delay lines, where it runs so
  std::map<std::string, std::optional<PassCosts>> costs;  ///< by shape; none: they could not be kept
  std::vector<double> warm_up;                            ///< by stage: what the misses of earlier runs called for

  Impl(const CellGraph& cell, const Structure& structure, const CompileOptions& options)
      : programs(cell, structure, options),
        cell(cell),
        storage(options.dtype),
        arithmetic(arithmetic_of(options.dtype)) {}

  double compile_ms() const { return programs.compile_ms() + (blocks ? blocks->compile_ms() : 0); }
  int stage_count() const { return static_cast<int>(programs.structure().stages.size()); }

  // The run ----------------------------------------------------------------------------------------

  std::vector<Array> rows_of(const Program& program, const DerivedCell& c, const BoundRun& run, const RunArrays& arrays,
                             bool single = false, const Wanted& wanted = {}) {
    BoundRun bound = derived_run(cell, run, arrays, c.sources);
    bound.wanted = wanted;
    if (single) bound.offsets = {0, 1};
    return program.run(bound).outs;
  }

  StageData stage_data(int k, const BoundRun& run, RunArrays& arrays) {
    const StageCells& s = programs.stages().stages[k];
    std::vector<Array> before, once;
    if (!s.before.cell.outs.empty()) before = rows_of(programs.before(k), s.before, run, arrays);
    if (!s.once.cell.outs.empty()) once = rows_of(programs.once(k), s.once, run, arrays, true);
    return StageData(s, arrays, std::move(before), std::move(once));
  }

  /// What passes over such a run cost, where that is kept or can be; null otherwise. Kept, since what is chosen from a
  /// measurement must be chosen again by the next process: who has no cache is planned for by the shape.
  const PassCosts* costs_of(StagesOfRun& at, const BoundRun& given, const SolveOptions& solve) {
    const CompileOptions& options = programs.options();
    if (solve.solver != Strategy::Auto || !solve.plan.empty() || !solve.repair || solve.fixed_iterations ||
        options.cache_directory.empty() || options.cpu != "native" || options.vector_bits != 0)
      return nullptr;
    const std::optional<MeasuredPart> part = part_to_measure(at);
    if (!part) return nullptr;
    std::string shape = fmt::format("{} sequences of {} steps", part->sequences, part->steps);
    for (const auto& [axis, length] : given.sizes)
      shape += fmt::format(", {} = {}", cell.graph.axis(axis).name, length);
    if (given.reverse) shape += ", backwards";
    if (const auto known = costs.find(shape); known != costs.end()) return known->second ? &*known->second : nullptr;
    const CostsFor what{print_graph(cell) + print_structure(cell, programs.structure()), to_string(storage),
                        host_cpu_name(), shape};
    const KeptCosts kept(options.cache_directory);
    std::optional<PassCosts>& entry = costs[shape];
    entry = kept.find(what, static_cast<std::size_t>(stage_count()));
    if (entry) return &*entry;
    PassCosts measured = measured_costs(at, given, *part);
    if (kept.keep(what, measured)) entry = std::move(measured);
    return entry ? &*entry : nullptr;
  }

  PassCosts measured_costs(StagesOfRun& at, const BoundRun& given, const MeasuredPart& size) {
    BoundRun first = given;
    first.offsets.resize(static_cast<std::size_t>(size.sequences) + 1);
    first.threads = 1;
    TimeWindow part;
    cut_window(cell, first, {}, 0, size.steps, part);
    RunOutput output;
    const BoundRun run = storage != arithmetic ? widened(part.run, arithmetic) : part.run;
    RunOutput none;
    RunArrays arrays = run_arrays(cell, run, arithmetic, none);
    PassesOfRun passes;
    passes.fused = [&] { output = programs.whole().run(part.run, std::move(output)); };
    passes.data = [&](int k) { return stage_data(k, run, arrays); };
    const SolveOptions solve;
    const auto stage_of = [&](int k, StageData& data, const StagePlan& plan) {
      const double all = std::numeric_limits<double>::infinity();  // nothing is to be repaired here
      return StageToSolve{arrays,
                          [&data]() -> StageData& { return data; },
                          programs.kernels(k),
                          nullptr,
                          plan,
                          solve,
                          all,
                          absolute_of_stage(cell, programs.structure().stages[k], solve),
                          1};
    };
    passes.sweep = [&](int k, StageData& data, std::int64_t segment) {
      const StagePlan plan{Strategy::Segmented, segment, 0, ""};
      StageToSolve stage = stage_of(k, data, plan);
      in_precision_of(data, [&](auto number) {
        SegmentSweep<decltype(number)> sweep(stage, segment);
        sweep.write(sweep.segments().all());
        return StageOutcome{};
      });
      LaggingStates(cell).write(programs.structure().stages[k].states, run, arrays.trajectories);
    };
    passes.scan = [&](int k, StageData& data, std::int64_t segment) {
      const StagePlan plan{Strategy::Scan, segment, 0, ""};
      StageToSolve stage = stage_of(k, data, plan);
      on_cpu(Strategy::Scan).run(stage);
    };
    if (stage_count() > 1 || programs.adds_otherwise())
      passes.check = [&] {
        SolveReport report;
        check_whole_steps(report, arrays, run, solve, std::numeric_limits<double>::infinity());
      };
    if (JoinedStages* const all = programs.joined())
      passes.together = [all, &part, &output] { all->sweep(part.run, output); };
    // Of a single stage the lanes make the outs, too, as a run of whole sequences has them do.
    if (storage == arithmetic && lanes_make_outs(cell, programs.structure(), run) && programs.with_outs(run.wanted))
      passes.together = [&] {
        const StagePlan plan{Strategy::Segmented, std::max<std::int64_t>(1, extent_of(run.offsets).longest), 0, ""};
        StageData data = stage_data(0, run, arrays);
        StageToSolve stage = stage_of(0, data, plan);
        run_without_rows(programs, stage, [&](const StageCells& of) { return StageData(of, arrays, data); });
        arrays.outs.clear();
      };
    passes.after = [&] {
      const DerivedCell& after = programs.stages().after;
      if (!after.cell.outs.empty()) rows_of(programs.after(), after, run, arrays);
    };
    return measure_passes(at, size, run.offsets.back(), passes);
  }

  /// By the sequential kernel, from the first step on.
  RunOutput sequentially(const BoundRun& run, const std::vector<StagePlan>& plans, SolveReport& report,
                         RunOutput reuse) {
    RunOutput output = programs.whole().run(run, std::move(reuse));
    report.stages.clear();
    for (const StagePlan& plan : plans) report.stages.emplace_back().plan = plan;
    return output;
  }

  RunOutput sequentially(const BoundRun& run, const std::string& reason, SolveReport& report) {
    StagePlan plan;
    plan.reason = reason;
    return sequentially(run, std::vector<StagePlan>(static_cast<std::size_t>(stage_count()), plan), report, {});
  }

  /// A cell with delay lines: by the sequential kernel, which finds in the rows that it has written what they bring; or
  /// in blocks of steps, by the strategy that is asked for.
  RunOutput along_lines(const BoundRun& given, const SolveOptions& solve, double tolerance, SolveReport& report,
                        RunOutput reuse) {
    if (asks_for_blocks(solve) && tolerance > 0 && given.offsets.back() > 0) {
      if (!blocks) blocks = std::make_unique<BlocksOfSteps>(cell, programs.options());
      return blocks->run(given, solve, report);
    }
    return sequentially(given, step_by_step(cell, stage_count()), report, std::move(reuse));
  }

  /// Before any stage runs.
  StagesRequest first_request(StagesOfRun& at, const SolveOptions& solve, double tolerance) {
    StagesRequest request{at, solve, tolerance};
    relaxation_choice.forget();
    if (solve.solver != Strategy::Auto || !solve.plan.empty() || tolerance <= 0 || at.run().offsets.back() == 0)
      return request;
    request.relaxed_first = relaxation_choice.choose(
        at, tolerance, size_of(arithmetic), [&] { return step_ns(programs, at.run()); },
        [&] { return look_ns(programs, at.run()); });
    request.why_not_relaxed = relaxation_choice.why_not();
    request.looks_at_all = programs.adds_otherwise();
    if (!request.relaxed_first) request.costs = costs_of(at, at.run(), solve);
    return request;
  }

  /// The plan with what the data of stage `k` show, where that was left open.
  StagesPlan planned_for(int k, StagesPlan plan, StagesRequest& request, const std::function<StageData&()>& data) {
    request.next = k;
    if (plan.stages[k].strategy == Strategy::Auto) {
      const StageShape shape = request.cell.shape(k);
      request.seen.resize(plan.stages.size());
      request.seen[k] =
          probe_stage(data(), programs.kernels(k), request.tolerance, probed_segment(shape), shape.threads);
      request.seen[k]->remembered = warm_up.empty() ? 0 : warm_up[k];
    }
    return plan_stages(request);
  }

  RunOutput run(const BoundRun& given, const SolveOptions& solve, SolveReport& report, RunOutput reuse) {
    report = {};
    const double tolerance = solve.tolerance.value_or(default_tolerance(storage));
    if (cell.has_lines()) return along_lines(given, solve, tolerance, report, std::move(reuse));
    StagesAtSizes at(programs, given);
    std::optional<StagesRequest> request;  // nothing: the plan is decided
    StagesPlan plan;
    const bool free = solve.solver == Strategy::Auto && solve.plan.empty() && solve.repair && !solve.fixed_iterations;
    if (free && last_plan.holds_for(given, tolerance)) {
      plan = last_plan.plan;
    } else {
      request.emplace(first_request(at, solve, tolerance));
      plan = plan_stages(*request);
      if (is_decided(plan)) {
        // What relaxation promises depends on the data, all else on the shape.
        if (free && !request->relaxed_first && request->why_not_relaxed.empty())
          last_plan = {given.sizes, given.offsets, given.reverse, given.threads, tolerance, plan};
        request.reset();
      }
    }
    if (plan.fused) return sequentially(given, plan.stages, report, std::move(reuse));
    if (stage_count() > 1 && takes_whole_sequences(plan.stages, given))
      if (JoinedStages* const all = programs.joined())
        return all->run(given, solve, plan.stages, report, std::move(reuse));

    const bool narrow = storage != arithmetic;
    const BoundRun wide = narrow ? widened(given, arithmetic) : BoundRun{};
    const BoundRun& run = narrow ? wide : given;
    const bool leaves_rows = may_leave_out_rows(cell, programs.structure(), run);
    bool makes_outs = leaves_rows || (lanes_make_outs(cell, programs.structure(), run) && is_decided(plan) &&
                                      takes_whole_sequences(plan.stages, run));
    RunArrays arrays =
        leaves_rows ? arrays_without_rows(cell, run, arithmetic) : run_arrays(cell, run, arithmetic, reuse);
    const bool repairs = solve.repair && !solve.fixed_iterations;
    for (int k = 0; k < stage_count(); ++k) {
      std::optional<StageData> made;
      const std::function<StageData&()> data = [&]() -> StageData& {
        if (!made) made.emplace(stage_data(k, run, arrays));
        return *made;
      };
      if (request) plan = planned_for(k, std::move(plan), *request, data);
      if (plan.fused) {
        made.reset();
        report = {};
        RunOutput pages;
        if (!narrow) pages.states = std::move(arrays.trajectories);
        return sequentially(given, plan.stages, report, std::move(pages));
      }
      const StagePlan& chosen = plan.stages[k];
      Relaxation* const relaxed = chosen.strategy == Strategy::Relaxation ? programs.relaxation(k) : nullptr;
      StageToSolve stage{arrays,
                         data,
                         programs.kernels(k),
                         relaxed,
                         chosen,
                         solve,
                         tolerance,
                         absolute_of_stage(cell, programs.structure().stages[k], solve),
                         thread_count(run.threads)};
      if (relaxed) stage.relaxation_worth = relaxation_choice.worth();
      if (std::exchange(makes_outs, false)) {
        const auto lanes = [&](const StageCells& of) { return StageData(of, arrays, data()); };
        if (std::optional<RunWithoutRows> found = run_without_rows(programs, stage, lanes)) {
          remember(warm_up, stage_count(), 0, found->outcome.report);
          gather(report, std::move(found->outcome));
          if (leaves_rows) return std::move(found->output);
          if (programs.adds_otherwise())
            if (std::optional<RunOutput> instead = look_at_all(report, arrays, run, given, solve, tolerance))
              return std::move(*instead);
          return with_states(std::move(found->output), programs, arrays, run, report);
        }
        made.reset();
        if (leaves_rows) arrays = run_arrays(cell, run, arithmetic, reuse);
        arrays.outs.clear();
      }
      StageOutcome outcome = on_cpu(chosen.strategy).run(stage);
      if (!outcome.unconverged.empty() && repairs) return instead_of(std::move(outcome), k, given, report);
      LaggingStates(cell).write(programs.structure().stages[k].states, run, arrays.trajectories);
      remember(warm_up, stage_count(), k, outcome.report);
      gather(report, std::move(outcome));
    }
    // Relaxation takes residuals by a BLAS, which adds in an order of its own.
    const bool relaxed_any = std::any_of(plan.stages.begin(), plan.stages.end(),
                                         [](const StagePlan& of) { return of.strategy == Strategy::Relaxation; });
    // Of a run that is off somewhere as well: it has to say where else it is.
    if (programs.adds_otherwise() || relaxed_any || (stage_count() > 1 && report.max_residual > 0))
      if (std::optional<RunOutput> instead = look_at_all(report, arrays, run, given, solve, tolerance))
        return std::move(*instead);
    RunOutput output;
    if (wants_outs(cell, run.wanted))
      output.outs =
          rows_of(programs.after(), programs.stages().after, run, arrays, false, {{}, {}, run.wanted.outs, {}});
    output.outs.resize(cell.outs.size());
    return with_states(std::move(output), programs, arrays, run, report);
  }

  /// Looks at every whole step; where one does not hold and is to be repaired, what the sequential kernel makes of the
  /// run.
  std::optional<RunOutput> look_at_all(SolveReport& report, const RunArrays& arrays, const BoundRun& run,
                                       const BoundRun& given, const SolveOptions& solve, double tolerance) {
    check_whole_steps(report, arrays, run, solve, tolerance);
    if (report.converged || !solve.repair || solve.fixed_iterations) return std::nullopt;
    const std::int64_t bad = static_cast<std::int64_t>(report.unconverged.size());
    const char* const why = stage_count() > 1
                                ? "a later stage amplifies what the stages before it left, so run step by step"
                                : "a step amplifies the order in which its sums are added up, so run step by step";
    report = {};
    RunOutput output = sequentially(given, why, report);
    report.repaired = bad;
    return output;
  }

  /// What a strategy left that has no repair of its own is a matter for the sequential kernel, from the first step on.
  RunOutput instead_of(StageOutcome outcome, int k, const BoundRun& run, SolveReport& report) {
    StageReport tried = std::move(outcome.report);
    tried.repaired = static_cast<std::int64_t>(outcome.unconverged.size());
    tried.plan.reason += fmt::format("; not converged after {} iterations (residual {:.1e}), so run step by step",
                                     tried.iterations, tried.max_residual);
    tried.max_residual = tried.error_estimate = 0;
    RunOutput output = sequentially(run, "with the stage that did not converge", report);
    report.repaired = tried.repaired;
    report.stages[k] = std::move(tried);
    return output;
  }

  /// Where more than one boundary in fifty missed, the next run starts earlier; where none did, a
  /// little later again, since data change.
  /// Each stage was checked against what the stages before it wrote. What is promised is the residual of
  /// the whole step, in which a later stage may amplify what an earlier one left.
  void check_whole_steps(SolveReport& report, const RunArrays& arrays, const BoundRun& run, const SolveOptions& solve,
                         double tolerance) {
    const std::vector<Array> f = programs.step()(run, arrays.trajectories);
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      report.max_residual =
          std::max(report.max_residual, check_steps(arrays.trajectories[u], f[u], run.offsets,
                                                    {tolerance, absolute_tolerance(solve, cell, static_cast<int>(u))},
                                                    run.reverse, report.unconverged, thread_count(run.threads)));
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
  const double compiled_before = impl_->compile_ms();
  RunOutput output = impl_->run(run, options, report, std::move(reuse));
  report.compile_ms = impl_->compile_ms();
  report.cache = impl_->programs.cache();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  output.run_ms = ms - (report.compile_ms - compiled_before);
  return output;
}

std::optional<std::string> Solver::refusal(int stage, Strategy strategy, const BoundRun& run) {
  StagesAtSizes at(impl_->programs, run);
  return refusal_on_cpu(at, stage, strategy);
}

}  // namespace cellc
