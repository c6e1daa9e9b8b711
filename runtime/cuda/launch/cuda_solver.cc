// Larger than most (the file, CudaSolver::Impl): what a run decides, compiles and launches read each other's state;
// programs of stages in each of their forms are the part that could stand apart.
#include "runtime/cuda/launch/cuda_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "compiler/derive/pipeline.h"
#include "runtime/cuda/device/shared_modules.h"
#include "runtime/cuda/launch/choose_cuda_plan.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "runtime/cuda/launch/plan_execution.h"
#include "runtime/cuda/launch/relaxation_on_gpu.h"
#include "runtime/cuda/launch/run_arrays.h"
#include "runtime/cuda/launch/stepped_on_gpu.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"
#include "runtime/evaluate/row_difference.h"
#include "runtime/strategy/choose_strategy.h"

namespace cellc {

struct CudaSolver::Impl {
  SharedModules gpu;
  const CellGraph& cell;
  const Structure& structure;
  const Dtype dtype, arithmetic;
  const SourceText* source;
  const DeriveHooks derive;
  std::optional<StagedCell> staged;
  std::vector<std::unique_ptr<StageProgram>> stages;
  std::vector<std::optional<FusedStage>> summed;       ///< by stage, where it has sums in its lanes
  std::vector<std::unique_ptr<StageProgram>> summing;  ///< those, as programs; else null
  const std::optional<AccumulatedOuts> outs_in_lanes;
  bool repeats_bits;                                       ///< in every run, whatever is asked for
  std::vector<std::optional<StageCells>> with_outs;        ///< by stage, where its lanes can make outs
  std::vector<std::unique_ptr<StageProgram>> making_outs;  ///< those, as programs; else null
  std::vector<std::unique_ptr<StageProgram>> remaking;  ///< by stage, over single steps, where later ones ask for that
  /// How the lanes of a stage are made: alone, with sums, with outs.
  enum Form { kPlain, kSums, kOuts, kForms };
  std::vector<std::optional<NestProgram>> before[kForms], once[kForms];  ///< by stage
  std::vector<std::vector<std::optional<NestProgram>>> remade;           ///< by stage and pass
  std::optional<NestProgram> after, step, whole;
  bool made_nests = false;  ///< any of these, ever: their kernels may be running
  Relaxations relaxations;
  SteppedStages stepped;
  std::string unrelaxed;  ///< why the run that is on the device is not relaxed after all
  std::string given_up;   ///< the same of runs of its shape that did not ask for it
  std::map<PersistentShape, std::optional<NestProgram>> persistent;  ///< whole steps, likewise
  std::optional<Plan> plan_of_steps;
  int most_blocks = 16;            ///< of a cluster, as far as is known of the card
  bool groups_fit = true;          ///< likewise
  std::vector<Observed> observed;  ///< by stage, for the shape of the last run
  double compile_ms = 0;
  std::vector<CacheState> caches;

  // The run that is on the device.
  CudaRunArrays arrays;
  SolveOptions solve;
  double tolerance = 0;
  Dtype running = Dtype::F32;         ///< storage that programs have code for
  ExecutionPlan execution;            ///< of the run that is on the device
  using SumParts = std::vector<int>;  ///< by stage: of each sum that its lanes make; 0: they make none
  struct LeftOuts {
    DerivedCell cell;  ///< what is left of `after` then
    std::optional<NestProgram> program;
  };
  std::map<SumParts, LeftOuts> after_summing;        ///< never dropped by another plan: its kernels may still run
  std::map<std::vector<bool>, LeftOuts> after_outs;  ///< by stages that make outs; likewise
  bool reserved = false;                             ///< memory for what stages and sums pass on, as planned
  bool compiled_ahead = false;                       ///< what this plan's first launch needs
  std::vector<GpuBuffer> step_arrays;
  bool runs_again = false;        ///< whoever upload()s runs it another way where it does not converge
  bool asked_of_refusal = false;  ///< whether stages can be relaxed is asked for
  bool on_device = false;         ///< all arrays are the caller's, unless place_all() says else
  bool may_wait = false;          ///< and the caller waits
  bool outs_wanted = true;
  Wanted wanted;  ///< of what is downloaded

  Impl(Gpu& device, const CellGraph& cell, const Structure& structure, Dtype dtype, const SourceText* source,
       const DeriveHooks& derive, const std::optional<AccumulatedOuts>& outs_in_lanes)
      : gpu(device),
        cell(cell),
        structure(structure),
        dtype(dtype),
        arithmetic(arithmetic_of(dtype)),
        source(source),
        derive(derive),
        outs_in_lanes(outs_in_lanes),
        repeats_bits(outs_in_lanes.has_value()),
        relaxations(gpu, cell, structure, arithmetic, source, this->derive),
        stepped(gpu, cell, structure, arithmetic, source, this->derive),
        arrays(gpu, cell, arithmetic) {}

  // Made on demand -----------------------------------------------------------------------------------

