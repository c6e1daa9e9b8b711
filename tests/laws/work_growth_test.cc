// What the compiler does for a cell grows with the cell, not with its square: counted in nodes that walks meet and in
// nodes that the graph ends with, never in seconds. Each family is made at a size and at four times that size.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/front_end.h"
#include "compiler/graph/graph_walk.h"
#include "compiler/plan/plan.h"

namespace cellc {
namespace {

struct Family {
  const char* name;
  std::string (*text)(int n);
};

std::string many(int n, const char* format) {
  std::string text;
  for (int i = 1; i < n; ++i) text += fmt::format(fmt::runtime(format), i, i - 1);
  return text;
}

const Family kFamilies[] = {
    {"ChainOfSigmoids",
     [](int n) {
       return "cell c {\n state h\n input x\n a0 = h + x\n" + many(n, " a{0} = sigmoid(a{1} + x)\n") +
              fmt::format(" h' = a{}\n}}\n", n - 1);
     }},
    {"SumOfCubes",
     [](int n) {
       return "cell c {\n state h\n input x\n a0 = h + x\n" + many(n, " a{0} = a{1} + (0.001*{0}*h + x)^3\n") +
              fmt::format(" h' = a{}\n}}\n", n - 1);
     }},
    {"MaximaOfSteps",
     [](int n) {
       return "cell c {\n state h\n input x\n a0 = h + x\n" + many(n, " a{0} = max(0.5*a{1} + x, {0})\n") +
              fmt::format(" h' = a{}\n}}\n", n - 1);
     }},
    {"InlinedFunctions",
     [](int n) {
       return "fn f(x) = tanh(x*1.5 + 0.1)*0.5 + x\ncell c {\n state h\n input x\n a0 = h + x\n" +
              many(n, " a{0} = f(f(f(a{1})))\n") + fmt::format(" h' = a{}\n}}\n", n - 1);
     }},
    {"RingOfStates",
     [](int n) {
       std::string text = "cell c {\n input x\n state s0";
       for (int i = 1; i < n; ++i) text += fmt::format(", s{}", i);
       text += "\n";
       for (int i = 0; i < n; ++i)
         text += fmt::format(" s{0}' = s{0} + 0.01*((s{1} - s{2})*s{0} + x)\n", i, (i + 1) % n, (i + n - 1) % n);
       return text + "}\n";
     }},
    {"StatesApart", [](int n) {
       std::string text = "cell c {\n input x\n state s0";
       for (int i = 1; i < n; ++i) text += fmt::format(", s{}", i);
       text += "\n";
       for (int i = 0; i < n; ++i) text += fmt::format(" s{0}' = tanh(0.5*s{0} + {0}*x)\n", i);
       return text + "}\n";
     }}};

struct Work {
  double met, nodes, planned;
};

Work work_of(const std::string& text) {
  const std::uint64_t before = nodes_met();
  AnalysedCell cell = analyse_text(SourceText("test", text));
  const Plan plan = make_plan(cell.cell, cell.structure, {});
  return {static_cast<double>(nodes_met() - before), static_cast<double>(cell.cell.graph.size()),
          static_cast<double>(plan.cell.graph.size())};
}

class WorkGrowth : public testing::TestWithParam<Family> {};

TEST_P(WorkGrowth, IsThatOfTheCell) {
  constexpr int kSize = 150, kTimes = 4;
  const Work once = work_of(GetParam().text(kSize)), more = work_of(GetParam().text(kTimes * kSize));
  // n·log n would be 5.1 times here, the square 16.
  constexpr double kMost = 1.4 * kTimes;
  EXPECT_LT(more.met, kMost * once.met) << once.met << " nodes met at " << kSize;
  EXPECT_LT(more.nodes, kMost * once.nodes) << once.nodes << " nodes at " << kSize;
  EXPECT_LT(more.planned, kMost * once.planned) << once.planned << " nodes planned at " << kSize;
}

INSTANTIATE_TEST_SUITE_P(Families, WorkGrowth, testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace cellc
