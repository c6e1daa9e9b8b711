// The way back from bind.cc: what a run wrote, under the names and shapes that users expect.
#include <algorithm>
#include <utility>

#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"
#include "runtime/data/bind.h"
#include "runtime/data/lagged_arrays.h"

namespace cellc {

std::vector<std::pair<std::string, Array>> written_arrays(const CellGraph& cell, const Binding& binding,
                                                          const RunOutput& output) {
  std::vector<std::pair<std::string, Array>> arrays;
  const auto per_step = [&](const Array& array, const std::vector<AxisId>& axes) {
    std::vector<std::int64_t> shape{binding.length};
    if (!binding.packed && binding.batched) shape = {binding.batch, binding.length};
    return array.with_shape(AxisLengths(cell.graph, binding.run.sizes).shape(std::move(shape), axes));
  };
  const std::vector<DelayLine> lines = delay_lines(cell);
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const int s = cell.updates[u].symbol;
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of >= 0) continue;
    arrays.emplace_back(symbol.name, per_step(output.states[u], symbol.axes));
    arrays.emplace_back(symbol.name + ".final", output.finals[u]);
    // The companions follow their state, lag 1 first.
    std::vector<const Array*> history;
    for (std::size_t v = 0; v < cell.updates.size(); ++v)
      if (cell.symbols[cell.updates[v].symbol].lag_of == s) history.push_back(&output.finals[v]);
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const DelayLine& l) { return l.state == s; });
    if (line != lines.end())
      arrays.emplace_back(symbol.name + ".lag",
                          history_of_line_and_lags(final_history(binding.run, line->symbol, output.states[u]), history,
                                                   output.finals[u].dtype()));
    else if (!history.empty())
      arrays.emplace_back(symbol.name + ".lag", history_of_lags(history));
  }
  for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s)
    if (is_given_input(cell.symbols[s]) && cell.symbols[s].max_lag != 0)
      arrays.emplace_back(cell.symbols[s].name + ".lag", final_history(binding.run, s, binding.run.symbols[s]));
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    arrays.emplace_back(cell.outs[o].name, per_step(output.outs[o], cell.outs[o].index));
  return arrays;
}

}  // namespace cellc
