#include "runtime/evaluate/reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>

#include "compiler/graph/delay_lines.h"
#include "compiler/graph/evaluate.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/data/threads.h"
#include "runtime/evaluate/row_difference.h"

namespace cellc {
namespace {

std::vector<double> as_doubles(const Array& array) {
  std::vector<double> values(static_cast<std::size_t>(array.count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = array.get(static_cast<std::int64_t>(i));
  return values;
}

/// Everything that sequences share.
struct Shared {
  const CellGraph& cell;
  const BoundRun& run;
  std::vector<std::vector<double>> params;       // by symbol
  std::vector<std::vector<std::int64_t>> sizes;  // by symbol: lengths of its axes
  std::vector<std::int64_t> entries;             // by symbol: their product
  std::vector<int> update_of;                    // by symbol: position in updates, or -1
  std::map<int, Array> lines;                    // by delay line: its history

  Shared(const CellGraph& c, const BoundRun& r) : cell(c), run(r) {
    for (const Symbol& symbol : c.symbols) {
      std::vector<std::int64_t> shape;
      std::int64_t count = 1;
      for (const AxisId a : symbol.axes) {
        shape.push_back(r.sizes.at(c.graph.axis(a).extent_of));
        count *= shape.back();
      }
      sizes.push_back(shape);
      entries.push_back(count);
      const std::size_t s = params.size();
      params.push_back(symbol.kind == SymbolKind::Param ? as_doubles(r.symbols[s]) : std::vector<double>{});
    }
    for (const DelayLine& line : delay_lines(c))
      lines[line.symbol] = history_as_started(c, r, static_cast<std::size_t>(line.symbol));
    update_of.assign(c.symbols.size(), -1);
    for (std::size_t u = 0; u < c.updates.size(); ++u) update_of[c.updates[u].symbol] = static_cast<int>(u);
  }
};

std::int64_t product(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  return count;
}

void run_sequence(const Shared& shared, std::int64_t sequence, const std::function<double(double)>& rounded,
                  RunOutput& output) {
  const CellGraph& cell = shared.cell;
  const BoundRun& run = shared.run;
  const std::int64_t begin = run.offsets[sequence], steps = run.offsets[sequence + 1] - begin;

  std::vector<std::vector<double>> state(cell.updates.size());
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const int s = cell.updates[u].symbol;
    state[u].resize(static_cast<std::size_t>(shared.entries[s]));
    for (std::size_t i = 0; i < state[u].size(); ++i)
      state[u][i] = run.symbols[s].get(sequence * shared.entries[s] + static_cast<std::int64_t>(i));
  }

  std::int64_t step = 0;  // counted in the order of the run
  const auto row_of = [&](std::int64_t t) { return run.reverse ? begin + steps - 1 - t : begin + t; };

  Environment environment;
  environment.sizes = run.sizes;
  environment.rounded = rounded;
  environment.read = [&](int s, const std::vector<std::int64_t>& position, int lag) {
    const auto& shape = shared.sizes[s];
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < position.size(); ++i) flat = flat * shape[i] + position[i];
    switch (cell.symbols[s].kind) {
      case SymbolKind::Param:
        return shared.params[s][static_cast<std::size_t>(flat)];
      case SymbolKind::State:
        return state[shared.update_of[s]][static_cast<std::size_t>(flat)];
      case SymbolKind::Input:
        break;
    }
    const int line_of = cell.symbols[s].line_of;
    if (lag <= step) {
      const Array& rows = line_of < 0 ? run.symbols[s] : output.states[shared.update_of[line_of]];
      return rows.get(row_of(step - lag) * shared.entries[s] + flat);
    }
    const Array& history = line_of < 0 ? run.histories[s] : shared.lines.at(s);
    const std::int64_t depth = history.shape()[1], before = lag - step - 1;
    return history.get((sequence * depth + before) * shared.entries[s] + flat);
  };

  Evaluator evaluator(cell, environment);
  for (; step < steps; ++step) {
    evaluator.reset();
    const std::int64_t row = row_of(step);
    for (std::size_t o = 0; o < cell.outs.size(); ++o) {
      const Tensor value = evaluator.value_over(cell.outs[o].value, cell.outs[o].index);
      double* to = static_cast<double*>(output.outs[o].data()) + row * static_cast<std::int64_t>(value.data.size());
      std::copy(value.data.begin(), value.data.end(), to);
    }
    // Every update reads the states before the step, so none is replaced until all are known.
    std::vector<std::vector<double>> next(cell.updates.size());
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      const Symbol& symbol = cell.symbols[cell.updates[u].symbol];
      next[u] = evaluator.value_over(cell.updates[u].value, symbol.index).data;
      std::copy(next[u].begin(), next[u].end(),
                static_cast<double*>(output.states[u].data()) + row * static_cast<std::int64_t>(next[u].size()));
    }
    state = std::move(next);
  }
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    std::copy(state[u].begin(), state[u].end(),
              static_cast<double*>(output.finals[u].data()) + sequence * static_cast<std::int64_t>(state[u].size()));
}

/// Offsets of so many sequences, less one, of a single row.
std::vector<std::int64_t> one_by_one(std::size_t offsets) {
  std::vector<std::int64_t> all(offsets);
  for (std::size_t i = 0; i < offsets; ++i) all[i] = static_cast<std::int64_t>(i);
  return all;
}

/// `size`: the largest |b| of the lane.
double distance(double a, double b, double size) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  const double d = std::abs(a - b) / (size + std::abs(b));
  return std::isfinite(d) ? d : std::numeric_limits<double>::infinity();
}

}  // namespace

