// The C API on a GPU, with the emulator in the card's place: statuses and messages, threads, graphs, and the
// same numbers as on the CPU.
#include "capi/on_gpu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "capi/cellc.h"
#include "tests/capi_gpu/emulated_gpu.h"

namespace {

using cellc::Emulator;

const std::string kCell = R"(cell follow[d] {
  state h[d] = 2*a
  input x[d]
  param a[d], fall = 0.125
  z = sigmoid(a*h + x)
  h' = (1 - z)*h + z*tanh(x) - fall*h
  out y = 2*h' + lag(x, 1)
}
)";
constexpr std::int64_t kD = 5, kSequences = 3, kSteps = 70;
const std::int64_t kLengths[] = {kD};

class OnGpu : public cellc::EmulatedGpu {
 protected:
  cellc_kernel* compile(const char* device, void (*change)(cellc_options&) = nullptr) {
    return KeptHandles::compile(kCell, device, change);
  }
  static cellc_shape shape(std::int64_t sequences = kSequences, std::int64_t steps = kSteps) {
    return shape_of(kLengths, sequences, steps);
  }
};

/// Arrays of a call, on the host and, for a GPU, the same on the device.
class Arrays {
 public:
  Arrays(cellc_kernel* kernel, const cellc_shape& shape, Emulator* emulator, double phase = 0,
         const std::vector<const char*>& defaults = {"fall", "h_start", "x_lag", "x_lag_final"})
      : kernel_(kernel), emulator_(emulator) {
    for (int i = 0; i < cellc_array_count(kernel); ++i) {
      cellc_array_info info;
      std::int64_t entries = 0;
      EXPECT_EQ(cellc_array_describe(kernel, i, &info), CELLC_OK);
      EXPECT_EQ(cellc_array_entries(kernel, &shape, i, &entries), CELLC_OK);
      std::vector<float> host;
      for (std::int64_t k = 0; k < entries; ++k)
        host.push_back(info.written ? 77.0f
                                    : static_cast<float>(std::sin(phase + static_cast<double>(k + 3) * 0.7 + i)));
      host_.push_back(host);
      if (emulator) {
        device_.emplace_back(*emulator, std::max<std::size_t>(4, host.size() * 4));
        emulator->copy_in(device_.back().address(), host.data(), host.size() * 4, 0);
      }
      table.push_back({emulator ? reinterpret_cast<void*>(device_.back().address()) : host_.back().data(), entries,
                       CELLC_F32, 0, 0});
    }
    for (const char* name : defaults) at(name).data = nullptr;
  }
  cellc_array& at(const char* name) { return table[static_cast<std::size_t>(cellc_array_find(kernel_, name))]; }
  std::vector<float> of(const char* name) {
    const auto i = static_cast<std::size_t>(cellc_array_find(kernel_, name));
    if (emulator_) emulator_->copy_out(host_[i].data(), device_[i].address(), host_[i].size() * 4, 0);
    return host_[i];
  }
  bool untouched() {
    for (const char* name : {"h", "y", "h_final"})
      for (const float v : of(name))
        if (v != 77.0f) return false;
    return true;
  }
  int count() const { return static_cast<int>(table.size()); }
  std::vector<cellc_array> table;

 private:
  cellc_kernel* kernel_;
  Emulator* emulator_;
  std::vector<std::vector<float>> host_;
  std::vector<cellc::GpuBuffer> device_;
};

void expect_close(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5 * (1 + std::fabs(b[i]))) << i;
}

