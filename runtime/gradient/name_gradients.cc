#include "runtime/gradient/name_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "compiler/graph/delay_lines.h"
#include "compiler/syntax/diagnostic.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

/// The shape of something that is written at every step, as users see it.
std::vector<std::int64_t> per_step_shape(const CellGraph& cell, const Binding& binding,
                                         const std::vector<AxisId>& axes) {
  std::vector<std::int64_t> shape;
  if (binding.packed || !binding.batched)
    shape = {binding.length};
  else
    shape = {binding.batch, binding.length};
  for (const std::int64_t n : lengths(cell, binding.run, axes)) shape.push_back(n);
  return shape;
}

std::string text_of(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// Which option gave an array, and whose shape it must have.
struct Asked {
  const char *option, *shape_of;
};
constexpr Asked kCotangent{"--cotangent", "that of what the run writes"};
constexpr Asked kTangent{"--tangent", "that of what the run reads"};

/// The array as rows, where its shape is the one that is expected.
Array checked(const Asked& asked, const std::string& name, const GivenArray& given,
              const std::vector<std::int64_t>& expected, std::vector<std::int64_t> as_rows, const Binding& binding) {
  // A single sequence may come with its batch axis or without, as inputs may.
  const std::vector<std::int64_t>& shape = given.array.shape();
  std::int64_t count = 1, wanted = 1;
  for (const std::int64_t n : shape) count *= n;
  for (const std::int64_t n : expected) wanted *= n;
  const auto without_ones_before = [](std::vector<std::int64_t> of) {
    if (!of.empty() && of[0] == 1) of.erase(of.begin());
    return of;
  };
  const bool may_lack_batch = binding.batch == 1 && !binding.packed && count == wanted &&
                              (without_ones_before(shape) == expected || shape == without_ones_before(expected));
  if (shape != expected && !may_lack_batch)
    throw RequestError(fmt::format("{} {}: {} has the shape {}; expected {}, {}", asked.option, name, given.source,
                                   text_of(shape), text_of(expected), asked.shape_of));
  Array array = given.array;
  if (array.dtype() == Dtype::U16) {
    if (binding.dtype != Dtype::BF16)
      throw RequestError(fmt::format("{} {}: {} holds raw 16-bit numbers; --dtype bf16 says that they are bf16",
                                     asked.option, name, given.source));
    array.reinterpret(Dtype::BF16);
  }
  // Whole numbers of any width, as inputs may be.
  if (array.dtype() == Dtype::I64) array = convert(array, arithmetic_of(binding.dtype));
  return array.with_shape(std::move(as_rows));
}

/// What was given is among `names`, or it is an error that says what there is.
void refuse_unknown(const Asked& asked, const CellGraph& cell, const std::map<std::string, GivenArray>& given,
                    const std::vector<std::string>& names, const char* what, const char* does) {
  for (const auto& [name, array] : given) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = closest_name(name, names);
    throw RequestError(fmt::format("{} {}: cell {} has no {} '{}'{}", asked.option, name, cell.name, what, name,
                                   near.empty() ? fmt::format("; it {} {}", does, fmt::join(names, ", "))
                                                : fmt::format("; did you mean '{}'?", near)));
  }
}

/// The history [N, n, a…] of a state is where its lagging copies start, and what its delay line begins with.
void spread_history(const CellGraph& cell, std::size_t state, const Array& history, Tangents& tangents) {
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& companion = cell.symbols[s];
    if (companion.lag_of != static_cast<int>(state)) continue;
    std::vector<std::int64_t> shape = history.shape();
    const std::int64_t sequences = shape[0], depth = shape[1];
    shape.erase(shape.begin() + 1);
    Array start(history.dtype(), shape);
    const std::int64_t entries = sequences > 0 ? start.count() / sequences : 0;
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t i = 0; i < entries; ++i)
        start.set(b * entries + i, history.get((b * depth + companion.lag - 1) * entries + i));
    tangents.symbols[s] = std::move(start);
  }
  for (const DelayLine& line : delay_lines(cell))
    if (line.state == static_cast<int>(state)) tangents.histories[state] = history;
}

}  // namespace

Cotangents bind_cotangents(const CellGraph& cell, const Binding& binding,
                           const std::map<std::string, GivenArray>& given) {
  Cotangents result;
  result.states.resize(cell.updates.size());
  result.finals.resize(cell.updates.size());
  result.outs.resize(cell.outs.size());
  std::vector<std::string> names;
  for (const CotangentOf& of : cotangents_of(cell)) {
    if (of.copy) continue;
    names.push_back(of.name);
    const auto it = given.find(of.name);
    if (it == given.end()) continue;
    const std::vector<std::int64_t> as_rows = of.shape(cell, binding.run);
    (result.*of.kind)[of.id] =
        checked(kCotangent, of.name, it->second, of.per_step ? per_step_shape(cell, binding, of.axes) : as_rows,
                as_rows, binding);
  }
  refuse_unknown(kCotangent, cell, given, names, "state or out", "writes");
  return result;
}

