// Kernels that live through all steps (kernels-templates/persistent): cells that mix channels, cut for clusters of
// every size, against the oracle; what cannot run so says why.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <set>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"
#include "compiler/syntax/parse.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/choose_persistent.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "tests/engines/against_oracle.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gpu/fixtures.h"
#include "tests/gpu/nests_on_device.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

struct Mixing {
  const char *name, *text;
};

constexpr Mixing kCells[] = {
    {"elman", R"(cell elman[d, m] {
  state h[d]
  input x[m]
  param U[d,d], W[d,m], b[d]
  h' = tanh(W@x + U@h + b)
}
)"},
    // Four products of one value, and a state that nobody else reads.
    {"lstm", R"(cell lstm[d, m] {
  state c[d], h[d]
  input x[m]
  param Wi[d,m], Wf[d,m], Wg[d,m], Wo[d,m], Ui[d,d], Uf[d,d], Ug[d,d], Uo[d,d], bi[d], bf[d]
  c' = sigmoid(Wf@x + Uf@h + bf)*c + sigmoid(Wi@x + Ui@h + bi)*tanh(Wg@x + Ug@h)
  h' = sigmoid(Wo@x + Uo@h)*tanh(c')
}
)"},
    // Two exchanges a step: the reset gate inside of a product.
    {"gru", R"(cell gru[d] {
  state h[d]
  input xz[d], xr[d], xc[d]
  param Uz[d,d], Ur[d,d], Uc[d,d]
  z = sigmoid(xz + Uz@h)
  r = sigmoid(xr + Ur@h)
  h' = z*h + (1 - z)*tanh(xc + Uc@(r*h))
}
)"},
    // A matrix the other way round, two values in one nest, an out, and an input of the step before.
    {"both", R"(cell both[d] {
  state a[d], b[d]
  input x[d]
  param U[d,d], V[d,d]
  a' = tanh(a@U + V@b + lag(x, 1) + mean[d](b))
  b' = 0.5*b + 0.1*a*x
  out y = a*b' + x
}
)"},
    // Heads: a cluster for each.
    {"heads", R"(cell heads[heads, k] {
  state h[heads,k], c[heads,k]
  input u[heads,k], v[heads,k]
  param R[heads,k,k], S[heads,k,k]
  i = sigmoid(R@h + u)
  c' = i*c + (1 - i)*tanh(S@h + v)
  h' = tanh(c')
}
)"},
    // Sums over channels, which every block makes for itself, and a state without channels.
    {"normed", R"(cell normed[d] {
  state h[d], m
  input x[d]
  param U[d,d]
  s = x + U@h
  e = s - mean[d](s)
  n = e*rsqrt(mean[d](square(e)) + 0.01)
  m' = 0.5*m + 0.1*mean[d](n*x)
  h' = tanh(n + m)
}
)"},
    // States of several entries a channel: told as whole rows.
    {"wide", R"(cell wide[d, n] {
  state h[d,n], g[d]
  input x[d]
  param U[d,d]
  g' = tanh(U@g + sum[n](h) + x)
  h'[d,n] = 0.9*h[d,n] + 0.1*g[d]*x[d]
}
)"},
};

struct Cut {
  int blocks, slots, threads;
  PersistentWish::Exchange exchange = PersistentWish::Exchange::Cluster;
};
constexpr PersistentWish::Exchange kGroup = PersistentWish::Exchange::Group;
constexpr Cut kCuts[] = {{1, 1, 256}, {1, 3, 256}, {2, 2, 256}, {4, 1, 384}, {8, 3, 256}, {16, 2, 512}, {2, 16, 256}};
/// Of a card of 32 multiprocessors: several groups at once, groups that take turns, blocks without a place.
constexpr Cut kGroups[] = {{2, 1, 256, kGroup}, {5, 3, 256, kGroup}, {9, 2, 256, kGroup}, {3, 10, 384, kGroup}};

struct Kind {
  const char* name;
  Dtype dtype;
  ProductFactors factors;
  /// Of one step, where factors are rounded to 16 bits: 70 terms of at most 1, each off by two roundings; 0: as stored.
  double rounded = 0;
};
constexpr Kind kKinds[] = {{"f32", Dtype::F32, ProductFactors::Real},
                           {"3xtf32", Dtype::F32, ProductFactors::Tf32x3},
                           {"f64", Dtype::F64, ProductFactors::Tf32x3},
                           {"bf16", Dtype::BF16, ProductFactors::Tf32x3},
                           {"f16", Dtype::F16, ProductFactors::Real},
                           {"f16 products", Dtype::F16, ProductFactors::F16, 0.01},
                           {"bf16 products", Dtype::BF16, ProductFactors::BF16, 0.08}};