  const StagedCell& stages_of_cell() {
    if (staged) return *staged;
    staged.emplace(split_stages(cell, structure, derive));
    for (int form = 0; form < kForms; ++form) {
      before[form].resize(staged->stages.size());
      once[form].resize(staged->stages.size());
    }
    for (const StageCells& s : staged->stages) remade.emplace_back(s.remade.size());
    observed.resize(staged->stages.size());
    for (std::size_t k = 0; k < staged->stages.size(); ++k)
      summed.push_back(fuse_reductions(*staged, static_cast<int>(k), derive, outs_in_lanes));
    with_outs.resize(staged->stages.size());
    for (std::size_t k = 0; k < staged->stages.size(); ++k)
      with_outs[k] = outs_in_lanes ? fuse_outs(*staged, static_cast<int>(k), *outs_in_lanes, derive)
                     : summed[k]   ? fuse_sum_outs(cell, structure, static_cast<int>(k), derive)
                                   : std::nullopt;
    return *staged;
  }

  /// Programs that hold code for `storage`, the type on the device.
  void use_storage(Dtype storage) {
    stages_of_cell();
    if (running == storage && !stages.empty()) return;
    running = storage;
    stages.clear();
    summing.clear();
    making_outs.clear();
    remaking.clear();
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      const Scannable scannable = structure.stages[k].scannable;
      stages.push_back(
          std::make_unique<StageProgram>(gpu, cell, staged->stages[k], scannable, storage, source, derive));
      summing.push_back(
          summed[k] ? std::make_unique<StageProgram>(gpu, cell, summed[k]->stage, scannable, storage, source, derive)
                    : nullptr);
      making_outs.push_back(with_outs[k] ? std::make_unique<StageProgram>(gpu, cell, *with_outs[k], scannable, storage,
                                                                          source, derive, &staged->stages[k])
                                         : nullptr);
      remaking.push_back(
          staged->stages[k].remade.empty()
              ? nullptr
              : std::make_unique<StageProgram>(gpu, cell, staged->stages[k], scannable, storage, source, derive));
      // Forward runs and shipped code have the same kernels.
      if (summing[k] && outs_in_lanes) summing[k]->compile_for_runs();
      if (making_outs[k] && !outs_in_lanes) making_outs[k]->compile_for_runs();
    }
    forget_nests();
    repeat_scans();
  }

  bool repeats() const { return repeats_bits || solve.repeat_bits; }
  void repeat_scans() {
    for (auto* programs : {&stages, &making_outs})
      for (auto& program : *programs)
        if (program) program->repeat_bits(repeats());
  }

  void forget_nests() {
    after.reset();
    after_summing.clear();
    after_outs.clear();
    step.reset();
    for (auto* forms : {&before, &once})
      for (auto& programs : *forms)
        for (auto& p : programs) p.reset();
    for (auto& programs : remade)
      for (auto& p : programs) p.reset();
  }

  /// `between`: of a cell that stands between stages; null: of whole steps.
  NestOptions nest_options(const DerivedCell* between = nullptr) {
    NestOptions options;
    if (between) std::tie(options.wide_inputs, options.wide_histories) = wide_arrays(*between);
    options.source = source;
    options.factors = product_factors(solve.products, dtype);
    options.wide = solve.wide_products;
    options.compiled = [this](const GpuModule& module) {
      compile_ms += module.compile_ms;
      caches.push_back(module.cache);
    };
    return options;
  }

  NestProgram& nest_program(std::optional<NestProgram>& program, const CellGraph& graph, const Structure& of,
                            Dtype storage, const std::vector<PersistentCode>& lives_through_steps = {},
                            const DerivedCell* between = nullptr) {
    if (!program) {
      NestOptions options = nest_options(between);
      options.persistent = lives_through_steps;
      program.emplace(NestProgram::compile(gpu, graph, of, storage, options));
      made_nests = true;
      compile_ms += program->compile_ms();
      caches.push_back(program->cache());
    }
    return *program;
  }

  /// Of runs from host to host that leave the choice to us.
  bool may_relax_unasked() const {
    return runs_again && !on_device && solve.solver == Strategy::Auto && solve.plan.empty() &&
           !solve.fixed_iterations && solve.max_iterations > 0 && solve.repair && solve.persistent.blocks >= 0 &&
           unrelaxed.empty() && arrays.rows > 0;
  }
  std::string why_given_up(const SolveReport& report) const {
    for (const StageReport& s : report.stages)
      if (s.plan.strategy == Strategy::Relaxation && s.iterations > 0)
        return s.predicted_iterations ? fmt::format("; relaxation would have taken {} iterations, and {} take as long",
                                                    *s.predicted_iterations, execution.relaxation_worth)
                                      : fmt::format("; relaxation did not contract in {} iterations", s.iterations);
    return "";
  }

  double compiled_ms() const {
    double ms = compile_ms + relaxations.compile_ms() + stepped.compile_ms();
    for (const auto& s : stages) ms += s->compile_ms();
    for (const auto* programs : {&summing, &making_outs, &remaking})
      for (const auto& s : *programs) ms += s ? s->compile_ms() : 0;
    return ms;
  }

  // What is decided --------------------------------------------------------------------------------

