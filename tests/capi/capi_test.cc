// The C API as a program meets it: through the shared library and cellc.h alone.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cellc.h"
#include "tests/capi/call_arrays.h"
#include "tests/capi/kept_handles.h"

namespace {

const std::string kGru = R"(cell gru[d, m] {
  state h[d]
  input x[m]
  param W[d,m], a[d], bias = 0.25
  z = sigmoid(a*h + W@x + bias)
  h' = (1 - z)*h + z*tanh(W@x)
  out y = 2*h'
}
)";
const std::string kLagged = R"(cell narx[d] {
  state h[d]
  input x[d]
  h' = tanh(0.5*h + 0.25*lag(h, 2) + x - 0.5*lag(x, 3))
}
)";

constexpr std::int64_t kD = 20, kM = 7;

class CApi : public KeptHandles {
 protected:
  cellc_kernel* compile(const std::string& text, void (*change)(cellc_options&) = nullptr) {
    return KeptHandles::compile(text, nullptr, change);
  }
};

const std::int64_t kLengths[] = {kD, kM};

/// The GRU as one writes it, in f64.
std::vector<double> gru(const Arrays<double>& a, std::int64_t sequences, std::int64_t steps, bool start) {
  const auto& x = a.memory[a.index("x")];
  const auto& W = a.memory[a.index("W")];
  const auto& decay = a.memory[a.index("a")];
  const auto& bias = a.memory[a.index("bias")];
  std::vector<double> all;
  for (std::int64_t s = 0; s < sequences; ++s) {
    std::vector<double> h(kD, 0.0);
    if (start)
      for (std::int64_t d = 0; d < kD; ++d)
        h[static_cast<std::size_t>(d)] = a.memory[a.index("h_start")][static_cast<std::size_t>(s * kD + d)];
    for (std::int64_t t = 0; t < steps; ++t)
      for (std::int64_t d = 0; d < kD; ++d) {
        double sum = 0;
        for (std::int64_t m = 0; m < kM; ++m)
          sum += W[static_cast<std::size_t>(d * kM + m)] * x[static_cast<std::size_t>((s * steps + t) * kM + m)];
        double& now = h[static_cast<std::size_t>(d)];
        const double z = 1 / (1 + std::exp(-(decay[static_cast<std::size_t>(d)] * now + sum + bias[0])));
        now = (1 - z) * now + z * std::tanh(sum);
        all.push_back(now);
      }
  }
  return all;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double factor = 1) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], factor * want[i], 1e-12) << i;
}

