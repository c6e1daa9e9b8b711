#include "runtime/gradient/segment_gradients.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "compiler/graph/delay_lines.h"
#include "runtime/data/bind.h"
#include "runtime/data/run_window.h"

namespace cellc {
namespace {

std::int64_t entries_of(const Array& array) { return array.shape()[0] > 0 ? array.count() / array.shape()[0] : 0; }

void add_entries(const Array& from, std::int64_t at, Array& to, std::int64_t to_at, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to.set(to_at + i, to.get(to_at + i) + from.get(at + i));
}

Array copied(const Array& array) {
  Array copy(array.dtype(), array.shape());
  for (std::int64_t i = 0; i < array.count(); ++i) copy.set(i, array.get(i));
  return copy;
}

/// One run as segments.
class Segments {
 public:
  Segments(const CellGraph& cell, const BoundRun& run, Dtype arithmetic, std::int64_t steps)
      : cell_(cell), run_(run), lines_(delay_lines(cell)), steps_(steps) {
    for (const DelayLine& line : lines_) {  // filled as segments end
      std::vector<std::int64_t> shape = run.symbols[static_cast<std::size_t>(line.state)].shape();
      shape[0] = run.offsets.back();
      run_.symbols[static_cast<std::size_t>(line.symbol)] = Array(arithmetic, shape);
    }
    // The arrays as the run reads them, but nothing is rounded to storage on the way.
    for (Array& a : run_.symbols) a = convert(a, arithmetic);
    for (Array& a : run_.histories)
      if (!a.shape().empty()) a = convert(a, arithmetic);
    for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s)
      longest_ = std::max(longest_, run.offsets[s + 1] - run.offsets[s]);
  }

  std::int64_t count() const { return (longest_ + steps_ - 1) / steps_; }
  const BoundRun& run() const { return run_; }

  /// Cuts segment `g`, whose states must be the run's starts.
  RunWindow cut(std::int64_t g) const { return cut_run(cell_, run_, {}, g * steps_, steps_); }

  /// The states at the end of a segment are the starts of the next; sequences that ended stay where they are.
  void go_on(const RunWindow& window, const RunOutput& output) {
    for (const DelayLine& line : lines_) keep_rows(line, window, output);
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      Array& starts = run_.symbols[static_cast<std::size_t>(cell_.updates[u].symbol)];
      starts = copied(starts);  // the last ones are kept
      const std::int64_t n = entries_of(starts);
      for (std::size_t i = 0; i < window.sequences.size(); ++i)
        for (std::int64_t e = 0; e < n; ++e)
          starts.set(window.sequences[i] * n + e, output.finals[u].get(static_cast<std::int64_t>(i) * n + e));
    }
  }
  std::vector<Array> starts() const {
    std::vector<Array> all;
    for (const StateUpdate& u : cell_.updates) all.push_back(run_.symbols[static_cast<std::size_t>(u.symbol)]);
    return all;
  }
  void start_from(const std::vector<Array>& starts) {
    for (std::size_t u = 0; u < cell_.updates.size(); ++u)
      run_.symbols[static_cast<std::size_t>(cell_.updates[u].symbol)] = starts[u];
  }

 private:
  void keep_rows(const DelayLine& line, const RunWindow& window, const RunOutput& output) {
    Array& rows = run_.symbols[static_cast<std::size_t>(line.symbol)];
    const std::int64_t n = entries_of(rows);
    for (std::size_t u = 0; u < cell_.updates.size(); ++u)
      if (cell_.updates[u].symbol == line.state)
        each_row(window, run_, [&](std::int64_t from, std::int64_t to) {
          for (std::int64_t i = 0; i < n; ++i) rows.set(to * n + i, output.states[u].get(from * n + i));
        });
  }

  const CellGraph& cell_;
  BoundRun run_;  ///< a delay line's rows stand as those of an input, from which segments are cut
  const std::vector<DelayLine> lines_;
  const std::int64_t steps_;
  std::int64_t longest_ = 0;
};