  ExecutionRequest request() {
    stages_of_cell();
    ExecutionRequest r{cell, structure, *staged};
    r.dtype = dtype;
    for (std::size_t k = 0; k < stages.size(); ++k) {
      const bool in_lanes = on_device || !outs_in_lanes;  // what gradients need besides
      r.stages.push_back(facts_of(*stages[k], in_lanes ? summing[k].get() : nullptr, arrays.bound.sizes,
                                  arrays.sequences, arrays.longest, arrays.rows,
                                  on_device || !outs_in_lanes ? making_outs[k].get() : nullptr));
    }
    if (with_outs.size() == 1 && with_outs[0])
      r.stages[0].walks_alone =
          with_outs[0]->before.cell.outs.empty() && with_outs[0]->sum_outs.size() == cell.outs.size();
    r.card = gpu.facts();
    r.solve = solve;
    r.repeats = repeats();
    r.rounds_rows = cellc::rounds_rows(product_factors(solve.products, dtype), dtype);
    if (!r.repeats) r.observed = observed;
    r.rows = arrays.rows;
    r.longest = arrays.longest;
    r.on_device = on_device;
    r.is_adjoint = outs_in_lanes.has_value();
    r.may_wait = may_wait;
    r.unrelaxed = unrelaxed;
    const bool stepwise = !stepwise_reason(cell, *staged, r.stages).empty();
    if (stepwise) r.persistent = choose_persistent_kernels();
    if (stepwise && !cell.has_lines() && (r.persistent.code.empty() || asks_for(solve, Strategy::Stepped)))
      r.stepped = choose_kernels_a_step(r);
    const bool tries = stepwise && may_relax_unasked();
    for (std::size_t k = 0; k < stages.size() && (asks_for(solve, Strategy::Relaxation) || asked_of_refusal || tries);
         ++k)
      r.stages[k].mixes = relaxations.of(k) != nullptr;
    if (tries) r.relaxation_worth = relaxations.worth(r, arrays, product_factors(solve.products, dtype));
    return r;
  }

  SteppedChoice choose_kernels_a_step(const ExecutionRequest& r) {
    SteppedRequest of{{}, arrays.sequences, arrays.rows, arithmetic, product_factors(solve.products, dtype), r.card};
    for (std::size_t k = 0; k < stages.size(); ++k)
      if (r.stages[k].refusal) of.stages.push_back(stepped.of(k).costs(arrays.bound.sizes));
    return choose_stepped(of);
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
    if (shape_of() != before) {
      observed.assign(observed.size(), {});
      given_up.clear();
    }
    const bool looks_back = !repeats_bits && !options.repeat_bits;
    if (options.solver == Strategy::Auto && options.plan.empty() && unrelaxed.empty() && looks_back)
      unrelaxed = given_up;
    wanted = run.wanted;
    outs_wanted = on_device;
    for (std::size_t o = 0; o < cell.outs.size(); ++o) outs_wanted = outs_wanted || wanted.out(o);
    use_storage(lane_storage(cell, stages_of_cell(), dtype,
                             cellc::rounds_rows(product_factors(options.products, dtype), dtype)));
    replan(options);
    use_storage(execution.storage);
    plan_left_outs();
    arrays.copy_in(run, running);
    if (!on_device) reserve_written();
  }

  /// Memory for what is written and is not the caller's.
  void reserve_written() {
    std::vector<bool> unwritten;
    for (std::size_t u = 0; u < cell.updates.size(); ++u) unwritten.push_back(needs_no_trajectory(static_cast<int>(u)));
    std::vector<bool> outs;
    for (std::size_t o = 0; o < cell.outs.size(); ++o)
      outs.push_back((outs_wanted || execution.runs_stepwise || execution.walks_alone) &&
                     !adds_up(static_cast<int>(o)));
    arrays.reserve_written(unwritten, outs, !on_device);
  }
  bool adds_up(int out) const {
    for (std::size_t k = 0; k < execution.stages.size() && !execution.runs_stepwise && arrays.rows > 0; ++k)
      for (const LaneOut& o : lanes_of(k).outs)
        if (o.out == out && o.accumulated) return true;
    return false;
  }

