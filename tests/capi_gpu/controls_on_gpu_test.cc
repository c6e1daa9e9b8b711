// What a host controls of calls on a GPU, the emulator in its place: plans, an end before time, what it is told of
// kernels under way, memory of its own, and compiling before the first call.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi_gpu/arrays_on_gpu.h"

namespace cellc {
namespace {

const std::string kSlow = R"(cell slow[d] {
  state h[d]
  input x[d]
  param a[d]
  h' = 0.9*h + 0.1*tanh(a*h + x)
  out y = h'*lag(x, 1)
}
)";
const std::int64_t kLengths[] = {4};

class ControlsOnGpu : public EmulatedGpu {
 protected:
  cellc_kernel* compiled(const std::function<void(cellc_options&)>& change, cellc_status want = CELLC_OK) {
    const auto in_f64 = [&](cellc_options& o) { o.dtype = CELLC_F64, change(o); };
    return compile(kSlow, "cuda", in_f64, want);
  }
  /// A call that can be compiled beforehand.
  struct Ready : ReadyOnGpu {
    using ReadyOnGpu::ReadyOnGpu;
    cellc_status compile() {
      cellc_request request = made();
      return cellc_compile_request(kernel, &request);
    }
  };
  static cellc_call_options no_options() {
    cellc_call_options options;
    cellc_call_options_init(&options);
    return options;
  }
};

TEST_F(ControlsOnGpu, PlansOfAKernelAndOfACall) {
  const char* const text = R"({"stages": [{"solver": "segmented", "segment": 32, "burn_in": 8}]})";
  const cellc_shape shape = shape_of(kLengths, 2, 300);
  cellc_kernel* free = kernel_of(kSlow, CELLC_F64, "sequential");
  Ready call(free, CELLC_FORWARD, shape, *emulator_);
  cellc_report report;
  cellc_report_init(&report);
  ASSERT_EQ(call.again(nullptr, &report), CELLC_OK) << cellc_last_error();
  const std::vector<Bytes> stepwise = call.written();
  cellc_call_options options = no_options();
  options.plan = text;
  std::string followed;
  std::vector<Bytes> planned;
  for (const bool prepared : {false, true}) {
    call.options = &options;
    ASSERT_EQ(call.again(prepared ? prepare(free, shape) : nullptr, &report), CELLC_OK) << cellc_last_error();
    followed = report.plan;
    EXPECT_NE(followed.find("segmented"), std::string::npos) << followed;
    planned = call.written();
    EXPECT_NE(planned, stepwise);  // it forgets slowly
    call.options = nullptr;
    ASSERT_EQ(call.again(prepared ? calls_.back() : nullptr, &report), CELLC_OK);
    EXPECT_NE(std::string(report.plan).find("sequential"), std::string::npos);
    EXPECT_EQ(call.written(), stepwise);
  }
  // What a report says pins the same run, of a kernel as of a call.
  cellc_kernel* pinned = compiled([&](cellc_options& o) { o.plan = followed.c_str(); });
  ASSERT_NE(pinned, nullptr);
  Ready again(pinned, CELLC_FORWARD, shape, *emulator_);
  ASSERT_EQ(again.again(nullptr, &report), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(again.written(), planned);
  EXPECT_NE(std::string(report.plan).find("segmented"), std::string::npos);
  const std::vector<std::pair<const char*, const char*>> wrong = {{R"({"stages": [{"solver": "scan"}]})", "scan"},
                                                                  {R"({"stages": []})", "0 stages"},
                                                                  {"{", "options.plan"},
                                                                  {R"({"stages": [{"solver": "magic"}]})", "magic"}};
  call.options = &options;
  for (const auto& [plan, says] : wrong) {
    options.plan = plan;
    const cellc_status status = call.again(nullptr, nullptr);
    EXPECT_TRUE(status == CELLC_WRONG_USAGE || status == CELLC_WRONG_INPUT) << status;
    EXPECT_NE(std::string(cellc_last_error()).find(says), std::string::npos) << cellc_last_error();
    EXPECT_EQ(call.written(), stepwise);
  }
}

struct Told {
  Emulator* gpu = nullptr;
  std::int64_t most = -1;
  std::vector<std::int64_t> rows{}, launches{};
  std::thread::id thread = std::this_thread::get_id();
  bool same_thread = true;
  static int go_on(void* host, std::int64_t rows) {
    Told& told = *static_cast<Told*>(host);
    told.rows.push_back(rows);
    told.launches.push_back(told.gpu->counts().launches);
    told.same_thread &= std::this_thread::get_id() == told.thread;
    return told.most < 0 || static_cast<std::int64_t>(told.rows.size()) <= told.most;
  }
};

TEST_F(ControlsOnGpu, CallsEndWhereTheHostSaysSo) {
  const cellc_shape shape = shape_of(kLengths, 2, 200);
  cellc_kernel* kernel = kernel_of(kSlow, CELLC_F64, "segmented");
  for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT})
    for (const bool reported : {false, true}) {
      SCOPED_TRACE(testing::Message() << direction << reported);
      Ready call(kernel, direction, shape, *emulator_);
      cellc_report report;
      cellc_report_init(&report);
      cellc_report* const to = reported ? &report : nullptr;
      ASSERT_EQ(call.again(nullptr, to), CELLC_OK) << cellc_last_error();
      const std::vector<Bytes> whole = call.written();
      // Whoever is asked and lets it go on gets the same; the host is told of every kernel.
      cellc_call_options options = no_options();
      Told all{emulator_.get()};
      options.go_on = Told::go_on;
      options.host = &all;
      call.options = &options;
      const std::int64_t before = emulator_->counts().launches;
      ASSERT_EQ(call.again(nullptr, to), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(call.written(), whole);
      EXPECT_TRUE(all.same_thread);
      ASSERT_GT(all.rows.size(), 1u);
      for (std::size_t i = 1; i < all.rows.size(); ++i) EXPECT_EQ(all.rows[i], all.launches[i] - before);
      // It ends before its last kernel, and the next call is as good as the first.
      for (const std::int64_t most : {std::int64_t{0}, static_cast<std::int64_t>(all.rows.size()) - 1}) {
        Told some{emulator_.get(), most};
        options.host = &some;
        call.clear();
        const std::int64_t queued = emulator_->counts().launches;
        EXPECT_EQ(call.again(nullptr, to), CELLC_CANCELLED);
        EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_CANCELLED);
        EXPECT_EQ(emulator_->counts().launches - queued, some.rows.back());
        EXPECT_LT(some.rows.back(), std::max<std::int64_t>(1, emulator_->counts().launches));
        call.options = nullptr;
        ASSERT_EQ(call.again(nullptr, to), CELLC_OK) << cellc_last_error();
        EXPECT_EQ(call.written(), whole);
        call.options = &options;
      }
      int cancel = 1;
      options = no_options();
      options.cancel = &cancel;
      call.clear();
      const std::vector<Bytes> zeros = call.written();
      const std::int64_t queued = emulator_->counts().launches;
      EXPECT_EQ(call.again(nullptr, to), CELLC_CANCELLED);
      EXPECT_EQ(emulator_->counts().launches, queued);
      EXPECT_EQ(call.written(), zeros);
      cancel = 0;
      EXPECT_EQ(call.again(nullptr, to), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(call.written(), whole);
    }
}

