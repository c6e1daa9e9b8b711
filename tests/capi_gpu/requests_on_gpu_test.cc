// What one call on a GPU has of its own, the emulator in its place: params of each sequence, and options.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/capi_gpu/arrays_on_gpu.h"

namespace cellc {
namespace {

const std::string kMixed = R"(cell mixed[d, m] {
  state h[d]
  input x[m]
  param W[d,m], a[d] = 0.5
  h' = tanh(a*h + W@x)
  out y = sum[d](h')
}
)";
// It forgets slowly, so segments differ from a run step by step within a tolerance.
const std::string kSlow = R"(cell slow[d] {
  state h[d]
  input x[d]
  param a[d]
  h' = 0.9*h + 0.1*tanh(a*h + x)
  out y = h'*lag(x, 1)
}
)";
constexpr std::int64_t kB = 3, kT = 6;
const std::int64_t kLengths[] = {4, 3};

class RequestsOnGpu : public EmulatedGpu {
 protected:
  /// Arrays of a call whose params, and what is derived of them, have sequences as their first axis where `own` names
  /// them; all without gaps.
  struct BySequence {
    BySequence(ArraysOnGpu& call, Random& random, const std::vector<std::string>& own) : call(call) {
      for (OneArray& a : call.all) {
        a.given = true;
        by.push_back(std::find(own.begin(), own.end(), a.info.name) != own.end());
        if (by.back()) a.lengths.insert(a.lengths.begin(), call.shape.sequences);
        a.draw(random, -1, 1);
      }
    }
    cellc_status run(cellc_call* prepared = nullptr, cellc_report* report = nullptr) {
      call.views.clear();
      for (std::size_t i = 0; i < call.all.size(); ++i) {
        OneArray& a = call.all[i];
        call.upload(i, a.dense);
        call.views.push_back({reinterpret_cast<void*>(call.device[i].address()), a.info.dtype,
                              static_cast<int>(a.lengths.size()), a.lengths.data(), nullptr});
      }
      const cellc_status status = call.again(prepared, report);
      for (std::size_t i = 0; i < call.all.size(); ++i)
        call.gpu.copy_out(call.all[i].dense.data(), call.device[i].address(), call.all[i].dense.size(), 0);
      return status;
    }
    ArraysOnGpu& call;
    std::vector<bool> by;
  };

  /// A call of sequence s alone, without those axes, gives the same.
  void expect_alone(const BySequence& all, std::int64_t s, std::int64_t begin, std::int64_t steps) {
    const cellc_shape one = shape_of(kLengths, 1, steps);
    ArraysOnGpu call(all.call.kernel, all.call.direction, one, *emulator_);
    Random random(1);
    call.draw(random);
    const auto from = [&](std::size_t i) {
      const OneArray& whole = all.call.all[i];
      const std::size_t part = call.all[i].dense.size();
      const std::size_t rows = steps > 0 ? part / static_cast<std::size_t>(steps) : 0;
      const std::int64_t at = whole.info.layout == CELLC_CONTIGUOUS           ? begin * static_cast<std::int64_t>(rows)
                              : whole.info.layout == CELLC_ONCE && !all.by[i] ? 0
                                                                              : s * static_cast<std::int64_t>(part);
      return Bytes(whole.dense.begin() + at, whole.dense.begin() + at + static_cast<std::int64_t>(part));
    };
    for (std::size_t i = 0; i < call.all.size(); ++i) {
      call.all[i].given = true;
      if (!call.all[i].info.written) call.all[i].dense = from(i);
    }
    ASSERT_EQ(call.run(false), CELLC_OK) << cellc_last_error();
    for (std::size_t i = 0; i < call.all.size(); ++i) {
      EXPECT_EQ(call.all[i].dense, from(i)) << call.all[i].info.name << " of sequence " << s;
    }
  }
};

