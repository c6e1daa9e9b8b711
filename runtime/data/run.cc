#include "runtime/data/run.h"

namespace cellc {

RunOutput prepare_output(const CellGraph& cell, const BoundRun& run, Dtype dtype) {
  const auto shape = [&](std::int64_t first, const std::vector<AxisId>& axes) {
    std::vector<std::int64_t> lengths{first};
    for (const AxisId a : axes) lengths.push_back(run.sizes.at(cell.graph.axis(a).extent_of));
    return lengths;
  };
  const std::int64_t rows = run.offsets.back(), sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  RunOutput output;
  for (const StateUpdate& u : cell.updates) {
    const std::vector<AxisId>& axes = cell.symbols[u.symbol].axes;
    output.states.push_back(Array(dtype, shape(rows, axes)));
    output.finals.push_back(Array(dtype == Dtype::F64 ? Dtype::F64 : Dtype::F32, shape(sequences, axes)));
  }
  for (const Out& o : cell.outs) output.outs.push_back(Array(dtype, shape(rows, o.index)));
  return output;
}

}  // namespace cellc
