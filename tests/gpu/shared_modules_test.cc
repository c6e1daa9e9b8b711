// What a run compiles of a cell of many stages: one of those that are alike, and the others at the same time.
#include "runtime/cuda/device/shared_modules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "compiler/front_end.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/ship/aot_cell.h"
#include "runtime/cuda/ship/list_cuda_units.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/reference.h"
#include "tests/emulator/emulator.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

/// A cascade of sections that differ in names, and in lines; where `odd` is one of them, that has another step.
std::string cascade(int sections, int odd = -1) {
  std::string states, params, lines;
  for (int i = 0; i < sections; ++i) {
    states += fmt::format("{}state{}[d]", i ? ", " : "", i);
    params += fmt::format("{}weight{}[d]", i ? ", " : "", i);
    const std::string from = i ? fmt::format("state{}'", i - 1) : "x";
    lines += fmt::format("  mixed{0} = weight{0}*state{0} + {1}\n  state{0}' = {2}(mixed{0})\n", i, from,
                         i == odd ? "sin" : "tanh");
  }
  return fmt::format("cell cascade[d] {{\n  state {}\n  input x[d]\n  param {}\n{}}}\n", states, params, lines);
}

/// Writes down what it is asked to compile.
class Listening final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  GpuModule load(const GpuSource& source) override {
    loaded.push_back(source);
    return below_.load(source);
  }
  double compile_ahead(const std::vector<GpuSource>& sources) override {
    ahead.push_back(sources.size());
    return below_.compile_ahead(sources);
  }
  /// Kernels of lanes: a run that looks at its steps afterwards has others.
  std::size_t stages() const {
    return static_cast<std::size_t>(
        std::count_if(loaded.begin(), loaded.end(), [](const GpuSource& s) { return !s.alike.empty(); }));
  }
  std::vector<GpuSource> loaded;
  std::vector<std::size_t> ahead;
};

// The first section reads the input where others read a state, so that its arrays have other numbers.
TEST(SharedModules, StagesThatAreAlikeAreCompiledOnce) {
  EmulatorOptions quick;
  quick.optimisation = 0;
  const auto emulator = open_emulator(quick);
  for (const int odd : {-1, 2}) {
    const AnalysedCell cell = analyse_text(SourceText("test.cell", cascade(4, odd)));
    ASSERT_EQ(cell.structure.stages.size(), 4u);
    BindRequest request;
    request.random_seed = 1;
    request.batch = 2;
    request.length = 40;
    request.dims = {{"d", 5}};
    const Binding binding = bind(cell.cell, request);
    for (const Strategy strategy : {Strategy::Sequential, Strategy::Segmented}) {
      Listening card(*emulator);
      CudaSolver solver(card, cell.cell, cell.structure, Dtype::F32, &cell.source);
      SolveOptions options;
      options.solver = strategy;
      SolveReport report;
      const RunOutput output = solver.run(binding.run, options, report);
      EXPECT_EQ(card.stages(), odd < 0 ? 2u : 3u) << to_string(strategy);
      ASSERT_EQ(card.ahead.size(), 1u) << to_string(strategy);
      EXPECT_EQ(card.ahead[0], odd < 0 ? 2u : 3u) << to_string(strategy);
      EXPECT_LE(compare(cell.cell, binding.run, output, reference_run(cell.cell, binding.run)).error, 1e-5);
      // Nothing is left to compile.
      solver.run(binding.run, options, report);
      EXPECT_EQ(card.stages(), odd < 0 ? 2u : 3u);
      EXPECT_EQ(card.ahead.size(), 1u);
    }
  }
}

