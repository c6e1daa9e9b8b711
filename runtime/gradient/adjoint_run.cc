#include "runtime/gradient/adjoint_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/evaluate.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

std::int64_t entries_of(const std::vector<std::int64_t>& lengths) {
  std::int64_t count = 1;
  for (const std::int64_t n : lengths) count *= n;
  return count;
}

std::vector<std::int64_t> with_rows(std::int64_t rows, std::vector<std::int64_t> lengths) {
  lengths.insert(lengths.begin(), rows);
  return lengths;
}

/// Rows of one sequence by the order in which a run meets them.
struct Steps {
  std::int64_t begin, count;
  bool reverse;
  Steps(const BoundRun& run, std::size_t sequence)
      : begin(run.offsets[sequence]), count(run.offsets[sequence + 1] - begin), reverse(run.reverse) {}
  std::int64_t row(std::int64_t step) const { return reverse ? begin + count - 1 - step : begin + step; }
};

std::byte* at(Array& array, std::int64_t entry) {
  return static_cast<std::byte*>(array.data()) + static_cast<std::size_t>(entry) * size_of(array.dtype());
}
const std::byte* at(const Array& array, std::int64_t entry) {
  return static_cast<const std::byte*>(array.data()) + static_cast<std::size_t>(entry) * size_of(array.dtype());
}

/// The trajectory one step before, which begins with the start.
Array previous_rows(const BoundRun& run, const Array& trajectory, const Array& start, Array reuse) {
  const bool fits = reuse.shape() == trajectory.shape() && reuse.dtype() == trajectory.dtype() && reuse.is_sole_owner();
  Array result = fits ? std::move(reuse) : Array::uninitialised(trajectory.dtype(), trajectory.shape());
  const std::int64_t rows = run.offsets.back(), entries = rows > 0 ? trajectory.count() / rows : 0;
  const std::size_t bytes = static_cast<std::size_t>(entries) * size_of(trajectory.dtype());
  if (bytes == 0) return result;
  for (std::size_t b = 0; b + 1 < run.offsets.size(); ++b) {
    const Steps steps(run, b);
    for (std::int64_t t = 0; t < steps.count; ++t)
      std::memcpy(
          at(result, steps.row(t) * entries),
          t == 0 ? at(start, static_cast<std::int64_t>(b) * entries) : at(trajectory, steps.row(t - 1) * entries),
          bytes);
  }
  return result;
}

}  // namespace

AdjointOf results_with(const Cotangents& cotangents) {
  AdjointOf of;
  for (const Array& a : cotangents.states) of.states.push_back(!a.shape().empty());
  for (const Array& a : cotangents.outs) of.outs.push_back(!a.shape().empty());
  return of;
}

AdjointRun::AdjointRun(const CellGraph& cell, const AdjointOf& of, const DeriveHooks& hooks)
    : whole_(cell), adjoint_(adjoint_of(cell, of, hooks)) {
  const Jacobian jacobian = differentiate(adjoint_.adjoint.cell);
  structure_ = analyse(adjoint_.adjoint.cell, jacobian);
}

Array AdjointRun::lagged_rows(const BoundRun& forward, const ArrayRead& read, Dtype dtype) const {
  const Array input = convert(forward.symbols[static_cast<std::size_t>(read.symbol)], dtype);
  const Array history = convert(forward.histories[static_cast<std::size_t>(read.symbol)], dtype);
  const std::vector<AxisId>& axes = whole_.symbols[static_cast<std::size_t>(read.symbol)].axes;
  const std::int64_t rows = forward.offsets.back(), entries = entries_of(lengths(whole_, forward, axes));
  const std::int64_t along = read.lag_axis == kNoAxis ? 1 : lengths(cell(), forward, {read.lag_axis})[0];
  std::vector<std::int64_t> shape = with_rows(rows, lengths(whole_, forward, axes));
  if (read.lag_axis != kNoAxis) shape.push_back(along);
  Array result = Array::uninitialised(dtype, shape);
  const std::int64_t depth = history.shape().size() > 1 ? history.shape()[1] : 0;
  const std::size_t size = size_of(dtype);
  for (std::size_t b = 0; b + 1 < forward.offsets.size(); ++b) {
    const Steps steps(forward, b);
    for (std::int64_t t = 0; t < steps.count; ++t)
      for (std::int64_t w = 0; w < along; ++w) {
        const std::int64_t from = t - read.lag - w;
        const std::byte* source = from >= 0 ? at(input, steps.row(from) * entries)
                                            : at(history, (static_cast<std::int64_t>(b) * depth - from - 1) * entries);
        for (std::int64_t i = 0; i < entries; ++i)
          std::memcpy(at(result, (steps.row(t) * entries + i) * along + w), source + static_cast<std::size_t>(i) * size,
                      size);
      }
  }
  return result;
}