TEST_F(RequestsOnGpu, ParamsOfSequences) {
  cellc_kernel* kernel = kernel_of(kMixed, CELLC_F64, "sequential");
  const std::vector<std::string> own = {"W", "gradient.W", "gradient.a", "tangent.W"};
  static const std::int64_t offsets[] = {0, 4, 4, 9};
  for (const bool packed : {false, true})
    for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT}) {
      if (packed && direction != CELLC_FORWARD) continue;
      SCOPED_TRACE(testing::Message() << direction << packed);
      cellc_shape shape = shape_of(kLengths, kB, kT);
      if (packed) shape.offsets = offsets;
      Random random(7);
      ArraysOnGpu call(kernel, direction, shape, *emulator_);
      BySequence all(call, random, own);
      const GpuBuffer status(*emulator_, kB * 4);
      std::int32_t found[kB] = {9, 9, 9};
      emulator_->copy_in(status.address(), found, sizeof found, 0);
      if (direction == CELLC_FORWARD) call.status = reinterpret_cast<std::int32_t*>(status.address());
      cellc_report report;
      cellc_report_init(&report);
      std::int64_t first[kB] = {9, 9, 9};
      report.first_non_finite = first;
      ASSERT_EQ(all.run(nullptr, &report), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(report.converged, 1);
      EXPECT_GE(report.stages, 1);
      EXPECT_EQ(first[0] + first[1] + first[2], -3);
      for (std::int64_t s = 0; s < kB; ++s)
        expect_alone(all, s, packed ? offsets[s] : s * kT, packed ? offsets[s + 1] - offsets[s] : kT);
      if (direction != CELLC_FORWARD) continue;
      emulator_->copy_out(found, status.address(), sizeof found, 0);
      EXPECT_EQ(found[0] + found[1] + found[2], 0);
      const std::vector<OneArray> before = call.all;
      ASSERT_EQ(all.run(prepare(kernel, shape)), CELLC_OK) << cellc_last_error();
      for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(call.all[i].dense, before[i].dense);
    }
}

TEST_F(RequestsOnGpu, ParamsOfSequencesAreQueuedAndRefused) {
  cellc_kernel* kernel = kernel_of(kMixed, CELLC_F64, "sequential");
  const cellc_shape shape = shape_of(kLengths, kB, kT);
  Random random(9);
  ArraysOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
  BySequence all(call, random, {"W"});
  ASSERT_EQ(all.run(), CELLC_OK) << cellc_last_error();
  const Emulator::Counts before = emulator_->counts();
  ASSERT_EQ(call.again(nullptr), CELLC_OK);
  EXPECT_EQ(emulator_->counts().allocations, before.allocations);
  EXPECT_EQ(emulator_->counts().synchronisations, before.synchronisations);
  // The last sequence's param lies beyond the memory; nothing is queued for the others.
  for (OneArray& a : call.all)
    if (a.info.written) std::fill(a.dense.begin(), a.dense.end(), 0x33);
  const Bytes clean = call.named("h").dense;
  ASSERT_EQ(all.run(), CELLC_OK);
  EXPECT_NE(call.named("h").dense, clean);
  const auto w = static_cast<std::size_t>(cellc_array_find(kernel, "W"));
  const std::int64_t far[] = {1 << 22, 3, 1};
  for (std::size_t i = 0; i < call.all.size(); ++i)
    if (call.all[i].info.written) call.upload(i, Bytes(call.all[i].dense.size(), 0x33));
  call.views[w].strides = far;
  EXPECT_EQ(call.again(nullptr), CELLC_WRONG_INPUT);
  EXPECT_NE(std::string(cellc_last_error()).find("array W: its address"), std::string::npos) << cellc_last_error();
  Bytes h(clean.size());
  emulator_->copy_out(h.data(), call.device[static_cast<std::size_t>(cellc_array_find(kernel, "h"))].address(),
                      h.size(), 0);
  EXPECT_EQ(h, clean);

  // The status of the forward run is the device's, and is looked at where a report waits.
  ArraysOnGpu back(kernel, CELLC_BACKWARD, shape, *emulator_);
  BySequence derivatives(back, random, {"W", "gradient.W", "gradient.a"});
  const GpuBuffer status(*emulator_, kB * 4);
  const std::int32_t bad[kB] = {0, 0, 1};
  emulator_->copy_in(status.address(), bad, sizeof bad, 0);
  back.forward_status = reinterpret_cast<const std::int32_t*>(status.address());
  cellc_report report;
  cellc_report_init(&report);
  const Bytes gradient = back.named("gradient.W").dense;
  EXPECT_EQ(derivatives.run(nullptr, &report), CELLC_NOT_CONVERGED);
  EXPECT_EQ(back.named("gradient.W").dense, gradient);
  EXPECT_EQ(derivatives.run(), CELLC_OK) << cellc_last_error();
  EXPECT_NE(back.named("gradient.W").dense, gradient);
}

