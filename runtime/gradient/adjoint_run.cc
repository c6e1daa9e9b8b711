#include "runtime/gradient/adjoint_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/delay_lines.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/gradient/shifted_rows.h"

namespace cellc {
namespace {

std::vector<std::int64_t> with_rows(std::int64_t rows, std::vector<std::int64_t> lengths) {
  lengths.insert(lengths.begin(), rows);
  return lengths;
}

Array copied(const Array& array) {
  Array copy = Array::uninitialised(array.dtype(), array.shape());
  if (copy.count() > 0)
    std::memcpy(copy.data(), array.data(), static_cast<std::size_t>(copy.count()) * size_of(copy.dtype()));
  return copy;
}

}  // namespace

std::vector<std::int64_t> CotangentOf::shape(const CellGraph& cell, const BoundRun& run) const {
  return with_rows(per_step ? run.offsets.back() : static_cast<std::int64_t>(run.offsets.size()) - 1,
                   lengths(cell, run, axes));
}

std::vector<CotangentOf> cotangents_of(const CellGraph& cell) {
  std::vector<CotangentOf> all;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Symbol& state = cell.symbol_of(cell.updates[u]);
    const bool copy = state.lag_of >= 0;
    all.push_back({state.name, &Cotangents::states, u, state.axes, true, copy});
    all.push_back({state.name + ".final", &Cotangents::finals, u, state.axes, false, copy});
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    all.push_back({cell.outs[o].name, &Cotangents::outs, o, cell.outs[o].index, true, false});
  return all;
}

AdjointOf results_with(const Cotangents& cotangents, bool on_gpu) {
  AdjointOf of;
  of.multiplies_factors = on_gpu;
  for (const Array& a : cotangents.states) of.states.push_back(!a.shape().empty());
  for (const Array& a : cotangents.outs) of.outs.push_back(!a.shape().empty());
  return of;
}

AdjointOf with_lines(const CellGraph& cell, AdjointOf of) {
  for (std::size_t u = 0; u < of.states.size(); ++u)
    for (const DelayLine& line : delay_lines(cell)) of.states[u] = of.states[u] || line.state == cell.updates[u].symbol;
  return of;
}

AdjointRun::AdjointRun(const CellGraph& cell, const AdjointOf& of, const DeriveHooks& hooks)
    : whole_(cell), adjoint_(adjoint_of(cell, of, hooks)) {
  const Jacobian jacobian = differentiate(adjoint_.adjoint.cell);
  structure_ = analyse(adjoint_.adjoint.cell, jacobian);
}

std::optional<std::int64_t> AdjointRun::along(const BoundRun& forward, const ArrayRead& read) const {
  if (read.lag_axis == kNoAxis) return std::nullopt;
  return lengths(cell(), forward, {read.lag_axis})[0];
}

void AdjointRun::check_kept(const Wanted& wanted) const {
  cellc::check_kept(whole_, adjoint_.adjoint, wanted, "gradients");
}

void AdjointRun::check(const BoundRun& forward, const Cotangents& cotangents) const {
  for (const CotangentOf& of : cotangents_of(whole_)) {
    const std::vector<Array>& arrays = cotangents.*of.kind;
    if (of.id >= arrays.size() || arrays[of.id].shape().empty()) continue;
    if (const auto shape = of.shape(whole_, forward); arrays[of.id].shape() != shape)
      throw RequestError(fmt::format("the cotangent of {} has the shape [{}] where [{}] is needed", of.name,
                                     fmt::join(arrays[of.id].shape(), ", "), fmt::join(shape, ", ")));
  }
}

BoundRun AdjointRun::bind(const BoundRun& forward, const RunOutput& output, const Cotangents& cotangents,
                          Dtype arithmetic, BoundRun reuse) const {
  const CellGraph& adjoint = cell();
  reuse.symbols.resize(adjoint.symbols.size());
  BoundRun run;
  run.sizes = forward.sizes;
  run.offsets = forward.offsets;
  run.reverse = !forward.reverse;
  run.threads = forward.threads;
  run.symbols.resize(adjoint.symbols.size());
  run.histories.resize(adjoint.symbols.size());
  const std::int64_t rows = forward.offsets.back(), sequences = static_cast<std::int64_t>(forward.offsets.size()) - 1;
  check_kept(forward.wanted);
  check(forward, cotangents);
  const auto given = [&](const Array& array, std::int64_t count, const Symbol& symbol) {
    if (array.shape().empty()) return Array(arithmetic, with_rows(count, lengths(adjoint, forward, symbol.axes)));
    return convert(array, arithmetic);
  };
  const auto lagged = [&](const ArrayRead& read) {
    const auto symbol = static_cast<std::size_t>(read.symbol);
    return lagged_rows(forward, convert(rows_of_symbol(whole_, forward, output, symbol), arithmetic),
                       convert(whole_.symbols[symbol].line_of < 0 ? forward.histories[symbol]
                                                                  : history_as_started(whole_, forward, symbol),
                               arithmetic),
                       read.lag, along(forward, read));
  };
  for (std::size_t s = 0; s < adjoint.symbols.size(); ++s) {
    const ArraySource& source = adjoint_.adjoint.sources[s];
    const auto id = static_cast<std::size_t>(source.id);
    Array& array = run.symbols[s];
    switch (source.kind) {
      case ArraySource::Kind::Symbol:
        array = convert(forward.symbols[id], arithmetic);
        break;
      case ArraySource::Kind::Previous:
        array = previous_rows(forward, convert(output.states[id], arithmetic),
                              convert(forward.symbols[static_cast<std::size_t>(whole_.updates[id].symbol)], arithmetic),
                              std::move(reuse.symbols[s]));
        break;
      case ArraySource::Kind::Lagged:
        array = lagged(adjoint_.lagged[id]);
        break;
      case ArraySource::Kind::Cotangent:
        array = given(cotangents.states[id], rows, adjoint.symbols[s]);
        break;
      case ArraySource::Kind::OutCotangent:
        array = given(cotangents.outs[id], rows, adjoint.symbols[s]);
        break;
      case ArraySource::Kind::Adjoint:
        array = given(id < cotangents.finals.size() ? cotangents.finals[id] : Array(), sequences, adjoint.symbols[s]);
        break;
      case ArraySource::Kind::Start: {  // nothing is under way through a delay line
        const Symbol& symbol = adjoint.symbols[s];
        std::vector<std::int64_t> shape = with_rows(sequences, lengths(adjoint, forward, symbol.axes));
        if (symbol.line_of >= 0) shape.insert(shape.begin() + 1, symbol.max_lag);
        (symbol.line_of >= 0 ? run.histories[s] : array) = Array(arithmetic, shape);
        break;
      }
      default:
        throw std::logic_error("adjoint: an array that it does not read");
    }
  }
  return run;
}

Gradients AdjointRun::rows(const BoundRun& forward, const RunOutput& output) const {
  const CellGraph& adjoint = cell();
  const std::vector<ArraySink>& sinks = adjoint_.adjoint.sinks;
  const Dtype dtype =
      output.finals.empty() ? (output.outs.empty() ? Dtype::F32 : output.outs[0].dtype()) : output.finals[0].dtype();
  Gradients gradients;
  gradients.symbols.resize(whole_.symbols.size());
  gradients.histories.resize(whole_.symbols.size());
  for (std::size_t o = 0; o < adjoint.outs.size(); ++o)
    if (const ArraySink& sink = sinks[adjoint.updates.size() + o]; sink.kind == ArraySink::Kind::Gradient)
      gradients.symbols[static_cast<std::size_t>(sink.id)] = output.outs[o];
  for (std::size_t u = 0; u < whole_.updates.size(); ++u)
    gradients.symbols[static_cast<std::size_t>(whole_.updates[u].symbol)] = output.finals[u];
  for (std::size_t s = 0; s < whole_.symbols.size(); ++s) {
    if (gradients.symbols[s].shape().empty() && whole_.symbols[s].kind != SymbolKind::State &&
        whole_.symbols[s].line_of < 0)
      gradients.symbols[s] = Array(dtype, forward.symbols[s].shape());
    if (!forward.histories[s].shape().empty()) gradients.histories[s] = Array(dtype, forward.histories[s].shape());
  }
  for (std::size_t o = 0; o < adjoint.outs.size(); ++o)
    if (const ArraySink& sink = sinks[adjoint.updates.size() + o]; sink.kind == ArraySink::Kind::LaggedGradient) {
      const ArrayRead& read = adjoint_.lagged[static_cast<std::size_t>(sink.id)];
      const auto symbol = static_cast<std::size_t>(read.symbol);
      Array& input = gradients.symbols[symbol];
      if (!input.is_sole_owner()) input = copied(input);  // an out that may be a factor of a param's gradient
      add_lagged_rows(forward, output.outs[o], read.lag, along(forward, read), input, gradients.histories[symbol]);
    }
  for (std::size_t u = whole_.updates.size(); u < adjoint.updates.size(); ++u) {
    const ArrayRead& read = adjoint_.lagged[static_cast<std::size_t>(sinks[u].id)];
    Array& history = gradients.histories[static_cast<std::size_t>(read.symbol)];
    if (history.dtype() != output.states[u].dtype()) history = Array(output.states[u].dtype(), history.shape());
    add_lagged_history(forward, output.states[u], read.lag, history);
  }
  return gradients;
}

void AdjointRun::add_products(const BoundRun& forward, const FactorArrays& left, const FactorArrays& right, bool single,
                              const SumOverSteps& sum, Gradients& gradients) const {
  for (const ParamGradient& param : adjoint_.params)
    for (const StepProduct& product : param.products) {
      if (!product.right && !single) continue;
      sum({cell(), left.bound.sizes, product, left.of(product.left),
           product.right ? &right.of(*product.right) : nullptr,
           whole_.symbols[static_cast<std::size_t>(param.symbol)].index,
           gradients.symbols[static_cast<std::size_t>(param.symbol)], forward.threads});
    }
}

Gradients AdjointRun::gather(const BoundRun& forward, const BoundRun& bound, const RunOutput& output,
                             const SumOverSteps& sum) const {
  Gradients gradients = rows(forward, output);
  const FactorArrays factors{bound, output};
  add_products(forward, factors, factors, true, sum, gradients);
  move_to_histories(gradients);
  return gradients;
}

Gradients AdjointRun::gather_tangent(const BoundRun& forward, const AdjointArrays& at, const AdjointArrays& tangent,
                                     const SumOverSteps& sum) const {
  Gradients gradients = rows(forward, tangent.output);
  const FactorArrays still{at.bound, at.output}, moved{tangent.bound, tangent.output};
  add_products(forward, moved, still, true, sum, gradients);
  add_products(forward, still, moved, false, sum, gradients);
  move_to_histories(gradients);
  return gradients;
}

void AdjointRun::move_to_histories(Gradients& gradients) const {
  // Copies that lag are a history of their state's.
  for (std::size_t s = 0; s < whole_.symbols.size(); ++s) {
    const Symbol& companion = whole_.symbols[s];
    if (companion.lag_of < 0) continue;
    const auto owner = static_cast<std::size_t>(companion.lag_of);
    const Array& found = gradients.symbols[s];
    std::vector<std::int64_t> shape = found.shape();
    const std::int64_t depth = whole_.symbols[owner].max_lag, entries = shape[0] > 0 ? found.count() / shape[0] : 0;
    shape.insert(shape.begin() + 1, depth);
    Array& history = gradients.histories[owner];
    if (history.shape().empty()) history = Array(found.dtype(), shape);
    for (std::int64_t b = 0; b < shape[0] && entries > 0; ++b)
      std::memcpy(at(history, (b * depth + companion.lag - 1) * entries), at(found, b * entries),
                  static_cast<std::size_t>(entries) * size_of(found.dtype()));
  }
  for (std::size_t s = 0; s < whole_.symbols.size(); ++s)
    if (whole_.symbols[s].lag_of >= 0) gradients.symbols[s] = Array();
  for (const DelayLine& line : delay_lines(whole_)) line_to_history(gradients, line);
}

/// A delay line begins with its state's start; the rest of it is the state's history.
void AdjointRun::line_to_history(Gradients& gradients, const DelayLine& line) const {
  const auto state = static_cast<std::size_t>(line.state);
  const Array found = std::exchange(gradients.histories[static_cast<std::size_t>(line.symbol)], Array());
  std::vector<std::int64_t> shape = found.shape();
  const std::int64_t depth = --shape[1], parts = shape[0] * depth,
                     entries = parts > 0 ? found.count() / (parts + shape[0]) : 0;
  Array& history = gradients.histories[state];
  if (history.shape().empty()) history = Array(found.dtype(), shape);
  Array& start = gradients.symbols[state];
  if (!start.is_sole_owner()) start = copied(start);
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t j = 0; j <= depth; ++j)
      for (std::int64_t i = 0; i < entries; ++i) {
        Array& to = j == 0 ? start : history;
        const std::int64_t at = (j == 0 ? b : b * depth + j - 1) * entries + i;
        to.set(at, to.get(at) + found.get((b * (depth + 1) + j) * entries + i));
      }
}

}  // namespace cellc
