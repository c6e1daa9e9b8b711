// The units that `inspect` shows are those that a run compiles, letter by letter.
#include "runtime/cuda/ship/list_cuda_units.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler/front_end.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/bind.h"
#include "tests/emulator/emulator.h"
#include "tests/gpu/fixtures.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

/// An emulated card with the shape of a large one, which keeps what it is given to compile.
class Listening : public Gpu {
 public:
  explicit Listening(Emulator& below) : below_(below), facts_(below.facts()) {
    facts_.multiprocessors = 132;
    facts_.shared_per_block = 227 << 10;
    facts_.shared_per_multiprocessor = 228 << 10;
  }
  std::vector<GpuSource> heard;

  const GpuFacts& facts() const override { return facts_; }
  GpuModule load(const GpuSource& source) override {
    heard.push_back(source);
    return below_.load(source);
  }
  GpuFunction function(const GpuModule& module, const std::string& name) override {
    return below_.function(module, name);
  }
  GpuFunctionFacts facts(const GpuFunction& f) override { return below_.facts(f); }
  // Few blocks at once, as the emulator has them: all of them are threads.
  int resident_blocks(const GpuFunction&, int, std::int64_t) override { return 1; }
  int resident_clusters(const GpuFunction&, int, std::int64_t, int) override { return 1 << 20; }
  GpuAddress allocate(std::size_t bytes) override { return below_.allocate(bytes); }
  void release(GpuAddress address) noexcept override { below_.release(address); }
  void copy_in(GpuAddress to, const void* from, std::size_t bytes, GpuStream s) override {
    below_.copy_in(to, from, bytes, s);
  }
  void copy_out(void* to, GpuAddress from, std::size_t bytes, GpuStream s) override {
    below_.copy_out(to, from, bytes, s);
  }
  void copy(GpuAddress to, GpuAddress from, std::size_t bytes, GpuStream s) override {
    below_.copy(to, from, bytes, s);
  }
  void zero(GpuAddress to, std::size_t bytes, GpuStream s) override { below_.zero(to, bytes, s); }
  // What is compared is the text: running 4096 steps on the emulator would take minutes.
  void launch(const GpuFunction&, const GpuLaunch&, void**) override {}
  void synchronize(GpuStream s) override { below_.synchronize(s); }
  void record(int mark, GpuStream s) override { below_.record(mark, s); }
  double elapsed_ms(int from, int to) override { return below_.elapsed_ms(from, to); }

 private:
  Emulator& below_;
  GpuFacts facts_;
};

const char* const kGru =
    "cell gru[d] {\n  state h[d]\n  input x[d], y[d]\n  param a[d]\n  z = sigmoid(a*h + x)\n  h' = (1 - z)*h + "
    "z*tanh(y)\n}\n";
const char* const kTwoStages =
    "cell two[d] {\n  state c[d], h[d]\n  input x[d], f[d]\n  c' = sigmoid(f)*c + x\n  h' = tanh(0.5*h + c')\n  out y "
    "= 2*h'\n}\n";
const char* const kSums =
    "cell sums[d, n] {\n  state h[d,n]\n  input u[d], B[n], C[n]\n  param A[d,n], W[n,d]\n  h' = exp(-exp(A))*h + "
    "u*B\n  out y = h'@(C + W@u) + u\n}\n";
const char* const kDense = "cell dense[d] {\n  state h[d]\n  input x[d]\n  param W[d,d]\n  h' = tanh(W@h + x)\n}\n";

TEST(CudaUnits, AreWhatARunCompiles) {
  EmulatorOptions fast;
  fast.optimisation = 0;
  const auto emulator = open_emulator(fast);
  for (const char* text : {kGru, kTwoStages, kSums, kDense}) {
    for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
      const AnalysedCell cell = analyse_text(SourceText("test.cell", text));
      SCOPED_TRACE(cell.cell.name);
      Listening card(*emulator);
      BindRequest request;
      request.random_seed = 1;
      request.batch = 1;
      // Few steps are walked, by lanes that make sums.
      const std::int64_t steps = text == kSums ? 32 : 4096;
      std::map<std::string, std::int64_t> dims{{"d", 64}};
      if (text == kSums) dims["n"] = 16;
      request.length = steps;
      request.dtype = dtype;
      request.dims = dims;
      const Binding binding = bind(cell.cell, request);
      CudaSolver solver(card, cell.cell, cell.structure, dtype, &cell.source);
      SolveOptions options;
      options.persistent.blocks = -1;  // units are listed without the lengths that those kernels are made for
      solver.upload(binding.run, options);
      solver.launch(0);
      const std::vector<CudaUnit> units =
          list_cuda_units(cell.cell, cell.structure, dtype, &cell.source, "sm_90", dims, steps);
      ASSERT_EQ(units.size(), card.heard.size());
      for (std::size_t i = 0; i < units.size(); ++i) {
        EXPECT_EQ(units[i].source.name, card.heard[i].name);
        EXPECT_TRUE(units[i].source.text == card.heard[i].text) << units[i].what;
      }
    }
  }
}