// Sequences of more lengths than a kernel keeps shapes for: nothing is allocated twice, whatever else is called
// between.
TEST_F(RequestsOnGpu, ParamsOfSequencesOfManyLengths) {
  cellc_kernel* kernel = kernel_of(kMixed, CELLC_F64, "sequential");
  static const std::int64_t offsets[] = {0, 1, 3, 6, 10, 15, 21, 28, 36, 45, 55, 66, 67};
  cellc_shape shape = shape_of(kLengths, 12, 0);
  shape.offsets = offsets;
  for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD}) {
    SCOPED_TRACE(direction);
    Random random(9);
    ArraysOnGpu call(kernel, direction, shape, *emulator_);
    BySequence all(call, random, {"W", "gradient.W", "gradient.a"});
    ASSERT_EQ(all.run(), CELLC_OK) << cellc_last_error();
    for (std::int64_t steps = 1; steps <= 9; ++steps) {
      ArraysOnGpu other(kernel, direction, shape_of(kLengths, 2, steps), *emulator_);
      other.draw(random);
      ASSERT_EQ(other.run(false), CELLC_OK) << cellc_last_error();
    }
    const Emulator::Counts before = emulator_->counts();
    ASSERT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(emulator_->counts().allocations, before.allocations);
    EXPECT_EQ(emulator_->counts().synchronisations, before.synchronisations);
    EXPECT_GT(emulator_->counts().launches, before.launches);
    call.stream = reinterpret_cast<void*>(8);
    emulator_->set_capture(5);
    EXPECT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
    emulator_->set_capture(0);
  }
}

