#include "runtime/data/run.h"

#include "runtime/data/call_shape.h"

namespace cellc {

RunOutput prepare_output(const CellGraph& cell, const BoundRun& run, Dtype dtype) {
  const auto made = [&](FieldKind kind, const std::vector<AxisId>& axes) {
    return Array(dtype_of(kind, dtype), run_shape(kind, cell, run, axes));
  };
  RunOutput output;
  for (const StateUpdate& u : cell.updates) {
    const std::size_t at = output.states.size();
    const std::vector<AxisId>& axes = cell.symbols[u.symbol].axes;
    output.states.push_back(run.wanted.state(at) ? made(FieldKind::State, axes) : Array());
    output.finals.push_back(run.wanted.final(at) ? made(FieldKind::Final, axes) : Array());
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    output.outs.push_back(run.wanted.out(o) ? made(FieldKind::Out, cell.outs[o].index) : Array());
  return output;
}

}  // namespace cellc
