#include "runtime/evaluate/reference_gradients.h"

#include <algorithm>
#include <utility>

#include "compiler/graph/delay_lines.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/data/threads.h"
#include "runtime/evaluate/plain_sweep.h"
#include "runtime/evaluate/reference.h"

namespace cellc {
namespace {

bool is_there(const std::vector<Array>& arrays, std::size_t i) {
  return i < arrays.size() && !arrays[i].shape().empty();
}

void add_to(Array& array, std::int64_t entry, double value) { array.set(entry, array.get(entry) + value); }

std::int64_t entries_per_row(const Array& array) { return array.shape()[0] > 0 ? array.count() / array.shape()[0] : 0; }

class PlainGradients {
 public:
  PlainGradients(const CellGraph& cell, const BoundRun& run, const Cotangents& cotangents)
      : cell_(cell), run_(run), cotangents_(cotangents), output_(reference_run(cell, run)), lines_(delay_lines(cell)) {
    for (const DelayLine& line : lines_) {
      const auto s = static_cast<std::size_t>(line.symbol);
      run_.histories[s] = history_as_started(cell, run, s);
    }
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      result_.symbols.emplace_back(Dtype::F64, run.symbols[s].shape());
      result_.histories.emplace_back(run.histories[s].shape().empty() ? Array()
                                                                      : Array(Dtype::F64, run.histories[s].shape()));
      std::vector<std::int64_t>& shape = shapes_.emplace_back();
      for (const AxisId a : cell.symbols[s].axes) shape.push_back(run.sizes.at(cell.graph.axis(a).extent_of));
      std::int64_t& count = entries_.emplace_back(1);
      for (const std::int64_t n : shape) count *= n;
    }
    update_of_.assign(cell.symbols.size(), 0);
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      update_of_[static_cast<std::size_t>(cell.updates[u].symbol)] = u;
  }

  /// Over all steps, last ones first.
  void through_steps() {
    const auto sequences = static_cast<std::int64_t>(run_.offsets.size()) - 1;
    const auto threads = static_cast<int>(std::clamp<std::int64_t>(sequences, 1, thread_count(run_.threads)));
    // Params belong to all sequences: each thread has sums of its own.
    std::vector<Params> params(static_cast<std::size_t>(threads));
    run_on_threads(threads, [&](int t) {
      Params& own = params[static_cast<std::size_t>(t)];
      for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
        own.emplace_back(cell_.symbols[s].kind == SymbolKind::Param ? static_cast<std::size_t>(entries_[s]) : 0);
      for (std::int64_t b = t; b < sequences; b += threads) through_sequence(b, own);
    });
    for (const Params& of_thread : params)
      for (std::size_t s = 0; s < of_thread.size(); ++s)
        for (std::size_t i = 0; i < of_thread[s].size(); ++i)
          add_to(result_.symbols[s], static_cast<std::int64_t>(i), of_thread[s][i]);
  }

  /// From starts and defaults that the cell computes to what they read, users first.
  void through_starts(const GivenSymbols& given) {
    for (const DelayLine& line : lines_) line_to_history(line, given);
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
      const int owner = cell_.symbols[s].lag_of;
      if (owner < 0) continue;
      const auto of = static_cast<std::size_t>(owner);
      copy_to_history(s, of);
      if (!given.histories[of])  // it starts as its state does
        for (std::int64_t i = 0; i < result_.symbols[s].count(); ++i)
          add_to(result_.symbols[of], i, result_.symbols[s].get(i));
    }
    const auto pass = [&](std::size_t s) {
      const Symbol& symbol = cell_.symbols[s];
      if (symbol.initial == kNoNode || symbol.lag_of >= 0 || given.symbols[s]) return;
      std::vector<double> total(static_cast<std::size_t>(entries_[s]));
      for (std::int64_t i = 0; i < result_.symbols[s].count(); ++i)
        total[static_cast<std::size_t>(i % entries_[s])] += result_.symbols[s].get(i);
      Environment environment;
      environment.sizes = run_.sizes;
      environment.read = [&](int of, const std::vector<std::int64_t>& position, int) {
        return run_.symbols[static_cast<std::size_t>(of)].get(flat(of, position));
      };
      Evaluator evaluator(cell_, environment);
      PlainSweep sweep(cell_, evaluator);
      sweep.seed(symbol.initial, symbol.index, total);
      sweep.run([&](int of, const std::vector<std::int64_t>& position, int, double c) {
        add_to(result_.symbols[static_cast<std::size_t>(of)], flat(of, position), c);
      });
    };
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
      if (cell_.symbols[s].kind == SymbolKind::State) pass(s);
    for (std::size_t s = cell_.symbols.size(); s-- > 0;)
      if (cell_.symbols[s].kind == SymbolKind::Param) pass(s);
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
      if (cell_.symbols[s].lag_of >= 0) result_.symbols[s] = Array();
  }

