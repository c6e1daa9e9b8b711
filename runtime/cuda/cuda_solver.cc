#include "runtime/cuda/cuda_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "compiler/stage_cells.h"
#include "runtime/bind.h"
#include "runtime/cuda/choose_cuda_plan.h"
#include "runtime/cuda/rows_program.h"
#include "runtime/cuda/stage_program.h"
#include "runtime/errors.h"
#include "runtime/row_difference.h"

namespace cellc {

struct CudaSolver::Impl {
  Gpu& gpu;
  const CellGraph& cell;
  const Structure& structure;
  const Dtype dtype, arithmetic;
  const SourceText* source;
  std::optional<StagedCell> staged;
  std::vector<std::unique_ptr<StageProgram>> stages;
  std::vector<std::optional<RowsProgram>> before, once;
  std::optional<RowsProgram> after, step, whole;
  std::vector<Observed> observed;   ///< by stage, for the shape of the last run
  double compile_ms = 0;
  std::vector<CacheState> caches;

  // The run that is on the device.
  BoundRun bound;                   ///< without data, but starts and shapes
  SolveOptions solve;
  double tolerance = 0;
  Dtype running = Dtype::F32;       ///< storage on the device
  bool in_rows = false;             ///< the whole cell as row kernels
  std::vector<CudaPlan> plans;
  std::vector<GpuBuffer> symbols, histories, trajectories, finals, outs;
  std::vector<std::vector<GpuBuffer>> before_arrays, once_arrays;
  std::vector<GpuBuffer> step_arrays;
  DeviceArrays placed;              ///< what is the caller's
  bool on_device = false;           ///< all arrays are the caller's, unless place_all() says else
  bool outs_wanted = true;
  GpuBuffer offsets;
  std::int64_t rows = 0, sequences = 0, longest = 0;
  bool uniform = true;

  Impl(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype, const SourceText* source)
      : gpu(gpu), cell(cell), structure(structure), dtype(dtype), arithmetic(arithmetic_of(dtype)), source(source) {}

  // Made on demand -----------------------------------------------------------------------------------

  const StagedCell& stages_of_cell() {
    if (staged) return *staged;
    staged.emplace(split_stages(cell, structure));
    before.resize(staged->stages.size());
    once.resize(staged->stages.size());
    observed.resize(staged->stages.size());
    return *staged;
  }

  /// Programs that hold code for `storage`, the type on the device.
  void use_storage(Dtype storage) {
    stages_of_cell();
    if (running == storage && !stages.empty()) return;
    running = storage;
    stages.clear();
    for (std::size_t k = 0; k < staged->stages.size(); ++k)
      stages.push_back(std::make_unique<StageProgram>(gpu, cell, staged->stages[k], structure.stages[k].scannable, storage, source));
    after.reset();
    step.reset();
    for (auto& b : before) b.reset();
    for (auto& o : once) o.reset();
  }

  RowsProgram& rows_program(std::optional<RowsProgram>& program, const CellGraph& graph, const Structure& of, Dtype storage) {
    if (!program) {
      RowsOptions options;
      options.source = source;
      program.emplace(RowsProgram::compile(gpu, graph, of, storage, options));
      compile_ms += program->compile_ms();
      caches.push_back(program->cache());
    }
    return *program;
  }

  double compiled_ms() const {
    double ms = compile_ms;
    for (const auto& s : stages) ms += s->compile_ms();
    return ms;
  }

  // Shapes -------------------------------------------------------------------------------------------

  std::vector<std::int64_t> shape_of(std::int64_t first, const std::vector<AxisId>& axes) const {
    std::vector<std::int64_t> shape{first};
    for (const AxisId a : axes) shape.push_back(bound.sizes.at(cell.graph.axis(a).extent_of));
    return shape;
  }
  std::int64_t entries(const std::vector<AxisId>& axes) const {
    std::int64_t n = 1;
    for (const AxisId a : axes) n *= bound.sizes.at(cell.graph.axis(a).extent_of);
    return n;
  }

  StageShape shape(int k) {
    StageShape s;
    s.sequences = sequences;
    s.longest = longest;
    s.rows = rows;
    s.channels = stages[k]->channels(bound.sizes);
    s.block = stages[k]->block(bound.sizes);
    s.storage_bytes = stages[k]->storage_bytes();
    return s;
  }

