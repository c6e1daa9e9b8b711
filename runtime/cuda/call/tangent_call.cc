#include "runtime/cuda/call/tangent_call.h"

#include <algorithm>

#include "compiler/derive/pipeline.h"
#include "runtime/cuda/call/derivative_values.h"
#include "runtime/cuda/launch/cuda_solver.h"

namespace cellc {

namespace {

/// How one start or default that the cell computes of its params moves with them: the tangent of a cell without
/// states that computes it, of one row.
struct MovedDefault {
  MovedDefault(Gpu& gpu, const CellGraph& cell, int symbol, Dtype arithmetic)
      : computing(defaults_of(cell, {symbol}, Role::Defaults)) {
    if (computing.sources.empty()) return;  // a constant
    tangent.emplace(computing.cell, TangentOf{});
    solver.emplace(gpu, tangent->cell(), tangent->structure(), arithmetic);
  }
  const DerivedCell computing;
  std::optional<TangentRun> tangent;
  std::optional<CudaSolver> solver;
  GpuBuffer one, all;  ///< of one sequence, of all
};

}  // namespace

struct TangentCall::Impl {
  CallGpu gpu;
  const CellGraph& cell;
  const DirectedCall& call;
  const TangentRun& tangent;
  const CallShape shape;
  CudaSolver solver;
  std::optional<DerivativeValues> values;
  std::vector<GpuBuffer> totals;                        ///< by symbol: tangents of params and starts
  std::vector<GpuBuffer> line_histories;                ///< by symbol: tangents of delay lines' histories as given
  std::vector<GpuBuffer> before;                        ///< by symbol of the tangent: states before each step
  std::vector<std::unique_ptr<MovedDefault>> defaults;  ///< by symbol, those that were needed
  std::vector<bool> moves;                              ///< by symbol: it has a tangent
  std::vector<CallForm> rehearsed;

  Impl(Gpu& below, std::shared_ptr<LoadedModules> modules, const CellGraph& cell, const DirectedCall& call,
       const TangentRun& tangent, const std::vector<bool>& reads, Dtype dtype, const CallShape& shape,
       const SolveOptions& solve)
      : gpu(below, std::move(modules)),
        cell(cell),
        call(call),
        tangent(tangent),
        shape(shape),
        solver(gpu, tangent.cell(), tangent.structure(), arithmetic_of(dtype)),
        totals(cell.symbols.size()),
        line_histories(cell.symbols.size()),
        before(tangent.cell().symbols.size()),
        defaults(cell.symbols.size()),
        moves(cell.symbols.size()) {
    solver.repeat_bits();
    for (const ArraySource& source : tangent.derived().sources)
      if (source.kind == ArraySource::Kind::Tangent) moves[static_cast<std::size_t>(source.id)] = true;
    CallGpu::Rehearsal rehearsal(gpu);
    values.emplace(gpu, cell, call, this->shape, dtype, reads);
    std::int64_t most = 0;
    for (const DirectedField& field : call.fields)
      if (field.quantity == Quantity::Tangent) most = std::max(most, all_entries(field.of, shape));
    values->zeros(most);
    BoundRun run = values->run();
    run.symbols = std::vector<Array>(tangent.cell().symbols.size());
    run.histories = std::vector<Array>(tangent.cell().symbols.size());
    for (std::size_t s = 0; s < run.histories.size(); ++s)
      if (tangent.cell().symbols[s].max_lag != 0 && tangent.cell().symbols[s].kind == SymbolKind::Input)
        run.histories[s] = values->run().histories[static_cast<std::size_t>(tangent.derived().sources[s].id)];
    solver.prepare(run, solve);
    rehearsal.finish();
  }

  bool knows(std::span<const CallArray> arrays) const {
    return std::find(rehearsed.begin(), rehearsed.end(), form_of(arrays)) != rehearsed.end();
  }
  void rehearse(std::span<const CallArray> arrays) {
    if (knows(arrays)) return;
    CallGpu::Rehearsal rehearsal(gpu);
    run_form(arrays, 0);
    rehearsal.finish();
    rehearsed.push_back(form_of(arrays));
  }
  void queue(std::span<const CallArray> arrays, GpuStream stream) {
    rehearse(arrays);
    run_form(arrays, stream);
  }