// Scans of derivatives wait for what the tile before them publishes: what they would find otherwise depends on the
// order in which blocks run.
TEST_F(ControlsOnGpu, DerivativesHaveTheSameBitsInAnyOrder) {
  // Factors near 1: maps over a tile are not the same whatever they start from.
  const char* const text = "cell linear[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = (1 - 0.0001*a*a)*h + x\n}\n";
  const std::int64_t lengths[] = {3};
  const cellc_shape shape = shape_of(lengths, 1, 12000);
  cellc_kernel* kernel = kernel_of(text, CELLC_F32, "scan");
  for (const cellc_direction direction : {CELLC_BACKWARD, CELLC_TANGENT}) {
    Ready call(kernel, direction, shape, *emulator_);
    cellc_report report;
    cellc_report_init(&report);
    ASSERT_EQ(call.again(nullptr, &report), CELLC_OK) << cellc_last_error();
    EXPECT_NE(std::string(report.plan).find("scan"), std::string::npos) << report.plan;
    const std::vector<Bytes> whole = call.written();
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      emulator_->set_seed(seed);
      call.clear();
      ASSERT_EQ(call.again(nullptr, nullptr), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(call.written(), whole) << "seed " << seed << ", direction " << direction;
    }
    emulator_->set_seed(0);
  }
}