  std::string states_of(int stage) const {
    std::string names;
    for (int u : structure.stages[stage].states) names += (names.empty() ? "" : ", ") + cell.symbol_of(cell.updates[u]).name;
    return names;
  }

  std::optional<std::string> refusal(int k, Strategy strategy) {
    if (strategy == Strategy::Sequential || strategy == Strategy::Auto) return std::nullopt;
    if (strategy == Strategy::Relaxation) return "relaxation runs on the CPU only in this version; use --device cpu";
    const Stage& s = structure.stages[k];
    if (const auto why = stages[k]->refusal(bound.sizes))
      return fmt::format("the stage {{{}}} is run step by step on this device: {}", states_of(k), *why);
    if (strategy == Strategy::Scan && !s.linear && s.scannable == Scannable::No)
      return fmt::format("the stage {{{}}} is neither linear nor a clip or Möbius map of its state, so no scan solves it", states_of(k));
    return std::nullopt;
  }

  // To the device ------------------------------------------------------------------------------------

  void reserve(GpuBuffer& buffer, std::size_t bytes) {
    if (buffer.bytes() >= bytes && (bytes == 0 || buffer.address())) return;
    buffer = GpuBuffer();
    buffer = GpuBuffer(gpu, bytes);
  }

  void put(GpuBuffer& buffer, const Array& array, Dtype as) {
    if (!array.data()) return;
    const Array converted = convert(array, as);
    const std::size_t bytes = static_cast<std::size_t>(converted.count()) * size_of(as);
    reserve(buffer, bytes);
    if (bytes) gpu.copy_in(buffer.address(), converted.data(), bytes, 0);
  }

  void upload(const BoundRun& run, const SolveOptions& options) {
    bound.sizes = run.sizes;
    bound.offsets = run.offsets;
    bound.reverse = run.reverse;
    bound.threads = run.threads;
    bound.histories = run.histories;
    bound.symbols.assign(run.symbols.size(), Array());
    placed = {};
    placed.inputs.resize(run.symbols.size());
    placed.values.resize(run.symbols.size());
    placed.histories.resize(run.symbols.size());
    placed.trajectories.resize(cell.updates.size());
    placed.finals.resize(cell.updates.size());
    placed.outs.resize(cell.outs.size());
    outs_wanted = true;
    sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
    rows = run.offsets.back();
    longest = 0;
    uniform = true;
    for (std::int64_t s = 0; s < sequences; ++s) {
      const std::int64_t n = run.offsets[s + 1] - run.offsets[s];
      uniform = uniform && (s == 0 || n == longest);
      longest = std::max(longest, n);
    }
    // Sixteen bits are kept on the device where nothing but the stage itself reads what it writes: what a
    // second stage or an out would read was rounded.
    const StagedCell& parts = stages_of_cell();
    const bool alone = parts.stages.size() == 1 && parts.stages[0].before.cell.outs.empty() && cell.outs.empty();
    use_storage(alone ? dtype : arithmetic);
    in_rows = false;
    for (const auto& s : stages) in_rows = in_rows || s->refusal(bound.sizes);
    if (in_rows && running != dtype) use_storage(dtype);
    const Dtype storage = running;

    const std::size_t count = cell.symbols.size();
    symbols.resize(count);
    histories.resize(count);
    for (std::size_t s = 0; s < count; ++s) {
      const bool input = cell.symbols[s].kind == SymbolKind::Input;
      put(symbols[s], run.symbols[s], input ? storage : arithmetic);
      if (!input) bound.symbols[s] = run.symbols[s];
      if (s < run.histories.size()) put(histories[s], run.histories[s], input ? storage : arithmetic);
    }
    reserve(offsets, run.offsets.size() * 8);
    gpu.copy_in(offsets.address(), run.offsets.data(), run.offsets.size() * 8, 0);
    trajectories.resize(cell.updates.size());
    finals.resize(cell.updates.size());
    outs.resize(cell.outs.size());
    if (!on_device) reserve_written();
    before_arrays.resize(parts.stages.size());
    once_arrays.resize(parts.stages.size());
    for (std::size_t k = 0; k < parts.stages.size() && !in_rows; ++k) {
      before_arrays[k].resize(parts.stages[k].before.cell.outs.size());
      for (std::size_t o = 0; o < before_arrays[k].size(); ++o)
        reserve(before_arrays[k][o], static_cast<std::size_t>(rows * entries(parts.stages[k].before.cell.outs[o].index)) * size_of(storage));
      once_arrays[k].resize(parts.stages[k].once.cell.outs.size());
      for (std::size_t o = 0; o < once_arrays[k].size(); ++o)
        reserve(once_arrays[k][o], static_cast<std::size_t>(entries(parts.stages[k].once.cell.outs[o].index)) * size_of(arithmetic));
    }
    replan(options);
  }