class Persistently : public testing::TestWithParam<std::size_t> {
 protected:
  Persistently()
      : source_(fmt::format("{}.cell", kCells[GetParam()].name), kCells[GetParam()].text),
        tree_(parsed()),
        cell_(source_, tree_, tree_.cells.at(0)) {}

  std::unique_ptr<NestProgram> compile(Gpu& gpu, const Kind& kind, const Cut& cut,
                                       const std::map<AxisId, std::int64_t>& lengths, std::string& why,
                                       std::int64_t chunk_bytes = 0) {
    const Plan plan = make_plan(cell_.graph, cell_.structure, {.narrow_storage = size_of(kind.dtype) == 2});
    const PersistentChoice choice = choose_persistent({plan,
                                                       lengths,
                                                       3,
                                                       kind.dtype,
                                                       kind.factors,
                                                       gpu.facts(),
                                                       16,
                                                       true,
                                                       {cut.blocks, cut.slots, cut.threads, cut.exchange}});
    why = choice.reason;
    if (choice.code.empty()) return nullptr;
    NestOptions options;
    options.source = &source_;
    options.chunk_bytes = chunk_bytes;
    options.factors = kind.factors;
    options.persistent = choice.code;
    return std::make_unique<NestProgram>(NestProgram::compile(gpu, cell_.graph, cell_.structure, kind.dtype, options));
  }

  void agree(const std::vector<Kind>& kinds, const std::vector<Cut>& cuts, const std::vector<std::int64_t>& lengths);

  SourceText source_;
  File tree_;
  LoweredCell cell_;

 private:
  File parsed() const {
    Diagnostics found;
    return parse(source_, found);
  }
};

std::string name_of(const testing::TestParamInfo<std::size_t>& info) { return kCells[info.param].name; }

void Persistently::agree(const std::vector<Kind>& kinds, const std::vector<Cut>& cuts,
                         const std::vector<std::int64_t>& lengths) {
  const bool heads = kCells[GetParam()].name == std::string("heads");
  std::uint64_t schedule = 0;
  for (const Kind& kind : kinds)
    for (const Cut& cut : cuts)
      for (const std::int64_t channels : lengths) {
        oracle::Random random(5);
        Device device = open_device(32);
        const std::map<std::string, std::int64_t> sizes = oracle::axis_lengths(
            cell_.oracle, heads ? std::vector<std::int64_t>{3, channels} : std::vector<std::int64_t>{channels, 3});
        std::unique_ptr<NestProgram> program, windows;
        for (const bool reverse : {false, true}) {
          Trial::Options with{.dtype = kind.dtype, .sizes = sizes, .steps = 9, .sequences = 4};
          with.starts_given = channels != 5;
          with.reverse = reverse;
          // Of a whole run rounding grows as the cell makes it grow.
          with.step_by_step = kind.rounded > 0;
          if (kind.rounded > 0) with.narrow_tolerance = kind.rounded;
          const Trial trial(cell_.graph, cell_.oracle, {}, random, with);
          if (!program) {
            std::string why;
            const Binding binding = trial.bound({9, 9, 9, 9}, false, 1);
            program = compile(*device.gpu, kind, cut, binding.run.sizes, why);
            windows = compile(*device.gpu, kind, cut, binding.run.sizes, why, 1);
            if (!program && why.find("KB of a block") != std::string::npos)
              break;  // too many sequences for so few blocks
            ASSERT_TRUE(program && windows) << why;
          }
          for (const std::vector<std::int64_t>& steps :
               std::vector<std::vector<std::int64_t>>{{9, 9, 9, 9}, {1, 1}, {0, 0, 0}, {}, {5, 0, 9, 2}, {2}}) {
            const Binding binding = trial.bound(steps, steps.size() == 4 && steps[1] == 0, 1);
            for (NestProgram* p : {&*program, &*windows}) {
              device.reorder(schedule++);
              ASSERT_EQ(trial.verify(binding.run, run_on_device(*device.gpu, *p, cell_.graph, binding.run, kind.dtype),
                                     steps),
                        "")
                  << fmt::format(
                         "{}, {} channels, {} of {} blocks, {} slots, {} threads, reverse {}, {} sequences of {}",
                         kind.name, channels, cut.exchange == kGroup ? "groups" : "clusters", cut.blocks, cut.slots,
                         cut.threads, reverse, steps.size(), steps.empty() ? 0 : steps[0]);
            }
          }
        }
      }
}