  Gradients take() { return std::move(result_); }

 private:
  using Params = std::vector<std::vector<double>>;  ///< by symbol; what is no param has none

  std::int64_t flat(int symbol, const std::vector<std::int64_t>& position) const {
    const std::vector<std::int64_t>& shape = shapes_[static_cast<std::size_t>(symbol)];
    std::int64_t entry = 0;
    for (std::size_t i = 0; i < position.size(); ++i) entry = entry * shape[i] + position[i];
    return entry;
  }

  /// The entry of an input `lag` steps before the `step`-th one that a sequence makes: of its rows, or of its history.
  struct Place {
    bool in_history;
    std::int64_t entry;
  };
  Place input_place(std::int64_t sequence, std::int64_t step, int symbol, std::int64_t entry, int lag) const {
    const auto s = static_cast<std::size_t>(symbol);
    if (lag <= step) return {false, row(sequence, step - lag) * entries_[s] + entry};
    return {true, (sequence * run_.histories[s].shape()[1] + (lag - step - 1)) * entries_[s] + entry};
  }
  std::int64_t row(std::int64_t sequence, std::int64_t step) const {
    const auto b = static_cast<std::size_t>(sequence);
    return run_.reverse ? run_.offsets[b + 1] - 1 - step : run_.offsets[b] + step;
  }

  double value(std::int64_t sequence, std::int64_t step, int symbol, std::int64_t entry, int lag) const {
    const auto s = static_cast<std::size_t>(symbol);
    switch (cell_.symbols[s].kind) {
      case SymbolKind::Param:
        return run_.symbols[s].get(entry);
      case SymbolKind::State:
        return step == 0 ? run_.symbols[s].get(sequence * entries_[s] + entry)
                         : output_.states[update_of_[s]].get(row(sequence, step - 1) * entries_[s] + entry);
      case SymbolKind::Input:
        break;
    }
    const Place place = input_place(sequence, step, symbol, entry, lag);
    if (place.in_history) return run_.histories[s].get(place.entry);
    const int state = cell_.symbols[s].line_of;
    return (state < 0 ? run_.symbols[s] : output_.states[update_of_[static_cast<std::size_t>(state)]]).get(place.entry);
  }