  /// Memory for what is written and is not the caller's.
  void reserve_written() {
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const std::size_t n = static_cast<std::size_t>(entries(cell.symbols[cell.updates[u].symbol].axes));
      if (!placed.trajectories[u].data && !needs_no_trajectory(static_cast<int>(u)))
        reserve(trajectories[u], static_cast<std::size_t>(rows) * n * size_of(running));
      if (!placed.finals[u]) reserve(finals[u], static_cast<std::size_t>(sequences) * n * size_of(arithmetic));
    }
    for (std::size_t o = 0; o < cell.outs.size() && (outs_wanted || in_rows); ++o)
      if (!placed.outs[o]) reserve(outs[o], static_cast<std::size_t>(rows * entries(cell.outs[o].index)) * size_of(running));
  }

  /// Lanes that walk their whole sequence may leave a state unwritten, if nothing else reads it.
  bool needs_no_trajectory(int update) const {
    if (!on_device || in_rows || !any_strides(cell.updates[update].symbol)) return false;
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      const StageCells& s = staged->stages[k];
      const bool own = std::find(s.states.begin(), s.states.end(), update) != s.states.end();
      if (own && plans[k].plan.strategy != Strategy::Sequential) return false;
      for (const LaneSymbol& symbol : s.symbols)
        if (!own && symbol.source.kind == ArraySource::Kind::Trajectory && symbol.source.id == update) return false;
    }
    return true;
  }

  /// No kernel but lanes touches the rows of a symbol.
  bool any_strides(int symbol) const {
    if (in_rows) return false;
    const auto reads = [&](const std::vector<ArraySource>& sources) {
      return std::any_of(sources.begin(), sources.end(), [&](const ArraySource& s) {
        return (s.kind == ArraySource::Kind::Symbol && s.id == symbol) ||
               (s.kind == ArraySource::Kind::Trajectory && cell.updates[s.id].symbol == symbol);
      });
    };
    for (const StageCells& s : staged->stages)
      if (reads(s.before.sources)) return false;
    return !reads(staged->after.sources);
  }

  bool overlaps_starts() const {
    if (in_rows) return false;
    return staged->stages.size() > 1 || !staged->stages[0].before.cell.outs.empty() || !staged->after.cell.outs.empty() ||
           cell.updates.size() > 1 || plans[0].plan.strategy != Strategy::Sequential;
  }

  PlacedRows rows_of(const PlacedRows& given, const GpuBuffer& own, const std::vector<AxisId>& axes) const {
    if (given.data) return given;
    const std::int64_t row = entries(axes);
    return {own.address(), uniform ? row * longest : 0, row};
  }
  PlacedRows input_rows_of(int symbol) const { return rows_of(placed.inputs[symbol], symbols[symbol], cell.symbols[symbol].axes); }
  PlacedRows trajectory_of(int update) const {
    return rows_of(placed.trajectories[update], trajectories[update], cell.symbols[cell.updates[update].symbol].axes);
  }
  GpuAddress value_of(int symbol) const { return placed.values[symbol] ? placed.values[symbol] : symbols[symbol].address(); }
  GpuAddress final_of(std::size_t update) const { return placed.finals[update] ? placed.finals[update] : finals[update].address(); }
  GpuAddress out_of(std::size_t out) const { return placed.outs[out] ? placed.outs[out] : outs[out].address(); }

  bool replan(const SolveOptions& options) {
    solve = options;
    tolerance = options.tolerance.value_or(default_tolerance(dtype));
    const std::vector<CudaPlan> before = std::move(plans);
    plan();
    return !std::equal(plans.begin(), plans.end(), before.begin(), before.end(), [](const CudaPlan& a, const CudaPlan& b) {
      return a.plan.strategy == b.plan.strategy && a.plan.segment == b.plan.segment && a.plan.burn_in == b.plan.burn_in;
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
      if (in_rows) {
        std::string why;
        for (int j = 0; j < count; ++j)
          if (const auto r = stages[j]->refusal(bound.sizes)) why = fmt::format("the stage {{{}}}: {}", states_of(j), *r);
        plan.plan.reason = why;
        if (strategy != Strategy::Sequential && strategy != Strategy::Auto)
          throw SolverError(fmt::format("the cell is run step by step on this device: {}", why));
      } else if (rows == 0) {
        plan.plan.reason = "no steps";
      } else if (tolerance <= 0) {
        plan.plan.reason = "tolerance 0 asks for the sequential kernel's bits, and it gives them at the least cost";
      } else if (strategy != Strategy::Auto) {
        plan = forced_cuda_plan(structure.stages[k], shape(k), gpu.facts(), strategy, solve);
        if (pinned) {
          plan.plan = solve.plan[k];
          plan.piece = plan.plan.segment;
          plan.rounds = std::max(plan.rounds, 8);
        }
      } else {
        plan = choose_cuda_plan(structure.stages[k], shape(k), gpu.facts(), observed[k]);
        plan.repairs = solve.repair && !solve.fixed_iterations;
      }
      if (on_device && k + 1 < count && !in_rows && rows > 0 && !is_exact(k, plan)) {
        plan = {};
        plan.plan.reason = "later stages read this one, and nobody looks at the whole step afterwards: no residual is left";
      }
      plans.push_back(std::move(plan));
    }
  }

  /// The plan leaves no residual: exact maps in a single pass, or starts that one step back decides.
  bool is_exact(int k, const CudaPlan& plan) {
    const Stage& s = structure.stages[k];
    if (plan.plan.strategy == Strategy::Sequential) return true;
    if (s.linear && s.norm_bound && *s.norm_bound == 0) return plan.plan.burn_in > 0;
    return plan.plan.strategy == Strategy::Scan && stages[k]->scans_in_one_pass(bound.sizes);
  }

  std::vector<GpuAddress> first_bad_steps() const {
    std::vector<GpuAddress> result;
    for (std::size_t k = 0; k < plans.size() && !in_rows; ++k)
      if (const GpuAddress at = stages[k]->first_bad_steps()) result.push_back(at);
    return result;
  }

  // On the device ------------------------------------------------------------------------------------

  /// An input, param or start as row kernels read it.
  RowsArray input_rows(int symbol) const {
    RowsArray a;
    const bool input = cell.symbols[symbol].kind == SymbolKind::Input;
    const PlacedRows rows = input ? input_rows_of(symbol) : PlacedRows{value_of(symbol), 0, -1};
    a.data = rows.data;
    a.row_stride = rows.row;
    a.history = placed.histories[symbol] ? placed.histories[symbol] : histories[symbol].address();
    if (a.history) a.history_depth = bound.histories[symbol].shape()[1];
    return a;
  }

  RowsRun rows_run(const std::vector<ArraySource>& sources, int k) {
    RowsRun r;
    r.sizes = bound.sizes;
    r.offsets = bound.offsets;
    r.device_offsets = offsets.address();
    r.reverse = bound.reverse;
    for (const ArraySource s : sources) {
      RowsArray a;
      switch (s.kind) {
        case ArraySource::Kind::Symbol:
          a = input_rows(s.id);
          break;
        case ArraySource::Kind::Trajectory:
          a.data = trajectory_of(s.id).data;
          a.row_stride = trajectory_of(s.id).row;
          a.history = value_of(cell.updates[s.id].symbol);
          a.history_depth = 1;
          break;
        case ArraySource::Kind::Before: a.data = before_arrays[k][s.id].address(); break;
        case ArraySource::Kind::Once: a.data = once_arrays[k][s.id].address(); break;
        case ArraySource::Kind::Mixing: break;
      }
      r.symbols.push_back(a);
    }
    return r;
  }

  DeviceArray device_array(GpuAddress data, const std::vector<AxisId>& axes) const {
    DeviceArray a;
    a.data = data;
    a.row = 1;
    for (const AxisId axis : axes) a.lengths.push_back(bound.sizes.at(cell.graph.axis(axis).extent_of)), a.row *= a.lengths.back();
    a.batch = uniform ? a.row * longest : 0;
    return a;
  }

  static void put_rows(DeviceArray& array, const PlacedRows& rows) {
    array.data = rows.data;
    array.row = rows.row;
    array.batch = rows.batch;
  }

  void launch(GpuStream stream) {
    if (rows == 0) return;
    if (in_rows) {
      RowsRun r;
      r.sizes = bound.sizes;
      r.offsets = bound.offsets;
      r.device_offsets = offsets.address();
      r.reverse = bound.reverse;
      for (std::size_t s = 0; s < symbols.size(); ++s) r.symbols.push_back(input_rows(static_cast<int>(s)));
      for (std::size_t u = 0; u < trajectories.size(); ++u) {
        r.states.push_back(trajectory_of(static_cast<int>(u)).data);
        r.finals.push_back(final_of(u));
      }
      for (std::size_t o = 0; o < outs.size(); ++o) r.outs.push_back(out_of(o));
      rows_program(whole, cell, structure, dtype).run(r, stream);
      return;
    }
    for (std::size_t k = 0; k < staged->stages.size(); ++k) {
      const StageCells& s = staged->stages[k];
      if (!s.once.cell.outs.empty()) {
        RowsRun r = rows_run(s.once.sources, static_cast<int>(k));
        r.offsets = {0, 1};
        for (const GpuBuffer& b : once_arrays[k]) r.outs.push_back(b.address());
        rows_program(once[k], s.once.cell, Structure{}, arithmetic).run(r, stream);
      }
      if (!s.before.cell.outs.empty()) {
        RowsRun r = rows_run(s.before.sources, static_cast<int>(k));
        for (const GpuBuffer& b : before_arrays[k]) r.outs.push_back(b.address());
        rows_program(before[k], s.before.cell, Structure{}, running).run(r, stream);
      }
      StageRun run;
      run.sizes = bound.sizes;
      run.sequences = sequences;
      run.length = longest;
      run.uniform = uniform;
      run.offsets = uniform ? 0 : offsets.address();
      run.reverse = bound.reverse;
      for (const LaneSymbol& symbol : s.symbols) {
        const int id = symbol.source.id;
        switch (symbol.source.kind) {
          case ArraySource::Kind::Symbol:
            run.symbols.push_back(device_array(value_of(id), cell.symbols[id].axes));
            if (cell.symbols[id].kind == SymbolKind::Input) put_rows(run.symbols.back(), input_rows_of(id));
            break;
          case ArraySource::Kind::Trajectory:
            run.symbols.push_back(device_array(0, cell.symbols[cell.updates[id].symbol].axes));
            put_rows(run.symbols.back(), trajectory_of(id));
            break;
          case ArraySource::Kind::Before: run.symbols.push_back(device_array(before_arrays[k][id].address(), s.before.cell.outs[id].index)); break;
          case ArraySource::Kind::Once: run.symbols.push_back(device_array(once_arrays[k][id].address(), s.once.cell.outs[id].index)); break;
          case ArraySource::Kind::Mixing: break;
        }
      }
      for (const int u : s.states) {
        run.starts.push_back(value_of(cell.updates[u].symbol));
        run.finals.push_back(final_of(static_cast<std::size_t>(u)));
      }
      stages[k]->run(run, plans[k], tolerance, stream);
    }
    if (!staged->after.cell.outs.empty() && outs_wanted) {
      RowsRun r = rows_run(staged->after.sources, -1);
      for (std::size_t o = 0; o < outs.size(); ++o) r.outs.push_back(out_of(o));
      rows_program(after, staged->after.cell, Structure{}, running).run(r, stream);
    }
  }

  // And back -----------------------------------------------------------------------------------------

  Array fetch(const GpuBuffer& buffer, Dtype type, const std::vector<std::int64_t>& shape, GpuStream stream) {
    Array array = Array::uninitialised(type, shape);
    const std::size_t bytes = static_cast<std::size_t>(array.count()) * size_of(type);
    if (bytes) gpu.copy_out(array.data(), buffer.address(), bytes, stream);
    return array;
  }

  void report(SolveReport& report, GpuStream stream) {
    report = {};
    for (std::size_t k = 0; k < plans.size(); ++k) {
      StageReport r;
      r.plan = plans[k].plan;
      if (!in_rows && rows > 0) {
        const CudaOutcome o = stages[k]->outcome(stream);
        const bool segmented = plans[k].plan.strategy != Strategy::Sequential && r.plan.segment > 0;
        if (o.piece > 0) r.plan.segment = o.piece;
        r.iterations = o.rounds;
        r.repair_rounds = o.rounds;
        r.misses = o.misses;
        r.repaired = o.repaired + o.tails;
        r.max_residual = o.max_residual;
        if (segmented) {
          const std::int64_t segments = (longest + r.plan.segment - 1) / r.plan.segment;
          r.boundaries = std::max<std::int64_t>(0, segments - 1) * sequences * stages[k]->channels(bound.sizes);
          r.plan.burn_in = o.burn_in;
          // A residual grows from boundary to boundary at most as the largest carrier does.
          double sum = 0, power = 1;
          for (std::int64_t s = 0; s < segments && sum < 1e30; ++s, power *= o.growth) sum += power;
          r.error_estimate = o.max_residual * std::max(1.0, sum);
          if (o.growth > 0 && r.plan.segment > 0) r.lyapunov = std::log(o.growth) / static_cast<double>(r.plan.segment);
          Observed& seen = observed[k];
          ++seen.calls;
          seen.tails = o.tails;
          seen.carries = o.carries;
          seen.segmented_ns = 0;
          for (const double ns : o.phase_ns) {
            seen.segmented_ns += ns;
            r.phases_us.push_back(ns * 1e-3);
          }
          seen.sweep_ns = o.phase_ns.empty() ? 0 : o.phase_ns.front();
          seen.sweep_steps = r.plan.segment + o.burn_in;
          // What was walked in the end is not in the marks: so many segments a chain, at the sweep's pace.
          const double chains = static_cast<double>(std::max<std::int64_t>(1, sequences * stages[k]->channels(bound.sizes)));
          seen.segmented_ns += static_cast<double>(o.tails) / chains * static_cast<double>(r.plan.segment) * seen.sweep_ns /
                               static_cast<double>(std::max<std::int64_t>(1, seen.sweep_steps));
        }
        for (const Unconverged& u : o.unconverged) {
          const auto it = std::find_if(report.unconverged.begin(), report.unconverged.end(), [&](const Unconverged& v) { return v.sequence == u.sequence; });
          if (it == report.unconverged.end()) {
            report.unconverged.push_back(u);
          } else {
            it->first_bad_step = std::min(it->first_bad_step, u.first_bad_step);
            it->residual = std::max(it->residual, u.residual);
          }
        }
      }
      report.max_residual = std::max(report.max_residual, r.max_residual);
      report.error_estimate = std::max(report.error_estimate, r.error_estimate);
      report.repaired += r.repaired;
      report.stages.push_back(std::move(r));
    }
    report.converged = report.unconverged.empty();
    report.compile_ms = compiled_ms();
    std::vector<CacheState> all = caches;
    for (const auto& s : stages) all.insert(all.end(), s->caches().begin(), s->caches().end());
    const auto any = [&](CacheState state) { return std::find(all.begin(), all.end(), state) != all.end(); };
    report.cache = any(CacheState::Miss) ? CacheState::Miss : any(CacheState::Off) || all.empty() ? CacheState::Off : CacheState::Hit;
  }

  /// Each stage was checked against what the stages before it wrote. What is promised is the residual of
  /// the whole step, in which a later stage may amplify what an earlier one left.
  void check_whole_steps(SolveReport& report, GpuStream stream) {
    const StatelessCell& c = staged->step;
    step_arrays.resize(c.cell.outs.size());
    RowsRun r = rows_run(c.sources, -1);
    for (std::size_t o = 0; o < step_arrays.size(); ++o) {
      reserve(step_arrays[o], static_cast<std::size_t>(rows * entries(c.cell.outs[o].index)) * size_of(running));
      r.outs.push_back(step_arrays[o].address());
    }
    rows_program(step, c.cell, Structure{}, running).run(r, stream);
    std::vector<Unconverged> worst(static_cast<std::size_t>(sequences), {0, std::numeric_limits<std::int64_t>::max(), 0});
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const std::vector<std::int64_t> shape = shape_of(rows, cell.symbols[cell.updates[u].symbol].axes);
      const Array written = fetch(trajectories[u], running, shape, stream), made = fetch(step_arrays[u], running, shape, stream);
      for (std::int64_t s = 0; s < sequences; ++s) {
        const Furthest f = furthest(written, made, bound.offsets[s], bound.offsets[s + 1], tolerance, bound.reverse);
        report.max_residual = std::max(report.max_residual, f.far);
        if (f.row < 0) continue;
        const std::int64_t at = bound.reverse ? bound.offsets[s + 1] - 1 - f.row : f.row - bound.offsets[s];
        worst[s].first_bad_step = std::min(worst[s].first_bad_step, at);
        worst[s].residual = std::max(worst[s].residual, f.far);
      }
    }
    report.unconverged.clear();
    for (std::int64_t s = 0; s < sequences; ++s) {
      worst[s].sequence = s;
      if (worst[s].residual > 0) report.unconverged.push_back(worst[s]);
    }
    report.error_estimate = std::max(report.error_estimate, report.max_residual);
    report.converged = report.unconverged.empty();
  }

  RunOutput download(GpuStream stream) {
    RunOutput output;
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const Symbol& symbol = cell.symbols[cell.updates[u].symbol];
      output.states.push_back(convert(fetch(trajectories[u], running, shape_of(rows, symbol.axes), stream), dtype));
      output.finals.push_back(rows == 0 ? convert(bound.symbols[cell.updates[u].symbol], arithmetic)
                                        : fetch(finals[u], arithmetic, shape_of(sequences, symbol.axes), stream));
    }
    for (std::size_t o = 0; o < cell.outs.size(); ++o)
      output.outs.push_back(convert(fetch(outs[o], running, shape_of(rows, cell.outs[o].index), stream), dtype));
    return output;
  }
};