TEST(SharedModules, WhatNobodyHoldsIsCompiledAgain) {
  const auto emulator = open_emulator({});
  Listening card(*emulator);
  SharedModules shared(card);
  const GpuSource one{"one.cu", "extern \"C\" __global__ void k(int* a) { *a = 1; }\n", {}, "as other"},
      other{"other.cu", "extern \"C\" __global__ void k(int* b) { *b = 1; }\n", {}, "as other"};
  {
    const GpuModule held = shared.load(one);
    EXPECT_EQ(shared.load(other).module, held.module);
    EXPECT_EQ(shared.load(other).compile_ms, 0);
  }
  EXPECT_TRUE(shared.load(other));
  ASSERT_EQ(card.loaded.size(), 2u);
  EXPECT_EQ(card.loaded[1].name, "other.cu");
  // Options make other code of the same text.
  const GpuModule plain = shared.load(one), with = shared.load({one.name, one.text, {"-DOTHER=1"}, one.alike});
  EXPECT_NE(plain.module, with.module);
}

TEST(SharedModules, UnitsAndFilesHaveThemOnce) {
  const AnalysedCell alike = analyse_text(SourceText("test.cell", cascade(4))),
                     odd = analyse_text(SourceText("test.cell", cascade(4, 2)));
  const auto units = [](const AnalysedCell& cell) {
    return list_cuda_units(cell.cell, cell.structure, Dtype::F32, &cell.source, "sm_90", {{"d", 64}}, 32);
  };
  ASSERT_EQ(units(alike).size(), 2u);
  EXPECT_TRUE(has(units(alike)[1].what, "stage {state1}"));
  EXPECT_TRUE(has(units(alike)[1].what, "also stage {state3}"));
  EXPECT_EQ(units(odd).size(), 3u);
  const auto shipped = [](const AnalysedCell& cell) {
    ShipRequest request;
    request.solver = Strategy::Sequential;
    request.card = facts_of_architecture("sm_90");
    request.prefix = "shipped";
    return std::make_unique<AotCell>(cell.cell, cell.structure, request);
  };
  const auto with_alike = shipped(alike), with_odd = shipped(odd);
  EXPECT_LT(with_alike->kernels.size(), with_odd->kernels.size());
  EXPECT_LT(with_alike->text.size(), with_odd->text.size());
  const auto first_kernel = [](const AotCell& cell, int stage) { return cell.stages[stage].plain.first_kernel; };
  EXPECT_EQ(first_kernel(*with_alike, 1), first_kernel(*with_alike, 2));
  EXPECT_EQ(first_kernel(*with_alike, 1), first_kernel(*with_alike, 3));
  EXPECT_EQ(first_kernel(*with_odd, 1), first_kernel(*with_odd, 3));
  EXPECT_NE(first_kernel(*with_odd, 1), first_kernel(*with_odd, 2));
}

class CompiledAhead : public WithFakeDriver {};

TEST_F(CompiledAhead, IsLoadedWithoutACompiler) {
  std::string reason;
  const auto gpu = open(reason, scratch / "cache");
  const GpuSource a{"a.cu", "text of a", {}}, b{"b.cu", "text of b", {}}, wrong{"c.cu", "#error", {}};
  gpu->compile_ahead({a, b, a, wrong});
  EXPECT_TRUE(driver->images.empty()) << "nothing is loaded before it is asked for";
  for (const GpuSource& source : {a, b}) {
    const GpuModule module = gpu->load(source);
    EXPECT_EQ(module.compile_ms, 0);
    EXPECT_EQ(module.cache, CacheState::Miss);
    EXPECT_TRUE(has(driver->images.back(), source.text));
  }
  EXPECT_THROW(gpu->load(wrong), DeviceError) << "what does not compile says so when it is loaded";
  EXPECT_EQ(gpu->load(a).cache, CacheState::Hit) << "it is kept like everything else";
  // What the cache has, and what is alone, is left to load().
  EXPECT_EQ(gpu->compile_ahead({a, b, {"d.cu", "text of d", {}}}), 0);
  EXPECT_GT(gpu->load({"d.cu", "text of d", {}}).compile_ms, 0);
}

}  // namespace
}  // namespace cellc
