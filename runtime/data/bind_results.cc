// The way back from bind.cc: what a run wrote, under the names and shapes that users expect.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"
#include "runtime/data/bind.h"
#include "runtime/data/lagged_arrays.h"

namespace cellc {

namespace {

/// A result by its name, and the arrays that it is made of.
struct Result {
  enum class Kind : std::uint8_t { State, Final, History, InputHistory, Out };
  std::string name;
  Kind kind;
  std::size_t id;                       ///< position in updates, out, or of an input's history the symbol
  std::vector<std::size_t> companions;  ///< of a state's history: positions in updates, lag 1 first
  int line = -1;                        ///< and the delay line that has what lies further back
};

/// In the order in which they are written.
std::vector<Result> results_of(const CellGraph& cell) {
  using Kind = Result::Kind;
  std::vector<Result> all;
  const std::vector<DelayLine> lines = delay_lines(cell);
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const int s = cell.updates[u].symbol;
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of >= 0) continue;
    all.push_back({symbol.name, Kind::State, u, {}});
    all.push_back({symbol.name + ".final", Kind::Final, u, {}});
    std::vector<std::size_t> companions;
    for (std::size_t v = 0; v < cell.updates.size(); ++v)
      if (cell.symbols[cell.updates[v].symbol].lag_of == s) companions.push_back(v);
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const DelayLine& l) { return l.state == s; });
    if (!companions.empty() || line != lines.end())
      all.push_back(
          {symbol.name + ".lag", Kind::History, u, std::move(companions), line == lines.end() ? -1 : line->symbol});
  }
  for (std::size_t s = 0; s < cell.symbols.size(); ++s)
    if (is_given_input(cell.symbols[s]) && cell.symbols[s].max_lag != 0)
      all.push_back({cell.symbols[s].name + ".lag", Kind::InputHistory, s, {}});
  for (std::size_t o = 0; o < cell.outs.size(); ++o) all.push_back({cell.outs[o].name, Kind::Out, o, {}});
  return all;
}

}  // namespace

std::vector<std::string> result_names(const CellGraph& cell) {
  std::vector<std::string> names;
  for (Result& r : results_of(cell)) names.push_back(std::move(r.name));
  return names;
}

Wanted wanted_results(const CellGraph& cell, const std::vector<std::string>& names) {
  const std::vector<Result> all = results_of(cell);
  Wanted wanted;
  for (const std::string& name : names)
    if (std::none_of(all.begin(), all.end(), [&](const Result& r) { return r.name == name; }))
      throw UsageError(fmt::format("nothing that a run of {} writes is called '{}'; there are {}", cell.name, name,
                                   fmt::join(result_names(cell), ", ")));
  wanted.states.assign(cell.updates.size(), false);
  wanted.finals = wanted.states;
  wanted.outs.assign(cell.outs.size(), false);
  for (const Result& r : all) {
    if (std::find(names.begin(), names.end(), r.name) == names.end()) {
      if (r.kind == Result::Kind::InputHistory) wanted.unwanted_histories.push_back(static_cast<int>(r.id));
      if (r.line >= 0) wanted.unwanted_histories.push_back(r.line);
      continue;
    }
    if (r.kind == Result::Kind::State) wanted.states[r.id] = true;
    if (r.kind == Result::Kind::Final) wanted.finals[r.id] = true;
    if (r.kind == Result::Kind::Out) wanted.outs[r.id] = true;
    for (const std::size_t v : r.companions) wanted.finals[v] = true;
  }
  return with_lines(cell, std::move(wanted));
}

Wanted with_lines(const CellGraph& cell, Wanted wanted) {
  for (const DelayLine& line : delay_lines(cell))
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      if (cell.updates[u].symbol == line.state && !wanted.state(u)) {
        wanted.kept.resize(cell.updates.size());
        wanted.states[u] = wanted.kept[u] = true;
      }
  return wanted;
}

Wanted with_copies(const CellGraph& cell, Wanted wanted) {
  for (const Result& r : results_of(cell))
    for (const std::size_t v : r.companions)
      if (wanted.state(r.id) && v < wanted.states.size()) wanted.states[v] = true;
  return wanted;
}

std::vector<std::pair<std::string, Array>> written_arrays(const CellGraph& cell, const Binding& binding,
                                                          const RunOutput& output) {
  std::vector<std::pair<std::string, Array>> arrays;
  const Wanted& wanted = binding.run.wanted;
  const auto per_step = [&](const Array& array, const std::vector<AxisId>& axes) {
    std::vector<std::int64_t> shape{binding.length};
    if (!binding.packed && binding.batched) shape = {binding.batch, binding.length};
    return array.with_shape(AxisLengths(cell.graph, binding.run.sizes).shape(std::move(shape), axes));
  };
  const auto array_of = [&](const Result& r) {
    switch (r.kind) {
      case Result::Kind::State:
        return wanted.writes_state(r.id) ? per_step(output.states[r.id], cell.symbol_of(cell.updates[r.id]).axes)
                                         : Array();
      case Result::Kind::Final:
        return wanted.final(r.id) ? output.finals[r.id] : Array();
      case Result::Kind::Out:
        return wanted.out(r.id) ? per_step(output.outs[r.id], cell.outs[r.id].index) : Array();
      case Result::Kind::InputHistory:
        return wanted.input_history(static_cast<int>(r.id))
                   ? final_history(binding.run, static_cast<int>(r.id), binding.run.symbols[r.id])
                   : Array();
      case Result::Kind::History:
        break;
    }
    std::vector<const Array*> history;
    for (const std::size_t v : r.companions) {
      if (!wanted.final(v)) return Array();
      history.push_back(&output.finals[v]);
    }
    if (r.line < 0) return history_of_lags(history);
    if (!wanted.input_history(r.line)) return Array();
    const Dtype arithmetic = arithmetic_of(output.states[r.id].dtype());
    return history_of_line_and_lags(final_history(binding.run, r.line, output.states[r.id]), history, arithmetic);
  };
  for (const Result& r : results_of(cell))
    if (Array array = array_of(r); !array.shape().empty()) arrays.emplace_back(r.name, std::move(array));
  return arrays;
}

}  // namespace cellc
