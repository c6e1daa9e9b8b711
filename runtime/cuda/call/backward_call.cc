#include "runtime/cuda/call/backward_call.h"

#include <algorithm>

#include "compiler/derive/pipeline.h"
#include "compiler/graph/axes.h"
#include "runtime/cuda/call/derivative_values.h"
#include "runtime/cuda/launch/backward_on_gpu.h"

namespace cellc {

namespace {

/// What computes a start or default, plus an input: so its adjoint has an out, also where the gradients of all params
/// are sums of the cotangent as it lies.
CellGraph displaced(const DerivedCell& computing) {
  CellGraph cell = computing.cell;
  Out& out = cell.outs[0];
  Symbol input;
  input.name = "displacement.";  // no cell has such a name
  input.kind = SymbolKind::Input;
  input.axes = input.index = out.index;
  const int number = static_cast<int>(cell.symbols.size());
  cell.symbols.push_back(input);
  out.value = cell.graph.op(Op::Add, {out.value, cell.graph.read(number, plain_index(out.index))});
  return cell;
}

/// Derivatives through one start or default that the cell computes of its params: the backward run of a cell without
/// states that computes it, one row for each sequence.
struct ThroughDefault {
  ThroughDefault(Gpu& gpu, const CellGraph& cell, int symbol, Dtype arithmetic)
      : computing(defaults_of(cell, {symbol}, Role::Defaults)) {
    if (computing.sources.empty()) return;  // a constant
    step = displaced(computing);
    adjoint.emplace(step, AdjointOf{.states = {}, .outs = {true}, .multiplies_factors = true});
    backward.emplace(gpu, step, *adjoint, arithmetic);
  }
  const DerivedCell computing;
  CellGraph step;
  std::optional<AdjointRun> adjoint;
  std::optional<BackwardOnGpu> backward;
};

}  // namespace

struct BackwardCall::Impl {
  CallGpu gpu;
  const CellGraph& cell;
  const DirectedCall& call;
  const CallShape shape;
  const SolveOptions solve;
  BackwardOnGpu backward;
  std::optional<DerivativeValues> values;
  std::vector<GpuBuffer> finals;                         ///< by update: cotangents of final copies
  std::vector<std::unique_ptr<ThroughDefault>> through;  ///< by symbol, those that were needed
  std::vector<CallForm> rehearsed;

