// What only a card shows: graphs that are captured and replayed, arrays beyond 2^31 entries, pointers of
// every kind, and a device that fails. Skipped without one.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "compiler/front_end.h"
#include "runtime/cuda/call/call_pool.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/errors.h"
#include "tests/engines/known_recurrences.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

/// Functions of the driver that cellc itself does not call.
class Raw {
 public:
  explicit Raw(Gpu& gpu) : gpu_(gpu), library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    call("cuDevicePrimaryCtxRetain", &context_, 0);
    call("cuCtxSetCurrent", context_);
  }
  ~Raw() {
    int (*release)(int) = nullptr;
    *reinterpret_cast<void**>(&release) = dlsym(library_, "cuDevicePrimaryCtxRelease_v2");
    release(0);
  }
  template <typename... Arguments>
  void call(const char* name, Arguments... arguments) {
    int (*function)(Arguments...) = nullptr;
    *reinterpret_cast<void**>(&function) = dlsym(library_, name);
    ASSERT_NE(function, nullptr) << name;
    ASSERT_EQ(function(arguments...), 0) << name;
  }
  /// What `work` queues on the stream, as a graph that can be launched. Mode 0, global: the strictest.
  template <typename Work>
  void* captured(GpuStream stream, const Work& work) {
    void *graph = nullptr, *ready = nullptr;
    call("cuStreamBeginCapture_v2", reinterpret_cast<void*>(stream), 0);
    work();
    call("cuStreamEndCapture", reinterpret_cast<void*>(stream), &graph);
    call("cuGraphInstantiateWithFlags", &ready, graph, 0ull);
    call("cuGraphDestroy", graph);
    return ready;
  }
  void launch(void* graph, GpuStream stream) {
    call("cuGraphLaunch", graph, reinterpret_cast<void*>(stream));
    gpu_.synchronize(stream);
  }

 private:
  Gpu& gpu_;
  void* library_;
  void* context_ = nullptr;
};

class Card : public WithGpu {};
class CardGraphs : public WithGpu, public testing::WithParamInterface<std::string> {};

TEST_P(CardGraphs, ReplayWithOtherInputs) {
  Raw raw(*gpu);
  const GpuStream stream = gpu->make_stream();
  for (const CallLook& look : {CallLook{}, CallLook{.strided = true}}) {
    SolveOptions solve;
    if (look.strided) solve.wide_products = WideProducts::Always;
    CallSetting s(*gpu, GetParam(), Dtype::F32, {67, 67}, 11, look, solve);
    // The form with strides is new when it is captured: memory is allocated, and kernels compiled, meanwhile.
    void* const graph =
        raw.captured(stream, [&] { s.calls->pool.run(s.arrays->arrays(), stream, s.arrays->status(), nullptr); });
    raw.launch(graph, stream);
    EXPECT_EQ(s.wrong(), "");
    for (int again = 0; again < 2; ++again) {
      s.draw();
      s.arrays->fill(s.binding);
      raw.launch(graph, stream);
      EXPECT_EQ(s.wrong(), "") << "replayed " << again;
      // Runs outside of the graph do not disturb it.
      s.draw();
      s.arrays->fill(s.binding);
      s.calls->pool.run(s.arrays->arrays(), stream, s.arrays->status(), nullptr);
      gpu->synchronize(stream);
      EXPECT_EQ(s.wrong(), "") << "by itself " << again;
    }
    EXPECT_EQ(s.arrays->statuses(), (std::vector<int>{0, 0}));
    raw.call("cuGraphExecDestroy", graph);
  }
  gpu->release_stream(stream);
}
INSTANTIATE_TEST_SUITE_P(Cells, CardGraphs, testing::Values("01_para_gru", "04_lstm", "08_gilr", "34_narx3", "stages"),
                         [](const auto& info) { return info.param; });

TEST_F(Card, PointersOfEveryKind) {
  Raw raw(*gpu);
  const GpuBuffer memory(*gpu, 1 << 20);
  GpuAddress managed = 0;
  void* pinned = nullptr;
  raw.call("cuMemAllocManaged", &managed, std::size_t{1} << 16, 1u);
  raw.call("cuMemHostAlloc", &pinned, std::size_t{1} << 16, 0u);
  float here = 0;
  EXPECT_EQ(gpu->pointer_fault(memory.address(), 1 << 20), std::nullopt);
  EXPECT_EQ(gpu->pointer_fault(memory.address() + 4096, (1 << 20) - 4096), std::nullopt);
  EXPECT_EQ(gpu->pointer_fault(managed, 1 << 16), std::nullopt);
  EXPECT_TRUE(has(gpu->pointer_fault(memory.address() + 4096, 1 << 20).value_or(""),
                  "takes 1048576 bytes; the memory of the GPU there has 1044480"));
  EXPECT_TRUE(has(gpu->pointer_fault(reinterpret_cast<GpuAddress>(pinned), 16).value_or(""), "is memory of the host"));
  EXPECT_TRUE(has(gpu->pointer_fault(reinterpret_cast<GpuAddress>(&here), 4).value_or(""),
                  "is memory of the host, or of nobody"));
  EXPECT_TRUE(has(gpu->pointer_fault(64, 4).value_or(""), "or of nobody"));
  raw.call("cuMemFree_v2", managed);
  raw.call("cuMemFreeHost", pinned);
  EXPECT_NE(gpu->pointer_fault(managed, 4), std::nullopt);
}

