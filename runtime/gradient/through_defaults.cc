#include "runtime/gradient/through_defaults.h"

#include <algorithm>
#include <optional>

#include "compiler/analysis/forward_mode.h"
#include "compiler/analysis/reverse_mode.h"
#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"
#include "compiler/graph/evaluate.h"
#include "runtime/data/bind.h"
#include "runtime/data/lagged_arrays.h"

namespace cellc {
namespace {

std::int64_t entries_of(const std::vector<std::int64_t>& lengths) {
  std::int64_t count = 1;
  for (const std::int64_t n : lengths) count *= n;
  return count;
}

/// The cell's starts and defaults in a graph that may grow. Behind the cell's symbols: their tangents, in the same
/// order; then a cotangent, and its tangent.
class Defaults {
 public:
  Defaults(const CellGraph& cell, const BoundRun& forward, const Tangents* tangents)
      : cell_(cell), forward_(forward), tangents_(tangents), work_(cell), own_(static_cast<int>(cell.symbols.size())) {
    for (const Symbol& s : cell.symbols) work_.symbols.push_back(s);
  }

  ForwardMode forward_mode() {
    return ForwardMode(work_.graph, [this](const Node& n) {
      const bool cotangent = n.symbol == 2 * own_;
      if (!cotangent && (!tangents_ || !is_given(tangents_->symbols[static_cast<std::size_t>(n.symbol)])))
        return kNoNode;
      return work_.graph.read(cotangent ? n.symbol + 1 : n.symbol + own_, n.index);
    });
  }

  /// How the tangents move the start or default of `symbol`.
  std::vector<double> moved(const Symbol& symbol) {
    ForwardMode forward = forward_mode();
    const NodeId tangent = forward(symbol.initial);
    Evaluator evaluator(work_, environment({}, {}));
    return evaluator.value_over(tangent, symbol.index).data;
  }

  struct Gradient {
    int symbol;
    std::vector<double> value, derivative;  ///< without `derivatives`: the first alone
  };
  /// Gradients of what the start or default of `symbol` reads, from cotangents of it and those's derivatives.
  std::vector<Gradient> gradients(const Symbol& symbol, const std::vector<double>& cotangent,
                                  const std::vector<double>& derivative) {
    for (int i = 0; i < 2; ++i) {
      Symbol given = symbol;
      given.kind = SymbolKind::Param;
      given.initial = kNoNode;
      if (static_cast<int>(work_.symbols.size()) < 2 * own_ + 2)
        work_.symbols.push_back(given);
      else
        work_.symbols[static_cast<std::size_t>(2 * own_ + i)] = given;
    }
    ReverseMode reverse(work_);
    reverse.seed(symbol.initial, symbol.index, work_.graph.read(2 * own_, plain_index(symbol.index)));
    const ReverseMode::Terms found = reverse.run();
    ForwardMode forward = forward_mode();
    Evaluator evaluator(work_, environment(cotangent, derivative));
    std::vector<Gradient> result;
    for (const auto& [read, terms] : found) {
      if (read.symbol >= own_) continue;
      const std::vector<AxisId>& index = cell_.symbols[static_cast<std::size_t>(read.symbol)].index;
      const NodeId value = sum_of(work_.graph, terms);
      Gradient gradient{read.symbol, evaluator.value_over(value, index).data, {}};
      if (!derivative.empty()) gradient.derivative = evaluator.value_over(forward(value), index).data;
      result.push_back(std::move(gradient));
    }
    return result;
  }

