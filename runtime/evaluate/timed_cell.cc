#include "runtime/evaluate/timed_cell.h"

#include <algorithm>

#include "compiler/graph/delay_lines.h"
#include "runtime/data/random_fill.h"

namespace cellc {

Traffic traffic_of(const CellGraph& cell, const BoundRun& run, Dtype dtype) {
  const std::int64_t rows = run.offsets.back(), size = static_cast<std::int64_t>(size_of(dtype));
  const auto entries = [&](const std::vector<AxisId>& axes) {
    std::int64_t n = 1;
    for (const std::int64_t length : lengths(cell, run, axes)) n *= length;
    return n;
  };
  Traffic traffic;
  for (const Symbol& symbol : cell.symbols)
    if (is_given_input(symbol)) traffic.read += rows * entries(symbol.axes) * size;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Symbol& symbol = cell.symbol_of(cell.updates[u]);
    if (symbol.lag_of >= 0) continue;  // a lagged copy is no array of the user's
    if (run.wanted.state(u)) traffic.written += rows * entries(symbol.axes) * size;
    traffic.step_channels =
        std::max(traffic.step_channels, static_cast<double>(rows) * static_cast<double>(entries(symbol.axes)));
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (run.wanted.out(o)) traffic.written += rows * entries(cell.outs[o].index) * size;
  return traffic;
}

Traffic backward_traffic_of(const AdjointRun& adjoint, const BoundRun& forward, Dtype dtype) {
  const CellGraph& cell = adjoint.cell();
  const std::int64_t rows = forward.offsets.back(), size = static_cast<std::int64_t>(size_of(arithmetic_of(dtype)));
  const auto bytes = [&](const std::vector<AxisId>& axes) {
    std::int64_t n = rows * size;
    for (const std::int64_t length : lengths(cell, forward, axes)) n *= length;
    return n;
  };
  Traffic traffic;
  for (const Symbol& symbol : cell.symbols)
    if (symbol.kind == SymbolKind::Input) traffic.read += bytes(symbol.axes);
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (adjoint.adjoint().adjoint.sinks[cell.updates.size() + o].kind == ArraySink::Kind::Gradient)
      traffic.written += bytes(cell.outs[o].index);
  for (const StateUpdate& update : cell.updates)
    traffic.step_channels = std::max(
        traffic.step_channels, static_cast<double>(bytes(cell.symbol_of(update).axes)) / static_cast<double>(size));
  return traffic;
}

Cotangents random_cotangents(const CellGraph& cell, const BoundRun& run, Dtype dtype, std::uint64_t seed) {
  Cotangents result;
  result.finals.resize(cell.updates.size());
  const auto drawn = [&](const std::string& name, const std::vector<AxisId>& axes) {
    std::vector<std::int64_t> shape = lengths(cell, run, axes);
    shape.insert(shape.begin(), run.offsets.back());
    Array array(arithmetic_of(dtype), shape);
    fill_uniform(array, seed, "cotangent." + name, -1, 1);
    return array;
  };
  for (const StateUpdate& update : cell.updates) {
    const Symbol& state = cell.symbol_of(update);
    result.states.push_back(state.lag_of < 0 && cell.outs.empty() ? drawn(state.name, state.axes) : Array());
  }
  for (const Out& out : cell.outs) result.outs.push_back(drawn(out.name, out.index));
  return result;
}

}  // namespace cellc