/// Lengths of channels that are no multiple of anything, one that leaves blocks without a place, and one of many tiles.
TEST_P(Persistently, AgreesWithOracle) {
  turns::Turn turn;
  const auto kinds = turn.of(std::vector<Kind>(std::begin(kKinds), std::end(kKinds)));
  const auto cuts = turn.of(std::vector<Cut>(std::begin(kCuts), std::end(kCuts)));
  agree(kinds, cuts, turn.of(std::vector<std::int64_t>{5, 37, 70}));
}
TEST_P(Persistently, GroupsAgreeWithOracle) {
  turns::Turn turn;
  const auto kinds = turn.of(std::vector<Kind>(std::begin(kKinds), std::end(kKinds)));
  const auto cuts = turn.of(std::vector<Cut>(std::begin(kGroups), std::end(kGroups)));
  agree(kinds, cuts, turn.of(std::vector<std::int64_t>{5, 37, 70}));
}

/// Whoever asks for the blocks of a kernel hears that none is resident.
class WithoutRoom final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  int resident_blocks(const GpuFunction&, int, std::int64_t) override { return 0; }
};

/// What a call leaves in the memory of a group is none of the next one's, whether that is longer or shorter.
TEST_P(Persistently, GroupsCallAfterCall) {
  oracle::Random random(11);
  const bool heads = kCells[GetParam()].name == std::string("heads");
  const std::map<std::string, std::int64_t> sizes =
      oracle::axis_lengths(cell_.oracle, heads ? std::vector<std::int64_t>{2, 19} : std::vector<std::int64_t>{19, 3});
  const Trial trial(cell_.graph, cell_.oracle, {}, random, {.sizes = sizes, .steps = 7, .sequences = 3});
  Device device = open_device(8);
  CudaSolver solver(*device.gpu, cell_.graph, cell_.structure, Dtype::F32);
  SolveOptions options;
  options.solver = Strategy::Persistent;
  options.products = Products::F32;
  options.persistent = {3, 2, 256, kGroup};
  std::uint64_t schedule = 0;
  for (const std::vector<std::int64_t>& steps : std::vector<std::vector<std::int64_t>>{
           {7, 7, 7}, {1, 1, 1}, {2, 2, 2}, {3, 0, 1}, {7, 7, 7}, {4}, {5}, {6}, {}}) {
    const Binding binding = trial.bound(steps, steps.size() == 3 && steps[1] == 0, 1);
    device.reorder(schedule++);
    SolveReport report;
    const RunOutput output = solver.run(binding.run, options, report);
    ASSERT_EQ(trial.verify(binding.run, output, steps), "") << fmt::format("{} sequences", steps.size());
    if (steps.empty()) continue;
    EXPECT_NE(report.stages.at(0).plan.reason.find("groups of 3 blocks"), std::string::npos)
        << report.stages.at(0).plan.reason;
  }
  // A card that other programs have a part of.
  WithoutRoom full(*device.gpu);
  CudaSolver elsewhere(full, cell_.graph, cell_.structure, Dtype::F32);
  options.solver = Strategy::Auto;
  const Binding binding = trial.bound({4, 4, 4}, false, 1);
  SolveReport report;
  ASSERT_EQ(trial.verify(binding.run, elsewhere.run(binding.run, options, report), {4, 4, 4}), "");
  EXPECT_NE(report.stages.at(0).plan.reason.find("the card does not hold all blocks of such a group at once"),
            std::string::npos)
      << report.stages.at(0).plan.reason;
}

