// Products of runs by the instructions of sm_90a (product_wgmma.cuh): forced on, against those by mma.sync, of shapes
// that fill no tile; which kernels run, and when they pay.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "compiler/front_end.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "runtime/data/bind.h"
#include "tests/engines/relaxed_cells.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/nests_on_device.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

/// Products of an input by a matrix for each entry of the batch and by one for all, of what is computed from it, and of
/// new states.
constexpr const char* kProducts = R"(cell products[e, d, m] {
  state h[e,d]
  input x[e,m]
  param W[d,m], R[e,d,m], V[m,d], a[d], b[m]
  h' = sigmoid(a)*h + R@x + tanh(W@(b*x))
  out y[e,m] = V@tanh(h')
}
)";
constexpr int kCount = 3;

/// Counts launches by the name of the kernel.
class Counting final : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  GpuFunction function(const GpuModule& module, const std::string& name) override {
    GpuFunction found = WrappedGpu::function(module, name);
    names_[{found.module.get(), found.handle}] = name;
    kept_.push_back(module);
    return found;
  }
  void launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) override {
    ++launches[names_[{function.module.get(), function.handle}]];
    WrappedGpu::launch(function, launch, arguments);
  }
  std::map<std::string, int> launches;

 private:
  std::map<std::pair<void*, std::uint64_t>, std::string> names_;
  std::vector<GpuModule> kept_;  ///< so that no other has the address of one
};

Binding bound(const AnalysedCell& cell, Dtype dtype, std::int64_t d, std::int64_t m, bool reverse = false) {
  BindRequest r;
  r.random_seed = 7;
  r.batch = 3;
  r.length = 9;
  r.dtype = dtype;
  r.reverse = reverse;
  r.dims = {{"e", 2}, {"d", d}, {"m", m}};
  return bind(cell.cell, r);
}

bool has_them(const Device& device) { return device.gpu->facts().architecture() == "sm_90"; }

struct Kind {
  Products products;
  Dtype dtype;
  double near;  ///< sums in another order, and what storage makes of that
};

TEST(WideProducts, AreThoseOfOtherInstructions) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kProducts));
  Device device = open_device();
  if (!has_them(device)) GTEST_SKIP() << "kernels for sm_90a alone";
  Counting gpu(*device.gpu);
  for (const Kind& kind : {Kind{Products::Tf32x3, Dtype::F32, 1e-5}, Kind{Products::Tf32, Dtype::F32, 2e-3},
                           Kind{Products::Storage, Dtype::BF16, 0x1p-6}, Kind{Products::Storage, Dtype::F16, 0x1p-9}})
    for (const auto& [d, m] : {std::pair<std::int64_t, std::int64_t>{131, 37}, {3, 129}}) {
      SCOPED_TRACE(fmt::format("{} of {}, {} by {}", to_string(kind.products), to_string(kind.dtype), d, m));
      const Binding binding = bound(l, kind.dtype, d, m, d == 3);
      CudaSolver solver(gpu, l.cell, l.structure, kind.dtype);
      SolveOptions solve;
      solve.products = kind.products;
      SolveReport report;
      std::map<WideProducts, RunOutput> outputs;
      for (const WideProducts wide : {WideProducts::Never, WideProducts::Always, WideProducts::WherePaid}) {
        solve.wide_products = wide;
        gpu.launches.clear();
        outputs[wide] = solver.run(binding.run, solve, report);
        const int own = wide == WideProducts::Always ? kCount : 0;
        // What passes between passes has 16 bits, too.
        const bool stored = kind.products == Products::Storage;
        EXPECT_EQ(gpu.launches[stored ? "cellc_prepare_stored" : "cellc_prepare_matrix"], own);
        EXPECT_EQ(gpu.launches[stored ? "cellc_product_wgmma_stored" : "cellc_product_wgmma"], own);
        EXPECT_EQ(gpu.launches[stored ? "cellc_product_stored" : "cellc_product"], kCount - own);
      }
      EXPECT_LE(furthest(outputs[WideProducts::Always], outputs[WideProducts::Never]), kind.near);
      EXPECT_EQ(furthest(outputs[WideProducts::WherePaid], outputs[WideProducts::Never]), 0);
    }
}