CudaSolver::CudaSolver(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype, const SourceText* source)
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
  impl_->placed = arrays;
  impl_->outs_wanted = arrays.outs_wanted;
  impl_->reserve_written();
}
Dtype CudaSolver::storage() const { return impl_->running; }
bool CudaSolver::any_strides(int symbol) const { return impl_->any_strides(symbol); }
bool CudaSolver::overlaps_starts() const { return impl_->overlaps_starts(); }
std::vector<GpuAddress> CudaSolver::first_bad_steps() const { return impl_->first_bad_steps(); }
bool CudaSolver::replan(const SolveOptions& options) { return impl_->replan(options); }
void CudaSolver::place(int symbol, GpuAddress data, std::int64_t row_stride) {
  impl_->placed.inputs[symbol] = {data, impl_->uniform ? row_stride * impl_->longest : 0, row_stride};
}
GpuAddress CudaSolver::trajectory(int update) const { return impl_->trajectory_of(update).data; }
GpuAddress CudaSolver::final_state(int update) const { return impl_->final_of(static_cast<std::size_t>(update)); }
GpuAddress CudaSolver::out(int number) const { return impl_->out_of(static_cast<std::size_t>(number)); }
void CudaSolver::launch(GpuStream stream) { impl_->launch(stream); }
void CudaSolver::report(SolveReport& report, GpuStream stream) { impl_->report(report, stream); }
RunOutput CudaSolver::download(GpuStream stream) { return impl_->download(stream); }