  /// Lanes that walk their whole sequence, or scan it unchecked, may leave a state unwritten, if nothing else reads it;
  /// so do kernels of whole steps.
  bool needs_no_trajectory(int update) {
    if (!on_device && (wanted.state(static_cast<std::size_t>(update)) || looks_at_steps())) return false;
    if (execution.relaxes_any() || execution.steps_any()) return false;
    if (execution.runs_stepwise) return arrays.rows > 0 && !whole_program().needs_rows(update);
    if (is_read_in_rows(cell.updates[update].symbol, true)) return false;
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      const StageCells& s = lanes_of(k);
      const bool own = std::find(s.states.begin(), s.states.end(), update) != s.states.end();
      if (own && execution.stages[k].plan.strategy != Strategy::Sequential && form_of(k) != kOuts) return false;
      for (const ArraySource& source : s.lanes.sources)
        if (!own && is_of(source, update)) return false;
    }
    return true;
  }

  /// Rows of that state, as they were written or made again: whether they are depends on the plan.
  static bool is_of(const ArraySource& source, int update) {
    return (source.kind == ArraySource::Kind::Trajectory || source.kind == ArraySource::Kind::Remade) &&
           source.id == update;
  }

  /// Whether a run from host to host may check whole steps afterwards (unchecked): there is none after lanes that walk.
  bool looks_at_steps() const {
    return !execution.runs_stepwise &&
           std::any_of(execution.stages.begin(), execution.stages.end(),
                       [](const CudaPlan& s) { return s.plan.strategy != Strategy::Sequential; });
  }
  NestProgram& whole_program() {
    if (execution.persistent.empty()) return nest_program(whole, cell, structure, execution.storage);
    return nest_program(persistent[execution.persistent[0].shape], cell, structure, execution.storage,
                        execution.persistent);
  }

  PersistentChoice choose_persistent_kernels() {
    if (!plan_of_steps)
      plan_of_steps = make_plan(cell, structure, plan_options(cell, dtype, product_factors(solve.products, dtype)));
    return choose_persistent({*plan_of_steps, arrays.bound.sizes, arrays.sequences, dtype,
                              product_factors(solve.products, dtype), gpu.facts(), most_blocks, groups_fit,
                              solve.persistent});
  }

  /// No kernel but lanes touches the rows of a symbol, whatever the plan: what sums need before a stage is otherwise
  /// read after it.
  bool any_strides(int symbol) const {
    return !execution.runs_stepwise && !execution.steps_any() && !execution.relaxes_any() &&
           !is_read_in_rows(symbol, false);
  }
  bool shifts(int symbol) const {
    if (execution.runs_stepwise || execution.steps_any() || execution.relaxes_any() || arrays.rows == 0 ||
        is_read_in_rows(symbol, true))
      return false;
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      const std::vector<ArraySource>& sources = lanes_of(k).lanes.sources;
      if (std::find(sources.begin(), sources.end(), ArraySource{ArraySource::Kind::Symbol, symbol}) != sources.end() &&
          (form_of(k) == kPlain || !program(k).shifts(arrays.bound.sizes)))
        return false;
    }
    return true;
  }
  bool is_read_in_rows(int symbol, bool as_planned) const {
    const auto reads = [&](const std::vector<ArraySource>& sources) {
      return std::any_of(sources.begin(), sources.end(), [&](const ArraySource& s) {
        return (s.kind == ArraySource::Kind::Symbol && s.id == symbol) ||
               ((s.kind == ArraySource::Kind::Trajectory || s.kind == ArraySource::Kind::Remade) &&
                cell.updates[s.id].symbol == symbol);
      });
    };
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      if (reads(lanes_of(k, as_planned ? form_of(k) : kPlain).before.sources)) return true;
      // A plan that walks at first never becomes a scan. Single steps are rows, whatever sequence they are of.
      for (const DerivedCell& pass : staged->stages[k].remade)
        if (execution.remakes[k] && (reads(pass.sources) || reads(staged->stages[k].lanes.sources))) return true;
    }
    return as_planned ? outs_wanted && reads(after_cell().sources) : reads(staged->after.sources);
  }

  bool overlaps_starts() const {
    if (execution.runs_stepwise) return false;
    return staged->stages.size() > 1 || !staged->stages[0].before.cell.outs.empty() ||
           !staged->after.cell.outs.empty() || cell.updates.size() > 1 ||
           execution.stages[0].plan.strategy != Strategy::Sequential;
  }

  bool replan(const SolveOptions& options) {
    // Nothing is waited for before anything is made: that may be while a graph is captured.
    if (made_nests && (options.products != solve.products || options.wide_products != solve.wide_products)) {
      gpu.synchronize(0);  // their kernels may still run
      forget_nests();
      whole.reset();
      persistent.clear();
    }
    if (options.products != solve.products) plan_of_steps.reset();
    compiled_ahead = false;
    solve = options;
    repeat_scans();
    tolerance = options.tolerance.value_or(default_tolerance(dtype));
    const std::vector<CudaPlan> before = std::move(execution.stages);
    reserved = false;
    execution = plan_execution(request());
    // Whether the card has room for such clusters is known once there is code.
    while (!execution.persistent.empty() && arrays.rows > 0 && whole_program().resident_clusters() == 0) {
      if (execution.persistent[0].shape.grouped)
        groups_fit = false;
      else
        most_blocks = execution.persistent[0].shape.blocks / 2;
      execution = plan_execution(request());
    }
    plan_left_outs();
    return !std::equal(execution.stages.begin(), execution.stages.end(), before.begin(), before.end(),
                       [](const CudaPlan& a, const CudaPlan& b) {
                         return a.plan.strategy == b.plan.strategy && a.plan.segment == b.plan.segment &&
                                a.plan.burn_in == b.plan.burn_in;
                       });
  }

  /// What is left of the cell after the stages, as planned.
  void plan_left_outs() {
    std::vector<PartialSum> made;
    std::vector<int> outs;
    for (std::size_t k = 0; k < execution.stages.size(); ++k) {
      if (execution.sum_parts[k] == 0) continue;
      const StageCells& s = summed[k]->stage;
      const std::size_t inner = s.sums.size() - static_cast<std::size_t>(s.outer);
      for (std::size_t i = 0; i < s.sums.size(); ++i)  // the others are added up behind the stage
        made.push_back({summed[k]->sums[i], i < inner ? execution.sum_parts[k] : 1});
      for (const LaneOut& o : s.outs) outs.push_back(o.out);
    }
    if (!made.empty() && !after_summing.contains(execution.sum_parts))
      after_summing.emplace(execution.sum_parts,
                            LeftOuts{with_reduced_outs(staged->after, made, derive, outs), std::nullopt});
    outs.clear();
    for (std::size_t k = 0; k < execution.stages.size(); ++k)
      if (execution.makes_outs[k]) {
        for (const LaneOut& o : with_outs[k]->outs) outs.push_back(o.out);
        outs.insert(outs.end(), with_outs[k]->sum_outs.begin(), with_outs[k]->sum_outs.end());
      }
    if (!outs.empty() && !after_outs.contains(execution.makes_outs))
      after_outs.emplace(execution.makes_outs, LeftOuts{without_outs(staged->after, outs, derive), std::nullopt});
  }

  /// With the launch, not with the plan: a call that is replanned is rehearsed before it runs, and may find no memory
  /// only there.
  void reserve_between() {
    if (reserved) return;
    std::vector<const StageCells*> all;
    for (std::size_t k = 0; k < execution.stages.size(); ++k)
      all.push_back(!execution.runs_in_lanes(k) ? nullptr
                                                : &lanes_of(k, execution.sum_parts[k] > 0                ? kSums
                                                               : execution.makes_outs_of(k, outs_wanted) ? kOuts
                                                                                                         : kPlain));
    arrays.reserve_between(all);
    std::vector<bool> remakes(cell.updates.size()), states(cell.updates.size());
    for (std::size_t k = 0; k < execution.stages.size(); ++k) {
      if (!execution.remakes[k]) continue;
      for (const int u : staged->stages[k].states) {
        states[static_cast<std::size_t>(u)] = true;
        remakes[static_cast<std::size_t>(u)] = cell.symbol_of(cell.updates[static_cast<std::size_t>(u)]).lag_of >= 0;
      }
      for (const int u : remade_values(cell, *staged, k)) remakes[static_cast<std::size_t>(u)] = true;
    }
    arrays.reserve_remade(remakes, states);
    arrays.reserve_sums(summed, execution.sum_parts, [&](int k) {
      const auto stage = static_cast<std::size_t>(k);
      return program(stage).outer_parts(arrays.stage_run(summed[stage]->stage, k), execution.stages[stage]);
    });
    for (std::size_t k = 0; k < execution.stages.size(); ++k)
      if (execution.steps(k)) stepped.of(k).reserve(arrays);
    for (std::size_t k = 0; k < execution.stages.size(); ++k) {
      if (form_of(k) == kPlain) continue;
      const StageCells& s = lanes_of(k);
      if (std::none_of(s.outs.begin(), s.outs.end(), [](const LaneOut& o) { return o.accumulated; })) continue;
      const std::int64_t parts =
          program(k).accumulated_parts(arrays.stage_run(s, static_cast<int>(k)), execution.stages[k]);
      for (const LaneOut& o : s.outs)
        if (o.accumulated) arrays.reserve_accumulated(o.out, parts);
    }
    reserved = true;
  }
  Form form_of(std::size_t k) const {
    return execution.fuses(k, outs_wanted) ? kSums : execution.makes_outs_of(k, outs_wanted) ? kOuts : kPlain;
  }
  static Form form_of(const Pass& pass) { return pass.fused ? kSums : pass.with_outs ? kOuts : kPlain; }
  const StageCells& lanes_of(std::size_t k, Form form) const {
    return form == kSums ? summed[k]->stage : form == kOuts ? *with_outs[k] : staged->stages[k];
  }
  const StageCells& lanes_of(std::size_t k) const { return lanes_of(k, form_of(k)); }
  StageProgram& program(std::size_t k) const {
    const Form form = form_of(k);
    return form == kSums ? *summing[k] : form == kOuts ? *making_outs[k] : *stages[k];
  }
  /// What is left of the cell after the stages; null: it is as it was.
  LeftOuts* left_outs() {
    if (execution.fuses_any(outs_wanted)) return &after_summing.at(execution.sum_parts);
    const auto made = outs_wanted || execution.walks_alone ? after_outs.find(execution.makes_outs) : after_outs.end();
    return made == after_outs.end() ? nullptr : &made->second;
  }
  const DerivedCell& after_cell() const {
    const LeftOuts* left = const_cast<Impl*>(this)->left_outs();
    return left ? left->cell : staged->after;
  }

  std::vector<GpuAddress> first_bad_steps() const {
    std::vector<GpuAddress> result;
    for (std::size_t k = 0; k < execution.stages.size() && !execution.runs_stepwise && !execution.relaxes_any(); ++k)
      if (const GpuAddress at = execution.steps(k) ? 0 : program(k).first_bad_steps()) result.push_back(at);
    return result;
  }

  // On the device ------------------------------------------------------------------------------------

  void launch(GpuStream stream) {
    if (!execution.runs_stepwise && arrays.rows > 0) reserve_between();
    const std::vector<Pass> passes =
        execution.passes(*staged, summed, outs_wanted, with_outs, !after_cell().cell.outs.empty());
    if (!compiled_ahead && passes.size() > 1) compile_ahead(passes);
    compiled_ahead = true;
    for (const Pass& pass : passes) run(pass, stream);
  }

  /// The kernels that these passes lack, all of them at the same time: of a cell of many stages a run would otherwise
  /// wait for one after the other, on one core.
  void compile_ahead(const std::vector<Pass>& passes) {
    std::vector<GpuSource> sources;
    for (const Pass& pass : passes) {
      if (pass.kind == PassKind::Stage) {
        const auto k = static_cast<std::size_t>(pass.stage);
        auto source = program(k).missing(arrays.stage_run(lanes_of(k, form_of(pass)), pass.stage), execution.stages[k]);
        if (source) sources.push_back(std::move(*source));
      } else if (pass.kind == PassKind::Remade && static_cast<std::size_t>(pass.part) == remade[k_of(pass)].size()) {
        auto source = remaking[k_of(pass)]->missing(single_steps(k_of(pass)), CudaPlan());
        if (source) sources.push_back(std::move(*source));
      } else if (const Nest nest = nest_of(pass); nest.derived && !*nest.program) {
        sources.push_back(NestProgram::emit(nest.derived->cell, Structure{}, pass.storage, nest_options(nest.derived)));
      }
    }
    compile_ms += gpu.compile_ahead(sources);
  }

  /// What a pass around stages runs.
  struct Nest {
    std::optional<NestProgram>* program = nullptr;
    const DerivedCell* derived = nullptr;  ///< null: the pass is another
  };
  Nest nest_of(const Pass& pass) {
    const std::size_t k = static_cast<std::size_t>(std::max(0, pass.stage));
    switch (pass.kind) {
      case PassKind::Once:
        return {&once[form_of(pass)][k], &lanes_of(k, form_of(pass)).once};
      case PassKind::Before:
        return {&before[form_of(pass)][k], &lanes_of(k, form_of(pass)).before};
      case PassKind::Remade: {
        const auto part = static_cast<std::size_t>(pass.part);
        if (part == remade[k].size()) return {};
        return {&remade[k][part], &staged->stages[k].remade[part]};
      }
      case PassKind::After:
        return {left_outs() ? &left_outs()->program : &after, &after_cell()};
      default:
        return {};
    }
  }
  NestProgram& program_of(const Pass& pass) {
    const Nest nest = nest_of(pass);
    return nest_program(*nest.program, nest.derived->cell, Structure{}, pass.storage, {}, nest.derived);
  }

  void run(const Pass& pass, GpuStream stream) {
    const std::size_t k = static_cast<std::size_t>(std::max(0, pass.stage));
    switch (pass.kind) {
      case PassKind::Once:
        program_of(pass).run(arrays.once_run(lanes_of(k, form_of(pass)), pass.stage), stream);
        return;
      case PassKind::Before:
        program_of(pass).run(arrays.before_run(lanes_of(k, form_of(pass)), pass.stage), stream);
        return;
      case PassKind::Stage: {
        clear_accumulated(pass, stream);
        StageRun run = arrays.stage_run(lanes_of(k, form_of(pass)), pass.stage);
        for (const int u : structure.stages[k].states) run.absolute.push_back(absolute_tolerance(solve, cell, u));
        program(k).run(run, execution.stages[k], tolerance, stream);
        return;
      }
      case PassKind::Remade:
        if (static_cast<std::size_t>(pass.part) < remade[k].size())
          program_of(pass).run(
              arrays.remade_run(staged->stages[k].remade[static_cast<std::size_t>(pass.part)], pass.stage), stream);
        else
          remaking[k]->run(single_steps(k), CudaPlan(), tolerance, stream);
        return;
      case PassKind::Relaxed: {
        SolveOptions options = solve;
        options.repeat_bits = repeats();
        relaxations.of(k)->run(arrays, product_factors(solve.products, dtype), options, tolerance,
                               execution.relaxation_worth, stream);
        return;
      }
      case PassKind::Stepped:
        stepped.of(k).run(arrays, product_factors(solve.products, dtype), solve.wide_products, stream);
        return;
      case PassKind::After:
        program_of(pass).run(arrays.after_run(after_cell()), stream);
        return;
      case PassKind::Whole:
        whole_program().run(arrays.whole_run(), stream);
        return;
    }
  }

  static std::size_t k_of(const Pass& pass) { return static_cast<std::size_t>(std::max(0, pass.stage)); }
  StageRun single_steps(std::size_t k) const {
    return arrays.single_steps(staged->stages[k], static_cast<int>(k), remade_values(cell, *staged, k));
  }

  /// Sequences that are shorter than others leave nothing in the parts of tiles that they do not reach.
  void clear_accumulated(const Pass& pass, GpuStream stream) {
    const auto k = static_cast<std::size_t>(pass.stage);
    if (!pass.with_outs || execution.stages[k].plan.strategy == Strategy::Sequential) return;
    // Where rows are aligned, every tile of sequences of one length has steps.
    if (arrays.uniform && making_outs[k]->shifts(arrays.bound.sizes)) return;
    for (const LaneOut& o : with_outs[k]->outs)
      if (o.accumulated) gpu.zero(arrays.accumulated(o.out).buffer.address(), arrays.accumulated_bytes(o.out), stream);
  }

  // And back -----------------------------------------------------------------------------------------

  void report(SolveReport& report, GpuStream stream) {
    report = {};
    for (std::size_t k = 0; k < execution.stages.size(); ++k) {
      StageReport r;
      r.plan = execution.stages[k].plan;
      if (execution.relaxes(k)) {
        const RelaxationOnGpu& relaxed = *relaxations.of(k);
        r = relaxed.report();
        r.plan = execution.stages[k].plan;
        for (const Unconverged& u : relaxed.unconverged()) merge(report.unconverged, u);
      } else if (execution.runs_in_lanes(k) && arrays.rows > 0) {
        const CudaOutcome o = program(k).outcome(stream);
        const bool segmented = execution.stages[k].plan.strategy != Strategy::Sequential && r.plan.segment > 0;
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
          seen.forgot = o.tails == 0 && o.unconverged.empty() && o.rounds + 1 < segments;
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
    for (const auto* programs : {&stages, &summing, &making_outs, &remaking})
      for (const auto& s : *programs)
        if (s) all.insert(all.end(), s->caches().begin(), s->caches().end());
    for (const CacheState state : relaxations.caches()) all.push_back(state);
    for (const CacheState state : stepped.caches()) all.push_back(state);
    const auto any = [&](CacheState state) { return std::find(all.begin(), all.end(), state) != all.end(); };
    report.cache = any(CacheState::Miss)                 ? CacheState::Miss
                   : any(CacheState::Off) || all.empty() ? CacheState::Off
                                                         : CacheState::Hit;
  }

  /// Why steps may be further off than `report` says, or null. Also of a run that is known to be off somewhere: it has
  /// to say where else it is.
  const char* unchecked(const SolveReport& report) {
    if (execution.runs_stepwise || arrays.rows == 0) return nullptr;
    // Later stages read rounded rows as they were written.
    if (execution.stages.size() > 1 && report.max_residual > 0 && running == arithmetic)
      return "a later stage amplifies what the stages before it left";
    // A scan's starts come from composed maps, which round by the largest state they pass: where a chain comes from
    // large states to small ones, or grows, that can be several tolerances (8e-6 was seen of h' = a*h + x in f32, |a|
    // up to 2).
    for (std::size_t k = 0; k < execution.stages.size() && running == arithmetic; ++k)
      if (execution.stages[k].plan.strategy == Strategy::Scan && stages[k]->scans_in_one_pass(arrays.bound.sizes))
        return "composed maps were rounded by more than the tolerance";
    return nullptr;
  }

  /// After unchecked(): scans give way to segments, whose boundaries are checked; where there are none, all is walked.
  void replace_plans(const char* why) {
    bool scans = false;
    const ExecutionRequest asked = request();
    for (std::size_t k = 0; k < execution.stages.size(); ++k) {
      if (execution.stages[k].plan.strategy != Strategy::Scan || cellc::refusal(asked, k, Strategy::Shooting)) continue;
      scans = true;
      execution.stages[k] =
          forced_cuda_plan(structure.stages[k], asked.stages[k].shape, asked.card, Strategy::Shooting, solve);
      execution.stages[k].plan.reason = fmt::format("{}, so cut into segments whose boundaries are checked", why);
    }
    for (std::size_t k = 0; k < execution.stages.size() && !scans; ++k) {
      if (execution.steps(k)) continue;  // which leaves nothing
      execution.stages[k] = {};
      execution.stages[k].plan.reason = fmt::format("{}, so run step by step", why);
    }
  }

  /// Each stage was checked against what the stages before it wrote. What is promised is the residual of
  /// the whole step, in which a later stage may amplify what an earlier one left.
  void check_whole_steps(SolveReport& report, GpuStream stream) {
    const DerivedCell& c = staged->step;
    step_arrays.resize(c.cell.outs.size());
    NestRun r = arrays.rows_run(c.sources, -1);
    for (std::size_t o = 0; o < step_arrays.size(); ++o) {
      arrays.reserve_rows(step_arrays[o], c.cell.outs[o].index);
      r.outs.push_back(step_arrays[o].address());
    }
    nest_program(step, c.cell, Structure{}, running, {}, &c).run(r, stream);
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const Array written = arrays.fetch_trajectory(u, stream),
                  made = arrays.fetch_rows(step_arrays[u].address(), cell.symbols[cell.updates[u].symbol].axes, stream);
      report.max_residual =
          std::max(report.max_residual, check_steps(written, made, arrays.bound.offsets,
                                                    {tolerance, absolute_tolerance(solve, cell, static_cast<int>(u))},
                                                    arrays.bound.reverse, report.unconverged));
    }
    report.error_estimate = std::max(report.error_estimate, report.max_residual);
    report.converged = report.unconverged.empty();
  }
};

