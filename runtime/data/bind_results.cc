// The way back from bind.cc: what a run wrote, under the names and shapes that users expect.
#include <cstddef>
#include <cstring>

#include "runtime/data/bind.h"

namespace cellc {
namespace {

/// The history of an input after the run: entry j is what was read j+1 steps before the next step.
Array final_history(const Binding& binding, int symbol) {
  const Array& before = binding.run.histories[symbol];
  const Array& input = binding.run.symbols[symbol];
  Array after(before.dtype(), before.shape());
  const std::int64_t depth = before.shape()[1];
  std::int64_t entries = 1;
  for (std::size_t i = 2; i < before.shape().size(); ++i) entries *= before.shape()[i];
  const std::size_t bytes = static_cast<std::size_t>(entries) * size_of(before.dtype());
  const auto at = [bytes](const void* data, std::int64_t i) {
    return static_cast<const std::byte*>(data) + static_cast<std::size_t>(i) * bytes;
  };
  for (std::int64_t b = 0; b < binding.batch; ++b) {
    const std::int64_t begin = binding.run.offsets[b], end = binding.run.offsets[b + 1];
    for (std::int64_t j = 0; j < depth; ++j) {
      const std::byte* from = j >= end - begin      ? at(before.data(), b * depth + j - (end - begin))
                              : binding.run.reverse ? at(input.data(), begin + j)
                                                    : at(input.data(), end - 1 - j);
      std::memcpy(static_cast<std::byte*>(after.data()) + static_cast<std::size_t>(b * depth + j) * bytes, from, bytes);
    }
  }
  return after;
}

}  // namespace

std::vector<std::pair<std::string, Array>> written_arrays(const CellGraph& cell, const Binding& binding,
                                                          const RunOutput& output) {
  std::vector<std::pair<std::string, Array>> arrays;
  const auto per_step = [&](const Array& array, const std::vector<AxisId>& axes) {
    std::vector<std::int64_t> shape;
    if (binding.packed || !binding.batched)
      shape = {binding.length};
    else
      shape = {binding.batch, binding.length};
    for (const std::int64_t n : lengths(cell, binding.run, axes)) shape.push_back(n);
    return array.with_shape(shape);
  };
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
    if (history.empty()) continue;
    std::vector<std::int64_t> shape = history[0]->shape();
    const std::int64_t entries = binding.batch > 0 ? history[0]->count() / binding.batch : 0;
    const std::size_t bytes = static_cast<std::size_t>(entries) * size_of(history[0]->dtype());
    shape.insert(shape.begin() + 1, static_cast<std::int64_t>(history.size()));
    Array joined(history[0]->dtype(), shape);
    for (std::int64_t b = 0; b < binding.batch; ++b)
      for (std::size_t j = 0; j < history.size(); ++j)
        std::memcpy(static_cast<std::byte*>(joined.data()) + (static_cast<std::size_t>(b) * history.size() + j) * bytes,
                    static_cast<const std::byte*>(history[j]->data()) + static_cast<std::size_t>(b) * bytes, bytes);
    arrays.emplace_back(symbol.name + ".lag", joined);
  }
  for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s)
    if (cell.symbols[s].kind == SymbolKind::Input && cell.symbols[s].max_lag != 0)
      arrays.emplace_back(cell.symbols[s].name + ".lag", final_history(binding, s));
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    arrays.emplace_back(cell.outs[o].name, per_step(output.outs[o], cell.outs[o].index));
  return arrays;
}

}  // namespace cellc