TEST_F(CApi, ForwardAndPreparedCallGiveTheEquations) {
  cellc_kernel* kernel = compile(kGru, [](cellc_options& o) { o.dtype = CELLC_F64; });
  const cellc_shape shape = shape_of(kLengths, 3, 50);
  Arrays<double> forward(kernel, shape, CELLC_F64), prepared(kernel, shape, CELLC_F64);
  std::vector<std::int32_t> status(3, 9);
  cellc_report report;
  cellc_report_init(&report);
  report.status = status.data();
  ASSERT_EQ(cellc_forward(kernel, &shape, forward.table.data(), forward.count(), &report), CELLC_OK)
      << cellc_last_error();
  ASSERT_EQ(cellc_run(prepare(kernel, shape), prepared.table.data(), prepared.count()), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(report.converged, 1);
  EXPECT_EQ(status, std::vector<std::int32_t>(3, 0));
  const std::vector<double> truth = gru(forward, 3, 50, true);
  for (Arrays<double>* a : {&forward, &prepared}) {
    expect_near(a->of("h"), truth);
    expect_near(a->of("y"), truth, 2);
    for (std::size_t s = 0; s < 3; ++s)
      for (std::size_t d = 0; d < kD; ++d) EXPECT_EQ(a->of("h_final")[s * kD + d], a->of("h")[(s * 50 + 49) * kD + d]);
  }
}

TEST_F(CApi, StridedRowsAndUnwantedArrays) {
  cellc_kernel* kernel = compile(kGru, [](cellc_options& o) { o.dtype = CELLC_F64; });
  const cellc_shape shape = shape_of(kLengths, 2, 9);
  Arrays<double> dense(kernel, shape, CELLC_F64);
  const std::vector<double> truth = gru(dense, 2, 9, true);
  // Time before sequences, and a gap of 5 after each row.
  std::vector<double> x(static_cast<std::size_t>(9 * 2 * (kM + 5)), 1e9),
      y(static_cast<std::size_t>(9 * 2 * (kD + 5)), 77);
  for (std::size_t s = 0; s < 2; ++s)
    for (std::size_t t = 0; t < 9; ++t)
      std::memcpy(&x[(t * 2 + s) * (kM + 5)], &dense.of("x")[(s * 9 + t) * kM], kM * sizeof(double));
  dense.at("x") = {x.data(), static_cast<std::int64_t>(x.size()), CELLC_F64, kM + 5, 2 * (kM + 5)};
  dense.at("y") = {y.data(), static_cast<std::int64_t>(y.size()), CELLC_F64, kD + 5, 2 * (kD + 5)};
  dense.at("h").data = nullptr;
  for (const bool prepared : {false, true}) {
    std::fill(y.begin(), y.end(), 77);
    const cellc_status status = prepared ? cellc_run(prepare(kernel, shape), dense.table.data(), dense.count())
                                         : cellc_forward(kernel, &shape, dense.table.data(), dense.count(), nullptr);
    ASSERT_EQ(status, CELLC_OK) << cellc_last_error();
    for (std::size_t s = 0; s < 2; ++s)
      for (std::size_t t = 0; t < 9; ++t)
        for (std::size_t d = 0; d < kD + 5; ++d) {
          const double got = y[(t * 2 + s) * (kD + 5) + d];
          if (d < kD)
            EXPECT_NEAR(got, 2 * truth[(s * 9 + t) * kD + d], 1e-12);
          else
            EXPECT_EQ(got, 77) << "a gap was written";
        }
  }
}

TEST_F(CApi, StepsWithCarriedStateAreTheWhole) {
  cellc_kernel* kernel = compile(kGru);
  const cellc_shape whole = shape_of(kLengths, 2, 12), one = shape_of(kLengths, 2, 1);
  Arrays<float> all(kernel, whole, CELLC_F32), step(kernel, one, CELLC_F32);
  ASSERT_EQ(cellc_run(prepare(kernel, whole), all.table.data(), all.count()), CELLC_OK) << cellc_last_error();
  for (const char* name : {"W", "a", "bias"}) step.of(name) = all.of(name), step.at(name).data = step.of(name).data();
  std::vector<float> state = all.of("h_start");
  step.at("h_start").data = step.at("h_final").data = state.data();
  step.at("h").data = nullptr;
  cellc_call* call = prepare(kernel, one);
  for (std::size_t t = 0; t < 12; ++t) {
    for (std::size_t s = 0; s < 2; ++s)
      std::memcpy(&step.of("x")[s * kM], &all.of("x")[(s * 12 + t) * kM], kM * sizeof(float));
    ASSERT_EQ(cellc_run(call, step.table.data(), step.count()), CELLC_OK) << cellc_last_error();
    for (std::size_t s = 0; s < 2; ++s) {
      EXPECT_EQ(std::memcmp(&state[s * kD], &all.of("h")[(s * 12 + t) * kD], kD * sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(&step.of("y")[s * kD], &all.of("y")[(s * 12 + t) * kD], kD * sizeof(float)), 0);
    }
  }
}

TEST_F(CApi, HistoriesArePassedOnInPlace) {
  cellc_kernel* kernel = compile(kLagged);
  const std::int64_t lengths[] = {5};
  const cellc_shape whole = shape_of(lengths, 2, 10), part = shape_of(lengths, 2, 2);
  Arrays<float> all(kernel, whole, CELLC_F32), some(kernel, part, CELLC_F32);
  std::vector<float> h = all.of("h_start"), hl = all.of("h_lag"), xl = all.of("x_lag");
  ASSERT_EQ(cellc_forward(kernel, &whole, all.table.data(), all.count(), nullptr), CELLC_OK) << cellc_last_error();
  some.at("h_start").data = some.at("h_final").data = h.data();
  some.at("h_lag").data = some.at("h_lag_final").data = hl.data();
  some.at("x_lag").data = some.at("x_lag_final").data = xl.data();
  for (std::size_t t = 0; t < 10; t += 2) {
    for (std::size_t s = 0; s < 2; ++s)
      std::memcpy(&some.of("x")[s * 10], &all.of("x")[(s * 10 + t) * 5], 10 * sizeof(float));
    ASSERT_EQ(cellc_run(prepare(kernel, part), some.table.data(), some.count()), CELLC_OK) << cellc_last_error();
    for (std::size_t s = 0; s < 2; ++s)
      EXPECT_EQ(std::memcmp(&some.of("h")[s * 10], &all.of("h")[(s * 10 + t) * 5], 10 * sizeof(float)), 0) << t;
  }
  EXPECT_EQ(hl, all.of("h_lag_final"));
  EXPECT_EQ(xl, all.of("x_lag_final"));
}

TEST_F(CApi, PackedSequencesAndNarrowStorage) {
  cellc_kernel* kernel = compile(kGru, [](cellc_options& o) { o.dtype = CELLC_BF16; });
  const std::int64_t offsets[] = {0, 4, 4, 11};
  cellc_shape shape = shape_of(kLengths, 3, 0);
  shape.offsets = offsets;
  // Rows have 16 bits, the others 32: both fit where there is room for 32.
  Arrays<float> a(kernel, shape, CELLC_F32), b(kernel, shape, CELLC_F32);
  for (Arrays<float>* arrays : {&a, &b})
    for (const char* name : {"x", "h", "y"}) {
      arrays->at(name).dtype = CELLC_BF16;
      auto& memory = arrays->of(name);
      auto* raw = reinterpret_cast<std::uint16_t*>(memory.data());
      for (std::size_t i = 0; i < memory.size(); ++i) raw[i] = static_cast<std::uint16_t>(0x3e00 + 13 * i % 256);
    }
  ASSERT_EQ(cellc_forward(kernel, &shape, a.table.data(), a.count(), nullptr), CELLC_OK) << cellc_last_error();
  ASSERT_EQ(cellc_run(prepare(kernel, shape), b.table.data(), b.count()), CELLC_OK) << cellc_last_error();
  for (std::size_t i = 0; i < a.of("h_final").size(); ++i) EXPECT_NEAR(a.of("h_final")[i], b.of("h_final")[i], 1e-5);
  for (std::size_t d = 0; d < kD; ++d)
    EXPECT_EQ(a.of("h_final")[kD + d], a.of("h_start")[kD + d]) << "an empty sequence";
}

TEST_F(CApi, AnArrayMayBeLargerThanNeeded) {
  cellc_kernel* kernel = compile(kGru);
  const cellc_shape shape = shape_of(kLengths, 2, 9), larger = shape_of(kLengths, 3, 11);
  Arrays<float> tight(kernel, shape, CELLC_F32), roomy(kernel, larger, CELLC_F32), prepared(kernel, larger, CELLC_F32);
  ASSERT_EQ(cellc_forward(kernel, &shape, tight.table.data(), tight.count(), nullptr), CELLC_OK) << cellc_last_error();
  ASSERT_EQ(cellc_forward(kernel, &shape, roomy.table.data(), roomy.count(), nullptr), CELLC_OK) << cellc_last_error();
  ASSERT_EQ(cellc_run(prepare(kernel, shape), prepared.table.data(), prepared.count()), CELLC_OK) << cellc_last_error();
  for (const char* name : {"h", "y", "h_final"})
    for (Arrays<float>* arrays : {&roomy, &prepared}) {
      const std::vector<float>&want = tight.of(name), &got = arrays->of(name);
      for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << name;
      for (std::size_t i = want.size(); i < got.size(); ++i) ASSERT_EQ(got[i], 77) << name << ": room was written";
    }
}

TEST_F(CApi, AToleranceIsANumber) {
  for (const double tolerance : {HUGE_VAL, -HUGE_VAL, std::nan(""), -1.0}) {
    cellc_options options;
    cellc_options_init(&options);
    options.tolerance = tolerance;
    options.has_tolerance = tolerance == -1;
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(kGru.data(), kGru.size(), &options, &kernel), CELLC_WRONG_USAGE);
    EXPECT_EQ(kernel, nullptr);
    EXPECT_NE(std::string(cellc_last_error()).find("tolerance"), std::string::npos) << cellc_last_error();
  }
}

TEST_F(CApi, ProductsHaveNames) {
  cellc_options options;
  cellc_options_init(&options);
  EXPECT_EQ(options.products, nullptr);
  options.products = "f8";
  cellc_kernel* kernel = nullptr;
  EXPECT_EQ(cellc_compile_text(kGru.data(), kGru.size(), &options, &kernel), CELLC_WRONG_USAGE);
  EXPECT_EQ(kernel, nullptr);
  EXPECT_STREQ(cellc_last_error(), "products 'f8': expected f32, 3xtf32, tf32, bf16 or storage");
}

/// So many bytes between pages that nobody may touch, right before the second or right behind the first.
class Fenced {
 public:
  Fenced(std::size_t bytes, bool at_end) : page_(static_cast<std::size_t>(sysconf(_SC_PAGESIZE))) {
    const std::size_t inside = (bytes / page_ + 1) * page_;
    whole_ = inside + 2 * page_;
    base_ = static_cast<char*>(mmap(nullptr, whole_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(base_ + page_, inside, PROT_READ | PROT_WRITE), 0);
    data = base_ + page_ + (at_end ? inside - bytes : 0);
  }
  Fenced(const Fenced&) = delete;
  ~Fenced() { munmap(base_, whole_); }

  void* data;

 private:
  std::size_t page_, whole_;
  char* base_;
};

TEST_F(CApi, NothingBesideTheArraysIsTouched) {
  // Sequences of one step, the first and the last among them: there is no row before them, or none after.
  const std::int64_t offsets[] = {0, 1, 71, 71, 72};
  for (const char* solver : {"sequential", "segmented", "shooting", "newton"})
    for (const bool reverse : {false, true})
      for (const bool at_end : {false, true}) {
        SCOPED_TRACE(testing::Message() << solver << (reverse ? ", reversed" : "") << (at_end ? ", at ends" : ""));
        cellc_options options;
        cellc_options_init(&options);
        options.dtype = CELLC_F64;
        options.solver = solver;
        cellc_kernel* kernel = nullptr;
        ASSERT_EQ(cellc_compile_text(kGru.data(), kGru.size(), &options, &kernel), CELLC_OK) << cellc_last_error();
        kernels_.push_back(kernel);
        cellc_shape shape = shape_of(kLengths, 4, 0);
        shape.offsets = offsets;
        shape.reverse = reverse;
        Arrays<double> arrays(kernel, shape, CELLC_F64);
        std::vector<std::unique_ptr<Fenced>> fenced;
        for (std::size_t i = 0; i < arrays.table.size(); ++i) {
          const std::size_t bytes = arrays.memory[i].size() * sizeof(double);
          fenced.push_back(std::make_unique<Fenced>(bytes, at_end));
          std::memcpy(fenced[i]->data, arrays.memory[i].data(), bytes);
          arrays.table[i].data = fenced[i]->data;
        }
        EXPECT_EQ(cellc_forward(kernel, &shape, arrays.table.data(), arrays.count(), nullptr), CELLC_OK)
            << cellc_last_error();
      }
}

/// A param that is given to a 16-bit cell is not rounded to 16 bits, nor is a start that follows from it; a default is,
/// as one from a file would be.
TEST_F(CApi, NarrowCellsStartFromParamsAsTheyAre) {
  cellc_kernel* kernel =
      compile("cell c[d] { param th[d], g[d] = 0.7654321\n input x[d]\n state h[d] = th\n h' = g*h + x }",
              [](cellc_options& o) { o.dtype = CELLC_BF16; });
  const std::int64_t d = 3;
  cellc_shape shape = shape_of(&d, 2, 1);
  Arrays<float> a(kernel, shape, CELLC_F32), b(kernel, shape, CELLC_F32);
  for (Arrays<float>* arrays : {&a, &b}) {
    for (const char* name : {"x", "h"}) arrays->at(name).dtype = CELLC_BF16;
    std::fill(arrays->of("x").begin(), arrays->of("x").end(), 0.f);
    std::fill(arrays->of("th").begin(), arrays->of("th").end(), 1.2345678f);
    arrays->at("h_start").data = nullptr;
    arrays->at("g").data = nullptr;
  }
  ASSERT_EQ(cellc_forward(kernel, &shape, a.table.data(), a.count(), nullptr), CELLC_OK) << cellc_last_error();
  ASSERT_EQ(cellc_run(prepare(kernel, shape), b.table.data(), b.count()), CELLC_OK) << cellc_last_error();
  EXPECT_NEAR(a.of("h_final")[0], 0.765625f * 1.2345678f, 1e-6);
  EXPECT_EQ(a.of("h_final"), b.of("h_final"));
}

TEST_F(CApi, InspectAndDescribe) {
  cellc_kernel* kernel = compile(kGru);
  EXPECT_NE(std::string(cellc_inspect_text(kernel)).find("diagonal"), std::string::npos);
  EXPECT_EQ(cellc_inspect_json(kernel)[0], '{');
  EXPECT_EQ(cellc_inspect_json(kernel), cellc_inspect_json(kernel));
  EXPECT_EQ(cellc_axis_count(kernel), 2);
  EXPECT_EQ(cellc_axis_find(kernel, "m"), 1);
  cellc_axis axis;
  ASSERT_EQ(cellc_axis_describe(kernel, 0, &axis), CELLC_OK);
  EXPECT_STREQ(axis.name, "d");
  EXPECT_EQ(axis.length, -1);
  cellc_array_info info;
  ASSERT_EQ(cellc_array_describe(kernel, cellc_array_find(kernel, "W"), &info), CELLC_OK);
  EXPECT_EQ(info.layout, CELLC_ONCE);
  EXPECT_EQ(info.axis_count, 2);
  EXPECT_EQ(info.required, 1);
  EXPECT_EQ(cellc_api_version(), CELLC_API_VERSION);
}

TEST_F(CApi, ArraysHaveTheNamesOfTheCell) {
  cellc_kernel* kernel = compile(
      "cell c[int] { state new[int]\n input x[int], x_strides, double\n new' = 0.5*new + x + x_strides*lag(double, 1) "
      "}");
  EXPECT_EQ(cellc_axis_find(kernel, "int"), 0);
  for (const char* name :
       {"x", "x_strides", "double", "new", "new_start", "new_final", "double_lag", "double_lag_final"})
    EXPECT_GE(cellc_array_find(kernel, name), 0) << name;
  EXPECT_EQ(cellc_array_find(kernel, "new_"), -1);
}

TEST_F(CApi, ErrorsSayWhere) {
  cellc_kernel* kernel = nullptr;
  const std::string text = "cell bad[d] {\n  state h[d]\n  h' = h + g\n}\n";
  EXPECT_EQ(cellc_compile_text(text.data(), text.size(), nullptr, &kernel), CELLC_WRONG_INPUT);
  EXPECT_EQ(kernel, nullptr);
  int line = 0, column = 0;
  cellc_last_error_position(&line, &column);
  EXPECT_EQ(line, 3);
  EXPECT_EQ(column, 12);
  EXPECT_NE(std::string(cellc_last_error()).find("'g'"), std::string::npos);
  EXPECT_EQ(cellc_compile_file("/nowhere/at.cell", nullptr, &kernel), CELLC_WRONG_INPUT);
  EXPECT_NE(std::string(cellc_last_error()).find("/nowhere/at.cell"), std::string::npos);
  cellc_last_error_position(&line, &column);
  EXPECT_EQ(line, 0);
}

TEST_F(CApi, OptionsThatCannotBeMeant) {
  const auto refused = [](void (*change)(cellc_options&), cellc_status expected, const char* word) {
    cellc_options options;
    cellc_options_init(&options);
    change(options);
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(kGru.data(), kGru.size(), &options, &kernel), expected) << word;
    EXPECT_EQ(kernel, nullptr);
    EXPECT_NE(std::string(cellc_last_error()).find(word), std::string::npos) << cellc_last_error();
  };
  refused([](cellc_options& o) { o.cpu = "abacus"; }, CELLC_DEVICE_FAILED, "abacus");
  refused([](cellc_options& o) { o.device = "cuda"; }, CELLC_DEVICE_FAILED, "cuda");
  refused([](cellc_options& o) { o.solver = "guess"; }, CELLC_WRONG_USAGE, "guess");
  refused([](cellc_options& o) { o.dtype = static_cast<cellc_dtype>(9); }, CELLC_WRONG_USAGE, "9");
  refused([](cellc_options& o) { o.threads = -1; }, CELLC_WRONG_USAGE, "threads");
  refused([](cellc_options& o) { o.cell = "lstm"; }, CELLC_WRONG_USAGE, "lstm");
  refused([](cellc_options& o) { o.size = 0; }, CELLC_WRONG_USAGE, "size");
}

TEST_F(CApi, NullPointersEverywhere) {
  cellc_kernel* kernel = compile(kGru);
  const cellc_shape shape = shape_of(kLengths, 1, 4);
  Arrays<float> a(kernel, shape, CELLC_F32);
  cellc_call* call = nullptr;
  std::int64_t n = 0;
  EXPECT_EQ(cellc_compile_text(nullptr, 3, nullptr, &kernel), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_compile_text("x", 1, nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_compile_file(nullptr, nullptr, &kernel), CELLC_WRONG_USAGE);
  kernel = kernels_[0];
  EXPECT_EQ(cellc_inspect_text(nullptr), nullptr);
  EXPECT_EQ(cellc_inspect_json(nullptr), nullptr);
  EXPECT_EQ(cellc_axis_count(nullptr), -1);
  EXPECT_EQ(cellc_array_count(nullptr), -1);
  EXPECT_EQ(cellc_array_find(nullptr, "x"), -1);
  EXPECT_EQ(cellc_array_find(kernel, nullptr), -1);
  EXPECT_EQ(cellc_array_find(kernel, "nothing"), -1);
  EXPECT_EQ(cellc_array_describe(kernel, 0, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_array_entries(kernel, nullptr, 0, &n), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_array_entries(kernel, &shape, 99, &n), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_forward(nullptr, &shape, a.table.data(), a.count(), nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_forward(kernel, nullptr, a.table.data(), a.count(), nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_forward(kernel, &shape, nullptr, a.count(), nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_prepare(kernel, nullptr, &call), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_prepare(kernel, &shape, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_prepare(nullptr, &shape, &call), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run(nullptr, a.table.data(), a.count()), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run(prepare(kernel, shape), nullptr, a.count()), CELLC_WRONG_USAGE);
  cellc_kernel_free(nullptr);
  cellc_call_free(nullptr);
  cellc_options_init(nullptr);
  cellc_last_error_position(nullptr, nullptr);
  EXPECT_TRUE(a.untouched());
}

TEST_F(CApi, WrongArraysAreRefusedAndNothingIsWritten) {
  cellc_kernel* kernel = compile(kGru);
  const cellc_shape shape = shape_of(kLengths, 2, 6);
  cellc_call* call = prepare(kernel, shape);
  const auto refused = [&](const char* name, void (*spoil)(cellc_array&), cellc_status expected, const char* word) {
    Arrays<float> a(kernel, shape, CELLC_F32);
    spoil(a.at(name));
    for (const bool prepared : {true, false}) {
      const cellc_status got = prepared ? cellc_run(call, a.table.data(), a.count())
                                        : cellc_forward(kernel, &shape, a.table.data(), a.count(), nullptr);
      EXPECT_EQ(got, expected) << name << ": " << word;
      const std::string message = cellc_last_error();
      EXPECT_NE(message.find(name), std::string::npos) << message;
      EXPECT_NE(message.find(word), std::string::npos) << message;
      EXPECT_TRUE(a.untouched()) << message;
    }
  };
  refused(
      "x", [](cellc_array& a) { a.data = nullptr; }, CELLC_WRONG_INPUT, "null");
  refused(
      "W", [](cellc_array& a) { a.data = nullptr; }, CELLC_WRONG_INPUT, "null");
  refused(
      "x", [](cellc_array& a) { a.dtype = CELLC_F64; }, CELLC_WRONG_INPUT, "dtype");
  refused(
      "y", [](cellc_array& a) { a.dtype = CELLC_F16; }, CELLC_WRONG_INPUT, "dtype");
  refused(
      "x", [](cellc_array& a) { --a.entries; }, CELLC_WRONG_INPUT, "entries");
  refused(
      "W", [](cellc_array& a) { --a.entries; }, CELLC_WRONG_INPUT, "entries");
  refused(
      "h_final", [](cellc_array& a) { a.entries = 0; }, CELLC_WRONG_INPUT, "entries");
  refused(
      "h_start", [](cellc_array& a) { a.step_stride = 4; }, CELLC_WRONG_INPUT, "strides");
  refused(
      "x", [](cellc_array& a) { a.step_stride = kM + 1; }, CELLC_WRONG_INPUT, "within");
  refused(
      "h", [](cellc_array& a) { a.step_stride = 1; }, CELLC_WRONG_INPUT, "overlap");
  refused(
      "y", [](cellc_array& a) { a.sequence_stride = kD; }, CELLC_WRONG_INPUT, "overlap");
  refused(
      "x", [](cellc_array& a) { a.step_stride = -kM; }, CELLC_WRONG_INPUT, "overlap");
  refused(
      "x", [](cellc_array& a) { a.sequence_stride = INT64_MAX; }, CELLC_WRONG_INPUT, "within");
  Arrays<float> a(kernel, shape, CELLC_F32);
  EXPECT_EQ(cellc_run(call, a.table.data(), a.count() - 1), CELLC_WRONG_USAGE);
  EXPECT_TRUE(a.untouched());
}

TEST_F(CApi, WrongShapes) {
  cellc_kernel* kernel = compile(kGru);
  const auto refused = [&](const cellc_shape& shape, const char* word) {
    cellc_call* call = nullptr;
    EXPECT_EQ(cellc_prepare(kernel, &shape, &call), CELLC_WRONG_USAGE) << word;
    EXPECT_EQ(call, nullptr);
    EXPECT_NE(std::string(cellc_last_error()).find(word), std::string::npos) << cellc_last_error();
  };
  const std::int64_t none[] = {0, kM}, huge[] = {INT64_MAX / 2, 3}, backwards[] = {0, 3, 2}, late[] = {1, 2, 3};
  refused(shape_of(nullptr, 1, 1), "lengths");
  refused(shape_of(none, 1, 1), "axis d");
  refused(shape_of(huge, 1, 1), "too large");
  refused(shape_of(kLengths, -1, 1), "sequences");
  refused(shape_of(kLengths, 1, -1), "steps");
  refused(shape_of(kLengths, INT64_MAX, INT64_MAX), "too large");
  cellc_shape shape = shape_of(kLengths, 2, 0);
  shape.offsets = backwards;
  refused(shape, "decrease");
  shape.offsets = late;
  refused(shape, "the first of the offsets is not 0");
  shape.size = 3;
  refused(shape, "size");
  // An entry that the cell selects by its number has to be there, by the same words whoever finds out.
  cellc_kernel* selects = compile("cell selects[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x[3]\n}\n");
  const std::int64_t three[] = {3};
  const cellc_shape short_of_one = shape_of(three, 1, 1);
  std::int64_t entries = 0;
  cellc_call* call = nullptr;
  const auto too_short = [](cellc_status got) {
    EXPECT_EQ(got, CELLC_WRONG_USAGE);
    EXPECT_STREQ(cellc_last_error(), "axis d has length 3; expected 4 or more");
  };
  too_short(cellc_array_entries(selects, &short_of_one, 0, &entries));
  too_short(cellc_forward(selects, &short_of_one, nullptr, 0, nullptr));
  too_short(cellc_prepare(selects, &short_of_one, &call));
}

TEST_F(CApi, EightThreadsOnOnePreparedCall) {
  cellc_kernel* kernel = compile(kGru);
  const cellc_shape shape = shape_of(kLengths, 2, 40);
  cellc_call* call = prepare(kernel, shape);
  Arrays<float> truth(kernel, shape, CELLC_F32);
  ASSERT_EQ(cellc_run(call, truth.table.data(), truth.count()), CELLC_OK);
  std::vector<std::string> wrong(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 50 && wrong[i].empty(); ++k) {
        Arrays<float> mine(kernel, shape, CELLC_F32);
        if (i % 2 && k % 5 == 0) {  // some calls fail, each with its own thread's message
          mine.at(i % 4 == 1 ? "x" : "W").data = nullptr;
          if (cellc_run(call, mine.table.data(), mine.count()) != CELLC_WRONG_INPUT) wrong[i] = "not refused";
          if (std::string(cellc_last_error()).find(i % 4 == 1 ? "array x" : "array W") == std::string::npos)
            wrong[i] = cellc_last_error();
          continue;
        }
        if (cellc_run(call, mine.table.data(), mine.count()) != CELLC_OK) wrong[i] = cellc_last_error();
        if (mine.of("h") != truth.of("h") || mine.of("y") != truth.of("y")) wrong[i] = "other numbers";
        if (k % 10 == 0 && cellc_forward(kernel, &shape, mine.table.data(), mine.count(), nullptr) != CELLC_OK)
          wrong[i] = cellc_last_error();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& w : wrong) EXPECT_EQ(w, "");
}

TEST_F(CApi, KernelMayBeFreedBeforeItsCalls) {
  cellc_kernel* kernel = nullptr;
  ASSERT_EQ(cellc_compile_text(kGru.data(), kGru.size(), nullptr, &kernel), CELLC_OK);
  const cellc_shape shape = shape_of(kLengths, 1, 3);
  Arrays<float> a(kernel, shape, CELLC_F32);
  cellc_call* call = prepare(kernel, shape);
  cellc_kernel_free(kernel);
  EXPECT_EQ(cellc_run(call, a.table.data(), a.count()), CELLC_OK) << cellc_last_error();
}

}  // namespace