CudaSolver::CudaSolver(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                       const SourceText* source, const DeriveHooks& derive,
                       const std::optional<AccumulatedOuts>& outs_in_lanes)
    : impl_(std::make_unique<Impl>(gpu, cell, structure, dtype, source, derive, outs_in_lanes)) {}
CudaSolver::~CudaSolver() = default;
void CudaSolver::repeat_bits() { impl_->repeats_bits = true; }
CudaSolver::CudaSolver(CudaSolver&&) noexcept = default;

void CudaSolver::upload(const BoundRun& run, const SolveOptions& options) {
  impl_->on_device = false;
  impl_->unrelaxed.clear();
  impl_->upload(run, options);
}
void CudaSolver::prepare(const BoundRun& shape, const SolveOptions& options, bool waits, const std::string& unrelaxed) {
  impl_->on_device = true;
  impl_->may_wait = waits;
  impl_->unrelaxed = unrelaxed;
  impl_->upload(shape, options);
}
void CudaSolver::place_all(const DeviceArrays& arrays) {
  impl_->arrays.placed = arrays;
  // A walk that makes outs has less before it than one that does not.
  if (impl_->outs_wanted != arrays.outs_wanted) impl_->reserved = false;
  impl_->outs_wanted = arrays.outs_wanted;
  // How many parts of a sum a scan leaves follows from where its inputs lie, too.
  if (impl_->outs_in_lanes) impl_->reserved = false;
  impl_->reserve_written();
}
Dtype CudaSolver::storage() const { return impl_->running; }
bool CudaSolver::any_strides(int symbol) const { return impl_->any_strides(symbol); }
bool CudaSolver::shifts(int symbol) const { return impl_->shifts(symbol); }
bool CudaSolver::overlaps_starts() const { return impl_->overlaps_starts(); }
std::vector<GpuAddress> CudaSolver::first_bad_steps() const { return impl_->first_bad_steps(); }
bool CudaSolver::runs_stepwise() const { return impl_->execution.runs_stepwise || impl_->execution.steps_any(); }
bool CudaSolver::is_stored_as_planned() const { return impl_->execution.storage == impl_->running; }
bool CudaSolver::relaxes() const { return impl_->execution.relaxes_any(); }
bool CudaSolver::replan(const SolveOptions& options) { return impl_->replan(options); }
void CudaSolver::place(int symbol, GpuAddress data, std::int64_t row_stride) {
  impl_->arrays.placed.inputs[symbol] = {data, impl_->arrays.uniform ? row_stride * impl_->arrays.longest : 0,
                                         row_stride};
}
GpuAddress CudaSolver::trajectory(int update) const { return impl_->arrays.trajectory_of(update).data; }
PlacedRows CudaSolver::written_rows(int update) const { return impl_->arrays.trajectory_of(update); }
GpuAddress CudaSolver::final_state(int update) const {
  return impl_->arrays.final_of(static_cast<std::size_t>(update));
}
void CudaSolver::launch(GpuStream stream) { impl_->launch(stream); }
bool CudaSolver::adds_up(int out) const { return impl_->adds_up(out); }
CudaSolver::Parts CudaSolver::parts_of(int out) const {
  const auto& a = impl_->arrays.accumulated(out);
  return {a.buffer.address(), a.parts};
}
void CudaSolver::report(SolveReport& report, GpuStream stream) { impl_->report(report, stream); }
RunOutput CudaSolver::download(GpuStream stream) { return impl_->arrays.download(impl_->dtype, impl_->wanted, stream); }

