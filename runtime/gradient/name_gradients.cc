#include "runtime/gradient/name_gradients.h"

#include <fmt/format.h>

#include <algorithm>

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

std::vector<std::int64_t> with_leading(std::vector<std::int64_t> before, const CellGraph& cell, const Binding& binding,
                                       const std::vector<AxisId>& axes) {
  for (const std::int64_t n : lengths(cell, binding.run, axes)) before.push_back(n);
  return before;
}

std::string text_of(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// The array as rows, where its shape is the one that is expected.
Array checked(const std::string& name, const GivenArray& given, const std::vector<std::int64_t>& expected,
              std::vector<std::int64_t> as_rows) {
  const std::vector<std::int64_t>& shape = given.array.shape();
  // A single sequence may come with its batch axis or without.
  std::vector<std::int64_t> one = expected;
  one.insert(one.begin(), 1);
  if (shape != expected && shape != one)
    throw RequestError(fmt::format("--cotangent {}: {} has the shape {}; expected {}, that of what the run writes",
                                   name, given.source, text_of(shape), text_of(expected)));
  Array array = given.array;
  if (array.dtype() == Dtype::I64)
    throw RequestError(fmt::format("--cotangent {}: {} holds integers", name, given.source));
  if (array.dtype() == Dtype::U16) array.reinterpret(Dtype::BF16);
  return array.with_shape(std::move(as_rows));
}

}  // namespace

Cotangents bind_cotangents(const CellGraph& cell, const Binding& binding,
                           const std::map<std::string, GivenArray>& given) {
  Cotangents result;
  result.states.resize(cell.updates.size());
  result.finals.resize(cell.updates.size());
  result.outs.resize(cell.outs.size());
  std::map<std::string, bool> found;
  std::vector<std::string> names;
  const auto take = [&](const std::string& name, const std::vector<std::int64_t>& expected,
                        std::vector<std::int64_t> as_rows, Array& into) {
    names.push_back(name);
    const auto it = given.find(name);
    if (it == given.end()) return;
    found[name] = true;
    into = checked(name, it->second, expected, std::move(as_rows));
  };
  const std::int64_t rows = binding.run.offsets.back();
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Symbol& state = cell.symbol_of(cell.updates[u]);
    if (state.lag_of >= 0) continue;
    take(state.name, per_step_shape(cell, binding, state.axes), with_leading({rows}, cell, binding, state.axes),
         result.states[u]);
    take(state.name + ".final", with_leading({binding.batch}, cell, binding, state.axes),
         with_leading({binding.batch}, cell, binding, state.axes), result.finals[u]);
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    take(cell.outs[o].name, per_step_shape(cell, binding, cell.outs[o].index),
         with_leading({rows}, cell, binding, cell.outs[o].index), result.outs[o]);
  for (const auto& [name, array] : given) {
    if (found.contains(name)) continue;
    const std::string near = closest_name(name, names);
    throw RequestError(fmt::format("--cotangent {}: cell {} has no state or out '{}'{}", name, cell.name, name,
                                   near.empty() ? fmt::format("; it writes {}", fmt::join(names, ", "))
                                                : fmt::format("; did you mean '{}'?", near)));
  }
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
    if (symbol.lag_of >= 0) continue;
    const bool state = symbol.kind == SymbolKind::State, input = symbol.kind == SymbolKind::Input;
    const Array& found = gradients.symbols[s];
    arrays.emplace_back(fmt::format("grad.{}{}", symbol.name, state ? ".initial" : ""),
                        input ? found.with_shape(per_step_shape(cell, binding, symbol.axes)) : found);
    if (!gradients.histories[s].shape().empty())
      arrays.emplace_back(fmt::format("grad.{}.lag", symbol.name), gradients.histories[s]);
  }
  return arrays;
}

}  // namespace cellc