/// Of a card as large as an H100, and of smaller ones.
TEST(ChoosePersistent, WeightsThatFitNoCluster) {
  const AnalysedCell cell = analyse_text(SourceText("mixing.cell", kCells[1].text));
  const Plan plan = make_plan(cell.cell, cell.structure);
  std::map<AxisId, std::int64_t> lengths;
  for (const AxisId a : cell.cell.header) lengths[a] = 768;
  GpuFacts facts = facts_of_architecture("sm_90");
  const auto chosen = [&](PersistentWish wish, bool groups = true) {
    return choose_persistent({plan, lengths, 16, Dtype::F32, ProductFactors::Tf32, facts, 16, groups, wish});
  };
  const PersistentChoice all = chosen({});
  ASSERT_FALSE(all.code.empty()) << all.reason;
  EXPECT_TRUE(all.code[0].shape.grouped);
  EXPECT_LE(all.code[0].shape.blocks, 132);
  EXPECT_GT(all.code[0].layout.exchange_bytes, 0);
  EXPECT_NE(all.reason.find("weights rest in groups of"), std::string::npos);
  const auto reason_of = [](const PersistentChoice& choice) {
    EXPECT_TRUE(choice.code.empty());
    return choice.reason;
  };
  EXPECT_NE(reason_of(chosen({}, false)).find("KB of a block at least"), std::string::npos);
  EXPECT_NE(reason_of(chosen({0, 0, 0, PersistentWish::Exchange::Cluster})).find("KB of a block at least"),
            std::string::npos);
  facts.multiprocessors = 20;
  EXPECT_NE(reason_of(chosen({})).find("KB of a block at least"), std::string::npos);
  EXPECT_EQ(reason_of(chosen({32, 0, 0, kGroup})), "each block of a group needs one of the card's 20 multiprocessors");
}

/// Gradients of such a cell are those of a cell of the same kind: matrices the other way round, more values told.
TEST_P(Persistently, TheAdjointIsOneOfTheSameKind) {
  AdjointCell adjoint = adjoint_of(cell_.graph);
  CellGraph& graph = adjoint.adjoint.cell;
  const Structure structure = analyse(graph, differentiate(graph));
  const Plan plan = make_plan(graph, structure);
  for (const int k : std::set<int>(plan.state_kernel.begin(), plan.state_kernel.end())) {
    std::string why;
    EXPECT_TRUE(find_persistent(plan, k, why)) << "kernel " << k << ": " << why;
  }
}

/// For a card, with tensor cores of every kind.
class PersistentlyUnderNvrtc : public WithNvrtc, public testing::WithParamInterface<std::size_t> {};
TEST_P(PersistentlyUnderNvrtc, Compiles) {
  const AnalysedCell cell = analyse_text(SourceText("mixing.cell", kCells[GetParam()].text));
  turns::Turn turn;
  const GpuFacts facts = facts_of_architecture("sm_90");
  for (const Kind& kind : turn.of(std::vector<Kind>{{"3xtf32", Dtype::F32, ProductFactors::Tf32x3},
                                                    {"tf32", Dtype::F32, ProductFactors::Tf32},
                                                    {"bf16", Dtype::BF16, ProductFactors::BF16},
                                                    {"f16", Dtype::F16, ProductFactors::F16},
                                                    {"f64", Dtype::F64, ProductFactors::Real}})) {
    const Plan plan = make_plan(cell.cell, cell.structure, {.narrow_storage = size_of(kind.dtype) == 2});
    std::map<AxisId, std::int64_t> lengths;
    for (const AxisId a : cell.cell.header) lengths[a] = 64;
    const PersistentChoice choice = choose_persistent(
        {plan, lengths, 16, kind.dtype, kind.factors, facts, 16, true, {4, 4, 256, PersistentWish::Exchange::Cluster}});
    ASSERT_FALSE(choice.code.empty()) << choice.reason;
    NestOptions options;
    options.factors = kind.factors;
    options.persistent = choice.code;
    const GpuSource source = NestProgram::emit(cell.cell, cell.structure, kind.dtype, options);
    EXPECT_NO_THROW(compile_cuda(quick(source), "sm_90", CompiledKind::Cubin)) << kind.name;
    const PersistentChoice grouped =
        choose_persistent({plan, lengths, 16, kind.dtype, kind.factors, facts, 16, true, {3, 4, 256, kGroup}});
    ASSERT_FALSE(grouped.code.empty()) << grouped.reason;
    options.persistent = grouped.code;
    const GpuSource of_groups = NestProgram::emit(cell.cell, cell.structure, kind.dtype, options);
    EXPECT_NO_THROW(compile_cuda(quick(of_groups), "sm_90", CompiledKind::Cubin)) << kind.name << ", groups";
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, PersistentlyUnderNvrtc, testing::Range<std::size_t>(0, std::size(kCells)), name_of);
INSTANTIATE_TEST_SUITE_P(Cells, Persistently, testing::Range<std::size_t>(0, std::size(kCells)), name_of);

}  // namespace
}  // namespace cellc