std::optional<std::string> CudaSolver::refusal(int stage, Strategy strategy, const BoundRun& run) {
  impl_->bound.sizes = run.sizes;
  if (impl_->stages.empty()) impl_->use_storage(impl_->dtype);
  return impl_->refusal(stage, strategy);
}

RunOutput CudaSolver::run(const BoundRun& run, const SolveOptions& options, SolveReport& report) {
  impl_->upload(run, options);
  const auto start = std::chrono::steady_clock::now();
  const double compiled_before = impl_->compiled_ms();
  impl_->launch(0);
  impl_->report(report, 0);
  if (!impl_->in_rows && impl_->rows > 0 && impl_->plans.size() > 1 && report.converged && report.max_residual > 0) {
    impl_->check_whole_steps(report, 0);
    if (!report.converged && options.repair && !options.fixed_iterations) {
      const std::int64_t bad = static_cast<std::int64_t>(report.unconverged.size());
      for (CudaPlan& p : impl_->plans) {
        p = {};
        p.plan.reason = "a later stage amplifies what the stages before it left, so run step by step";
      }
      impl_->launch(0);
      impl_->report(report, 0);
      report.repaired = bad;
    }
  }
  impl_->gpu.synchronize(0);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  RunOutput output = impl_->download(0);
  report.compile_ms = impl_->compiled_ms();
  output.run_ms = ms - (report.compile_ms - compiled_before);
  return output;
}

}  // namespace cellc