/// Fills with numbers in [-2, 2) that depend on the place alone.
const char* const kFill = R"(
__device__ __forceinline__ float number(unsigned long long i) {
  i = (i + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  i = (i ^ (i >> 29)) * 0x94d049bb133111ebull;
  return (float)(int)(i >> 40) * (4.0f / 16777216.0f) - 2.0f;
}
extern "C" __global__ void fill(float* to, unsigned long long count) {
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (unsigned long long)gridDim.x * blockDim.x)
    to[i] = number(i);
}
extern "C" __global__ void fill_bf16(unsigned short* to, unsigned long long count) {
  for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (unsigned long long)gridDim.x * blockDim.x)
    to[i] = (unsigned short)(__float_as_uint(number(i)) >> 16);
}
)";

class CardLarge : public WithGpu, public testing::WithParamInterface<const char*> {};

TEST_P(CardLarge, ArraysBeyondTwoToThe31) {
  const std::int64_t d = 4096, sequences = 3, steps = 174767;  // 2^31 entries and a few rows
  ASSERT_GT(d * sequences * steps, std::int64_t{1} << 31);
  if (gpu->facts().memory_bytes < std::int64_t{40} << 30) GTEST_SKIP() << "the card has less than 40 GiB";
  const AnalysedCell cell = analyse_text(SourceText("large", GetParam()));
  const bool has_out = !cell.cell.outs.empty();
  for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
    if (has_out && dtype == Dtype::BF16) continue;  // the same kernels, from f32
    const std::int64_t size = static_cast<std::int64_t>(size_of(dtype)), count = d * sequences * steps;
    const auto bytes = [&](std::int64_t n) { return static_cast<std::size_t>(n * size); };
    const GpuBuffer x(*gpu, bytes(count)), h(*gpu, bytes(count)), y(*gpu, has_out ? bytes(count) : 0);
    const GpuModule fill = gpu->load({"fill.cu", kFill, {}});
    GpuAddress to = x.address();
    unsigned long long n = static_cast<unsigned long long>(count);
    void* arguments[] = {&to, &n};
    gpu->launch(gpu->function(fill, dtype == Dtype::F32 ? "fill" : "fill_bf16"), {.grid = {1024}, .block = {512}},
                arguments);
    const CallShape shape{{d}, sequences, steps, sequences * steps, {}, false};
    const CallLayout layout = call_layout(cell.cell);
    std::vector<CallArray> arrays(layout.fields.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (layout.fields[i].kind == FieldKind::Input) arrays[i].data = x.address();
      if (layout.fields[i].kind == FieldKind::State) arrays[i].data = h.address();
      if (layout.fields[i].kind == FieldKind::Out) arrays[i].data = y.address();
    }
    check_on_device(*gpu, directed_call(cell.cell, layout, CallDirection::Forward), shape, dtype, arrays, 0);
    DeviceCall call(*gpu, std::make_shared<LoadedModules>(), cell.cell, cell.structure, dtype, &cell.source, shape, {});
    call.queue(arrays, 0, 0);
    SolveReport report;
    call.report(report, 0);
    EXPECT_TRUE(report.converged);
    SCOPED_TRACE(fmt::format("{}: {}", to_string(dtype), to_string(report.stages[0].plan.strategy)));
    // Rows of every sequence, its first and last ones among them, from the rows before them.
    const auto row = [&](const GpuBuffer& from, std::int64_t at) {
      Array array(dtype, {d});
      gpu->copy_out(array.data(), from.address() + static_cast<GpuAddress>(at * d * size), bytes(d), 0);
      return array;
    };
    double worst = 0, spread = 0;
    for (std::int64_t b = 0; b < sequences; ++b)
      for (const std::int64_t t :
           {std::int64_t{0}, std::int64_t{1}, std::int64_t{777}, steps / 3, steps / 2, steps - 2, steps - 1}) {
        const std::int64_t at = b * steps + t;
        const Array in = row(x, at), now = row(h, at), before = t ? row(h, at - 1) : Array(dtype, {d}),
                    out = has_out ? row(y, at) : Array();
        for (std::int64_t e = 0; e < d; ++e) {
          const bool gated = std::string(GetParam()).find("sigmoid") != std::string::npos;
          const double z = gated ? 1 / (1 + std::exp(-(0.5 * before.get(e) + in.get(e)))) : 0.25;
          const double want = (1 - z) * before.get(e) + z * (gated ? std::tanh(in.get(e)) : in.get(e));
          worst = std::max(worst, std::fabs(now.get(e) - want));
          if (has_out) worst = std::max(worst, std::fabs(out.get(e) - (2 * now.get(e) + in.get(e))));
          spread = std::max(spread, std::fabs(now.get(e)));
        }
      }
    EXPECT_LT(worst, dtype == Dtype::F32 ? 1e-5 : 0.02);
    EXPECT_GT(spread, 0.5);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Cells, CardLarge,
    testing::Values("cell gated[d] {\n  state h[d]\n  input x[d]\n  z = sigmoid(0.5*h + x)\n  h' = (1 - z)*h + "
                    "z*tanh(x)\n}\n",
                    "cell linear[d] {\n  state h[d]\n  input x[d]\n  h' = 0.75*h + 0.25*x\n}\n",
                    "cell read[d] {\n  state h[d]\n  input x[d]\n  h' = 0.75*h + 0.25*x\n  out y = 2*h' + x\n}\n"),
    [](const auto& info) { return std::string(info.param).substr(5, std::string(info.param).find('[') - 5); });