  void through_sequence(std::int64_t sequence, Params& params) {
    const auto b = static_cast<std::size_t>(sequence);
    std::int64_t step = run_.offsets[b + 1] - run_.offsets[b];
    // ∂L/∂ of each state after the step that comes next.
    std::vector<std::vector<double>> after;
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      const std::int64_t n = entries_[static_cast<std::size_t>(cell_.updates[u].symbol)];
      std::vector<double>& of = after.emplace_back(static_cast<std::size_t>(n));
      for (std::int64_t i = 0; is_there(cotangents_.finals, u) && i < n; ++i)
        of[static_cast<std::size_t>(i)] = cotangents_.finals[u].get(sequence * n + i);
    }
    // ∂L/∂ of rows that later steps have read through a delay line, by update.
    std::vector<std::vector<double>> through_lines(lines_.empty() ? 0 : cell_.updates.size());
    for (const DelayLine& line : lines_)
      through_lines[update_of_[static_cast<std::size_t>(line.state)]].resize(
          static_cast<std::size_t>(step * entries_[static_cast<std::size_t>(line.state)]));
    const std::int64_t first = run_.offsets[b];
    Environment environment;
    environment.sizes = run_.sizes;
    environment.read = [&](int s, const std::vector<std::int64_t>& position, int lag) {
      return value(sequence, step, s, flat(s, position), lag);
    };
    Evaluator evaluator(cell_, environment);
    while (--step >= 0) {
      evaluator.reset();
      PlainSweep sweep(cell_, evaluator);
      for (const DelayLine& line : lines_) {
        const std::size_t u = update_of_[static_cast<std::size_t>(line.state)];
        const std::int64_t n = entries_[static_cast<std::size_t>(line.state)];
        for (std::int64_t i = 0; i < n; ++i)
          after[u][static_cast<std::size_t>(i)] +=
              through_lines[u][static_cast<std::size_t>((row(sequence, step) - first) * n + i)];
      }
      seed_step(row(sequence, step), after, sweep);
      std::vector<std::vector<double>> before = after;
      for (auto& of : before) std::fill(of.begin(), of.end(), 0);
      sweep.run([&](int symbol, const std::vector<std::int64_t>& position, int lag, double c) {
        const auto s = static_cast<std::size_t>(symbol);
        const std::int64_t entry = flat(symbol, position);
        if (cell_.symbols[s].kind == SymbolKind::Param) {
          params[s][static_cast<std::size_t>(entry)] += c;
        } else if (cell_.symbols[s].kind == SymbolKind::State) {
          before[update_of_[s]][static_cast<std::size_t>(entry)] += c;
        } else {
          const Place place = input_place(sequence, step, symbol, entry, lag);
          if (const int state = cell_.symbols[s].line_of; state >= 0 && !place.in_history)
            through_lines[update_of_[static_cast<std::size_t>(state)]]
                         [static_cast<std::size_t>(place.entry - first * entries_[s])] += c;
          else
            add_to((place.in_history ? result_.histories : result_.symbols)[s], place.entry, c);
        }
      });
      after = std::move(before);
    }
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      const auto s = static_cast<std::size_t>(cell_.updates[u].symbol);
      for (std::size_t i = 0; i < after[u].size(); ++i)
        result_.symbols[s].set(sequence * entries_[s] + static_cast<std::int64_t>(i), after[u][i]);
    }
  }

  void seed_step(std::int64_t row, const std::vector<std::vector<double>>& after, PlainSweep& sweep) const {
    const auto row_of = [&](const Array& array) {
      std::vector<double> numbers(static_cast<std::size_t>(entries_per_row(array)));
      for (std::size_t i = 0; i < numbers.size(); ++i)
        numbers[i] = array.get(row * static_cast<std::int64_t>(numbers.size()) + static_cast<std::int64_t>(i));
      return numbers;
    };
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      const std::vector<AxisId>& index = cell_.symbol_of(cell_.updates[u]).index;
      sweep.seed(cell_.updates[u].value, index, after[u]);
      if (is_there(cotangents_.states, u)) sweep.seed(cell_.updates[u].value, index, row_of(cotangents_.states[u]));
    }
    for (std::size_t o = 0; o < cell_.outs.size(); ++o)
      if (is_there(cotangents_.outs, o))
        sweep.seed(cell_.outs[o].value, cell_.outs[o].index, row_of(cotangents_.outs[o]));
  }

  /// A delay line begins with its state's start, then comes the state's history, which begins with copies that lag.
  void line_to_history(const DelayLine& line, const GivenSymbols& given) {
    const auto state = static_cast<std::size_t>(line.state);
    const Array found = std::exchange(result_.histories[static_cast<std::size_t>(line.symbol)], Array());
    result_.symbols[static_cast<std::size_t>(line.symbol)] = Array();
    const std::int64_t n = entries_[state];
    std::vector<Array*> starts(static_cast<std::size_t>(line.deepest));
    starts[0] = &result_.symbols[state];
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
      if (cell_.symbols[s].lag_of == line.state)
        starts[static_cast<std::size_t>(cell_.symbols[s].lag)] = &result_.symbols[s];
    Array& history = history_of(state);
    for (std::int64_t i = 0; i < found.count(); ++i) {
      const std::int64_t sequence = i / n / line.deepest, back = i / n % line.deepest, entry = i % n;
      Array* const start = starts[static_cast<std::size_t>(back)];
      if (start)
        add_to(*start, sequence * n + entry, found.get(i));
      else
        add_to(history, (sequence * (line.deepest - 1) + back - 1) * n + entry, found.get(i));
      if (!start && !given.histories[state]) add_to(*starts[0], sequence * n + entry, found.get(i));
    }
  }

  Array& history_of(std::size_t state) {
    Array& history = result_.histories[state];
    if (history.shape().empty()) {
      std::vector<std::int64_t> shape = result_.symbols[state].shape();
      shape.insert(shape.begin() + 1, cell_.symbols[state].max_lag);
      history = Array(Dtype::F64, shape);
    }
    return history;
  }

  /// What lags a state is given, and named, as the state's history.
  void copy_to_history(std::size_t companion, std::size_t owner) {
    const Symbol& symbol = cell_.symbols[companion];
    const Array& start = result_.symbols[companion];
    const std::int64_t depth = cell_.symbols[owner].max_lag, n = entries_[companion];
    Array& history = history_of(owner);
    for (std::int64_t i = 0; i < start.count(); ++i)
      history.set((i / n * depth + symbol.lag - 1) * n + i % n, start.get(i));
  }

  const CellGraph& cell_;
  BoundRun run_;  ///< with the histories of delay lines
  const Cotangents& cotangents_;
  const RunOutput output_;
  const std::vector<DelayLine> lines_;
  Gradients result_;
  std::vector<std::vector<std::int64_t>> shapes_;  ///< by symbol: of one entry's row
  std::vector<std::int64_t> entries_;              ///< by symbol: their product
  std::vector<std::size_t> update_of_;             ///< by symbol
};

}  // namespace

Gradients reference_gradients(const CellGraph& cell, const BoundRun& run, const GivenSymbols& given,
                              const Cotangents& cotangents) {
  PlainGradients plain(cell, run, cotangents);
  plain.through_steps();
  plain.through_starts(given);
  return plain.take();
}

}  // namespace cellc