 private:
  Environment environment(std::vector<double> cotangent, std::vector<double> derivative) const {
    Environment environment;
    environment.sizes = forward_.sizes;
    environment.read = [this, given = std::vector{std::move(cotangent), std::move(derivative)}](
                           int s, const std::vector<std::int64_t>& position, int) {
      const std::vector<std::int64_t> shape = lengths(work_, forward_, work_.symbols[static_cast<std::size_t>(s)].axes);
      std::int64_t flat = 0;
      for (std::size_t i = 0; i < position.size(); ++i) flat = flat * shape[i] + position[i];
      if (s >= 2 * own_) return given[static_cast<std::size_t>(s - 2 * own_)][static_cast<std::size_t>(flat)];
      return s >= own_ ? tangents_->symbols[static_cast<std::size_t>(s - own_)].get(flat)
                       : forward_.symbols[static_cast<std::size_t>(s)].get(flat);
    };
    return environment;
  }

  const CellGraph& cell_;
  const BoundRun& forward_;
  const Tangents* tangents_;
  CellGraph work_;
  const int own_;
};

/// Starts read params, and a param's default reads params that are declared before it. Calls `visit` of each symbol
/// that was computed, users first.
template <typename Visit>
void each_default(const CellGraph& cell, const GivenSymbols& given, Visit&& visit) {
  const auto pass = [&](std::size_t s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.initial != kNoNode && symbol.lag_of < 0 && !given.symbols[s]) visit(s);
  };
  for (std::size_t s = 0; s < cell.symbols.size(); ++s)
    if (cell.symbols[s].kind != SymbolKind::Param) pass(s);
  for (std::size_t s = cell.symbols.size(); s-- > 0;)
    if (cell.symbols[s].kind == SymbolKind::Param) pass(s);
}

/// The copies that start as their state does, which is the case where no history was given.
template <typename Visit>
void each_companion(const CellGraph& cell, const GivenSymbols& given, Visit&& visit) {
  for (const Symbol& companion : cell.symbols)
    if (companion.lag_of >= 0 && !given.histories[static_cast<std::size_t>(companion.lag_of)]) visit(companion);
}

/// The same of states with a delay line; with the number of their copies, which is where the line goes on.
template <typename Visit>
void each_line(const CellGraph& cell, const GivenSymbols& given, Visit&& visit) {
  for (const DelayLine& line : delay_lines(cell)) {
    const auto state = static_cast<std::size_t>(line.state);
    const auto copies = std::count_if(cell.symbols.begin(), cell.symbols.end(),
                                      [&](const Symbol& s) { return s.lag_of == line.state; });
    if (!given.histories[state]) visit(state, static_cast<std::int64_t>(copies));
  }
}

void companions_to_starts(const CellGraph& cell, const GivenSymbols& given, Gradients& gradients) {
  each_companion(cell, given, [&](const Symbol& companion) {
    const Array& history = gradients.histories[static_cast<std::size_t>(companion.lag_of)];
    Array& start = gradients.symbols[static_cast<std::size_t>(companion.lag_of)];
    const std::int64_t depth = history.shape()[1], sequences = history.shape()[0];
    const std::int64_t entries = sequences > 0 ? start.count() / sequences : 0;
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t i = 0; i < entries; ++i) {
        const std::int64_t at_start = b * entries + i;
        start.set(at_start, start.get(at_start) + history.get((b * depth + companion.lag - 1) * entries + i));
      }
  });
  each_line(cell, given, [&](std::size_t state, std::int64_t companions) {
    const Array& history = gradients.histories[state];
    Array& start = gradients.symbols[state];
    const std::int64_t depth = history.shape()[1], sequences = history.shape()[0];
    const std::int64_t entries = sequences > 0 ? start.count() / sequences : 0;
    for (std::int64_t b = 0; b < sequences; ++b)
      for (std::int64_t j = companions; j < depth; ++j)
        for (std::int64_t i = 0; i < entries; ++i)
          start.set(b * entries + i, start.get(b * entries + i) + history.get((b * depth + j) * entries + i));
  });
}

std::vector<double> over_sequences(const Array& array, std::int64_t entries) {
  std::vector<double> sum(static_cast<std::size_t>(entries));
  for (std::int64_t i = 0; i < array.count(); ++i) sum[static_cast<std::size_t>(i % entries)] += array.get(i);
  return sum;
}