TEST_F(OnGpu, GivesTheNumbersOfTheCpu) {
  cellc_kernel *cpu = compile("cpu"), *gpu = compile("cuda");
  for (const std::int64_t steps : {kSteps, std::int64_t{1}}) {
    Arrays there(cpu, shape(kSequences, steps), nullptr), here(gpu, shape(kSequences, steps), emulator_.get());
    const cellc_shape s = shape(kSequences, steps);
    ASSERT_EQ(cellc_forward(cpu, &s, there.table.data(), there.count(), nullptr), CELLC_OK) << cellc_last_error();
    cellc_report report;
    cellc_report_init(&report);
    std::vector<int32_t> status(kSequences, 9);
    report.status = status.data();
    ASSERT_EQ(cellc_forward(gpu, &s, here.table.data(), here.count(), &report), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(report.converged, 1);
    EXPECT_EQ(status, std::vector<int32_t>(kSequences, 0));
    for (const char* name : {"h", "y", "h_final"}) expect_close(here.of(name), there.of(name));
  }
}

TEST_F(OnGpu, ViewsOfRowsAreTakenAsTheyLie) {
  constexpr std::int64_t kHalf = kSteps / 2;
  const cellc_shape half = shape(kSequences, kHalf);
  const std::int64_t second[] = {kSteps * kD, 2 * kD, 1};  // every second step
  const auto run = [&](cellc_kernel* kernel, Arrays& arrays, const std::int64_t* of_x, cellc_call* prepared) {
    std::vector<cellc_view> views;
    for (const cellc_array& a : arrays.table) views.push_back({a.data, a.dtype, 3, nullptr, nullptr});
    const auto view = [&](const char* name) -> cellc_view& {
      return views[static_cast<std::size_t>(cellc_array_find(kernel, name))];
    };
    view("x").strides = of_x;
    view("h").strides = view("y").strides = second;
    if (prepared) return cellc_run_views(prepared, views.data(), arrays.count());
    cellc_request request;
    cellc_request_init(&request);
    request.shape = &half;
    request.arrays = views.data();
    request.count = arrays.count();
    request.on_stream = kernel != kernels_[0];
    return cellc_apply(kernel, &request);
  };
  cellc_kernel *cpu = compile("cpu"), *gpu = compile("cuda");
  Arrays there(cpu, shape(), nullptr), here(gpu, shape(), emulator_.get());
  ASSERT_EQ(run(cpu, there, second, nullptr), CELLC_OK) << cellc_last_error();
  ASSERT_EQ(run(gpu, here, second, nullptr), CELLC_OK) << cellc_last_error();
  for (const char* name : {"h", "y", "h_final"}) expect_close(here.of(name), there.of(name));
  Arrays again(gpu, shape(), emulator_.get());
  ASSERT_EQ(run(gpu, again, second, prepare(gpu, half)), CELLC_OK) << cellc_last_error();
  for (const char* name : {"h", "y", "h_final"}) expect_close(again.of(name), there.of(name));
}

TEST_F(OnGpu, CompilingAhead) {
  cellc_kernel* gpu = compile("cuda");
  Arrays here(gpu, shape(), emulator_.get());
  const cellc_shape of = shape();
  EXPECT_EQ(cellc_compile_ahead(gpu, &of, 0), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(cellc_forward_on(gpu, &of, here.table.data(), here.count(), nullptr, nullptr, nullptr), CELLC_OK)
      << cellc_last_error();
  EXPECT_FALSE(here.untouched());
}

// Reports of calls and of prepared calls: stages, and the first step that is not finite, with rows that have gaps.
TEST_F(OnGpu, ReportsSayHowItWent) {
  cellc_kernel* gpu = compile("cuda");
  const cellc_shape s = shape();
  for (const bool prepared : {false, true}) {
    Arrays here(gpu, s, emulator_.get());
    const float nan = std::nanf("");
    emulator_->copy_in(reinterpret_cast<std::uint64_t>(here.at("x").data) + ((kSteps + 13) * kD + 2) * 4, &nan, 4, 0);
    std::vector<cellc_view> views;
    for (const cellc_array& a : here.table) views.push_back({a.data, a.dtype, 0, nullptr, nullptr});
    const std::int64_t turned[] = {kD, kSequences * kD, 1};
    cellc_view& h = views[static_cast<std::size_t>(cellc_array_find(gpu, "h"))];
    h.rank = 3;
    h.strides = turned;
    std::vector<std::int64_t> bad(kSequences, 9), first(kSequences, 9);
    cellc_report report;
    cellc_report_init(&report);
    report.first_bad = bad.data();
    report.first_non_finite = first.data();
    cellc_request request;
    cellc_request_init(&request);
    request.shape = &s;
    request.arrays = views.data();
    request.count = here.count();
    request.report = &report;
    request.on_stream = 1;
    ASSERT_EQ(prepared ? cellc_apply_prepared(prepare(gpu, s), &request) : cellc_apply(gpu, &request), CELLC_OK)
        << cellc_last_error();
    EXPECT_EQ(report.stages, 1);
    cellc_stage stage;
    stage.size = sizeof stage;
    ASSERT_EQ(cellc_report_stage(0, &stage), CELLC_OK);
    EXPECT_NE(std::string(report.plan).find(stage.solver), std::string::npos);
    EXPECT_EQ(first, (std::vector<std::int64_t>{-1, 13, -1}));
    EXPECT_EQ(bad[0], -1);
    // A graph cannot wait for a report.
    emulator_->set_capture(5);
    request.stream = reinterpret_cast<void*>(8);
    EXPECT_EQ(cellc_apply_prepared(prepare(gpu, s), &request), CELLC_WRONG_USAGE);
    emulator_->set_capture(0);
  }
}

TEST_F(OnGpu, StepsWithCarriedStateAreTheWhole) {
  cellc_kernel* kernel = compile("cuda:0");
  Arrays whole(kernel, shape(2, 6), emulator_.get());
  cellc_call* all = prepare(kernel, shape(2, 6));
  ASSERT_EQ(cellc_run(all, whole.table.data(), whole.count()), CELLC_OK) << cellc_last_error();
  cellc_call* step = prepare(kernel, shape(2, 1));
  Arrays one(kernel, shape(2, 1), emulator_.get());
  // Step t of both sequences, straight from the whole's memory; state and history in place.
  const std::vector<float> start = [&] {
    std::vector<float> twice;
    const std::vector<float> a = whole.of("a");
    for (int b = 0; b < 2; ++b)
      for (const float v : a) twice.push_back(2 * v);
    return twice;
  }();
  const cellc::GpuBuffer state(*emulator_, start.size() * 4), history(*emulator_, 2 * kD * 4);
  emulator_->copy_in(state.address(), start.data(), start.size() * 4, 0);
  emulator_->zero(history.address(), history.bytes(), 0);
  one.at("a").data = whole.at("a").data;
  one.at("h_start") = one.at("h_final") = {reinterpret_cast<void*>(state.address()), 2 * kD, CELLC_F32, 0, 0};
  one.at("x_lag") = one.at("x_lag_final") = {reinterpret_cast<void*>(history.address()), 2 * kD, CELLC_F32, 0, 0};
  for (int t = 0; t < 6; ++t) {
    one.at("x") = {static_cast<float*>(whole.at("x").data) + t * kD, 2 * 6 * kD - t * kD, CELLC_F32, 6 * kD, 0};
    ASSERT_EQ(cellc_run_on(step, one.table.data(), one.count(), nullptr, nullptr, nullptr), CELLC_OK)
        << cellc_last_error();
    const std::vector<float> h = one.of("h"), y = one.of("y"), want_h = whole.of("h"), want_y = whole.of("y");
    for (int b = 0; b < 2; ++b)
      for (int e = 0; e < kD; ++e) {
        ASSERT_EQ(h[b * kD + e], want_h[(b * 6 + t) * kD + e]) << t;
        ASSERT_EQ(y[b * kD + e], want_y[(b * 6 + t) * kD + e]) << t;
      }
  }
}

// A state of whole steps that nobody wants is nowhere on the device, and nothing else changes.
TEST_F(OnGpu, WhatIsNullIsNowhere) {
  const std::string dense =
      "cell dense[d] {\n  state h[d]\n  input x[d]\n  param U[d,d]\n  h' = tanh(U@h + x)\n  out y = h'*x\n}\n";
  cellc_kernel* kernel = KeptHandles::compile(dense, "cuda", nullptr);
  const std::int64_t wide[] = {67}, steps = 90;  // more than a thread takes
  const cellc_shape s = shape_of(wide, 2, steps);
  Arrays all(kernel, s, emulator_.get(), 0, {}), some(kernel, s, emulator_.get(), 0, {});
  some.at("h").data = nullptr;
  cellc_call* call = prepare(kernel, s);
  const std::int64_t before = emulator_->counts().live_bytes;
  ASSERT_EQ(cellc_run(call, some.table.data(), some.count()), CELLC_OK) << cellc_last_error();
  EXPECT_LT(emulator_->counts().live_bytes - before, 2 * steps * wide[0] * 4);
  ASSERT_EQ(cellc_run(call, all.table.data(), all.count()), CELLC_OK) << cellc_last_error();
  for (const char* name : {"y", "h_final"}) EXPECT_EQ(all.of(name), some.of(name)) << name;
  for (const float v : some.of("h")) ASSERT_EQ(v, 77.0f);
}

TEST_F(OnGpu, BadPointersAreRefusedAndNothingIsWritten) {
  cellc_kernel* kernel = compile("cuda");
  const cellc_shape s = shape();
  cellc_call* call = prepare(kernel, s);
  Arrays good(kernel, s, emulator_.get());
  float on_host[kSequences * kSteps * kD] = {};
  const auto refused = [&](const char* name, void* data, cellc_status status, const char* says) {
    std::vector<cellc_array> table = good.table;
    table[static_cast<std::size_t>(cellc_array_find(kernel, name))].data = data;
    EXPECT_EQ(cellc_run_on(call, table.data(), good.count(), nullptr, nullptr, nullptr), status) << name;
    EXPECT_NE(std::string(cellc_last_error()).find(says), std::string::npos) << cellc_last_error();
    EXPECT_EQ(cellc_forward_on(kernel, &s, table.data(), good.count(), nullptr, nullptr, nullptr), status);
    EXPECT_TRUE(good.untouched());
  };
  refused("x", on_host, CELLC_WRONG_INPUT, "array x: its address");
  refused("h", on_host, CELLC_WRONG_INPUT, "array h: its address");
  refused("x", nullptr, CELLC_WRONG_INPUT, "array x: is a null pointer, but has no default");
  refused("x", static_cast<char*>(good.at("x").data) + 4, CELLC_WRONG_INPUT, "array x");  // runs past its end
  refused("x", static_cast<char*>(good.at("x").data) + 1, CELLC_WRONG_INPUT,
          "is not aligned to the 4 bytes of an entry");
  std::int32_t status[kSequences] = {};
  EXPECT_EQ(cellc_run_on(call, good.table.data(), good.count(), nullptr, status, nullptr), CELLC_WRONG_INPUT);
  EXPECT_NE(std::string(cellc_last_error()).find("array status"), std::string::npos);
  std::vector<cellc_array> table = good.table;
  --table[0].entries;
  EXPECT_EQ(cellc_run_on(call, table.data(), good.count(), nullptr, nullptr, nullptr), CELLC_WRONG_INPUT);
  EXPECT_EQ(cellc_run_on(nullptr, table.data(), good.count(), nullptr, nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_forward_on(nullptr, &s, table.data(), good.count(), nullptr, nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_TRUE(good.untouched());
}

TEST_F(OnGpu, DevicesThatThereAreNotAndStreamsOfTheCpu) {
  const auto error = [&](const char* device, cellc_status status) -> std::string {
    cellc_options options;
    cellc_options_init(&options);
    options.device = device;
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(kCell.data(), kCell.size(), &options, &kernel), status) << device;
    EXPECT_EQ(kernel, nullptr);
    return cellc_last_error();
  };
  EXPECT_EQ(error("cuda:1", CELLC_DEVICE_FAILED), "device 'cuda:1': no GPU 1");
  for (const char* name : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", ""})
    EXPECT_NE(error(name, CELLC_WRONG_USAGE).find("expected cpu, cuda, or cuda:1"), std::string::npos) << name;
  cellc_kernel* cpu = compile("cpu");
  const cellc_shape s = shape();
  Arrays arrays(cpu, s, nullptr);
  EXPECT_EQ(cellc_forward_on(cpu, &s, arrays.table.data(), arrays.count(), &arrays, nullptr, nullptr),
            CELLC_WRONG_USAGE);
  EXPECT_NE(std::string(cellc_last_error()).find("has no streams"), std::string::npos);
  EXPECT_EQ(cellc_run_on(prepare(cpu, s), arrays.table.data(), arrays.count(), &arrays, nullptr, nullptr),
            CELLC_WRONG_USAGE);
}

TEST_F(OnGpu, RepeatedForwardAllocatesNothing) {
  cellc_kernel* kernel = compile("cuda");
  const cellc_shape s = shape();
  Arrays arrays(kernel, s, emulator_.get());
  ASSERT_EQ(cellc_forward_on(kernel, &s, arrays.table.data(), arrays.count(), nullptr, nullptr, nullptr), CELLC_OK)
      << cellc_last_error();
  const Emulator::Counts before = emulator_->counts();
  ASSERT_EQ(cellc_forward_on(kernel, &s, arrays.table.data(), arrays.count(), nullptr, nullptr, nullptr), CELLC_OK);
  EXPECT_EQ(emulator_->counts().allocations, before.allocations);
  EXPECT_EQ(emulator_->counts().synchronisations, before.synchronisations);
  // Shapes come and go; their memory does not pile up.
  std::int64_t held = 0;
  for (std::int64_t steps = 1; steps <= 24; ++steps) {
    const cellc_shape other = shape(1, steps);
    Arrays some(kernel, other, emulator_.get());
    ASSERT_EQ(cellc_forward_on(kernel, &other, some.table.data(), some.count(), nullptr, nullptr, nullptr), CELLC_OK)
        << cellc_last_error();
    if (steps == 12) held = emulator_->counts().live_bytes;
  }
  EXPECT_LE(emulator_->counts().live_bytes, held + (64 << 10));
}

TEST_F(OnGpu, CapturedCallsKeepTheirMemory) {
  cellc_kernel* kernel = compile("cuda");
  const cellc_shape s = shape();
  Arrays arrays(kernel, s, emulator_.get());
  emulator_->set_capture(5);
  EXPECT_EQ(
      cellc_forward_on(kernel, &s, arrays.table.data(), arrays.count(), reinterpret_cast<void*>(8), nullptr, nullptr),
      CELLC_OK)
      << cellc_last_error();
  cellc_report report;
  cellc_report_init(&report);
  EXPECT_EQ(
      cellc_forward_on(kernel, &s, arrays.table.data(), arrays.count(), reinterpret_cast<void*>(8), nullptr, &report),
      CELLC_WRONG_USAGE);
  EXPECT_NE(std::string(cellc_last_error()).find("cannot wait"), std::string::npos);
  emulator_->set_capture(0);
  EXPECT_FALSE(arrays.untouched());
}

TEST_F(OnGpu, ShapesThatGoInACaptureAreFreedAsItAllows) {
  cellc_kernel* kernel = compile("cuda");
  for (std::int64_t steps = 1; steps <= 12; ++steps) {
    const cellc_shape s = shape(1, steps);
    Arrays arrays(kernel, s, emulator_.get());
    if (steps > 8) emulator_->set_capture(5);
    EXPECT_EQ(
        cellc_forward_on(kernel, &s, arrays.table.data(), arrays.count(), reinterpret_cast<void*>(8), nullptr, nullptr),
        CELLC_OK)
        << cellc_last_error();
    emulator_->set_capture(0);
  }
}

TEST_F(OnGpu, EightThreadsOnOneKernel) {
  for (const char* device : {"cuda", "cpu"}) {
    cellc_kernel* kernel = compile(device);
    Emulator* const emulator = std::strcmp(device, "cuda") == 0 ? emulator_.get() : nullptr;
    const cellc_shape s = shape();
    std::vector<std::unique_ptr<Arrays>> all;
    std::vector<std::vector<float>> alone;
    for (int i = 0; i < 8; ++i) {
      Arrays first(kernel, s, emulator, i);
      ASSERT_EQ(cellc_forward(kernel, &s, first.table.data(), first.count(), nullptr), CELLC_OK) << cellc_last_error();
      alone.push_back(first.of("y"));
      all.push_back(std::make_unique<Arrays>(kernel, s, emulator, i));
    }
    std::vector<std::string> errors(8);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 8; ++i)
      threads.emplace_back([&, i] {
        for (int k = 0; k < 3; ++k)
          if (cellc_forward(kernel, &s, all[i]->table.data(), all[i]->count(), nullptr) != CELLC_OK)
            errors[i] = cellc_last_error();
      });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(errors, std::vector<std::string>(8));
    for (std::size_t i = 0; i < 8; ++i) expect_close(all[i]->of("y"), alone[i]);
  }
}

TEST_F(OnGpu, KernelMayBeFreedBeforeItsCalls) {
  cellc_kernel* kernel = compile("cuda");
  const cellc_shape s = shape(1, 4);
  Arrays arrays(kernel, s, emulator_.get());
  cellc_call* call = prepare(kernel, s);
  cellc_kernel_free(kernels_.back());
  kernels_.clear();
  EXPECT_EQ(cellc_run_on(call, arrays.table.data(), arrays.count(), nullptr, nullptr, nullptr), CELLC_OK)
      << cellc_last_error();
}

}  // namespace
