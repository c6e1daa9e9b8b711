// Results that are wanted of a run on a device have the bits that they have where all are, and what is not wanted takes
// no memory there where nothing else reads it.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/cuda/launch/cuda_solver.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/oracle.h"

namespace cellc {
namespace {

constexpr std::int64_t kLength = 67;  // more than a thread takes, where lanes mix

struct Case {
  const char* name;
  const char* text;
  bool leaves_states_out;  ///< those that are not wanted are nowhere, by lanes that walk or whole steps
};

const Case kCases[] = {
    // A lane a thread, whose own states nobody else reads.
    {"lanes", "cell a[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(0.5*h + x)\n}\n", true},
    // The same lanes make the out.
    {"outs", "cell b[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(0.5*h + x)\n  out y = h'*x\n}\n", true},
    // The cell after the stage reads it.
    {"mixed", "cell b[d] {\n  state h[d]\n  input x[d]\n  param W[d,d]\n  h' = tanh(0.5*h + x)\n  out y = W@h'\n}\n",
     false},
    // Whole steps as nests, in one kernel.
    {"dense", "cell c[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh(U@h + x)\n  out y = h'*x\n}\n",
     true},
    // Two kernels, and a product of the first one's states.
    {"layers",
     "cell e[d] {\n  state h[d], g[d]\n  input x[d]\n  param U[d,d], V[d,d], W[d,d]\n  h' = tanh(U@h + x)\n"
     "  g' = tanh(V@g + W@h')\n  out y = g' - h'\n}\n",
     false},
    // A matrix, and a state from two steps back.
    {"matrix",
     "cell f[v, k] {\n  state S[v,k], g[k]\n  input x[v], key[k]\n  param R[k,k]\n"
     "  S' = tanh(S@R + x*key)\n  g' = 0.5*lag(g, 2) + sum[v](x*S')\n  out y = S'@key\n}\n",
     true},
};

BoundRun run_of(const LoweredCell& cell, Dtype dtype, bool reverse) {
  BoundRun run;
  run.offsets = {0, 41, 41, 42, 90};
  run.reverse = reverse;
  for (const AxisId a : cell.graph.header) run.sizes[a] = kLength;
  oracle::Random random(5);
  for (const Symbol& symbol : cell.graph.symbols) {
    std::vector<std::int64_t> shape;
    if (symbol.kind == SymbolKind::Input) shape.push_back(90);
    if (symbol.kind == SymbolKind::State) shape.push_back(4);
    for (const AxisId a : symbol.axes) shape.push_back(run.sizes.at(cell.graph.graph.axis(a).extent_of));
    Array array(symbol.kind == SymbolKind::Input ? dtype : arithmetic_of(dtype), shape);
    for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, random.uniform(-0.3, 0.3));
    run.symbols.push_back(std::move(array));
    run.histories.emplace_back();
  }
  return run;
}

void expect_same(const Array& part, const Array& all, bool wanted, const char* what) {
  if (!wanted) {
    EXPECT_TRUE(part.shape().empty()) << what;
    return;
  }
  ASSERT_EQ(part.shape(), all.shape()) << what;
  EXPECT_EQ(std::memcmp(part.data(), all.data(), static_cast<std::size_t>(all.count()) * size_of(all.dtype())), 0)
      << what;
}

class WantedOnDevice : public testing::TestWithParam<Case> {};

TEST_P(WantedOnDevice, HaveTheBitsOfAFullRun) {
  const SourceText source("test.cell", GetParam().text);
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  Device device = open_device();
  const std::vector<bool> none(cell.graph.updates.size(), false), no_out(cell.graph.outs.size(), false);
  for (const Dtype dtype : turns::Turn().of(std::vector<Dtype>{Dtype::F32, Dtype::BF16})) {
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, dtype, &source);
    for (const bool reverse : {false, true})
      for (const Strategy strategy : {Strategy::Sequential, Strategy::Auto}) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << " by " << to_string(strategy)
                                        << (reverse ? ", reversed" : ""));
        BoundRun run = run_of(cell, dtype, reverse);
        SolveOptions options;
        options.solver = strategy;
        // Its steps are kernels of their own then, of which an emulator makes one in seconds (stepped_test.cc has
        // them).
        if (device.emulator && strategy == Strategy::Auto && GetParam().name == std::string("matrix")) continue;
        SolveReport report;
        const RunOutput all = solver.run(run, options, report);
        ASSERT_TRUE(report.converged);
        for (const Wanted& wanted :
             std::vector<Wanted>{{none, {}, {}, {}}, {none, {}, no_out, {}}, {{}, none, no_out, {}}}) {
          run.wanted = wanted;
          const RunOutput part = solver.run(run, options, report);
          for (std::size_t u = 0; u < none.size(); ++u) {
            expect_same(part.states[u], all.states[u], wanted.state(u), "state");
            expect_same(part.finals[u], all.finals[u], wanted.final(u), "final");
          }
          for (std::size_t o = 0; o < no_out.size(); ++o) expect_same(part.outs[o], all.outs[o], wanted.out(o), "out");
        }
      }
  }
}

TEST_P(WantedOnDevice, TakeNoOtherMemory) {
  const SourceText source("test.cell", GetParam().text);
  const File tree = oracle::parse_or_throw(source);
  const LoweredCell cell(source, tree, tree.cells[0]);
  Device device = open_device();
  if (!device.emulator) GTEST_SKIP() << "a card does not say what is allocated";
  const auto taken = [&](const Wanted& wanted, std::string* reason) {
    CudaSolver solver(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source);
    BoundRun run = run_of(cell, Dtype::F32, false);
    run.wanted = wanted;
    SolveOptions options;
    options.solver = Strategy::Sequential;
    SolveReport report;
    const std::int64_t before = device.emulator->counts().live_bytes;
    solver.run(run, options, report);
    if (reason) *reason = report.stages[0].plan.reason;
    return device.emulator->counts().live_bytes - before;
  };
  std::int64_t states = 0;
  for (const StateUpdate& u : cell.graph.updates)
    states += 90 * 4 * (cell.graph.symbol_of(u).axes.size() == 2 ? kLength * kLength : kLength);
  Wanted outs;
  outs.states.assign(cell.graph.updates.size(), false);
  std::string reason;
  const std::int64_t saved = taken({}, nullptr) - taken(outs, &reason);
  EXPECT_EQ(saved >= states, GetParam().leaves_states_out) << saved << " of " << states;
  EXPECT_EQ(reason.find("every step is in memory") == std::string::npos, GetParam().leaves_states_out) << reason;
}

INSTANTIATE_TEST_SUITE_P(Cells, WantedOnDevice, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cellc