/// Gradients of a run from those of its segments, the last of which comes first.
class Gathered {
 public:
  Gathered(const CellGraph& cell, const BoundRun& run, const Cotangents& cotangents, Dtype arithmetic)
      : cell_(cell), run_(run), cotangents_(cotangents), lines_(delay_lines(cell)) {
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      all_.symbols.emplace_back(arithmetic, run.symbols[s].shape());
      all_.histories.emplace_back();
      if (cell.symbols[s].kind == SymbolKind::Input && !run.histories[s].shape().empty())
        all_.histories[s] = Array(arithmetic, run.histories[s].shape());
    }
    // By the state at the end of what was gathered so far, which stands in the place of its start.
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      if (u < cotangents.finals.size() && !cotangents.finals[u].shape().empty())
        start(u) = copied(convert(cotangents.finals[u], arithmetic));
  }

  Cotangents cotangents_of(const RunWindow& window) {
    Cotangents part;
    for (const Array& a : cotangents_.states) part.states.push_back(rows_of(window, run_, a));
    for (const DelayLine& line : lines_) add_through_line(window, line, part);
    for (const Array& a : cotangents_.outs) part.outs.push_back(rows_of(window, run_, a));
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      const Array& whole = start(u);
      const std::int64_t n = entries_of(whole);
      std::vector<std::int64_t> shape = whole.shape();
      shape[0] = static_cast<std::int64_t>(window.sequences.size());
      Array& final = part.finals.emplace_back(whole.dtype(), shape);
      for (std::size_t i = 0; i < window.sequences.size(); ++i)
        add_entries(whole, window.sequences[i] * n, final, static_cast<std::int64_t>(i) * n, n);
    }
    return part;
  }

  void add(const RunWindow& window, const Gradients& part) {
    // What no copy has of a state's history, whose first row is two steps before the segment.
    for (const DelayLine& line : lines_)
      add_history(window, static_cast<std::size_t>(line.symbol), part.histories[static_cast<std::size_t>(line.state)],
                  copies_of(line.state), 2);
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
      const Symbol& symbol = cell_.symbols[s];
      if (symbol.line_of >= 0) continue;
      if (symbol.kind == SymbolKind::Param) {
        add_entries(part.symbols[s], 0, all_.symbols[s], 0, part.symbols[s].count());
      } else if (symbol.kind == SymbolKind::Input) {
        const std::int64_t n = entries_of(all_.symbols[s]);
        each_row(window, run_, [&](std::int64_t from, std::int64_t to) {
          add_entries(part.symbols[s], from * n, all_.symbols[s], to * n, n);
        });
        if (!part.histories[s].shape().empty()) add_history(window, s, part.histories[s], 0, 1);
      } else {
        // A copy that lags comes as a row of its state's history.
        const bool copy = symbol.lag_of >= 0;
        const Array& from = copy ? part.histories[static_cast<std::size_t>(symbol.lag_of)] : part.symbols[s];
        const std::int64_t n = entries_of(all_.symbols[s]), depth = copy ? from.shape()[1] : 1;
        for (std::size_t i = 0; i < window.sequences.size(); ++i)
          for (std::int64_t e = 0; e < n; ++e)
            all_.symbols[s].set(window.sequences[i] * n + e,
                                from.get((static_cast<std::int64_t>(i) * depth + (copy ? symbol.lag - 1 : 0)) * n + e));
      }
    }
  }

  Gradients take(const AdjointRun& adjoint) {
    for (const DelayLine& line : lines_) all_.symbols[static_cast<std::size_t>(line.symbol)] = Array();
    adjoint.move_to_histories(all_);
    return std::move(all_);
  }

 private:
  Array& start(std::size_t update) { return all_.symbols[static_cast<std::size_t>(cell_.updates[update].symbol)]; }

  std::int64_t copies_of(int state) const {
    return std::count_if(cell_.symbols.begin(), cell_.symbols.end(),
                         [&](const Symbol& s) { return s.lag_of == state; });
  }

  /// What later segments had of the line's rows in this one is one more cotangent of its state.
  void add_through_line(const RunWindow& window, const DelayLine& line, Cotangents& part) const {
    for (std::size_t u = 0; u < cell_.updates.size(); ++u) {
      if (cell_.updates[u].symbol != line.state) continue;
      Array rows = rows_of(window, run_, all_.symbols[static_cast<std::size_t>(line.symbol)]);
      part.states.resize(cell_.updates.size());
      const Array& given = part.states[u];
      if (!given.shape().empty()) add_entries(given, 0, rows, 0, rows.count());
      part.states[u] = std::move(rows);
    }
  }

  /// Row j of a segment's history, from `first` on, is j + `back` steps before it: a row of an earlier segment, or of
  /// the run's own history.
  void add_history(const RunWindow& window, std::size_t symbol, const Array& part, std::int64_t first,
                   std::int64_t back) {
    const std::int64_t depth = part.shape()[1], n = entries_of(all_.symbols[symbol]);
    for (std::size_t i = 0; i < window.sequences.size(); ++i)
      for (std::int64_t j = first; j < depth; ++j) {
        const std::int64_t sequence = window.sequences[i], step = window.begin - back - j;
        const std::int64_t from = (static_cast<std::int64_t>(i) * depth + j) * n;
        const auto b = static_cast<std::size_t>(sequence);
        if (step >= 0)
          add_entries(part, from, all_.symbols[symbol],
                      (run_.reverse ? run_.offsets[b + 1] - 1 - step : run_.offsets[b] + step) * n, n);
        else
          add_entries(part, from, all_.histories[symbol], (sequence * all_.histories[symbol].shape()[1] - 1 - step) * n,
                      n);
      }
  }

  const CellGraph& cell_;
  const BoundRun& run_;
  const Cotangents& cotangents_;
  const std::vector<DelayLine> lines_;
  Gradients all_;  ///< of a delay line's rows: what later segments had of them
};

}  // namespace

