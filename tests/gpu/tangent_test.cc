// Tangents on a device: the tangent cell by every strategy that it admits there. Each number against the evaluator's,
// and all of them together against the gradients of a sweep that knows no tangent: <v, J u> = <Jᵀ v, u>. Packed
// sequences with empty ones, of one step, of prime lengths and of some segments, in both directions of time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/graph/delay_lines.h"
#include "runtime/evaluate/reference.h"
#include "runtime/evaluate/reference_gradients.h"
#include "runtime/gradient/tangent_run.h"
#include "tests/engines/promises.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// The emulator's compiler takes seconds for each kernel.
CELLC_ONE_IN(40, "Cells/TangentsOnDevice");

struct OneCell {
  const oracle::Example* file;
  const Cell* tree;
};

std::vector<OneCell> cells() {
  std::vector<OneCell> list;
  for (const oracle::Example& file : oracle::all_cells())
    for (const Cell& tree : file.tree.cells)
      if (!file.amplifies.contains(tree.name)) list.push_back({&file, &tree});
  return list;
}

Array drawn(const std::vector<std::int64_t>& shape, oracle::Random& random) {
  Array array(Dtype::F64, shape);
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, random.uniform(-1, 1));
  return array;
}

struct Asked {
  std::string name;
  SolveOptions options;
};

/// Strategies that some stage admits, over segments of 16 steps; stages that do not admit it go step by step.
std::vector<Asked> admitted(CudaSolver& solver, const Structure& structure, const BoundRun& run) {
  std::vector<Asked> all{{"auto", {}}};
  for (const StrategyFacts& f : strategies()) {
    if (!f.on_gpu) continue;
    Asked asked{std::string(to_string(f.strategy)), {}};
    std::size_t admitting = 0;
    for (std::size_t k = 0; k < structure.stages.size(); ++k) {
      const bool admits = !solver.refusal(static_cast<int>(k), f.strategy, run);
      admitting += admits;
      asked.options.plan.push_back(admits ? StagePlan{f.strategy, f.strategy == Strategy::Newton ? 1 : 16,
                                                      f.strategy == Strategy::Segmented ? 8 : 0, "test"}
                                          : StagePlan{});
    }
    if (f.strategy == Strategy::Sequential || admitting == structure.stages.size()) {
      asked.options.plan.clear();
      asked.options.solver = f.strategy;
    }
    if (f.strategy == Strategy::Sequential || admitting > 0) all.push_back(asked);
  }
  return all;
}

struct Dot {
  double sum = 0, size = 0;
  void add(const Array& a, const Array& b) {
    if (!is_given(a) || !is_given(b)) return;
    for (std::int64_t i = 0; i < a.count(); ++i) {
      sum += a.get(i) * b.get(i);
      size += std::fabs(a.get(i) * b.get(i));
    }
  }
};