void CudaSolver::look_at_whole_steps(SolveReport& report, GpuStream stream) {
  if (impl_->execution.relaxes_any() && impl_->unchecked(report)) impl_->check_whole_steps(report, stream);
}

std::optional<std::string> CudaSolver::refusal(int stage, Strategy strategy, const BoundRun& run, bool waits) {
  impl_->may_wait = waits;
  impl_->arrays.bound.sizes = run.sizes;
  if (impl_->stages.empty()) impl_->use_storage(impl_->dtype);
  impl_->asked_of_refusal = strategy == Strategy::Relaxation;
  const auto why = cellc::refusal(impl_->request(), static_cast<std::size_t>(stage), strategy);
  impl_->asked_of_refusal = false;
  return why;
}

RunOutput CudaSolver::run(const BoundRun& run, const SolveOptions& options, SolveReport& report) {
  impl_->unrelaxed.clear();
  impl_->on_device = false;
  impl_->runs_again = true;
  struct Ends {
    bool& flag;
    ~Ends() { flag = false; }
  } const ends{impl_->runs_again};
  std::chrono::steady_clock::time_point start;
  double compiled_before = 0;
  const auto make = [&] {
    impl_->upload(run, options);
    start = std::chrono::steady_clock::now();
    compiled_before = impl_->compiled_ms();
    impl_->launch(0);
    impl_->report(report, 0);
  };
  try {
    make();
  } catch (const MemoryError&) {
    // Nobody asked for iterations, which take several times as much as steps.
    if (impl_->execution.relaxation_worth == 0) throw;
    impl_->relaxations.drop();
    impl_->arrays.drop();
    impl_->given_up = impl_->unrelaxed = "; relaxation found no memory";
    make();
  }
  const bool repairs = options.repair && !options.fixed_iterations;
  const auto run_unrelaxed = [&](const std::string& why) {
    // What does not contract is not repaired: the cell runs from the first step on, and iterations, which take several
    // times as much memory, give theirs back.
    impl_->unrelaxed = why;
    impl_->relaxations.drop();
    impl_->arrays.drop();
    impl_->upload(run, options);
  };
  if (impl_->execution.relaxes_any() && !report.converged && repairs) {
    const bool asked = impl_->execution.relaxation_worth == 0;
    const std::int64_t bad = asked ? static_cast<std::int64_t>(report.unconverged.size()) : 0;
    if (!asked) impl_->given_up = impl_->why_given_up(report);
    run_unrelaxed(asked ? "; relaxation did not converge" : impl_->given_up);
    impl_->launch(0);
    impl_->report(report, 0);
    report.repaired = std::max(report.repaired, bad);
  }
  for (const char* why; (why = impl_->unchecked(report));) {
    impl_->check_whole_steps(report, 0);
    if (report.converged || !repairs) break;
    const std::int64_t bad = static_cast<std::int64_t>(report.unconverged.size());
    if (impl_->execution.relaxes_any())
      run_unrelaxed("; a later stage amplified what relaxation left");
    else
      impl_->replace_plans(why);
    impl_->launch(0);
    impl_->report(report, 0);
    report.repaired = std::max(report.repaired, bad);
  }
  impl_->gpu.synchronize(0);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  RunOutput output = impl_->arrays.download(impl_->dtype, impl_->wanted, 0);
  if (impl_->arrays.rows > 0)
    say_what_stays(impl_->cell, impl_->structure, impl_->wanted, report,
                   [this](int u) { return impl_->arrays.trajectory_of(u).data != 0; });
  report.compile_ms = impl_->compiled_ms();
  output.run_ms = ms - (report.compile_ms - compiled_before);
  return output;
}

}  // namespace cellc