void AdjointRun::check(const BoundRun& forward, const Cotangents& cotangents) const {
  const std::int64_t rows = forward.offsets.back(), sequences = static_cast<std::int64_t>(forward.offsets.size()) - 1;
  const auto check = [&](const std::string& name, const std::vector<Array>& arrays, std::size_t i, std::int64_t count,
                         const std::vector<AxisId>& axes) {
    if (i >= arrays.size() || arrays[i].shape().empty()) return;
    const std::vector<std::int64_t> shape = with_rows(count, lengths(whole_, forward, axes));
    if (arrays[i].shape() != shape)
      throw RequestError(fmt::format("the cotangent of {} has the shape [{}] where [{}] is needed", name,
                                     fmt::join(arrays[i].shape(), ", "), fmt::join(shape, ", ")));
  };
  for (std::size_t u = 0; u < whole_.updates.size(); ++u) {
    const Symbol& state = whole_.symbol_of(whole_.updates[u]);
    check(state.name, cotangents.states, u, rows, state.axes);
    check(state.name + ".final", cotangents.finals, u, sequences, state.axes);
  }
  for (std::size_t o = 0; o < whole_.outs.size(); ++o)
    check(whole_.outs[o].name, cotangents.outs, o, rows, whole_.outs[o].index);
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
  check(forward, cotangents);
  const auto given = [&](const Array& array, std::int64_t count, const Symbol& symbol) {
    if (array.shape().empty()) return Array(arithmetic, with_rows(count, lengths(adjoint, forward, symbol.axes)));
    return convert(array, arithmetic);
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
        array = lagged_rows(forward, adjoint_.lagged[id], arithmetic);
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
      default:
        throw std::logic_error("adjoint: an array that it does not read");
    }
  }
  return run;
}

void AdjointRun::add_lagged(const BoundRun& forward, const ArrayRead& read, const Array& contributed,
                            Gradients& gradients) const {
  Array& input = gradients.symbols[static_cast<std::size_t>(read.symbol)];
  Array& history = gradients.histories[static_cast<std::size_t>(read.symbol)];
  const std::vector<AxisId>& axes = whole_.symbols[static_cast<std::size_t>(read.symbol)].axes;
  const std::int64_t entries = entries_of(lengths(whole_, forward, axes));
  const std::int64_t along = read.lag_axis == kNoAxis ? 1 : lengths(cell(), forward, {read.lag_axis})[0];
  const std::int64_t depth = history.shape().size() > 1 ? history.shape()[1] : 0;
  for (std::size_t b = 0; b + 1 < forward.offsets.size(); ++b) {
    const Steps steps(forward, b);
    for (std::int64_t t = 0; t < steps.count; ++t)
      for (std::int64_t w = 0; w < along; ++w) {
        const std::int64_t from = t - read.lag - w;
        Array& to = from >= 0 ? input : history;
        const std::int64_t first =
            from >= 0 ? steps.row(from) * entries : (static_cast<std::int64_t>(b) * depth - from - 1) * entries;
        for (std::int64_t i = 0; i < entries; ++i)
          to.set(first + i, to.get(first + i) + contributed.get((steps.row(t) * entries + i) * along + w));
      }
  }
}

Gradients AdjointRun::gather(const BoundRun& forward, const BoundRun& bound, const RunOutput& output,
                             const std::function<void(const StepSum&)>& sum) const {
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
    if (gradients.symbols[s].shape().empty() && whole_.symbols[s].kind != SymbolKind::State)
      gradients.symbols[s] = Array(dtype, forward.symbols[s].shape());
    if (!forward.histories[s].shape().empty()) gradients.histories[s] = Array(dtype, forward.histories[s].shape());
  }
  for (std::size_t o = 0; o < adjoint.outs.size(); ++o)
    if (const ArraySink& sink = sinks[adjoint.updates.size() + o]; sink.kind == ArraySink::Kind::LaggedGradient)
      add_lagged(forward, adjoint_.lagged[static_cast<std::size_t>(sink.id)], output.outs[o], gradients);
  const auto array_of = [&](const StepFactor& f) -> const Array& {
    return f.is_out ? output.outs[static_cast<std::size_t>(f.id)] : bound.symbols[static_cast<std::size_t>(f.id)];
  };
  for (const ParamGradient& param : adjoint_.params)
    for (const StepProduct& product : param.products)
      sum({adjoint, bound.sizes, product, array_of(product.left), product.right ? &array_of(*product.right) : nullptr,
           whole_.symbols[static_cast<std::size_t>(param.symbol)].index,
           gradients.symbols[static_cast<std::size_t>(param.symbol)], forward.threads});
  join_histories(gradients);
  return gradients;
}

