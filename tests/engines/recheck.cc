#include "tests/engines/recheck.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>

#include "compiler/graph/axes.h"
#include "compiler/graph/rewriter.h"

namespace cellc {
namespace {

/// Row of a sequence's step.
std::int64_t row_of(const BoundRun& run, std::int64_t sequence, std::int64_t step) {
  return run.reverse ? run.offsets[sequence + 1] - 1 - step : run.offsets[sequence] + step;
}

std::int64_t sequences_of(const BoundRun& run) { return static_cast<std::int64_t>(run.offsets.size()) - 1; }

/// Rows are slices along the first axis.
std::size_t row_bytes(const Array& a) {
  std::size_t bytes = size_of(a.dtype());
  for (std::size_t i = 1; i < a.shape().size(); ++i) bytes *= static_cast<std::size_t>(a.shape()[i]);
  return bytes;
}
Array with_rows(const Array& like, std::int64_t rows) {
  std::vector<std::int64_t> shape = like.shape();
  shape[0] = rows;
  return Array(like.dtype(), shape);
}
void copy_row(const Array& from, std::int64_t row, Array& to, std::int64_t at) {
  const std::size_t n = row_bytes(from);
  if (n)
    std::memcpy(static_cast<std::byte*>(to.data()) + at * n, static_cast<const std::byte*>(from.data()) + row * n, n);
}

/// What lies behind a step of a lagged input: row `at` of `to` [rows, depth, a…].
void put_history(const Array& input, const Array& history, const BoundRun& run, std::int64_t sequence,
                 std::int64_t step, Array& to, std::int64_t at) {
  const std::int64_t depth = history.shape()[1];
  const std::size_t n = row_bytes(input);
  for (std::int64_t j = 1; j <= depth && n; ++j) {
    const std::byte* from = step - j >= 0
                                ? static_cast<const std::byte*>(input.data()) + row_of(run, sequence, step - j) * n
                                : static_cast<const std::byte*>(history.data()) + (sequence * depth + j - step - 1) * n;
    std::memcpy(static_cast<std::byte*>(to.data()) + (at * depth + j - 1) * n, from, n);
  }
}

bool has_history(const BoundRun& run, std::size_t symbol) {
  return symbol < run.histories.size() && run.histories[symbol].data() && run.histories[symbol].shape().size() >= 2;
}

/// The cell's outs alone: its states as inputs, and behind all symbols, by update, what each became.
CellGraph outs_about_rows(const CellGraph& cell) {
  CellGraph result = cell;
  result.updates.clear();
  result.named.clear();
  for (Symbol& s : result.symbols) {
    if (s.kind == SymbolKind::State) s.kind = SymbolKind::Input;
    s.initial = kNoNode;
    s.lag_of = s.line_of = -1;
    s.lag = 0;
  }
  std::map<NodeId, NodeId> rows;
  for (const StateUpdate& u : cell.updates) {
    Symbol row = result.symbols[static_cast<std::size_t>(u.symbol)];
    row.name += "'";
    row.max_lag = 0;
    const int number = static_cast<int>(result.symbols.size());
    std::vector<AxisId> axes = row.index;
    std::sort(axes.begin(), axes.end());
    // A value that has fewer axes than its state stands for no place of the rows.
    if (cell.graph[u.value].axes == axes)
      rows.emplace(u.value, result.graph.read(number, plain_index(row.index), u.span));
    result.symbols.push_back(std::move(row));
  }
  Rewriter about(cell.graph, result.graph, {.replace = [&](NodeId id, const Node&) {
                   const auto row = rows.find(id);
                   return row == rows.end() ? kNoNode : row->second;
                 }});
  for (Out& out : result.outs) out.value = about(out.value);
  return result;
}

/// The largest finite |s| of a state's entry up to a step: what residuals are over besides |s|.
class SizeSoFar {
 public:
  double operator()(double written) {
    if (std::isfinite(written)) size_ = std::max(size_, std::fabs(written));
    return size_;
  }