std::int64_t recomputed_segment(std::int64_t longest, std::int64_t shortest) {
  // Shorter ones cost more to start than their rows take memory.
  return std::max(shortest, static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(longest)))));
}

SegmentGradients::SegmentGradients(const CellGraph& cell, const AdjointRun& adjoint, Dtype arithmetic,
                                   SegmentEngines engines, std::int64_t shortest)
    : cell_(cell), adjoint_(adjoint), arithmetic_(arithmetic), engines_(std::move(engines)), shortest_(shortest) {
  const std::vector<ArraySource>& sources = adjoint.adjoint().adjoint.sources;
  for (const DelayLine& line : delay_lines(cell))
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      if (cell.updates[u].symbol == line.state &&
          std::none_of(sources.begin(), sources.end(), [&](const ArraySource& s) {
            return s == ArraySource{ArraySource::Kind::Cotangent, static_cast<int>(u)};
          }))
        throw std::logic_error("recomputed gradients: the adjoint takes no cotangent of a state with a delay line");
}

Gradients SegmentGradients::run(const BoundRun& run, const Cotangents& cotangents, const SolveOptions& forward,
                                const SolveOptions& backward, SolveReport& report, std::int64_t segment) {
  const auto begin = std::chrono::steady_clock::now();
  adjoint_.check(run, cotangents);
  std::int64_t longest = 0;
  for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s)
    longest = std::max(longest, run.offsets[s + 1] - run.offsets[s]);
  segment_ = segment > 0 ? segment : recomputed_segment(longest, shortest_);
  Segments segments(cell_, run, arithmetic_, segment_);
  bool converged = true;
  double residual = 0;
  const auto run_again = [&](std::int64_t g, RunWindow& window) {
    SolveReport ran;
    window = segments.cut(g);
    RunOutput output = engines_.forward(window.run, forward, ran);
    converged = converged && ran.converged;
    return output;
  };
  std::vector<std::vector<Array>> starts;
  for (std::int64_t g = 0; g < segments.count(); ++g) {
    starts.push_back(segments.starts());
    RunWindow window;
    if (g + 1 < segments.count()) {
      const RunOutput output = run_again(g, window);
      segments.go_on(window, output);
    }
  }
  Gathered gathered(cell_, segments.run(), cotangents, arithmetic_);
  for (std::int64_t g = segments.count() - 1; g >= 0; --g) {
    segments.start_from(starts[static_cast<std::size_t>(g)]);
    RunWindow window;
    const RunOutput output = run_again(g, window);
    SolveReport ran;
    gathered.add(window, engines_.backward(window.run, output, gathered.cotangents_of(window), backward, ran));
    converged = converged && ran.converged;
    residual = std::max(residual, ran.max_residual);
    report = std::move(ran);
  }
  report.converged = converged;
  report.max_residual = residual;
  Gradients gradients = gathered.take(adjoint_);
  run_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  return gradients;
}

}  // namespace cellc