  void run_form(std::span<const CallArray> arrays, GpuStream stream) {
    values->place(arrays, stream);
    const std::vector<GpuAddress> moved = total_tangents(arrays, stream);
    DeviceArrays at;
    at.inputs.resize(tangent.cell().symbols.size());
    at.values.resize(at.inputs.size());
    at.histories.resize(at.inputs.size());
    at.trajectories.resize(cell.updates.size());
    at.finals.resize(cell.updates.size());
    at.outs.resize(cell.outs.size());
    for (std::size_t s = 0; s < at.inputs.size(); ++s) place(s, arrays, moved, at, stream);
    at.outs_wanted = false;
    each_written(arrays, [&](std::size_t i, const CallField& of) {
      const GpuAddress to = values->written(i, arrays[i]);
      if (of.kind == FieldKind::Out) {
        at.outs[static_cast<std::size_t>(of.id)] = to;
        at.outs_wanted = true;
      } else if (of.kind == FieldKind::Final) {
        at.finals[values->update_of(of.id)] = to;
      } else {
        at.trajectories[values->update_of(of.id)] = rows(to, values->entries(symbol(of.id).axes));
      }
    });
    solver.place_all(at);
    if (shape.rows > 0) solver.launch(stream);
    each_written(arrays, [&](std::size_t i, const CallField& of) {
      if (of.kind == FieldKind::Final && shape.rows == 0)  // what the start is
        gpu.copy(at.finals[values->update_of(of.id)], at.values[values->update_of(of.id)],
                 static_cast<std::size_t>(all_entries(of, shape)) * size_of(values->arithmetic()), stream);
      values->write(i, arrays[i], stream);
    });
  }

  const Symbol& symbol(int id) const { return cell.symbols[static_cast<std::size_t>(id)]; }
  PlacedRows rows(GpuAddress data, std::int64_t row) const {
    const RowsOfRun run = values->rows_of_run();
    return {data, run.length * row, row};
  }
  template <typename Visit>
  void each_written(std::span<const CallArray> arrays, Visit visit) const {
    for (std::size_t i = 0; i < call.fields.size(); ++i)
      if (arrays[i].data && call.fields[i].written) visit(i, call.fields[i].of);
  }
  /// A tangent that the caller may have given; 0: it is none.
  GpuAddress given(std::span<const CallArray> arrays, FieldKind kind, int id, GpuStream stream) {
    const std::size_t number = call.number(Quantity::Tangent, kind, id);
    return arrays[number].data ? values->read(number, arrays[number], stream) : 0;
  }
  const CallArray& value(std::span<const CallArray> arrays, FieldKind kind, int id) const {
    return arrays[call.number(Quantity::Value, kind, id)];
  }

  void place(std::size_t s, std::span<const CallArray> arrays, const std::vector<GpuAddress>& moved, DeviceArrays& at,
             GpuStream stream) {
    const Symbol& own = tangent.cell().symbols[s];
    const ArraySource& source = tangent.derived().sources[s];
    const auto id = static_cast<std::size_t>(source.id);
    const std::int64_t n = values->entries(own.axes);
    if (source.kind == ArraySource::Kind::Previous) {
      values->reserve(before[s], shape.rows * n);
      at.inputs[s] = rows(before[s].address(), n);
      if (shape.rows == 0) return;
      PreviousRows p{};
      p.run = values->rows_of_run();
      p.to = reinterpret_cast<void*>(before[s].address());
      p.trajectory = reinterpret_cast<const void*>(values->trajectories[id]);
      p.start = reinterpret_cast<const void*>(values->symbols[static_cast<std::size_t>(cell.updates[id].symbol)]);
      p.entries = n;
      values->kernels().launch_each("cellc_previous_rows", shape.rows * n, &p, stream);
      return;
    }
    const bool moving = source.kind == ArraySource::Kind::Tangent;
    if (own.kind != SymbolKind::Input) {
      at.values[s] = moving ? moved[id] : values->symbols[id];
      return;
    }
    if (own.line_of >= 0) {
      at.histories[s] = line_tangent(source.id, arrays, moved, stream);
      return;
    }
    const GpuAddress zeros = values->zeros(0);
    const int line_of = symbol(source.id).line_of;  // of the cell: its state's rows
    GpuAddress data = line_of < 0 ? values->symbols[id] : values->trajectories[values->update_of(line_of)];
    GpuAddress history = values->histories[id];
    if (moving) data = given(arrays, FieldKind::Input, source.id, stream);
    at.inputs[s] = rows(data ? data : zeros, n);
    if (own.max_lag == 0) return;
    if (moving) history = given(arrays, FieldKind::InputHistory, source.id, stream);
    at.histories[s] = history ? history : zeros;
  }