void AdjointRun::join_histories(Gradients& gradients) const {
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
}

namespace {

/// Cotangents of what `value`, over `index`, reads: by symbol, in f64.
void add_read_gradients(const CellGraph& cell, const BoundRun& forward, const Symbol& symbol,
                        const std::vector<double>& cotangent, Gradients& gradients) {
  CellGraph work = cell;
  Symbol given;
  given.name = "cotangent";
  given.kind = SymbolKind::Param;
  given.axes = symbol.axes;
  given.index = symbol.index;
  const int number = static_cast<int>(work.symbols.size());
  work.symbols.push_back(given);
  std::vector<Index> index;
  for (const AxisId a : symbol.index) index.push_back({a, 0});
  ReverseMode reverse(work);
  reverse.seed(symbol.initial, symbol.index, work.graph.read(number, index));
  const ReverseMode::Terms found = reverse.run();

  Environment environment;
  environment.sizes = forward.sizes;
  environment.read = [&](int s, const std::vector<std::int64_t>& position, int) {
    const std::vector<std::int64_t> shape = lengths(work, forward, work.symbols[static_cast<std::size_t>(s)].axes);
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < position.size(); ++i) flat = flat * shape[i] + position[i];
    return s == number ? cotangent[static_cast<std::size_t>(flat)]
                       : forward.symbols[static_cast<std::size_t>(s)].get(flat);
  };
  Evaluator evaluator(work, environment);
  for (const auto& [read, terms] : found) {
    if (read.symbol == number) continue;
    const Symbol& param = cell.symbols[static_cast<std::size_t>(read.symbol)];
    const Tensor value = evaluator.value_over(sum_of(work.graph, terms), param.index);
    Array& into = gradients.symbols[static_cast<std::size_t>(read.symbol)];
    for (std::int64_t i = 0; i < into.count(); ++i) into.set(i, into.get(i) + value.data[static_cast<std::size_t>(i)]);
  }
}

}  // namespace

void through_defaults(const CellGraph& cell, const BoundRun& forward, const GivenSymbols& given, Gradients& gradients) {
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& companion = cell.symbols[s];
    if (companion.lag_of < 0 || given.histories[static_cast<std::size_t>(companion.lag_of)]) continue;
    const Array& history = gradients.histories[static_cast<std::size_t>(companion.lag_of)];
    Array& start = gradients.symbols[static_cast<std::size_t>(companion.lag_of)];
    const std::int64_t depth = history.shape()[1], sequences = history.shape()[0];
    const std::int64_t entries = sequences > 0 ? start.count() / sequences : 0;
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t i = 0; i < entries; ++i) {
        const std::int64_t at_start = b * entries + i;
        start.set(at_start, start.get(at_start) + history.get((b * depth + companion.lag - 1) * entries + i));
      }
  }
  // Starts read params, and a param's default reads params that are declared before it.
  const auto pass = [&](std::size_t s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.initial == kNoNode || symbol.lag_of >= 0 || given.symbols[s]) return;
    const Array& found = gradients.symbols[s];
    const std::int64_t entries = entries_of(lengths(cell, forward, symbol.axes));
    std::vector<double> cotangent(static_cast<std::size_t>(entries));
    for (std::int64_t i = 0; i < found.count(); ++i) cotangent[static_cast<std::size_t>(i % entries)] += found.get(i);
    add_read_gradients(cell, forward, symbol, cotangent, gradients);
  };
  for (std::size_t s = 0; s < cell.symbols.size(); ++s)
    if (cell.symbols[s].kind != SymbolKind::Param) pass(s);
  for (std::size_t s = cell.symbols.size(); s-- > 0;)
    if (cell.symbols[s].kind == SymbolKind::Param) pass(s);
}

}  // namespace cellc