// Each of these runs takes the whole card and its blocks wait for each other; together they find no room. Those of odd
// numbers have data that do not forget, and so begin with bundles.
TEST_F(Card, SegmentsOnSeveralStreamsAllEnd) {
  constexpr int kStreams = 5;
  std::vector<std::unique_ptr<KnownRun>> known;
  std::vector<std::unique_ptr<CudaSolver>> solvers;
  std::vector<GpuStream> streams;
  std::vector<std::string> natures(kStreams);
  oracle::Random random(11);
  const KnownRecurrence* recurrence = nullptr;
  for (const KnownRecurrence& one : known_recurrences())
    if (!one.along_a_scan && one.states == 1 && !recurrence) recurrence = &one;
  ASSERT_NE(recurrence, nullptr);
  for (int i = 0; i < kStreams; ++i) {
    known.push_back(std::make_unique<KnownRun>(*recurrence, Dtype::F32, KnownShape{1024 - 32 * i, {3000 + 8 * i}}));
    SolveOptions options;
    if (i % 2 == 0) options.solver = Strategy::Segmented;
    do natures[i] = known[i]->draw(random);
    while (i % 2 == 1 && natures[i].find("slow") == std::string::npos);
    solvers.push_back(std::make_unique<CudaSolver>(*gpu, known[i]->cell().cell, known[i]->cell().structure, Dtype::F32,
                                                   &known[i]->cell().source));
    streams.push_back(gpu->make_stream());
    solvers[i]->upload(known[i]->run(), options);
    solvers[i]->launch(0);  // compiles
  }
  gpu->synchronize(0);
  for (int round = 0; round < 100; ++round)
    for (int i = 0; i < kStreams; ++i) solvers[i]->launch(streams[i]);
  for (int i = 0; i < kStreams; ++i) {
    gpu->synchronize(streams[i]);
    EXPECT_EQ(known[i]->wrong(solvers[i]->download(0), 1.5e-6), "") << natures[i];
    gpu->release_stream(streams[i]);
  }
}

/// The context of a process that faults is lost, so this is another process.
TEST_F(Card, FaultIsToldAndTheProcessLives) {
  gpu.reset();
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        std::string reason;
        const std::unique_ptr<Gpu> card = open_gpu("", reason);
        CallSetting s(*card, "01_para_gru", Dtype::F32, {67, 67}, 2, CallLook{});
        s.calls->pool.run(s.arrays->arrays(), 0, 0, nullptr);
        if (!s.wrong().empty()) std::_Exit(2);
        const GpuModule wild = card->load({"wild.cu", "extern \"C\" __global__ void wild(int* to) { *to = 1; }", {}});
        GpuAddress nowhere = 8;
        void* argument = &nowhere;
        card->launch(card->function(wild, "wild"), {}, &argument);
        int told = 0;
        for (int i = 0; i < 3; ++i) {
          try {
            s.calls->pool.run(s.arrays->arrays(), 0, 0, nullptr);
            card->synchronize(0);
          } catch (const DeviceError& e) {
            told += std::string(e.what()).find("only a new process helps") != std::string::npos;
          }
        }
        try {
          check_on_device(*card, directed_call(s.cell.graph, call_layout(s.cell.graph), CallDirection::Forward),
                          s.arrays->shape(), Dtype::F32, s.arrays->arrays(), 0);
        } catch (const DeviceError&) {
          ++told;
        }
        std::fprintf(stderr, "told %d times\n", told);
        std::_Exit(told == 4 ? 0 : 3);
      },
      testing::ExitedWithCode(0), "told 4 times");
}

}  // namespace
}  // namespace cellc