 private:
  double size_ = 0;
};

}  // namespace

double residual_between(double written, double made, double size) {
  if (written == made || (std::isnan(written) && std::isnan(made))) return 0;
  const double far = std::fabs(written - made) / (size + std::fabs(written));
  return std::isfinite(far) ? far : std::numeric_limits<double>::infinity();
}

/// Of the copy of `symbol` that lags by so many steps; 0: of itself.
int StepRecheck::update_of(int symbol, int lag) const {
  for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
    const int of = cell_.updates[u].symbol;
    if (lag == 0 ? of == symbol : cell_.symbols[of].lag_of == symbol && cell_.symbols[of].lag == lag)
      return static_cast<int>(u);
  }
  throw std::logic_error("a lag without its state");
}

std::pair<int, int> StepRecheck::origin_of(std::size_t update) const {
  const int symbol = cell_.updates[update].symbol;
  const Symbol& of = cell_.symbols[static_cast<std::size_t>(symbol)];
  return of.lag_of < 0 ? std::pair{symbol, 0} : std::pair{of.lag_of, of.lag};
}

/// What a state is before each row: [rows, a…], from the rows that were written and, further back, from the starts.
Array StepRecheck::states_before(const BoundRun& run, const RunOutput& output, std::size_t update) const {
  const auto [base, lag] = origin_of(update);
  const Array& written = output.states[static_cast<std::size_t>(update_of(base, 0))];
  const std::int64_t rows = run.offsets.back();
  Array before = with_rows(run.symbols[cell_.updates[update].symbol], rows);
  const std::int64_t n = rows ? before.count() / rows : 0;
  for (std::int64_t s = 0; s < sequences_of(run); ++s)
    for (std::int64_t t = 0; t < run.offsets[s + 1] - run.offsets[s]; ++t) {
      const std::int64_t from = t - 1 - lag, to = row_of(run, s, t);
      if (from < 0) {
        const int start = cell_.updates[static_cast<std::size_t>(update_of(base, static_cast<int>(-1 - from)))].symbol;
        copy_row(run.symbols[start], s, before, to);
        continue;
      }
      for (std::int64_t i = 0; i < n; ++i) before.set(to * n + i, written.get(row_of(run, s, from) * n + i));
    }
  return before;
}

/// Of an input; of a delay line those of its state.
const Array& StepRecheck::rows_of_symbol(const BoundRun& run, const RunOutput& output, std::size_t symbol) const {
  const int state = cell_.symbols[symbol].line_of;
  return state < 0 ? run.symbols[symbol] : output.states[static_cast<std::size_t>(update_of(state, 0))];
}

BoundRun StepRecheck::single_steps(const BoundRun& run, const RunOutput& output) const {
  BoundRun one = run;
  const std::int64_t rows = run.offsets.back();
  one.reverse = false;
  one.threads = 1;
  one.offsets.clear();
  for (std::int64_t r = 0; r <= rows; ++r) one.offsets.push_back(r);
  for (std::size_t u = 0; u < cell_.updates.size(); ++u)
    one.symbols[static_cast<std::size_t>(cell_.updates[u].symbol)] = states_before(run, output, u);
  for (std::size_t symbol = 0; symbol < cell_.symbols.size(); ++symbol) {
    if (cell_.symbols[symbol].kind != SymbolKind::Input || !has_history(run, symbol)) continue;
    one.histories[symbol] = with_rows(run.histories[symbol], rows);
    for (std::int64_t s = 0; s < sequences_of(run); ++s)
      for (std::int64_t t = 0; t < run.offsets[s + 1] - run.offsets[s]; ++t)
        put_history(rows_of_symbol(run, output, symbol), run.histories[symbol], run, s, t, one.histories[symbol],
                    row_of(run, s, t));
  }
  return one;
}