  Impl(Gpu& below, std::shared_ptr<LoadedModules> modules, const CellGraph& cell, const DirectedCall& call,
       const AdjointRun& adjoint, const std::vector<bool>& reads, Dtype dtype, const CallShape& shape,
       const SolveOptions& solve)
      : gpu(below, std::move(modules)),
        cell(cell),
        call(call),
        shape(shape),
        solve(solve),
        backward(gpu, cell, adjoint, arithmetic_of(dtype)),
        finals(cell.updates.size()),
        through(cell.symbols.size()) {
    CallGpu::Rehearsal rehearsal(gpu);
    values.emplace(gpu, cell, call, this->shape, dtype, reads);
    std::int64_t most = 0;
    for (const StateUpdate& u : cell.updates)
      most = std::max(most, shape.sequences * values->entries(cell.symbol_of(u).axes));
    values->zeros(most);
    backward.prepare(values->run(), solve);
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

  const CallArray& value(std::span<const CallArray> arrays, FieldKind kind, int id) const {
    return arrays[call.number(Quantity::Value, kind, id)];
  }

  void run_form(std::span<const CallArray> arrays, GpuStream stream) {
    values->place(arrays, stream);
    BackwardArrays at;
    at.symbols = values->symbols;
    at.histories = values->histories;
    at.trajectories = values->trajectories;
    at.states.resize(cell.updates.size());
    at.finals.resize(cell.updates.size());
    at.outs.resize(cell.outs.size());
    at.gradients.resize(cell.symbols.size());
    at.history_gradients.resize(cell.symbols.size());
    for (std::size_t i = 0; i < call.fields.size(); ++i)
      if (arrays[i].data) place(i, arrays[i], at, stream);
    for (GpuAddress& cotangent : at.finals)
      if (!cotangent) cotangent = values->zeros(0);
    backward.place(at);
    backward.launch(stream);
    for (const DelayLine& line : values->lines().lines()) gather_line(line, arrays, stream);
    // Histories before what flows on from them, as their own gradients are what they were.
    for (std::size_t i = 0; i < call.fields.size(); ++i)
      if (arrays[i].data && call.fields[i].of.kind == FieldKind::StateHistory) write(i, arrays[i], stream);
    flow_through_defaults(arrays, stream);
    for (std::size_t i = 0; i < call.fields.size(); ++i)
      if (arrays[i].data && call.fields[i].of.kind != FieldKind::StateHistory) write(i, arrays[i], stream);
  }

  void place(std::size_t i, const CallArray& array, BackwardArrays& at, GpuStream stream) {
    const DirectedField& field = call.fields[i];
    const auto id = static_cast<std::size_t>(field.of.id);
    if (field.quantity == Quantity::Gradient) {
      if (field.of.kind == FieldKind::InputHistory)
        at.history_gradients[id] = values->written(i, array);
      else if (field.of.kind != FieldKind::StateHistory)
        at.gradients[id] = values->written(i, array);
    } else if (field.quantity == Quantity::Cotangent) {
      const GpuAddress data = values->read(i, array, stream);
      if (field.of.kind == FieldKind::Out)
        at.outs[id] = data;
      else if (field.of.kind == FieldKind::State)
        at.states[values->update_of(field.of.id)] = data;
      else if (field.of.kind == FieldKind::Final)
        at.finals[values->update_of(field.of.id)] = data;
      else
        each_copy(field.of.id, [&](std::size_t u, const Symbol& copy) {
          values->reserve(finals[u], shape.sequences * values->entries(copy.axes));
          at.finals[u] = finals[u].address();
          values->take_lag(at.finals[u], data, copy, stream);
        });
    }
  }

  void write(std::size_t i, const CallArray& array, GpuStream stream) {
    const DirectedField& field = call.fields[i];
    if (field.quantity != Quantity::Gradient) return;
    if (field.of.kind == FieldKind::StateHistory) {
      const GpuAddress to = values->written(i, array);
      each_copy(field.of.id, [&](std::size_t u, const Symbol& copy) {
        values->put_lag(to, backward.gradient(cell.updates[u].symbol), copy, stream);
      });
    }
    values->write(i, array, stream);
  }

  /// A delay line begins with the start of its state and of the copies that lag behind that; the rest of it is the
  /// state's history.
  void gather_line(const DelayLine& line, std::span<const CallArray> arrays, GpuStream stream) {
    add_from_line(line, backward.gradient(line.state), 0, 1, stream);
    each_copy(line.state, [&](std::size_t u, const Symbol& copy) {
      add_from_line(line, backward.gradient(cell.updates[u].symbol), copy.lag, 1, stream);
    });
    const std::size_t history = call.number(Quantity::Gradient, FieldKind::StateHistory, line.state);
    if (!arrays[history].data) return;
    const std::int64_t n = values->lines().entries(line), first = values->lines().copies_of(line.state) + 1;
    const GpuAddress from =
        backward.history_gradient(line.symbol) + static_cast<GpuAddress>(first * n) * size_of(values->arithmetic());
    values->moves().move(values->lines().beyond_copies(values->written(history, arrays[history]), line),
                         values->arithmetic(), {from, line.deepest * n, n}, values->arithmetic(), shape.sequences,
                         line.deepest - first, n, stream);
  }
  void add_from_line(const DelayLine& line, GpuAddress start, std::int64_t first, std::int64_t count,
                     GpuStream stream) {
    LaggedRows p{};
    p.run = values->rows_of_run();
    p.input = reinterpret_cast<void*>(start);
    p.history = reinterpret_cast<void*>(backward.history_gradient(line.symbol));
    p.entries = values->lines().entries(line);
    p.lag = first;
    p.along = count;
    p.depth = line.deepest;
    values->kernels().launch_each("cellc_add_history_to_start", shape.sequences * p.entries, &p, stream);
  }

  template <typename Visit>
  void each_copy(int state, Visit visit) const {
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      if (cell.symbol_of(cell.updates[u]).lag_of == state) visit(u, cell.symbol_of(cell.updates[u]));
  }

  /// through_defaults.h, on the device: users first.
  void flow_through_defaults(std::span<const CallArray> arrays, GpuStream stream) {
    for (const StateUpdate& u : cell.updates) {
      const Symbol& copy = cell.symbol_of(u);
      if (copy.lag_of < 0 || value(arrays, FieldKind::StateHistory, copy.lag_of).data) continue;
      values->add(backward.gradient(copy.lag_of), backward.gradient(u.symbol),
                  shape.sequences * values->entries(copy.axes), stream);
    }
    for (const DelayLine& line : values->lines().lines()) {
      if (value(arrays, FieldKind::StateHistory, line.state).data) continue;
      const std::int64_t first = values->lines().copies_of(line.state) + 1;
      add_from_line(line, backward.gradient(line.state), first, line.deepest - first, stream);
    }
    const int count = static_cast<int>(cell.symbols.size());
    for (int s = 0; s < count; ++s)
      if (cell.symbols[static_cast<std::size_t>(s)].kind == SymbolKind::State) flow_through(s, arrays, stream);
    for (int s = count; s-- > 0;)
      if (cell.symbols[static_cast<std::size_t>(s)].kind == SymbolKind::Param) flow_through(s, arrays, stream);
  }

  void flow_through(int s, std::span<const CallArray> arrays, GpuStream stream) {
    const auto number = static_cast<std::size_t>(s);
    const Symbol& symbol = cell.symbols[number];
    const bool state = symbol.kind == SymbolKind::State;
    if (symbol.initial == kNoNode || symbol.lag_of >= 0) return;
    if (value(arrays, state ? FieldKind::Start : FieldKind::Param, s).data) return;
    if (!through[number]) {
      auto made = std::make_unique<ThroughDefault>(gpu, cell, s, values->arithmetic());
      BoundRun run;
      run.sizes = values->run().sizes;
      run.offsets = {0, state ? shape.sequences : 1};
      run.symbols.resize(made->step.symbols.size());
      run.histories.resize(made->step.symbols.size());
      if (made->backward) made->backward->prepare(run, {});
      through[number] = std::move(made);
    }
    ThroughDefault& flow = *through[number];
    if (!flow.backward) return;
    BackwardArrays at;
    for (const ArraySource& source : flow.computing.sources)
      at.symbols.push_back(values->symbols[static_cast<std::size_t>(source.id)]);
    at.symbols.push_back(0);
    at.histories.resize(at.symbols.size());
    at.outs = {backward.gradient(s)};
    flow.backward->place(at);
    flow.backward->launch(stream);
    for (std::size_t p = 0; p < flow.computing.sources.size(); ++p) {
      const int param = flow.computing.sources[p].id;
      values->add(backward.gradient(param), flow.backward->gradient(static_cast<int>(p)),
                  values->entries(cell.symbols[static_cast<std::size_t>(param)].axes), stream);
    }
  }

  void report(SolveReport& report, GpuStream stream) {
    backward.report(report, stream);
    gpu.synchronize(stream);
  }
};

BackwardCall::BackwardCall(Gpu& gpu, std::shared_ptr<LoadedModules> modules, const CellGraph& cell,
                           const DirectedCall& call, const AdjointRun& adjoint, const std::vector<bool>& reads,
                           Dtype dtype, const CallShape& shape, const SolveOptions& solve)
    : impl_(std::make_unique<Impl>(gpu, std::move(modules), cell, call, adjoint, reads, dtype, shape, solve)) {}
BackwardCall::~BackwardCall() = default;

void BackwardCall::queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress) {
  impl_->queue(arrays, stream);
}
void BackwardCall::rehearse(std::span<const CallArray> arrays, GpuAddress) { impl_->rehearse(arrays); }
bool BackwardCall::knows(std::span<const CallArray> arrays, GpuAddress) const { return impl_->knows(arrays); }
void BackwardCall::report(SolveReport& report, GpuStream stream) { impl_->report(report, stream); }
std::int64_t BackwardCall::held_bytes() const { return impl_->gpu.held_bytes(); }

}  // namespace cellc
