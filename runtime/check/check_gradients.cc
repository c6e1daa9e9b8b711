// Gradients of a cell against finite differences of the f64 reference, and the adjoint's kernels against the reference.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "compiler/graph/delay_lines.h"
#include "runtime/check/check_claims.h"
#include "runtime/cpu/sum_over_steps.h"
#include "runtime/data/random_fill.h"
#include "runtime/evaluate/reference.h"
#include "runtime/gradient/adjoint_run.h"

namespace cellc {
namespace {

Array drawn_like(const Array& array, RandomStream& random) {
  Array drawn(Dtype::F64, array.shape());
  for (std::int64_t i = 0; i < drawn.count(); ++i) drawn.set(i, random.uniform(-1, 1));
  return drawn;
}

/// Cotangents of everything that a run writes; copies that lag have none.
Cotangents draw_cotangents(const CellGraph& cell, const RunOutput& output, std::uint64_t seed) {
  RandomStream random(seed, "cotangents");
  Cotangents drawn;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    const bool copy = cell.symbol_of(cell.updates[u]).lag_of >= 0;
    drawn.states.push_back(copy ? Array() : drawn_like(output.states[u], random));
    drawn.finals.push_back(copy ? Array() : drawn_like(output.finals[u], random));
  }
  for (const Array& out : output.outs) drawn.outs.push_back(drawn_like(out, random));
  return drawn;
}

/// Σ cotangent * result, and the sum of its terms' sizes.
struct Loss {
  double value = 0, size = 0;
  void add(const std::vector<Array>& cotangents, const std::vector<Array>& results) {
    for (std::size_t a = 0; a < cotangents.size(); ++a)
      for (std::int64_t i = 0; i < cotangents[a].count() && !cotangents[a].shape().empty(); ++i) {
        const double term = cotangents[a].get(i) * results[a].get(i);
        value += term;
        size += std::abs(term);
      }
  }
};

constexpr double kReach = 1.1e-4;

/// Slopes that are no derivatives, on purpose.
bool declares_slopes(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph[id].op == Op::Surrogate || graph[id].op == Op::StopGradient) return true;
  return false;
}

class Differences {
 public:
  Differences(const CellGraph& cell, const BoundRun& run, const Cotangents& cotangents, std::uint64_t seed)
      : cell_(cell), run_(run), cotangents_(cotangents), random_(seed, "directions") {}

  /// One direction of an array and two of its entries; `at` finds the array in a run.
  CheckItem compare(const std::string& name, const std::function<Array&(BoundRun&)>& at,
                    const std::function<double(std::int64_t)>& gradient) {
    CheckItem item;
    item.what = "gradient by " + name;
    const std::int64_t count = at(run_).count();
    double largest = 0;
    for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(gradient(i)));
    for (int way = 0; way < 3 && count > 0; ++way) {
      std::vector<double> along(static_cast<std::size_t>(count));
      const auto entry = std::min<std::int64_t>(
          count - 1, static_cast<std::int64_t>(random_.uniform(0, 1) * static_cast<double>(count)));
      for (std::int64_t i = 0; i < count; ++i)
        along[static_cast<std::size_t>(i)] = way == 0 ? random_.uniform(-1, 1) : i == entry ? 1 : 0;
      double got = 0, size = largest;
      for (std::int64_t i = 0; i < count; ++i) {
        const double part = along[static_cast<std::size_t>(i)];
        if (part == 0) continue;
        got += part * gradient(i);
        size += std::abs(part * gradient(i));
      }
      compare(item, way == 0 ? "along a direction" : fmt::format("entry {}", entry), slope(at, along, 4 * kReach),
              slope(at, along, kReach), got, size);
    }
    return item;
  }

 private:
  struct Slope {
    double value, noise;
    double bend;  ///< by how much the slopes to both sides differ: proportional to the reach where there is no kink
  };
  Slope slope(const std::function<Array&(BoundRun&)>& at, const std::vector<double>& along, double reach) const {
    double size = 0;
    const auto loss = [&](double by) {
      BoundRun moved = run_;
      Array& array = at(moved);
      Array copy(Dtype::F64, array.shape());
      for (std::int64_t i = 0; i < copy.count(); ++i)
        copy.set(i, array.get(i) + by * along[static_cast<std::size_t>(i)]);
      array = copy;
      const RunOutput output = reference_run(cell_, moved);
      Loss sum;
      sum.add(cotangents_.states, output.states);
      sum.add(cotangents_.finals, output.finals);
      sum.add(cotangents_.outs, output.outs);
      size = std::max(size, sum.size);
      return sum.value;
    };
    const double right = loss(reach), left = loss(-reach);
    const double value = (8 * (right - left) - (loss(2 * reach) - loss(-2 * reach))) / (12 * reach);
    return {value, 1e-14 * size / reach, (right - 2 * loss(0) + left) / reach};
  }

  static void compare(CheckItem& item, const std::string& where, Slope wide, Slope narrow, double got, double size) {
    // At a kink or a jump, and where the loss bends too much, two reaches do not agree.
    const double apart = std::abs(wide.value - narrow.value), noise = wide.noise + narrow.noise;
    const double allowed = 1e-6 * (size + std::abs(narrow.value)) + 4 * noise;
    // A start often lies at a kink itself, and there both reaches give the mean of its slopes.
    if (!(apart <= allowed) || !(std::abs(wide.bend - 4 * narrow.bend) <= 10 * allowed)) {
      ++item.skipped;
      return;
    }
    ++item.tried;
    const double error = std::abs(got - narrow.value);
    const double ratio = !std::isfinite(got) ? INFINITY : error == 0 ? 0 : error / (allowed + apart);
    if (ratio > item.worst) item.worst = ratio;
    if (ratio <= 1) return;
    item.passed = false;
    item.detail = fmt::format("{}: {:.9g}, differences say {:.9g}", where, got, narrow.value);
  }

  const CellGraph& cell_;
  BoundRun run_;
  const Cotangents& cotangents_;
  RandomStream random_;
};