/// Of 16 bits, whole steps: an input is read where it lies, a value that is rounded in any case is passed in 16 bits,
/// and one that is not in 32.
TEST(WideProducts, ReadRowsOf16Bits) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", R"(cell steps[d, m] {
  state h[d]
  input x[m]
  param U[d,d], W[d,m], P[d,m], V[m,d]
  h' = tanh(0.1*(U@h) + W@x + P@exp(0.1*x))
  out y[m] = V@h'
}
)"));
  Device device = open_device();
  Counting gpu(*device.gpu);
  for (const auto& [kind, m] : {std::pair{Kind{Products::Tf32x3, Dtype::BF16, 0x1p-6}, std::int64_t{37}},
                                {Kind{Products::Tf32x3, Dtype::F16, 0x1p-9}, 64},
                                {Kind{Products::Storage, Dtype::BF16, 0x1p-5}, 64},
                                {Kind{Products::Storage, Dtype::F16, 0x1p-8}, 37}}) {
    SCOPED_TRACE(fmt::format("{} of {}, {}", to_string(kind.products), to_string(kind.dtype), m));
    BindRequest r;
    r.random_seed = 7;
    r.batch = 2;
    r.length = 3;
    r.dtype = kind.dtype;
    r.dims = {{"d", 72}, {"m", m}};
    const Binding binding = bind(l.cell, r);
    CudaSolver solver(gpu, l.cell, l.structure, kind.dtype);
    SolveOptions solve;
    solve.solver = Strategy::Sequential;
    SolveReport report;
    solve.products = Products::F32;
    const RunOutput expected = solver.run(binding.run, solve, report);
    solve.products = kind.products;
    const bool rounds = kind.products == Products::Storage;
    for (const WideProducts wide : {WideProducts::Never, WideProducts::Always}) {
      if (wide == WideProducts::Always && !has_them(device)) continue;
      solve.wide_products = wide;
      gpu.launches.clear();
      EXPECT_LE(furthest(solver.run(binding.run, solve, report), expected), kind.near);
      const bool own = wide == WideProducts::Always;
      EXPECT_EQ(gpu.launches[own ? "cellc_product_wgmma_stored" : "cellc_product_stored"], rounds ? 3 : 1);
      EXPECT_EQ(gpu.launches[own ? "cellc_prepare_stored" : "cellc_product_wgmma_stored"], own ? rounds ? 3 : 1 : 0);
      EXPECT_EQ(gpu.launches[own ? "cellc_product_wgmma" : "cellc_product"], rounds ? 0 : 2);
    }
  }
}

/// A product that is an out stands where that lies, and no kernel copies it there; unless rows of 16 bits would be read
/// again which were not to lose any. Of `storage` all that passes between the kernels of a cell without states has 16.
TEST(Products, StandWhereTheirOutsLie) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", R"(cell passes[d, m] {
  state h[d]
  input x[m]
  param W[d,m], V[m,d]
  h' = 0.5*h + W@x
  out p = W@x
  out q = V@(W@x)
  out r[m] = tanh(V@tanh(W@x))
}
)"));
  CellGraph cell = l.cell;
  cell.updates.clear();
  const auto planned = [&](Dtype storage, Products products) {
    return make_plan(cell, Structure{}, plan_options(cell, storage, product_factors(products, storage)));
  };
  const auto left_at = [](const Plan& plan) {
    std::string places;
    for (const Product& p : plan.products)
      places += p.result.place == Place::Out                                ? fmt::format(" out {}", p.result.id)
                : plan.chunks[static_cast<std::size_t>(p.result.id)].stored ? " rows of 16 bits"
                                                                            : " rows";
    return places;
  };
  EXPECT_EQ(left_at(planned(Dtype::F32, Products::Tf32x3)), " out 0 out 1 rows");
  EXPECT_EQ(left_at(planned(Dtype::BF16, Products::Tf32x3)), " rows out 1 rows");
  EXPECT_EQ(left_at(planned(Dtype::BF16, Products::Storage)), " out 0 out 1 rows of 16 bits");
  EXPECT_EQ(left_at(make_plan(cell, Structure{}, {})), " rows rows rows") << "BLAS and its rows are as they were";
}