Tangents bind_tangents(const CellGraph& cell, const Binding& binding, const std::map<std::string, GivenArray>& given) {
  Tangents result(cell);
  std::vector<std::string> names;
  const auto take = [&](const std::string& name, const std::vector<std::int64_t>& expected,
                        const std::vector<std::int64_t>& as_rows) -> std::optional<Array> {
    names.push_back(name);
    const auto it = given.find(name);
    if (it == given.end()) return std::nullopt;
    return checked(kTangent, name, it->second, expected, as_rows, binding);
  };
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of >= 0 || symbol.line_of >= 0) continue;
    const std::vector<std::int64_t>& shape = binding.run.symbols[s].shape();
    const bool input = symbol.kind == SymbolKind::Input, state = symbol.kind == SymbolKind::State;
    if (auto array = take(symbol.name, input ? per_step_shape(cell, binding, symbol.axes) : shape, shape))
      result.symbols[s] = std::move(*array);
    if (state) {
      const bool twice = given.contains(symbol.name);
      if (auto array = take(symbol.name + ".initial", shape, shape)) {
        if (twice)
          throw RequestError(fmt::format("--tangent {}.initial: it is given twice, as {} and as {}.initial",
                                         symbol.name, symbol.name, symbol.name));
        result.symbols[s] = std::move(*array);
      }
    }
    if (input && !binding.run.histories[s].shape().empty()) {
      const std::vector<std::int64_t>& history = binding.run.histories[s].shape();
      if (auto array = take(symbol.name + ".lag", history, history)) result.histories[s] = std::move(*array);
    }
    if (state && symbol.max_lag > 0) {
      std::vector<std::int64_t> history = shape;
      history.insert(history.begin() + 1, symbol.max_lag);
      if (const auto array = take(symbol.name + ".lag", history, history)) spread_history(cell, s, *array, result);
    }
  }
  refuse_unknown(kTangent, cell, given, names, "input, param, state or history", "reads");
  return result;
}

GivenSymbols given_symbols(const CellGraph& cell, const BindRequest& request, const Binding& binding) {
  GivenSymbols result;
  const auto has = [&](const std::string& name) {
    return request.inputs.contains(name) || request.params.contains(name) || request.states.contains(name) ||
           request.param_numbers.contains(name) ||
           std::find(binding.filled.begin(), binding.filled.end(), name) != binding.filled.end();
  };
  for (const Symbol& symbol : cell.symbols) {
    result.symbols.push_back(has(symbol.name));
    result.histories.push_back(has(symbol.name + ".lag"));
  }
  return result;
}

std::vector<std::pair<std::string, Array>> gradient_arrays(const CellGraph& cell, const Binding& binding,
                                                           const Gradients& gradients) {
  std::vector<std::pair<std::string, Array>> arrays;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of >= 0 || symbol.line_of >= 0) continue;
    const bool state = symbol.kind == SymbolKind::State, input = symbol.kind == SymbolKind::Input;
    const Array& found = gradients.symbols[s];
    arrays.emplace_back(fmt::format("grad.{}{}", symbol.name, state ? ".initial" : ""),
                        input ? found.with_shape(per_step_shape(cell, binding, symbol.axes)) : found);
    if (!gradients.histories[s].shape().empty())
      arrays.emplace_back(fmt::format("grad.{}.lag", symbol.name), gradients.histories[s]);
  }
  return arrays;
}

std::vector<std::pair<std::string, Array>> tangent_arrays(const CellGraph& cell, const Binding& binding,
                                                          const RunOutput& output) {
  std::vector<std::pair<std::string, Array>> arrays;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Symbol& state = cell.symbol_of(cell.updates[u]);
    if (state.lag_of >= 0) continue;
    arrays.emplace_back("tangent." + state.name,
                        output.states[u].with_shape(per_step_shape(cell, binding, state.axes)));
    arrays.emplace_back(fmt::format("tangent.{}.final", state.name), output.finals[u]);
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    arrays.emplace_back("tangent." + cell.outs[o].name,
                        output.outs[o].with_shape(per_step_shape(cell, binding, cell.outs[o].index)));
  return arrays;
}

}  // namespace cellc