/// A state ends as its last row, to the bit; a copy that lags within the tolerance of the row that it is one of.
std::string StepRecheck::wrong_final(const BoundRun& run, const RunOutput& output, std::size_t update,
                                     double tolerance) const {
  const Symbol& of = cell_.symbol_of(cell_.updates[update]);
  const auto [base, lag] = origin_of(update);
  const Array& written = output.states[static_cast<std::size_t>(update_of(base, 0))];
  const std::int64_t n = run.symbols[cell_.updates[update].symbol].count() / sequences_of(run);
  for (std::int64_t s = 0; s < sequences_of(run); ++s) {
    const std::int64_t from = run.offsets[s + 1] - run.offsets[s] - 1 - lag;
    const int start =
        from < 0 ? cell_.updates[static_cast<std::size_t>(update_of(base, static_cast<int>(-1 - from)))].symbol : -1;
    for (std::int64_t i = 0; i < n; ++i) {
      const double last = from < 0 ? run.symbols[static_cast<std::size_t>(start)].get(s * n + i)
                                   : written.get(row_of(run, s, from) * n + i);
      const double final = output.finals[update].get(s * n + i);
      SizeSoFar size;
      double so_far = 0;
      for (std::int64_t t = 0; t <= from; ++t) so_far = size(written.get(row_of(run, s, t) * n + i));
      if (!(residual_between(last, final, so_far) <= (lag > 0 ? tolerance : 0)))
        return fmt::format("{}.final[{}] of sequence {} is {:.17g}, the row {:.17g}", of.name, i, s, final, last);
    }
  }
  return {};
}

StepRecheck::Found StepRecheck::operator()(const BoundRun& run, const RunOutput& output, double tolerance) const {
  Found found;
  if (sequences_of(run) == 0) return found;
  const RunOutput made = sequential_(single_steps(run, output));
  for (std::int64_t s = 0; s < sequences_of(run); ++s) {
    const std::int64_t steps = run.offsets[s + 1] - run.offsets[s];
    Unconverged u{s, steps, 0}, b{s, steps, 0};
    for (std::size_t k = 0; k < cell_.updates.size(); ++k) {
      const std::int64_t n = run.symbols[cell_.updates[k].symbol].count() / sequences_of(run);
      for (std::int64_t i = 0; i < n; ++i) {
        SizeSoFar size, whole;
        double largest = 0;
        for (std::int64_t t = 0; t < steps; ++t) largest = whole(output.states[k].get(row_of(run, s, t) * n + i));
        for (std::int64_t t = 0; t < steps; ++t) {
          const std::int64_t at = row_of(run, s, t) * n + i;
          const double written = output.states[k].get(at), again = made.states[k].get(at);
          const double r = residual_between(written, again, size(written));
          found.most = std::max(found.most, residual_between(written, again, std::fabs(written)));
          const double p = residual_between(written, again, largest);
          found.promised = std::max(found.promised, p);
          if (!(p <= tolerance)) b.first_bad_step = std::min(b.first_bad_step, t), b.residual = std::max(b.residual, p);
          found.largest = std::max(found.largest, r);
          if (!(r <= tolerance)) u.first_bad_step = std::min(u.first_bad_step, t), u.residual = std::max(u.residual, r);
        }
      }
    }
    if (u.first_bad_step < steps) found.beyond.push_back(u);
    if (b.first_bad_step < steps) found.broken.push_back(b);
  }
  for (std::size_t k = 0; k < cell_.updates.size() && found.wrong.empty(); ++k) {
    // Of a run that left steps undone a copy may hold what they were to be.
    if (origin_of(k).second > 0 && !found.beyond.empty()) continue;
    found.wrong = wrong_final(run, output, k, tolerance);
  }
  for (std::size_t o = 0; o < output.outs.size(); ++o)
    for (std::int64_t i = 0; i < output.outs[o].count(); ++i)
      found.outs = std::max(found.outs, residual_between(output.outs[o].get(i), made.outs[o].get(i), 1));
  return found;
}