// Forward calls do where they are asked to, of a kernel or of a call, prepared ones too.
TEST_F(ControlsOnGpu, ForwardCallsHaveTheSameBitsWhereTheyAreAskedTo) {
  const char* const text = "cell linear[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = (1 - 0.0001*a*a)*h + x\n}\n";
  const std::int64_t lengths[] = {4};
  const cellc_shape shape = shape_of(lengths, 1, 6500);
  cellc_kernel* const same = compile(text, "cuda", [](cellc_options& o) { o.deterministic = 1; });
  cellc_kernel* const any = compile(text, "cuda", [](cellc_options&) {});
  cellc_options kept;
  cellc_options_init(&kept);
  ASSERT_EQ(cellc_kernel_options(same, &kept), CELLC_OK);
  EXPECT_EQ(kept.deterministic, 1);
  cellc_call_options asked = no_options();
  asked.deterministic = 1;
  struct Way {
    const char* name;
    cellc_kernel* kernel;
    const cellc_call_options* options;
    bool prepared, repeats;
  };
  std::vector<Bytes> first;
  for (const Way& way : {Way{"kernel", same, nullptr, false, true}, Way{"call", any, &asked, false, true},
                         Way{"prepared", same, nullptr, true, true}, Way{"prepared call", any, &asked, true, true},
                         Way{"neither", any, nullptr, false, false}}) {
    emulator_->set_seed(0);
    Ready call(way.kernel, CELLC_FORWARD, shape, *emulator_);
    call.options = way.options;
    cellc_call* const prepared = way.prepared ? prepare(way.kernel, shape) : nullptr;
    bool differs = false;
    for (std::uint64_t seed = 0; seed <= 3; ++seed) {
      emulator_->set_seed(seed);
      call.clear();
      ASSERT_EQ(call.again(prepared, nullptr), CELLC_OK) << way.name << ": " << cellc_last_error();
      if (first.empty()) first = call.written();
      differs = differs || call.written() != first;
    }
    EXPECT_EQ(differs, !way.repeats) << way.name;
  }
  emulator_->set_seed(0);
  // Derivatives do without being asked, and may be.
  cellc_kernel* const slow = compile(kSlow, "cuda", [](cellc_options& o) { o.solver = "segmented"; });
  Ready back(slow, CELLC_BACKWARD, shape_of(kLengths, 1, 100), *emulator_);
  back.options = &asked;
  EXPECT_EQ(back.again(nullptr, nullptr), CELLC_OK) << cellc_last_error();
}

TEST_F(ControlsOnGpu, ACancelledCaptureLeavesTheKernelAsItWas) {
  const cellc_shape shape = shape_of(kLengths, 2, 200);
  cellc_kernel* kernel = kernel_of(kSlow, CELLC_F64, "segmented");
  Ready call(kernel, CELLC_FORWARD, shape, *emulator_);
  ASSERT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
  const std::vector<Bytes> whole = call.written();
  Told some{emulator_.get(), 1};
  cellc_call_options options = no_options();
  options.go_on = Told::go_on;
  options.host = &some;
  call.options = &options;
  call.stream = reinterpret_cast<void*>(8);
  emulator_->set_capture(5);
  EXPECT_EQ(call.again(nullptr), CELLC_CANCELLED);
  call.options = nullptr;
  call.clear();
  EXPECT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
  emulator_->set_capture(0);
  EXPECT_EQ(call.written(), whole);
  call.clear();
  call.stream = nullptr;
  EXPECT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(call.written(), whole);
}

TEST_F(ControlsOnGpu, ACallThatWasCompiledOnlyQueuesKernels) {
  const cellc_shape shape = shape_of(kLengths, 2, 70);
  for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT})
    for (const bool strided : {false, true}) {
      SCOPED_TRACE(testing::Message() << direction << strided);
      cellc_kernel* kernel = kernel_of(kSlow, CELLC_F64, "sequential");
      Ready call(kernel, direction, shape, *emulator_);
      const std::int64_t lengths[] = {2, 70, 4}, turned[] = {4, 8, 1};
      if (strided)
        for (std::size_t i = 0; i < call.all.size(); ++i)
          if (call.all[i].lengths.size() == 3 && call.all[i].lengths[1] == 70)
            call.views[i] = {call.views[i].data, CELLC_F64, 3, lengths, turned};
      cellc_call_options options = no_options();
      options.has_tolerance = 1;
      options.tolerance = 1e-9;
      call.options = &options;
      call.clear();
      const std::vector<Bytes> zeros = call.written();
      const std::int64_t launches = emulator_->counts().launches;
      ASSERT_EQ(call.compile(), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(emulator_->counts().launches, launches);
      EXPECT_EQ(call.written(), zeros);
      const Emulator::Counts before = emulator_->counts();
      ASSERT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(emulator_->counts().allocations, before.allocations);
      EXPECT_EQ(emulator_->counts().synchronisations, before.synchronisations);
      EXPECT_GT(emulator_->counts().launches, before.launches);
      EXPECT_NE(call.written(), zeros);
    }
}