  /// The history of a delay line's tangent: as the line's own, and where the state's history is not given it moves with
  /// the start.
  GpuAddress line_tangent(int number, std::span<const CallArray> arrays, const std::vector<GpuAddress>& moved,
                          GpuStream stream) {
    LineHistories& lines = values->lines();
    const auto line = std::find_if(lines.lines().begin(), lines.lines().end(),
                                   [&](const DelayLine& l) { return l.symbol == number; });
    const auto state = static_cast<std::size_t>(line->state);
    const std::int64_t n = lines.entries(*line), all = shape.sequences * line->deepest * n;
    const bool follows = !value(arrays, FieldKind::StateHistory, line->state).data;
    const GpuAddress history = given(arrays, FieldKind::StateHistory, line->state, stream);
    const PlacedRows zeros{values->zeros(0), 0, 0};
    GpuBuffer &total = totals[static_cast<std::size_t>(number)],
              &own = line_histories[static_cast<std::size_t>(number)];
    values->reserve(total, all);
    lines.fill(total.address(), *line, moved,
               follows   ? PlacedRows{moved[state], n, 0}
               : history ? lines.beyond_copies(history, *line)
                         : zeros,
               stream);
    if (!follows || !history) return total.address();
    values->reserve(own, all);
    const std::vector<GpuAddress> still(cell.symbols.size(), zeros.data);
    lines.fill(own.address(), *line, still, lines.beyond_copies(history, *line), stream);
    values->add(total.address(), own.address(), all, stream);
    return total.address();
  }

  /// By symbol: the tangents of params and starts, with what moves defaults (through_defaults.h, on the device).
  std::vector<GpuAddress> total_tangents(std::span<const CallArray> arrays, GpuStream stream) {
    std::vector<GpuAddress> moved(cell.symbols.size());
    const int count = static_cast<int>(cell.symbols.size());
    for (const SymbolKind kind : {SymbolKind::Param, SymbolKind::State})
      for (int s = 0; s < count; ++s)
        if (symbol(s).kind == kind && symbol(s).lag_of < 0)
          moved[static_cast<std::size_t>(s)] = total(s, arrays, moved, stream);
    for (int s = 0; s < count; ++s)
      if (symbol(s).lag_of >= 0) moved[static_cast<std::size_t>(s)] = of_copy(s, arrays, moved, stream);
    return moved;
  }

  GpuAddress total(int s, std::span<const CallArray> arrays, const std::vector<GpuAddress>& moved, GpuStream stream) {
    const bool state = symbol(s).kind == SymbolKind::State;
    const FieldKind kind = state ? FieldKind::Start : FieldKind::Param;
    const GpuAddress own = given(arrays, kind, s, stream), zeros = values->zeros(0);
    const bool computed = symbol(s).initial != kNoNode && !value(arrays, kind, s).data;
    if (!computed || !moves[static_cast<std::size_t>(s)]) return own ? own : zeros;
    const std::int64_t n = values->entries(symbol(s).axes), copies = state ? shape.sequences : 1;
    const GpuAddress sum = copied(totals[static_cast<std::size_t>(s)], own ? own : zeros, copies * n, stream);
    if (const GpuAddress flow = moved_default(s, copies, n, moved, stream)) values->add(sum, flow, copies * n, stream);
    return sum;
  }