double StepRecheck::outs_of_rows(const BoundRun& run, const RunOutput& output) const {
  if (sequences_of(run) == 0 || output.outs.empty()) return 0;
  if (!stateless_) return std::numeric_limits<double>::infinity();
  const CellGraph of_rows = outs_about_rows(cell_);
  BoundRun rows = single_steps(run, output);
  for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
    if (cell_.symbols[s].line_of >= 0) rows.symbols[s] = rows_of_symbol(run, output, s);
  for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
    const auto [base, lag] = origin_of(u);
    // A copy that lags by n becomes what one that lags by n - 1 was.
    rows.symbols.push_back(lag == 0 ? output.states[u]
                                    : states_before(run, output, static_cast<std::size_t>(update_of(base, lag - 1))));
  }
  rows.histories.resize(of_rows.symbols.size());
  const RunOutput made = stateless_(of_rows, output.outs[0].dtype(), rows);
  double most = 0;
  for (std::size_t o = 0; o < output.outs.size(); ++o)
    for (std::int64_t i = 0; i < output.outs[o].count(); ++i)
      most = std::max(most, residual_between(output.outs[o].get(i), made.outs[o].get(i), 1));
  return most;
}

BoundRun steps_of(const CellGraph& cell, const BoundRun& run, std::int64_t from, std::int64_t to,
                  const std::vector<Array>* starts) {
  BoundRun part = run;
  part.offsets = {0};
  for (std::int64_t s = 0; s < sequences_of(run); ++s) {
    const std::int64_t steps = run.offsets[s + 1] - run.offsets[s];
    part.offsets.push_back(part.offsets.back() +
                           std::max<std::int64_t>(0, std::min(steps, to) - std::min(steps, from)));
  }
  for (std::size_t symbol = 0; symbol < cell.symbols.size(); ++symbol) {
    if (cell.symbols[symbol].kind != SymbolKind::Input) continue;
    part.symbols[symbol] = with_rows(run.symbols[symbol], part.offsets.back());
    for (std::int64_t s = 0; s < sequences_of(run); ++s) {
      const std::int64_t steps = part.offsets[s + 1] - part.offsets[s],
                         first = std::min(from, run.offsets[s + 1] - run.offsets[s]);
      for (std::int64_t t = 0; t < steps; ++t)
        copy_row(run.symbols[symbol], row_of(run, s, first + t), part.symbols[symbol], row_of(part, s, t));
    }
    if (!has_history(run, symbol)) continue;
    part.histories[symbol] = with_rows(run.histories[symbol], sequences_of(run));
    for (std::int64_t s = 0; s < sequences_of(run); ++s)
      put_history(run.symbols[symbol], run.histories[symbol], run, s,
                  std::min(from, run.offsets[s + 1] - run.offsets[s]), part.histories[symbol], s);
  }
  if (starts)
    for (std::size_t u = 0; u < cell.updates.size(); ++u) part.symbols[cell.updates[u].symbol] = (*starts)[u];
  return part;
}

void put_steps(const BoundRun& whole, std::int64_t from, const BoundRun& part, const RunOutput& output,
               RunOutput& all) {
  const auto put = [&](const std::vector<Array>& of, std::vector<Array>& to) {
    to.resize(of.size());
    for (std::size_t k = 0; k < of.size(); ++k) {
      if (!to[k].data()) to[k] = with_rows(of[k], whole.offsets.back());
      for (std::int64_t s = 0; s < sequences_of(whole); ++s)
        for (std::int64_t t = 0; t < part.offsets[s + 1] - part.offsets[s]; ++t)
          copy_row(of[k], row_of(part, s, t), to[k], row_of(whole, s, from + t));
    }
  };
  put(output.states, all.states);
  put(output.outs, all.outs);
  all.finals = output.finals;
}

}  // namespace cellc