void against_differences(const CellGraph& cell, const BoundRun& run, std::uint64_t seed,
                         std::vector<CheckItem>& items) {
  const RunOutput output = reference_run(cell, run);
  const Cotangents cotangents = draw_cotangents(cell, output, seed);
  const AdjointRun adjoint(cell, results_with(cotangents));
  const BoundRun bound = adjoint.bind(run, output, cotangents, Dtype::F64);
  const Gradients found = adjoint.gather(run, bound, reference_run(adjoint.cell(), bound), sum_over_steps);
  Differences differences(cell, run, cotangents, seed);
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    const auto array = [s](BoundRun& r) -> Array& { return r.symbols[s]; };
    const auto history = [s](BoundRun& r) -> Array& { return r.histories[s]; };
    if (symbol.lag_of >= 0) {  // of one sequence: row lag - 1 of the history of its state
      const Array& rows = found.histories[static_cast<std::size_t>(symbol.lag_of)];
      const std::int64_t entries = run.symbols[s].count();
      items.push_back(
          differences.compare(fmt::format("{} {} steps before the start",
                                          cell.symbols[static_cast<std::size_t>(symbol.lag_of)].name, symbol.lag),
                              array, [&](std::int64_t i) { return rows.get((symbol.lag - 1) * entries + i); }));
      continue;
    }
    if (symbol.line_of >= 0) {  // its first entries are the start and the copies that lag
      const auto copies = std::count_if(cell.symbols.begin(), cell.symbols.end(),
                                        [&](const Symbol& c) { return c.lag_of == symbol.line_of; });
      const Array& rows = found.histories[static_cast<std::size_t>(symbol.line_of)];
      const std::int64_t entries = run.histories[s].count() / symbol.max_lag;
      items.push_back(
          differences.compare("the history of " + cell.symbols[static_cast<std::size_t>(symbol.line_of)].name, history,
                              [&](std::int64_t i) { return i / entries <= copies ? 0.0 : rows.get(i - entries); }));
      continue;
    }
    const std::string name = symbol.kind == SymbolKind::State ? "the start of " + symbol.name : symbol.name;
    items.push_back(differences.compare(name, array, [&](std::int64_t i) { return found.symbols[s].get(i); }));
    if (symbol.kind == SymbolKind::Input && !run.histories[s].shape().empty())
      items.push_back(differences.compare("the history of " + name, history,
                                          [&](std::int64_t i) { return found.histories[s].get(i); }));
  }
}

/// The same run in the order of its rows.
BoundRun in_order(const CellGraph& cell, BoundRun run) {
  for (std::size_t s = 0; run.reverse && s < cell.symbols.size(); ++s) {
    if (!is_given_input(cell.symbols[s]) || run.symbols[s].count() == 0) continue;
    const Array& from = run.symbols[s];
    const std::int64_t entries = from.count() / run.offsets.back();
    Array to(from.dtype(), from.shape());
    for (std::size_t b = 0; b + 1 < run.offsets.size(); ++b)
      for (std::int64_t row = run.offsets[b]; row < run.offsets[b + 1]; ++row)
        for (std::int64_t i = 0; i < entries; ++i)
          to.set(row * entries + i, from.get((run.offsets[b] + run.offsets[b + 1] - 1 - row) * entries + i));
    run.symbols[s] = to;
  }
  run.reverse = false;
  return run;
}

}  // namespace

void check_gradients(const CellGraph& cell, const Binding& binding, const BindRequest& request, std::uint64_t seed,
                     const std::string& cache_directory, std::vector<CheckItem>& items) {
  if (!declares_slopes(cell.graph)) against_differences(cell, binding.run, seed, items);
  BindRequest batch = request;
  batch.batch = 3;
  batch.length = 40;
  Binding longer = bind(cell, batch);
  const RunOutput output = reference_run(cell, longer.run);
  const Cotangents cotangents = draw_cotangents(cell, output, seed);
  const AdjointRun adjoint(cell, results_with(cotangents));
  longer.run = in_order(adjoint.cell(), adjoint.bind(longer.run, output, cotangents, Dtype::F64));
  CompileOptions options;
  options.dtype = Dtype::F64;
  options.cache_directory = cache_directory;
  const std::size_t before = items.size();
  check_strategies(adjoint.cell(), adjoint.structure(), options, longer, items);
  for (std::size_t i = before; i < items.size(); ++i) items[i].what = "gradients: " + items[i].what;
}

}  // namespace cellc