/// A run, a direction of everything that it reads, and weights of everything that it writes.
struct Trial {
  BoundRun run;
  Tangents direction;
  Cotangents weights;
  double expected = 0, size = 0;  ///< <Jᵀ v, u>, by the sweep
  Trial(const CellGraph& cell, const oracle::Ranges& ranges, bool reverse) : direction(cell) {
    oracle::Random random(23);
    PromiseShape shape;
    shape.lengths = {37, 0, 1, 53};
    shape.reverse = reverse;
    shape.ranges = ranges;
    run = promise_run(cell, Dtype::F32, shape, random);
    GivenSymbols given;
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      direction.symbols[s] = drawn(run.symbols[s].shape(), random);
      if (!run.histories[s].shape().empty()) direction.histories[s] = drawn(run.histories[s].shape(), random);
    }
    for (const DelayLine& line : delay_lines(cell)) draw_history(cell, line, random);
    given.symbols.assign(cell.symbols.size(), true);
    given.histories.assign(cell.symbols.size(), true);
    for (const CotangentOf& of : cotangents_of(cell)) {
      std::vector<Array>& arrays = weights.*of.kind;
      arrays.resize(std::max(arrays.size(), of.id + 1));
      if (!of.copy) arrays[of.id] = drawn(of.shape(cell, run), random);
    }
    const Gradients gradients = reference_gradients(cell, run, given, weights);
    Dot dot;
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      const Symbol& symbol = cell.symbols[s];
      dot.add(gradients.symbols[s], direction.symbols[s]);
      if (symbol.kind == SymbolKind::Input) dot.add(gradients.histories[s], direction.histories[s]);
      if (symbol.kind == SymbolKind::State) dot.add(gradients.histories[s], direction.histories[s]);
      if (symbol.lag_of < 0 || is_given(direction.histories[static_cast<std::size_t>(symbol.lag_of)])) continue;
      // The start of a copy is a row of its state's history.
      const Array &history = gradients.histories[static_cast<std::size_t>(symbol.lag_of)], &to = direction.symbols[s];
      const std::int64_t depth = history.shape()[1], n = to.count() / to.shape()[0];
      Array row(Dtype::F64, to.shape());
      for (std::int64_t i = 0; i < to.count(); ++i)
        row.set(i, history.get((i / n * depth + symbol.lag - 1) * n + i % n));
      dot.add(row, to);
    }
    expected = dot.sum;
    size = dot.size;
  }

  /// That of a state with a delay line, which begins with what copies that lag have.
  void draw_history(const CellGraph& cell, const DelayLine& line, oracle::Random& random) {
    const auto state = static_cast<std::size_t>(line.state);
    std::vector<std::int64_t> shape = run.symbols[state].shape();
    const std::int64_t depth = line.deepest - 1, n = run.symbols[state].count() / shape[0];
    shape.insert(shape.begin() + 1, depth);
    Array history = drawn(shape, random);
    for (std::size_t s = 0; s < cell.symbols.size(); ++s)
      for (std::int64_t i = 0; cell.symbols[s].lag_of == line.state && i < shape[0] * n; ++i)
        history.set((i / n * depth + cell.symbols[s].lag - 1) * n + i % n, direction.symbols[s].get(i));
    direction.histories[state] = history;
    direction.histories[static_cast<std::size_t>(line.symbol)] = Array();
    direction.symbols[static_cast<std::size_t>(line.symbol)] = Array();
  }
};

class TangentsOnDevice : public testing::TestWithParam<OneCell> {};

TEST_P(TangentsOnDevice, AreTheEvaluatorsAndTransposesOfGradients) {
  const auto [file, tree] = GetParam();
  const LoweredCell cell(file->source, file->tree, *tree);
  Device device = open_device();
  turns::Turn turn;
  for (const bool reverse : turn.of(std::vector<bool>{false, true})) {
    const Trial trial(cell.graph, file->ranges, reverse);
    const RunOutput output = reference_run(cell.graph, trial.run);
    const TangentRun tangent(cell.graph, moved_symbols(trial.direction));
    const BoundRun bound = tangent.bind(trial.run, output, trial.direction, Dtype::F64);
    const RunOutput want = reference_run(tangent.cell(), bound);
    CudaSolver solver(*device.gpu, tangent.cell(), tangent.structure(), Dtype::F64);
    for (const Asked& asked : turn.of(admitted(solver, tangent.structure(), bound))) {
      const std::string which = fmt::format("{} by {}{}", tree->name, asked.name, reverse ? ", reversed" : "");
      SolveReport report;
      const RunOutput got = solver.run(bound, asked.options, report);
      EXPECT_TRUE(report.converged) << which;
      const Deviation worst = compare(tangent.cell(), bound, got, want);
      EXPECT_LE(worst.error, 1e-9) << which << ": " << worst.array << " of sequence " << worst.sequence << ", step "
                                   << worst.step << ": " << worst.got << ", not " << worst.want;
      Dot dot;
      for (std::size_t u = 0; u < cell.graph.updates.size(); ++u) {
        dot.add(trial.weights.states[u], got.states[u]);
        dot.add(trial.weights.finals[u], got.finals[u]);
      }
      for (std::size_t o = 0; o < cell.graph.outs.size(); ++o) dot.add(trial.weights.outs[o], got.outs[o]);
      if (std::isfinite(trial.size) && std::isfinite(dot.size)) {
        EXPECT_NEAR(dot.sum, trial.expected, 1e-9 * (dot.size + trial.size)) << which;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, TangentsOnDevice, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.file->name + "_" + info.param.tree->name; });

}  // namespace
}  // namespace cellc