  GpuAddress of_copy(int s, std::span<const CallArray> arrays, const std::vector<GpuAddress>& moved, GpuStream stream) {
    const int owner = symbol(s).lag_of;
    const bool follows = !value(arrays, FieldKind::StateHistory, owner).data;
    const GpuAddress start = moved[static_cast<std::size_t>(owner)];
    const GpuAddress history = given(arrays, FieldKind::StateHistory, owner, stream);
    if (!history) return follows ? start : values->zeros(0);
    const std::int64_t entries = shape.sequences * values->entries(symbol(s).axes);
    GpuBuffer& sum = totals[static_cast<std::size_t>(s)];
    values->reserve(sum, entries);
    values->take_lag(sum.address(), history, symbol(s), stream);
    if (follows) values->add(sum.address(), start, entries, stream);
    return sum.address();
  }

  GpuAddress copied(GpuBuffer& buffer, GpuAddress from, std::int64_t entries, GpuStream stream) {
    values->reserve(buffer, entries);
    if (entries > 0)
      gpu.copy(buffer.address(), from, static_cast<std::size_t>(entries) * size_of(values->arithmetic()), stream);
    return buffer.address();
  }

  /// For each sequence, or once; 0: it is a constant.
  GpuAddress moved_default(int s, std::int64_t copies, std::int64_t n, const std::vector<GpuAddress>& moved,
                           GpuStream stream) {
    std::unique_ptr<MovedDefault>& made = defaults[static_cast<std::size_t>(s)];
    if (!made) {
      auto fresh = std::make_unique<MovedDefault>(gpu, cell, s, values->arithmetic());
      BoundRun run;
      run.sizes = values->run().sizes;
      run.offsets = {0, 1};
      if (fresh->solver) {
        run.symbols.resize(fresh->tangent->cell().symbols.size());
        run.histories.resize(run.symbols.size());
        fresh->solver->prepare(run, {});
      }
      made = std::move(fresh);
    }
    MovedDefault& flow = *made;
    if (!flow.solver) return 0;
    DeviceArrays at;
    at.inputs.resize(flow.tangent->cell().symbols.size());
    at.values.resize(at.inputs.size());
    at.histories.resize(at.inputs.size());
    for (std::size_t i = 0; i < at.inputs.size(); ++i) {
      const ArraySource& source = flow.tangent->derived().sources[i];
      const auto param = static_cast<std::size_t>(flow.computing.sources[static_cast<std::size_t>(source.id)].id);
      at.values[i] = source.kind == ArraySource::Kind::Tangent ? moved[param] : values->symbols[param];
    }
    values->reserve(flow.one, n);
    values->reserve(flow.all, copies * n);
    at.outs = {flow.one.address()};
    flow.solver->place_all(at);
    flow.solver->launch(stream);
    values->moves().move({flow.all.address(), n, n}, values->arithmetic(), {flow.one.address(), 0, n},
                         values->arithmetic(), copies, 1, n, stream);
    return flow.all.address();
  }

  void report(SolveReport& report, GpuStream stream) {
    solver.report(report, stream);
    gpu.synchronize(stream);
  }
};

TangentCall::TangentCall(Gpu& gpu, std::shared_ptr<LoadedModules> modules, const CellGraph& cell,
                         const DirectedCall& call, const TangentRun& tangent, const std::vector<bool>& reads,
                         Dtype dtype, const CallShape& shape, const SolveOptions& solve)
    : impl_(std::make_unique<Impl>(gpu, std::move(modules), cell, call, tangent, reads, dtype, shape, solve)) {}
TangentCall::~TangentCall() = default;

void TangentCall::queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress) {
  impl_->queue(arrays, stream);
}
void TangentCall::rehearse(std::span<const CallArray> arrays, GpuAddress) { impl_->rehearse(arrays); }
bool TangentCall::knows(std::span<const CallArray> arrays, GpuAddress) const { return impl_->knows(arrays); }
void TangentCall::report(SolveReport& report, GpuStream stream) { impl_->report(report, stream); }
std::int64_t TangentCall::held_bytes() const { return impl_->gpu.held_bytes(); }

}  // namespace cellc