TEST(CudaUnits, ADenseStageTakesTheCellToRowKernels) {
  const AnalysedCell cell = analyse_text(SourceText("test.cell", kDense));
  const auto units = list_cuda_units(cell.cell, cell.structure, Dtype::F32, &cell.source, "sm_90");
  ASSERT_EQ(units.size(), 1u);
  EXPECT_TRUE(has(units[0].what, "256 coupled entries are too many for one thread"));
  EXPECT_TRUE(has(list_cuda_units(cell.cell, cell.structure, Dtype::F32, &cell.source, "sm_90", {{"d", 4}})[0].what,
                  "stage {h}"));
}

TEST(CudaUnits, AxesThatTheCellHasNot) {
  const AnalysedCell cell = analyse_text(
      SourceText("test.cell", "cell c[d, two=2] {\n  state h[d,two]\n  input x[d]\n  h' = 0.5*h + x\n}\n"));
  EXPECT_THROW(list_cuda_units(cell.cell, cell.structure, Dtype::F32, nullptr, "sm_90", {{"q", 4}}), UsageError);
  EXPECT_THROW(list_cuda_units(cell.cell, cell.structure, Dtype::F32, nullptr, "sm_90", {{"two", 4}}), RequestError);
}

class CudaUnitsPtx : public WithNvrtc {};

TEST_F(CudaUnitsPtx, EveryUnitCompiles) {
  const auto compile = [](const AnalysedCell& cell, const std::string& architecture, Dtype dtype,
                          const std::map<std::string, std::int64_t>& dims, std::int64_t steps) {
    for (const CudaUnit& unit :
         list_cuda_units(cell.cell, cell.structure, dtype, &cell.source, architecture, dims, steps))
      EXPECT_TRUE(has(compile_cuda(quick(unit.source), architecture, CompiledKind::Ptx).code, ".entry ")) << unit.what;
  };
  for (const char* text : {kGru, kTwoStages, kDense})
    compile(analyse_text(SourceText("test.cell", text)), "sm_90", Dtype::F32, {}, kUnitSteps);
  // Sums of lanes: of a warp, of several, of two lanes a thread.
  const AnalysedCell sums = analyse_text(SourceText("test.cell", kSums));
  for (const char* const architecture : turns::Turn().of(std::vector{"sm_80", "sm_90", "sm_100"}))
    for (const Dtype dtype : {Dtype::F32, Dtype::F64})
      for (const auto& [d, n] :
           std::vector<std::pair<std::int64_t, std::int64_t>>{{64, 16}, {3, 96}, {2048, 16}, {1024, 64}})
        compile(sums, architecture, dtype, {{"d", d}, {"n", n}}, 32);
}

/// A cluster holds its inputs in registers (scan_cluster.cuh). One that is spilled is waited for before the loads
/// behind it are even asked for: three of them made the call a tenth longer.
TEST_F(CudaUnitsPtx, ClustersSpillNoInputs) {
  std::string reason;
  if (nvrtc_version(reason) != "13.0")
    GTEST_SKIP() << "NVRTC " << nvrtc_version(reason) << " has another way with registers than 13.0";
  struct Case {
    const char* step;
    std::int64_t steps;
  };
  // Whole pieces, and one that is not; of the second cell that spills seven words.
  for (const Case& c :
       {Case{"h' = a*h + x", 2048}, Case{"h' = a*h + x", 2000}, Case{"h' = sigmoid(a)*h + (1 - sigmoid(a))*x", 2048}}) {
    SCOPED_TRACE(fmt::format("{}, {} steps", c.step, c.steps));
    const AnalysedCell cell = analyse_text(SourceText(
        "test.cell", fmt::format("cell linear[d] {{\n  state h[d]\n  input a[d], x[d]\n  {}\n}}\n", c.step)));
    CudaUnit unit =
        list_cuda_units(cell.cell, cell.structure, Dtype::F32, &cell.source, "sm_90", {{"d", 1024}}, c.steps).at(0);
    ASSERT_TRUE(has(unit.source.text, "scan_cluster(run)"));
    unit.source.options.push_back("--ptxas-options=-v");
    const std::string log = compile_cuda(unit.source, "sm_90", CompiledKind::Cubin).log;
    const std::size_t kernel = log.find("Function properties for cellc_kernel");
    ASSERT_NE(kernel, std::string::npos) << log;
    EXPECT_TRUE(has(log.substr(kernel, 160), " 0 bytes spill stores")) << log.substr(kernel, 160);
  }
}

}  // namespace
}  // namespace cellc