void add(const std::vector<double>& values, Array& into) {
  if (values.empty()) return;
  for (std::int64_t i = 0; i < into.count(); ++i)
    into.set(i, into.get(i) + values[static_cast<std::size_t>(i) % values.size()]);
}

void pass_gradients(const CellGraph& cell, const BoundRun& forward, const GivenSymbols& given, const Tangents* tangents,
                    Gradients& gradients, Gradients* derivative) {
  companions_to_starts(cell, given, gradients);
  if (derivative) companions_to_starts(cell, given, *derivative);
  std::optional<Defaults> defaults;  // it copies the graph, which small runs that have no default would feel
  each_default(cell, given, [&](std::size_t s) {
    if (!defaults) defaults.emplace(cell, forward, tangents);
    const Symbol& symbol = cell.symbols[s];
    const std::int64_t entries = entries_of(lengths(cell, forward, symbol.axes));
    const auto found =
        defaults->gradients(symbol, over_sequences(gradients.symbols[s], entries),
                            derivative ? over_sequences(derivative->symbols[s], entries) : std::vector<double>());
    for (const auto& gradient : found) {
      add(gradient.value, gradients.symbols[static_cast<std::size_t>(gradient.symbol)]);
      if (derivative) add(gradient.derivative, derivative->symbols[static_cast<std::size_t>(gradient.symbol)]);
    }
  });
}

}  // namespace

void through_defaults(const CellGraph& cell, const BoundRun& forward, const GivenSymbols& given, Gradients& gradients) {
  pass_gradients(cell, forward, given, nullptr, gradients, nullptr);
}

void through_defaults(const CellGraph& cell, const BoundRun& forward, const GivenSymbols& given,
                      const Tangents& tangents, Gradients& gradients, Gradients& derivative) {
  pass_gradients(cell, forward, given, &tangents, gradients, &derivative);
}

void tangents_through_defaults(const CellGraph& cell, const BoundRun& forward, const GivenSymbols& given,
                               Tangents& tangents) {
  std::vector<std::size_t> order;
  each_default(cell, given, [&](std::size_t s) { order.push_back(s); });
  std::optional<Defaults> defaults;
  if (!order.empty()) defaults.emplace(cell, forward, &tangents);
  const auto total = [&](std::size_t s, const std::function<double(std::int64_t)>& more) {
    Array sum(forward.symbols[s].dtype() == Dtype::F64 ? Dtype::F64 : Dtype::F32, forward.symbols[s].shape());
    const Array& own = tangents.symbols[s];
    for (std::int64_t i = 0; i < sum.count(); ++i) sum.set(i, (is_given(own) ? own.get(i) : 0) + more(i));
    tangents.symbols[s] = std::move(sum);
  };
  for (auto s = order.rbegin(); s != order.rend(); ++s) {
    const std::vector<double> moved = defaults->moved(cell.symbols[*s]);
    if (std::all_of(moved.begin(), moved.end(), [](double v) { return v == 0; })) continue;
    total(*s, [&](std::int64_t i) { return moved[static_cast<std::size_t>(i) % moved.size()]; });
  }
  each_companion(cell, given, [&](const Symbol& companion) {
    const Array start = tangents.symbols[static_cast<std::size_t>(companion.lag_of)];
    if (!is_given(start)) return;
    total(static_cast<std::size_t>(&companion - cell.symbols.data()), [&](std::int64_t i) { return start.get(i); });
  });
  each_line(cell, given, [&](std::size_t state, std::int64_t) {
    const Array& start = tangents.symbols[state];
    if (!is_given(start)) return;
    Array sum = history_of_start(start, cell.symbols[state].max_lag);
    const Array& own = tangents.histories[state];
    for (std::int64_t i = 0; is_given(own) && i < sum.count(); ++i) sum.set(i, sum.get(i) + own.get(i));
    tangents.histories[state] = std::move(sum);
  });
}

}  // namespace cellc