/// Memory of the device that knows what was taken of it.
struct Counted {
  Emulator* gpu;
  std::mutex mutex{};
  std::map<void*, std::size_t> taken{};
  std::size_t now = 0;
  int until_none = -1;
  GpuAddress instead = 0;
  bool wrong = false;
  static void* allocate(void* self, std::size_t bytes, std::size_t alignment) {
    auto& c = *static_cast<Counted*>(self);
    const std::lock_guard lock(c.mutex);
    if (c.until_none == 0) return nullptr;
    if (c.until_none > 0) --c.until_none;
    void* memory = reinterpret_cast<void*>(c.instead ? c.instead : c.gpu->allocate(bytes));
    c.wrong |= alignment != 256;
    c.taken[memory] = bytes;
    c.now += bytes;
    return memory;
  }
  static void release(void* self, void* memory, std::size_t bytes) {
    auto& c = *static_cast<Counted*>(self);
    const std::lock_guard lock(c.mutex);
    const auto found = c.taken.find(memory);
    c.wrong |= found == c.taken.end() || found->second != bytes;
    if (found == c.taken.end()) return;
    c.now -= bytes;
    c.taken.erase(found);
    if (reinterpret_cast<GpuAddress>(memory) != c.instead) c.gpu->release(reinterpret_cast<GpuAddress>(memory));
  }
  void give(cellc_options& options) {
    options.allocate_on_device = allocate;
    options.release_on_device = release;
    options.allocator = this;
  }
};