RunOutput reference_run(const CellGraph& cell, const BoundRun& run, const std::function<double(double)>& rounded) {
  const Shared shared(cell, run);
  const std::int64_t rows = run.offsets.back(), sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  RunOutput output;
  for (const StateUpdate& update : cell.updates) {
    std::vector<std::int64_t> shape = shared.sizes[update.symbol];
    shape.insert(shape.begin(), rows);
    output.states.emplace_back(Dtype::F64, shape);
    shape[0] = sequences;
    output.finals.emplace_back(Dtype::F64, shape);
  }
  for (const Out& out : cell.outs) {
    std::vector<std::int64_t> shape{rows};
    for (const AxisId a : out.index) shape.push_back(run.sizes.at(cell.graph.axis(a).extent_of));
    output.outs.emplace_back(Dtype::F64, shape);
  }

  // Sequences share nothing that is written.
  std::atomic<std::int64_t> next{0};
  const std::int64_t threads = std::min<std::int64_t>(thread_count(run.threads), sequences);
  run_on_threads(static_cast<int>(threads), [&](int) {
    for (std::int64_t s; (s = next.fetch_add(1)) < sequences;) run_sequence(shared, s, rounded, output);
  });
  return output;
}

Deviation compare(const CellGraph& cell, const BoundRun& run, const RunOutput& got, const RunOutput& reference) {
  Deviation worst;
  std::int64_t made_at = 0;  // the step, in the order of the run, that made what `worst` names
  // `sizes`: by sequence and entry.
  const auto one = [&](const std::string& name, const Array& a, const Array& b, const std::vector<double>& sizes,
                       bool per_step) {
    const std::int64_t count = b.count();
    if (count == 0) return;
    const std::int64_t entries = count / b.shape()[0];
    std::size_t of_row = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      if (!per_step)
        of_row = static_cast<std::size_t>(i / entries);
      else
        while (i / entries >= run.offsets[of_row + 1]) ++of_row;
      const double d =
          distance(a.get(i), b.get(i),
                   sizes[of_row * static_cast<std::size_t>(entries) + static_cast<std::size_t>(i % entries)]);
      if (std::isfinite(d)) worst.finite_error = std::max(worst.finite_error, d);
      const bool first_of_all = worst.array.empty(), as_far = std::isinf(d) && std::isinf(worst.error);
      if (d <= worst.error && !first_of_all && !as_far) continue;
      const std::int64_t row = i / entries;
      std::int64_t sequence = row, step = 0;
      if (per_step) {
        // The last sequence that begins at or before the row: empty ones share their offset.
        sequence = std::upper_bound(run.offsets.begin(), run.offsets.end(), row) - run.offsets.begin() - 1;
        step = row - run.offsets[static_cast<std::size_t>(sequence)];
      }
      const auto s = static_cast<std::size_t>(sequence);
      const std::int64_t steps = run.offsets[s + 1] - run.offsets[s];
      if (!per_step) step = std::max<std::int64_t>(0, run.reverse ? 0 : steps - 1);
      const std::int64_t at = !per_step ? steps : run.reverse ? steps - 1 - step : step;
      if (as_far && at >= made_at) continue;
      made_at = at;
      const double finite = worst.finite_error;
      worst = {d, name, sequence, step, a.get(i), b.get(i), finite};
    }
  };
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const std::string& name = cell.symbols[cell.updates[u].symbol].name;
    const std::vector<double> sizes = lane_sizes(reference.states[u], run.offsets);
    if (run.wanted.state(u)) one(name, got.states[u], reference.states[u], sizes, true);
    // A sequence without steps ends where it starts, which is as large as it is.
    std::vector<double> at_end = lane_sizes(reference.finals[u], one_by_one(run.offsets.size()));
    for (std::size_t i = 0; i < std::min(sizes.size(), at_end.size()); ++i) at_end[i] = std::max(at_end[i], sizes[i]);
    if (run.wanted.final(u)) one(name + ".final", got.finals[u], reference.finals[u], at_end, false);
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (run.wanted.out(o))
      one(cell.outs[o].name, got.outs[o], reference.outs[o], lane_sizes(reference.outs[o], run.offsets), true);
  return worst;
}