/// Unasked, on a card, of a shape where they pay.
TEST(WideProducts, AreChosenByThemselves) {
  Device device = open_device();
  if (!on_card() || !has_them(device)) GTEST_SKIP() << "too much for the emulator";
  const AnalysedCell l = analyse_text(SourceText("test.cell", kProducts));
  Counting gpu(*device.gpu);
  BindRequest r;
  r.random_seed = 7;
  r.batch = 4;
  r.length = 4096;
  r.dims = {{"e", 2}, {"d", 516}, {"m", 512}};
  const Binding binding = bind(l.cell, r);
  CudaSolver solver(gpu, l.cell, l.structure, Dtype::F32);
  SolveOptions solve;
  SolveReport report;
  const RunOutput chosen = solver.run(binding.run, solve, report);
  EXPECT_GE(gpu.launches["cellc_product_wgmma"], kCount);
  EXPECT_EQ(gpu.launches["cellc_product"], 0);
  EXPECT_TRUE(report.converged);
  solve.wide_products = WideProducts::Never;
  const RunOutput other = solver.run(binding.run, solve, report);
  EXPECT_GE(gpu.launches["cellc_product"], kCount);
  EXPECT_LE(furthest(chosen, other), 1e-4);
  EXPECT_GT(furthest(chosen, other), 0) << "the same sums in the same order";
}

/// f64 and multiply-adds have no such kernels, whoever asks for them.
TEST(WideProducts, AreOfTensorCoresAlone) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kProducts));
  Device device = open_device();
  Counting gpu(*device.gpu);
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    CudaSolver solver(gpu, l.cell, l.structure, dtype);
    SolveOptions solve;
    solve.products = dtype == Dtype::F64 ? Products::Tf32x3 : Products::F32;
    solve.wide_products = WideProducts::Always;
    SolveReport report;
    solver.run(bound(l, dtype, 5, 7).run, solve, report);
  }
  EXPECT_EQ(gpu.launches["cellc_prepare_matrix"], 0);
  EXPECT_EQ(gpu.launches["cellc_product"], 2 * kCount);
}

/// A matrix is made ready once a run, whatever its windows are, and in the next run again.
TEST(WideProducts, PrepareTheMatrixOnceARun) {
  const AnalysedCell l = analyse_text(SourceText("test.cell", kProducts));
  Device device = open_device(4, 1);  // tiles of 64 rows, in which kernels run longer than they compile
  if (!has_them(device)) GTEST_SKIP() << "kernels for sm_90a alone";
  Counting gpu(*device.gpu);
  Binding binding = bound(l, Dtype::F32, 5, 7);
  NestOptions options;
  options.wide = WideProducts::Always;
  const auto compiled = [&] { return NestProgram::compile(gpu, l.cell, l.structure, Dtype::F32, options); };
  NestProgram whole = compiled();
  options.chunk_bytes = 1;
  NestProgram windows = compiled();
  const auto run = [&](NestProgram& program) {
    gpu.launches.clear();
    RunOutput output = run_on_device(gpu, program, l.cell, binding.run, Dtype::F32);
    EXPECT_EQ(gpu.launches["cellc_prepare_matrix"], kCount);
    return output;
  };
  const RunOutput first = run(whole);
  EXPECT_EQ(gpu.launches["cellc_product_wgmma"], kCount);
  EXPECT_EQ(furthest(run(windows), first), 0);
  EXPECT_EQ(gpu.launches["cellc_product_wgmma"], 3 * 9 * kCount) << "windows of one row";
  for (std::size_t s = 0; s < l.cell.symbols.size(); ++s)
    if (l.cell.symbols[s].kind == SymbolKind::Param)
      for (std::int64_t i = 0; i < binding.run.symbols[s].count(); ++i)
        binding.run.symbols[s].set(i, -binding.run.symbols[s].get(i));
  NestProgram fresh = compiled();
  const RunOutput other = run(fresh);
  EXPECT_GT(furthest(other, first), 1e-3);
  EXPECT_EQ(furthest(run(whole), other), 0);
}