TEST_F(ControlsOnGpu, MemoryComesFromTheCaller) {
  Counted memory{emulator_.get()};
  const cellc_shape shape = shape_of(kLengths, 2, 70);
  cellc_kernel* kernel = compiled([&](cellc_options& o) { memory.give(o); });
  ASSERT_NE(kernel, nullptr);
  cellc_options found;
  cellc_options_init(&found);
  ASSERT_EQ(cellc_kernel_options(kernel, &found), CELLC_OK);
  EXPECT_EQ(found.allocate_on_device, &Counted::allocate);
  Ready forward(kernel, CELLC_FORWARD, shape, *emulator_), backward(kernel, CELLC_BACKWARD, shape, *emulator_);
  std::int64_t others = emulator_->counts().live_bytes;
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(forward.again(nullptr), CELLC_OK) << cellc_last_error();
    ASSERT_EQ(backward.again(nullptr), CELLC_OK) << cellc_last_error();
    EXPECT_GT(memory.now, 0u);
    EXPECT_EQ(emulator_->counts().live_bytes, others + static_cast<std::int64_t>(memory.now));
    ASSERT_EQ(cellc_kernel_trim(kernel), CELLC_OK);
    EXPECT_EQ(memory.now, 0u);
  }
  // A prepared call says what it holds of it, and gives it back.
  const std::vector<Bytes> whole = forward.written();
  cellc_call* call = prepare(kernel, shape);
  std::int64_t bytes = 0;
  ASSERT_EQ(forward.again(call), CELLC_OK) << cellc_last_error();
  ASSERT_EQ(cellc_call_workspace(call, &bytes), CELLC_OK);
  EXPECT_EQ(bytes, static_cast<std::int64_t>(memory.now));
  EXPECT_GT(bytes, 0);
  ASSERT_EQ(cellc_call_trim(call), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(memory.now, 0u);
  ASSERT_EQ(cellc_call_workspace(call, &bytes), CELLC_OK);
  EXPECT_EQ(bytes, 0);
  forward.clear();
  ASSERT_EQ(forward.again(call), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(forward.written(), whole);
  // Where there is none, or none that kernels can use.
  ASSERT_EQ(cellc_call_trim(call), CELLC_OK);
  for (const int allocations : {0, 1, 3}) {
    memory.until_none = allocations;
    EXPECT_EQ(forward.again(call), CELLC_DEVICE_FAILED) << allocations;
    EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_MEMORY) << cellc_last_error();
    EXPECT_NE(std::string(cellc_last_error()).find("allocate_on_device"), std::string::npos);
    EXPECT_EQ(memory.now, 0u);
  }
  memory.until_none = -1;
  memory.instead = 64;
  EXPECT_EQ(forward.again(call), CELLC_WRONG_USAGE);
  EXPECT_NE(std::string(cellc_last_error()).find("allocate_on_device of the caller gave 0x40, which"),
            std::string::npos)
      << cellc_last_error();
  memory.instead = 0;
  ASSERT_EQ(forward.again(call), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(forward.written(), whole);
  KeptHandles::TearDown();
  calls_.clear();
  kernels_.clear();
  EXPECT_EQ(memory.now, 0u);
  EXPECT_FALSE(memory.wrong);
}

TEST_F(ControlsOnGpu, MistakesSayWhatToDoInstead) {
  const cellc_shape shape = shape_of(kLengths, 2, 20);
  cellc_kernel* kernel = kernel_of(kSlow, CELLC_F64, "sequential");
  Ready call(kernel, CELLC_FORWARD, shape, *emulator_);
  const auto says = [](const char* text) { return std::string(cellc_last_error()).find(text) != std::string::npos; };
  std::vector<cellc_array> arrays;
  for (std::size_t i = 0; i < call.views.size(); ++i) arrays.push_back({call.views[i].data, 1 << 20, CELLC_F64, 0, 0});
  EXPECT_EQ(cellc_run_in(prepare(kernel, shape), arrays.data(), static_cast<int>(arrays.size()), arrays[0].data, 8),
            CELLC_WRONG_USAGE);
  EXPECT_TRUE(says("options.allocate_on_device")) << cellc_last_error();
  Counted memory{emulator_.get()};
  compiled(
      [&](cellc_options& o) {
        memory.give(o);
        o.release_on_device = nullptr;
      },
      CELLC_WRONG_USAGE);
  EXPECT_TRUE(says("needed both, or neither"));
  compiled(
      [&](cellc_options& o) {
        memory.give(o);
        o.device = "cpu";
      },
      CELLC_WRONG_USAGE);
  EXPECT_TRUE(says("for kernels of a GPU"));
  EXPECT_EQ(cellc_compile_request(nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_compile_request(kernel, nullptr), CELLC_WRONG_USAGE);
  cellc_request request = call.made();
  request.size = 8;
  EXPECT_EQ(cellc_compile_request(kernel, &request), CELLC_WRONG_USAGE);
  request = call.made();
  request.count = 1;
  EXPECT_EQ(cellc_compile_request(kernel, &request), CELLC_WRONG_USAGE);
  request = call.made();
  request.arrays = nullptr;
  EXPECT_EQ(cellc_compile_request(kernel, &request), CELLC_WRONG_USAGE);
  request = call.made();
  request.direction = 7;
  EXPECT_EQ(cellc_compile_request(kernel, &request), CELLC_WRONG_USAGE);
  request = call.made();
  request.shape = nullptr;
  EXPECT_EQ(cellc_compile_request(kernel, &request), CELLC_WRONG_USAGE);
  float on_host[80] = {};
  call.views[static_cast<std::size_t>(cellc_array_find(kernel, "x"))].data = on_host;
  EXPECT_EQ(call.compile(), CELLC_WRONG_INPUT);
  EXPECT_TRUE(says("array x: its address")) << cellc_last_error();
}

// Threads that end their own calls of one kernel, while others go on.
TEST_F(ControlsOnGpu, CancelledCallsDoNotDisturbOthers) {
  const cellc_shape shape = shape_of(kLengths, 2, 200);
  cellc_kernel* kernel = kernel_of(kSlow, CELLC_F64, "segmented");
  Ready first(kernel, CELLC_FORWARD, shape, *emulator_);
  ASSERT_EQ(first.again(nullptr), CELLC_OK) << cellc_last_error();
  const std::vector<Bytes> whole = first.written();
  std::vector<std::unique_ptr<Ready>> all;
  for (int i = 0; i < 4; ++i) all.push_back(std::make_unique<Ready>(kernel, CELLC_FORWARD, shape, *emulator_));
  std::vector<std::string> errors(all.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < all.size(); ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 4; ++round) {
        Told told{emulator_.get(), 1 + round % 2};
        cellc_call_options options = no_options();
        options.go_on = Told::go_on;
        options.host = &told;
        all[i]->options = i % 2 ? &options : nullptr;
        const cellc_status status = all[i]->again(nullptr);
        if (i % 2 ? status != CELLC_CANCELLED : status != CELLC_OK) errors[i] = cellc_last_error();
        all[i]->options = nullptr;
        if (i == 0 && cellc_kernel_trim(kernel) != CELLC_OK) errors[i] = cellc_last_error();
      }
      if (all[i]->again(nullptr) != CELLC_OK) errors[i] = cellc_last_error();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(errors, std::vector<std::string>(all.size()));
  for (const auto& call : all) EXPECT_EQ(call->written(), whole);
}

}  // namespace
}  // namespace cellc