Deviation compare_arrays(const std::vector<std::pair<std::string, Array>>& got,
                         const std::vector<std::pair<std::string, Array>>& reference) {
  Deviation worst;
  for (std::size_t k = 0; k < reference.size(); ++k) {
    const Array &a = got.at(k).second, &b = reference[k].second;
    double size = 0;
    for (std::int64_t i = 0; i < b.count(); ++i)
      if (const double value = std::abs(b.get(i)); std::isfinite(value)) size = std::max(size, value);
    for (std::int64_t i = 0; i < b.count(); ++i) {
      const double d = distance(a.get(i), b.get(i), size);
      if (std::isfinite(d)) worst.finite_error = std::max(worst.finite_error, d);
      if (d <= worst.error && !worst.array.empty()) continue;
      worst = {d, reference[k].first, 0, i, a.get(i), b.get(i), worst.finite_error};
    }
  }
  return worst;
}

std::optional<NonFinite> first_nonfinite(const CellGraph& cell, const BoundRun& run, const RunOutput& output) {
  std::optional<NonFinite> first;
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  const auto look = [&](const std::string& name, bool is_state, const Array& array) {
    const std::int64_t entries = array.shape()[0] > 0 ? product(array.shape()) / array.shape()[0] : 0;
    for (std::size_t b = 0; b + 1 < run.offsets.size(); ++b) {
      const std::int64_t begin = run.offsets[b], steps = run.offsets[b + 1] - begin;
      for (std::int64_t t = 0; t < std::min(steps, earliest); ++t) {
        const std::int64_t step = run.reverse ? steps - 1 - t : t;
        const std::int64_t from = (begin + step) * entries;
        bool bad = false;
        for (std::int64_t i = from; i < from + entries && !bad; ++i) bad = !std::isfinite(array.get(i));
        if (!bad) continue;
        earliest = t;
        first = NonFinite{name, is_state, static_cast<std::int64_t>(b), step};
        break;
      }
    }
  };
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const Symbol& symbol = cell.symbols[cell.updates[u].symbol];
    if (symbol.lag_of < 0 && run.wanted.state(u)) look(symbol.name, true, output.states[u]);
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o)
    if (output.outs[o].data()) look(cell.outs[o].name, false, output.outs[o]);
  return first;
}

}  // namespace cellc
