#include "runtime/data/run.h"

#include "runtime/data/call_shape.h"

namespace cellc {

RunOutput prepare_output(const CellGraph& cell, const BoundRun& run, Dtype dtype) {
  const auto made = [&](FieldKind kind, const std::vector<AxisId>& axes) {
    return Array(dtype_of(kind, dtype), run_shape(kind, cell, run, axes));
  };
  RunOutput output;
  for (const StateUpdate& u : cell.updates) {
    output.states.push_back(made(FieldKind::State, cell.symbols[u.symbol].axes));
    output.finals.push_back(made(FieldKind::Final, cell.symbols[u.symbol].axes));
  }
  for (const Out& o : cell.outs) output.outs.push_back(made(FieldKind::Out, o.index));
  return output;
}

}  // namespace cellc