// Compiling such a call beforehand keeps what all of its lengths need.
TEST_F(RequestsOnGpu, ParamsOfSequencesOfManyLengthsAreCompiledAhead) {
  cellc_kernel* kernel = kernel_of(kMixed, CELLC_F64, "sequential");
  static const std::int64_t offsets[] = {0, 1, 3, 6, 10, 15, 21, 28, 36, 45};
  cellc_shape shape = shape_of(kLengths, 9, 0);
  shape.offsets = offsets;
  Random random(9);
  ArraysOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
  BySequence all(call, random, {"W"});
  for (std::size_t i = 0; i < call.all.size(); ++i) {
    OneArray& a = call.all[i];
    call.upload(i, a.dense);
    call.views.push_back({reinterpret_cast<void*>(call.device[i].address()), a.info.dtype,
                          static_cast<int>(a.lengths.size()), a.lengths.data(), nullptr});
  }
  cellc_request request;
  cellc_request_init(&request);
  request.shape = &shape;
  request.arrays = call.views.data();
  request.count = static_cast<int>(call.views.size());
  request.on_stream = 1;
  ASSERT_EQ(cellc_compile_request(kernel, &request), CELLC_OK) << cellc_last_error();
  const Emulator::Counts before = emulator_->counts();
  ASSERT_EQ(call.again(nullptr), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(emulator_->counts().allocations, before.allocations);
  EXPECT_EQ(emulator_->counts().synchronisations, before.synchronisations);
}

// Of every sequence before anything is queued for the first: where arrays lie, and where statuses.
TEST_F(RequestsOnGpu, PlacesOfAllSequencesAreLookedAtFirst) {
  cellc_kernel* kernel = kernel_of(kMixed, CELLC_F64, "sequential");
  static const std::int64_t offsets[] = {0, 0, 4, 9};  // no rows, and so no places, of the first
  cellc_shape shape = shape_of(kLengths, kB, kT);
  const auto refused = [&](cellc_direction direction, const std::vector<std::string>& own, auto change,
                           const char* says) {
    Random random(9);
    ArraysOnGpu call(kernel, direction, shape, *emulator_);
    BySequence all(call, random, own);
    ASSERT_EQ(all.run(), CELLC_OK) << cellc_last_error();
    const Emulator::Counts before = emulator_->counts();
    change(call);
    EXPECT_EQ(call.again(nullptr), CELLC_WRONG_INPUT) << says;
    EXPECT_NE(std::string(cellc_last_error()).find(says), std::string::npos) << cellc_last_error();
    EXPECT_EQ(emulator_->counts().launches, before.launches) << says;
  };
  const GpuBuffer status(*emulator_, 256);
  refused(
      CELLC_FORWARD, {"W"},
      [&](ArraysOnGpu& call) { call.status = reinterpret_cast<std::int32_t*>(status.address() + status.bytes() - 4); },
      "array status: its address");
  refused(
      CELLC_BACKWARD, {"W", "gradient.W", "gradient.a"},
      [](ArraysOnGpu& call) { call.forward_status = reinterpret_cast<const std::int32_t*>(4096); },
      "array status: its address");
  shape.offsets = offsets;
  refused(
      CELLC_FORWARD, {"W"},
      [&](ArraysOnGpu& call) {
        cellc_view& x = call.views[static_cast<std::size_t>(cellc_array_find(kernel, "x"))];
        x.data = static_cast<char*>(x.data) + 4;
      },
      "array x: its address");
}

// A call with options goes as one of a kernel that was compiled with them.
TEST_F(RequestsOnGpu, OptionsOfACall) {
  const cellc_shape shape = shape_of(kLengths, 2, 300);
  cellc_kernel *free = kernel_of(kSlow, CELLC_F64, nullptr), *stepwise = kernel_of(kSlow, CELLC_F64, "sequential"),
               *segmented = kernel_of(kSlow, CELLC_F64, "segmented");
  const auto run = [&](cellc_kernel* kernel, const cellc_call_options* options, bool prepared, cellc_report& report,
                       cellc_status want = CELLC_OK) {
    Random random(2);
    ArraysOnGpu call(kernel, CELLC_FORWARD, shape, *emulator_);
    call.draw(random);
    for (OneArray& a : call.all) a.given = true;
    call.options = options;
    std::map<std::string, Bytes> found;
    EXPECT_EQ(call.run(false, prepared ? prepare(kernel, shape) : nullptr), want) << cellc_last_error();
    for (const OneArray& a : call.all) found[a.info.name] = a.dense;
    // Of a report, too; of what a call writes over its own results nothing is another.
    cellc_report_init(&report);
    EXPECT_EQ(call.again(prepared ? calls_.back() : nullptr, &report), want) << cellc_last_error();
    return found;
  };
  const auto solver_of = [](const cellc_report& report) { return std::string(report.plan); };
  cellc_report report;
  cellc_call_options none;
  cellc_call_options_init(&none);
  const auto exact = run(stepwise, nullptr, false, report);
  EXPECT_NE(solver_of(report).find("sequential"), std::string::npos);
  const auto in_segments = run(segmented, nullptr, false, report);
  EXPECT_NE(solver_of(report).find("segmented"), std::string::npos);
  EXPECT_EQ(report.verified, -1);
  for (const bool prepared : {false, true}) {
    EXPECT_EQ(run(stepwise, &none, prepared, report), exact);
    cellc_call_options options = none;
    options.solver = "segmented";
    options.verify = 1;
    EXPECT_EQ(run(stepwise, nullptr, prepared, report), exact);
    Random random(2);
    ArraysOnGpu call(stepwise, CELLC_FORWARD, shape, *emulator_);
    call.draw(random);
    for (OneArray& a : call.all) a.given = true;
    ASSERT_EQ(call.run(false), CELLC_OK);
    call.options = &options;
    cellc_report_init(&report);
    ASSERT_EQ(call.again(prepared ? prepare(stepwise, shape) : nullptr, &report), CELLC_OK) << cellc_last_error();
    EXPECT_NE(solver_of(report).find("segmented"), std::string::npos) << report.plan;
    EXPECT_GE(report.verified, 0);
    EXPECT_LT(report.verified, 1e-10);
    for (std::size_t i = 0; i < call.all.size(); ++i) {
      Bytes found(call.all[i].dense.size());
      emulator_->copy_out(found.data(), call.device[i].address(), found.size(), 0);
      EXPECT_EQ(found, in_segments.at(call.all[i].info.name)) << call.all[i].info.name;
    }
    options = none;
    options.has_tolerance = 1;  // 0: the bits of a run step by step
    EXPECT_EQ(run(free, &options, prepared, report), exact);
    // One iteration leaves a residual, and nobody repairs it.
    options = none;
    options.solver = "newton";
    options.fixed_iterations = 1;
    options.verify = 1;
    cellc_report_init(&report);
    std::int64_t bad[2] = {9, 9};
    report.first_bad = bad;
    call.options = &options;
    EXPECT_EQ(call.again(prepared ? calls_.back() : nullptr, &report), CELLC_NOT_CONVERGED) << report.plan;
    EXPECT_EQ(report.iterations, 1);
    EXPECT_EQ(report.converged, 0);
    EXPECT_GT(report.max_residual, 1e-12);
    EXPECT_GT(report.verified, 1e-12);
    EXPECT_GT(bad[0], 0);
    // The kernel has not changed.
    EXPECT_EQ(run(stepwise, nullptr, prepared, report), exact);
  }
}

TEST_F(RequestsOnGpu, OptionsOfABackwardCallAndMistakes) {
  cellc_kernel* kernel = kernel_of(kSlow, CELLC_F64, "sequential");
  const cellc_shape shape = shape_of(kLengths, 2, 40);
  const auto call_with = [&](cellc_direction direction, auto change, cellc_status want, const char* says,
                             bool reported = true) {
    Random random(2);
    ArraysOnGpu call(kernel, direction, shape, *emulator_);
    call.draw(random);
    for (OneArray& a : call.all) a.given = true;
    const std::vector<OneArray> before = call.all;
    cellc_call_options options;
    cellc_call_options_init(&options);
    change(options);
    cellc_report report;
    cellc_report_init(&report);
    call.options = &options;
    call.views.clear();
    for (std::size_t i = 0; i < call.all.size(); ++i) {
      call.upload(i, call.all[i].dense);
      call.views.push_back({reinterpret_cast<void*>(call.device[i].address()), CELLC_F64, 0, nullptr, nullptr});
    }
    EXPECT_EQ(call.again(nullptr, reported ? &report : nullptr), want) << cellc_last_error();
    if (want == CELLC_OK) return;
    EXPECT_NE(std::string(cellc_last_error()).find(says), std::string::npos) << cellc_last_error();
    for (std::size_t i = 0; i < call.all.size(); ++i) {
      Bytes found(call.all[i].dense.size());
      emulator_->copy_out(found.data(), call.device[i].address(), found.size(), 0);
      EXPECT_EQ(found, before[i].dense);
    }
  };
  call_with(
      CELLC_BACKWARD, [](auto& o) { o.has_tolerance = 1, o.tolerance = 1e-3; }, CELLC_OK, "");
  call_with(
      CELLC_BACKWARD, [](auto& o) { o.solver = "newton"; }, CELLC_WRONG_USAGE, "of forward calls");
  call_with(
      CELLC_BACKWARD, [](auto& o) { o.verify = 1; }, CELLC_WRONG_USAGE, "of forward calls");
  call_with(
      CELLC_FORWARD, [](auto& o) { o.threads = 2; }, CELLC_WRONG_USAGE, "2 threads: no thread of the host");
  call_with(
      CELLC_FORWARD, [](auto& o) { o.run_tasks = [](void*, void (*)(void*, int), void*, int) {}; }, CELLC_WRONG_USAGE,
      "run_tasks: a call on a GPU has no tasks");
  call_with(
      CELLC_FORWARD, [](auto& o) { o.plan = "{}"; }, CELLC_WRONG_INPUT, "options.plan: not a plan");
  call_with(
      CELLC_FORWARD, [](auto& o) { o.solver = "magic"; }, CELLC_WRONG_USAGE, "magic");
  call_with(
      CELLC_FORWARD, [](auto& o) { o.solver = "scan"; }, CELLC_WRONG_USAGE, "scan");
  call_with(
      CELLC_FORWARD, [](auto& o) { o.fixed_iterations = -1; }, CELLC_WRONG_USAGE, "-1 iterations");
  call_with(
      CELLC_FORWARD, [](auto& o) { o.has_tolerance = 1, o.tolerance = -1; }, CELLC_WRONG_USAGE, "tolerance of -1");
  call_with(
      CELLC_FORWARD, [](auto& o) { o.verify = 1; }, CELLC_WRONG_USAGE, "verify", false);
}

}  // namespace
}  // namespace cellc