/// Calls on a caller's arrays, one of them captured in a graph: nothing is allocated or waited for that a graph would
/// not stand, also where the kernels are new.
TEST(WideProducts, AreQueuedByCalls) {
  EmulatorOptions quick;
  quick.optimisation = 0;
  const auto emulator = open_emulator(quick);
  Counting gpu(*emulator);
  SolveOptions solve;
  solve.wide_products = WideProducts::Always;
  CallSetting s(gpu, "04_lstm", Dtype::F32, {67, 67}, 3, CallLook{.stream = 8}, solve);
  const auto run = [&] {
    gpu.launches.clear();
    s.calls->pool.run(s.arrays->arrays(), 8, s.arrays->status(), nullptr);
    EXPECT_GT(gpu.launches["cellc_product_wgmma"], 0);
    EXPECT_EQ(gpu.launches["cellc_prepare_matrix"], gpu.launches["cellc_product_wgmma"]);
    EXPECT_EQ(gpu.launches["cellc_product"], 0);
    EXPECT_EQ(s.wrong(), "");
    s.draw();
    s.arrays->fill(s.binding);
  };
  run();
  const Emulator::Counts before = emulator->counts();
  s.calls->pool.run(s.arrays->arrays(), 8, s.arrays->status(), nullptr);
  EXPECT_EQ(emulator->counts().allocations, before.allocations);
  EXPECT_EQ(emulator->counts().synchronisations, before.synchronisations);
  EXPECT_EQ(s.wrong(), "");
  // A form that was not foreseen.
  CallSetting fresh(gpu, "04_lstm", Dtype::F32, {67, 67}, 4, CallLook{.strided = true, .stream = 8}, solve);
  emulator->set_capture(17);
  fresh.calls->pool.run(fresh.arrays->arrays(), 8, fresh.arrays->status(), nullptr);
  EXPECT_TRUE(fresh.calls->pool.captured());
  emulator->set_capture(0);
  EXPECT_EQ(fresh.wrong(), "");
}

TEST(WideProducts, PayWhereRowsColumnsAndTermsAreEnough) {
  cellc_wide_products wide{};
  wide.neighbours = 4;
  const auto pays = [&](long long rows, long long width, long long depth, long long stride = 0, long long batch = 1,
                        std::int64_t multiprocessors = 132) {
    ProductArguments a{};
    a.width = width;
    a.depth = depth;
    a.batch = batch;
    a.shared = 1;
    a.operand_stride = stride ? stride : batch * depth;
    return cellc_is_wide(&wide, &a, rows, multiprocessors) != 0;
  };
  EXPECT_TRUE(pays(16384, 1024, 1024));
  EXPECT_TRUE(pays(4096, 1024, 1024));
  EXPECT_FALSE(pays(4095, 1024, 1032)) << "rows";
  EXPECT_TRUE(pays(1 << 20, 16, 1024));
  EXPECT_FALSE(pays(1 << 20, 15, 1024)) << "columns";
  EXPECT_TRUE(pays(1 << 20, 1024, 64));
  EXPECT_FALSE(pays(1 << 20, 1024, 60)) << "terms";
  EXPECT_FALSE(pays(16384, 16, 1020)) << "of all three";
  EXPECT_TRUE(pays(16384, 16, 1024));
  EXPECT_TRUE(pays(16384, 16, 256, 0, 4));
  EXPECT_FALSE(pays(16384, 1024, 1022)) << "rows of no whole fours";
  EXPECT_FALSE(pays(16384, 1024, 1024, 1027)) << "rows apart by no whole fours";
  EXPECT_TRUE(pays(4096, 512, 8192)) << "nearly as many tiles as multiprocessors";
  EXPECT_FALSE(pays(4096, 128, 8192)) << "tiles for the card";
  EXPECT_FALSE(pays(0, 1024, 1024));
  EXPECT_FALSE(pays(16384, 1024, 0));
  ProductArguments none{};
  EXPECT_FALSE(cellc_is_wide(nullptr, &none, 16384, 132));
  wide.always = 1;
  EXPECT_TRUE(pays(1, 1, 1));
  EXPECT_FALSE(pays(0, 1, 1));
}

}  // namespace
}  // namespace cellc
