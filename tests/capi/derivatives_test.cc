// Backward and tangent calls as a program meets them: through the shared library and cellc.h alone, against equations
// by hand, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cellc.h"
#include "tests/capi/kept_handles.h"

namespace {

// Its derivatives by hand: dL/dh[t-1] = a dL/dh[t], and so on.
const std::string kDecay = R"(cell decay[d] {
  state h[d]
  input x[d]
  param a[d], g = 3
  h' = a*h + g*x
  out y = 2*h'
}
)";
constexpr std::int64_t kD = 3, kSequences = 2, kSteps = 5;
const std::int64_t kLengths[] = {kD};

/// The arrays of one direction, by name; others are null.
class Call {
 public:
  Call(cellc_kernel* kernel, cellc_direction direction, const cellc_shape& shape)
      : kernel_(kernel), direction_(direction), shape_(shape) {
    const int count = cellc_call_array_count(kernel, direction);
    EXPECT_GT(count, 0) << cellc_last_error();
    table.resize(static_cast<std::size_t>(count));
    memory_.resize(table.size());
  }
  int number(const std::string& name) const {
    for (int i = 0; i < count(); ++i) {
      cellc_call_array_info info;
      cellc_call_array_info_init(&info);
      EXPECT_EQ(cellc_call_array_describe(kernel_, direction_, i, &info), CELLC_OK) << cellc_last_error();
      if (name == info.name) return i;
    }
    ADD_FAILURE() << "there is no " << name;
    return 0;
  }
  std::vector<double>& give(const std::string& name, double first = 77, double step = 0) {
    const int i = number(name);
    std::int64_t lengths[8], entries = 1;
    int rank = 0;
    EXPECT_EQ(cellc_call_array_shape(kernel_, direction_, &shape_, i, lengths, 8, &rank), CELLC_OK);
    for (int k = 0; k < rank; ++k) entries *= lengths[k];
    std::vector<double>& memory = memory_[static_cast<std::size_t>(i)];
    for (std::int64_t k = 0; k < entries; ++k) memory.push_back(first + step * static_cast<double>(k));
    table[static_cast<std::size_t>(i)] = {memory.data(), entries, CELLC_F64, 0, 0};
    return memory;
  }
  cellc_array& at(const std::string& name) { return table[static_cast<std::size_t>(number(name))]; }
  int count() const { return static_cast<int>(table.size()); }
  cellc_status run(cellc_report* report = nullptr, const std::int32_t* forward_status = nullptr) {
    return (direction_ == CELLC_BACKWARD ? cellc_backward : cellc_tangent)(kernel_, &shape_, table.data(), count(),
                                                                           forward_status, report);
  }
  std::vector<cellc_array> table;

 private:
  cellc_kernel* kernel_;
  cellc_direction direction_;
  cellc_shape shape_;
  std::vector<std::vector<double>> memory_;
};

class Derivatives : public KeptHandles {
 protected:
  cellc_kernel* decay() {
    return compile(kDecay, nullptr, [](cellc_options& o) { o.dtype = CELLC_F64; });
  }
  static cellc_shape shape() { return shape_of(kLengths, kSequences, kSteps); }
  static std::string error() { return cellc_last_error(); }

  /// With cotangents of y alone, and what they must give.
  struct Backward {
    explicit Backward(cellc_kernel* kernel) : call(kernel, CELLC_BACKWARD, shape()) {
      x = &call.give("x", 0.1, 0.2);
      a = &call.give("a", 0.5, 0.1);
      h = &call.give("h", 0.3, -0.01);
      start = &call.give("h.start", 1, 0.5);
      y = &call.give("cotangent.y", -1, 0.25);
      gx = &call.give("gradient.x");
      ga = &call.give("gradient.a");
      gg = &call.give("gradient.g");
      gstart = &call.give("gradient.h.start");
    }
    void expect_right() const {
      std::vector<double> da(kD), dg(1), dx(x->size()), dstart(start->size());
      for (std::size_t s = 0; s < kSequences; ++s)
        for (std::size_t d = 0; d < kD; ++d) {
          double lambda = 0;
          for (std::size_t t = kSteps; t-- > 0;) {
            const std::size_t at = (s * kSteps + t) * kD + d;
            const double pulled = lambda + 2 * (*y)[at];
            dx[at] = 3 * pulled;
            dg[0] += pulled * (*x)[at];
            da[d] += pulled * (t == 0 ? (*start)[s * kD + d] : (*h)[at - kD]);
            lambda = (*a)[d] * pulled;
          }
          dstart[s * kD + d] = lambda;
        }
      const auto near = [](const std::vector<double>& got, const std::vector<double>& want, const char* what) {
        for (std::size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-12) << what << " " << i;
      };
      near(*gx, dx, "x");
      near(*ga, da, "a");
      near(*gg, dg, "g");
      near(*gstart, dstart, "start");
    }
    bool untouched() const {
      for (const auto* written : {gx, ga, gg, gstart})
        for (const double v : *written)
          if (v != 77) return false;
      return true;
    }
    Call call;
    std::vector<double>*x, *a, *h, *start, *y, *gx, *ga, *gg, *gstart;
  };
};

TEST_F(Derivatives, BackwardIsTheEquationsByHand) {
  cellc_kernel* const kernel = decay();
  Backward b(kernel);
  cellc_report report;
  cellc_report_init(&report);
  std::vector<std::int32_t> status(kSequences, 9);
  report.status = status.data();
  ASSERT_EQ(b.call.run(&report), CELLC_OK) << error();
  b.expect_right();
  EXPECT_EQ(report.converged, 1);
  EXPECT_EQ(status, std::vector<std::int32_t>(kSequences, 0));
  // The same again, and with the default's value given.
  b.call.give("g", 3);
  ASSERT_EQ(b.call.run(), CELLC_OK) << error();
  b.expect_right();
}

TEST_F(Derivatives, PreparedBackwardIsTheEquationsByHand) {
  cellc_kernel* const kernel = decay();
  const cellc_shape of = shape();
  cellc_call* prepared = nullptr;
  ASSERT_EQ(cellc_prepare_backward(kernel, &of, &prepared), CELLC_OK) << error();
  Backward b(kernel);
  b.call.give("g", 3);  // as everything that has a default
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(cellc_run(prepared, b.call.table.data(), b.call.count()), CELLC_OK) << error();
    b.expect_right();
  }
  std::int64_t bytes = 0;
  ASSERT_EQ(cellc_call_workspace(prepared, &bytes), CELLC_OK);
  EXPECT_GT(bytes, 0);
  b.call.at("h").data = nullptr;
  EXPECT_EQ(cellc_run(prepared, b.call.table.data(), b.call.count()), CELLC_WRONG_INPUT);
  EXPECT_NE(error().find("h"), std::string::npos) << error();
  cellc_call_free(prepared);
}

// Of a cell that reads lags, the same as a call that is not prepared; of 16 bits, arrays of the same types.
TEST_F(Derivatives, PreparedBackwardHasLagsAnd16Bits) {
  cellc_kernel* const late =
      compile("cell late[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*tanh(lag(h, 2)) + lag(x, 1)\n}\n", nullptr,
              [](cellc_options& o) { o.dtype = CELLC_F64; });
  const cellc_shape of = shape();
  std::vector<std::vector<double>> found;
  for (const bool prepare : {true, false}) {
    Call call(late, CELLC_BACKWARD, of);
    double first = 0.1;
    for (const char* given :
         {"x", "h", "h.start", "h.lag", "x.lag", "cotangent.h", "cotangent.h.final", "cotangent.h.lag.final"})
      call.give(given, first += 0.2, 0.03);
    std::vector<const std::vector<double>*> wanted;
    for (const char* gradient : {"gradient.x", "gradient.x.lag", "gradient.h.start", "gradient.h.lag"})
      wanted.push_back(&call.give(gradient));
    if (prepare) {
      cellc_call* prepared = nullptr;
      ASSERT_EQ(cellc_prepare_backward(late, &of, &prepared), CELLC_OK) << error();
      ASSERT_EQ(cellc_run(prepared, call.table.data(), call.count()), CELLC_OK) << error();
      cellc_call_free(prepared);
    } else {
      ASSERT_EQ(call.run(), CELLC_OK) << error();
    }
    std::size_t i = 0;
    for (const auto* gradient : wanted) {
      if (prepare) found.push_back(*gradient);
      for (std::size_t k = 0; k < gradient->size(); ++k)
        EXPECT_NEAR((*gradient)[k], found[i][k], 1e-12) << i << " " << k;
      ++i;
    }
  }
  cellc_kernel* const narrow = compile(kDecay, nullptr, [](cellc_options& o) { o.dtype = CELLC_BF16; });
  std::vector<std::uint16_t> ones(kSequences * kSteps * kD, 0x3f80);
  std::vector<float> numbers(kSequences * kD, 0.5f), by_x(ones.size(), 77);
  Call call(narrow, CELLC_BACKWARD, of);
  const auto rows = static_cast<std::int64_t>(ones.size());
  for (const char* name : {"x", "h", "cotangent.y"}) call.at(name) = {ones.data(), rows, CELLC_BF16, 0, 0};
  call.at("a") = {numbers.data(), kD, CELLC_F32, 0, 0};
  call.at("g") = {numbers.data(), 1, CELLC_F32, 0, 0};
  call.at("gradient.x") = {by_x.data(), rows, CELLC_F32, 0, 0};
  cellc_call* prepared = nullptr;
  ASSERT_EQ(cellc_prepare_backward(narrow, &of, &prepared), CELLC_OK) << error();
  ASSERT_EQ(cellc_run(prepared, call.table.data(), call.count()), CELLC_OK) << error();
  // y = 2h' pulls 2 a step, and half of what the next step pulls: g times 2, 3, 3.5, …
  for (std::size_t t = 0; t < kSteps; ++t)
    EXPECT_EQ(by_x[t * kD], 0.5f * (4 - std::ldexp(2.0f, -static_cast<int>(kSteps - 1 - t)))) << t;
  cellc_call_free(prepared);
}

// What was before the first step lies in arithmetic precision, and a delay line holds it as rows do: the gradient is
// that of the number which the forward run read.
TEST_F(Derivatives, DelayLinesOf16BitsAreReadAsTheyWereThen) {
  const std::string line = "cell line {\n  state h\n  input x\n  param U\n  h' = 0.25*h + U*lag(h, 20) + x\n}\n";
  cellc_kernel* const kernels[] = {compile(line, nullptr, [](cellc_options& o) { o.dtype = CELLC_F16; }),
                                   compile(line, nullptr, [](cellc_options& o) { o.dtype = CELLC_BF16; })};
  const cellc_shape of = shape_of(nullptr, 1, 1);
  std::uint16_t row = 0;
  std::vector<float> numbers(20, 0.3f);  // of no 16 bits
  float one = 1, gradient = 77;
  for (const bool narrowest : {false, true})
    for (const bool has_history : {true, false})
      for (const bool prepare : {true, false}) {
        Call call(kernels[narrowest], CELLC_BACKWARD, of);
        for (const char* rows : {"x", "h"}) call.at(rows) = {&row, 1, narrowest ? CELLC_BF16 : CELLC_F16, 0, 0};
        for (const char* ones : {"U", "cotangent.h.final"}) call.at(ones) = {&one, 1, CELLC_F32, 0, 0};
        call.at("h.start") = {numbers.data(), 1, CELLC_F32, 0, 0};
        if (has_history) call.at("h.lag") = {numbers.data(), 20, CELLC_F32, 0, 0};
        call.at("gradient.U") = {&gradient, 1, CELLC_F32, 0, 0};
        cellc_call* prepared = nullptr;
        if (prepare) ASSERT_EQ(cellc_prepare_backward(kernels[narrowest], &of, &prepared), CELLC_OK) << error();
        EXPECT_EQ(prepare ? cellc_run(prepared, call.table.data(), call.count()) : call.run(), CELLC_OK) << error();
        cellc_call_free(prepared);
        EXPECT_EQ(gradient, narrowest ? 0.30078125f : 0.300048828125f) << has_history << prepare;
      }
}

TEST_F(Derivatives, TangentIsTheEquationsByHand) {
  cellc_kernel* const kernel = decay();
  Call call(kernel, CELLC_TANGENT, shape());
  const std::vector<double>& a = call.give("a", 0.5, 0.1);
  const std::vector<double>& h = call.give("h", 0.3, -0.01);
  const std::vector<double>& start = call.give("h.start", 1, 0.5);
  const std::vector<double>& da = call.give("tangent.a", 0.7, -0.3);
  const std::vector<double>& dstart = call.give("tangent.h.start", -0.2, 0.1);
  const std::vector<double>& dx = call.give("tangent.x", 0.1, 0.05);
  const std::vector<double>& dy = call.give("tangent.y");
  const std::vector<double>& dfinal = call.give("tangent.h.final");
  call.give("x", 1, 1);
  ASSERT_EQ(call.run(), CELLC_OK) << error();
  for (std::size_t s = 0; s < kSequences; ++s)
    for (std::size_t d = 0; d < kD; ++d) {
      double moved = dstart[s * kD + d];
      for (std::size_t t = 0; t < kSteps; ++t) {
        const std::size_t at = (s * kSteps + t) * kD + d;
        moved = a[d] * moved + da[d] * (t == 0 ? start[s * kD + d] : h[at - kD]) + 3 * dx[at];
        ASSERT_NEAR(dy[at], 2 * moved, 1e-12);
      }
      ASSERT_NEAR(dfinal[s * kD + d], moved, 1e-12);
    }
}

/// The decay's states and gradients of sum(c*y), by hand.
struct DecayByHand {
  std::vector<double> h, dx, da, dstart;
  double dg = 0;

  DecayByHand(const std::vector<double>& x, const std::vector<double>& a, double g, const std::vector<double>& start,
              const std::vector<double>& c)
      : h(x.size()), dx(x.size()), da(kD), dstart(start.size()) {
    for (std::size_t s = 0; s < kSequences; ++s)
      for (std::size_t d = 0; d < kD; ++d) {
        const auto at = [&](std::size_t t) { return (s * kSteps + t) * kD + d; };
        const auto before = [&](std::size_t t) { return t == 0 ? start[s * kD + d] : h[at(t - 1)]; };
        for (std::size_t t = 0; t < kSteps; ++t) h[at(t)] = a[d] * before(t) + g * x[at(t)];
        double lambda = 0;
        for (std::size_t t = kSteps; t-- > 0;) {
          const double pulled = lambda + 2 * c[at(t)];
          dx[at(t)] = g * pulled;
          dg += pulled * x[at(t)];
          da[d] += pulled * before(t);
          lambda = a[d] * pulled;
        }
        dstart[s * kD + d] = lambda;
      }
  }
};

TEST_F(Derivatives, CurvatureIsHowTheGradientsByHandMove) {
  cellc_kernel* const kernel = decay();
  Backward b(kernel);
  b.call.give("g", 3);
  const DecayByHand here(*b.x, *b.a, 3, *b.start, *b.y);
  *b.h = here.h;
  Call t(kernel, CELLC_TANGENT, shape());
  t.give("x") = *b.x;
  t.give("a") = *b.a;
  t.give("h") = *b.h;
  t.give("h.start") = *b.start;
  t.give("g", 3);
  std::vector<double> mx = t.give("tangent.x", 0.3, -0.1), ma = t.give("tangent.a", -0.2, 0.5),
                      ms = t.give("tangent.h.start", 0.4, 0.3);
  const double mg = t.give("tangent.g", 0.7)[0];
  const std::vector<double>& dy = t.give("tangent.y");
  const cellc_shape s = shape();
  ASSERT_EQ(cellc_curvature(kernel, &s, b.call.table.data(), b.call.count(), t.table.data(), t.count(), nullptr),
            CELLC_OK)
      << error();
  const double step = 1e-5;
  const auto aside = [&](double by) {
    const auto moved = [&](std::vector<double> values, const std::vector<double>& along) {
      for (std::size_t i = 0; i < values.size(); ++i) values[i] += by * along[i];
      return values;
    };
    return DecayByHand(moved(*b.x, mx), moved(*b.a, ma), 3 + by * mg, moved(*b.start, ms), *b.y);
  };
  const DecayByHand after = aside(step), before = aside(-step);
  const auto near = [&](const std::vector<double>& got, const std::vector<double>& up, const std::vector<double>& down,
                        double factor) {
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], factor * (up[i] - down[i]) / (2 * step), 1e-7) << i;
  };
  near(*b.gx, after.dx, before.dx, 1);
  near(*b.ga, after.da, before.da, 1);
  near(*b.gg, {after.dg}, {before.dg}, 1);
  near(*b.gstart, after.dstart, before.dstart, 1);
  near(dy, after.h, before.h, 2);

  EXPECT_EQ(cellc_curvature(nullptr, &s, b.call.table.data(), b.call.count(), t.table.data(), t.count(), nullptr),
            CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_curvature(kernel, &s, b.call.table.data(), b.call.count(), t.table.data(), t.count() - 1, nullptr),
            CELLC_WRONG_USAGE);
  const std::int32_t bad[] = {0, 1};
  EXPECT_EQ(cellc_curvature(kernel, &s, b.call.table.data(), b.call.count(), t.table.data(), t.count(), bad),
            CELLC_NOT_CONVERGED);
}

TEST_F(Derivatives, WhatIsNotReadNeedNotBeKept) {
  cellc_kernel* const kernel = decay();
  const auto required = [&](cellc_direction direction, const char* name) {
    Call call(kernel, direction, shape());
    cellc_call_array_info info;
    cellc_call_array_info_init(&info);
    cellc_call_array_describe(kernel, direction, call.number(name), &info);
    return info.required != 0;
  };
  for (const cellc_direction direction : {CELLC_BACKWARD, CELLC_TANGENT}) {
    EXPECT_TRUE(required(direction, "h"));
    EXPECT_TRUE(required(direction, "x"));
    EXPECT_TRUE(required(direction, "a"));
    EXPECT_FALSE(required(direction, "g"));
  }
  EXPECT_FALSE(required(CELLC_FORWARD, "h"));
  // An input whose slope is a constant: nothing reads it.
  cellc_kernel* const plain = compile("cell c[d] { state h[d]\n input x[d]\n h' = 0.5*h + x }", nullptr,
                                      [](cellc_options& o) { o.dtype = CELLC_F64; });
  Call call(plain, CELLC_BACKWARD, shape());
  call.give("cotangent.h.final", 1);
  const std::vector<double>& found = call.give("gradient.x");
  ASSERT_EQ(call.run(), CELLC_OK) << error();
  for (std::size_t t = 0; t < kSteps; ++t) EXPECT_EQ(found[t * kD], std::pow(0.5, kSteps - 1 - t));
}

TEST_F(Derivatives, NullCotangentsAreZerosAndNullGradientsUnwanted) {
  Backward b(decay());
  b.call.at("cotangent.y").data = nullptr;
  b.call.at("gradient.a").data = nullptr;
  ASSERT_EQ(b.call.run(), CELLC_OK) << error();
  for (const auto* zeros : {b.gx, b.gg, b.gstart})
    for (const double v : *zeros) EXPECT_EQ(v, 0);
  for (const double v : *b.ga) EXPECT_EQ(v, 77);
}

TEST_F(Derivatives, RowsMayHaveGaps) {
  Backward b(decay());
  std::vector<double> x(kSequences * kSteps * (kD + 2), 1e9), gx(x.size(), 77);
  for (std::size_t s = 0; s < kSequences; ++s)
    for (std::size_t t = 0; t < kSteps; ++t)
      for (std::size_t d = 0; d < kD; ++d) x[(t * kSequences + s) * (kD + 2) + d] = (*b.x)[(s * kSteps + t) * kD + d];
  const auto entries = static_cast<std::int64_t>(x.size());
  b.call.at("x") = {x.data(), entries, CELLC_F64, kD + 2, kSequences * (kD + 2)};
  b.call.at("gradient.x") = {gx.data(), entries, CELLC_F64, kD + 2, kSequences * (kD + 2)};
  ASSERT_EQ(b.call.run(), CELLC_OK) << error();
  for (std::size_t s = 0; s < kSequences; ++s)
    for (std::size_t t = 0; t < kSteps; ++t)
      for (std::size_t d = 0; d < kD + 2; ++d) {
        const double got = gx[(t * kSequences + s) * (kD + 2) + d];
        if (d < kD)
          (*b.gx)[(s * kSteps + t) * kD + d] = got;
        else
          EXPECT_EQ(got, 77) << "a gap was written";
      }
  b.expect_right();
}

TEST_F(Derivatives, WrongCallsAreRefusedAndNothingIsWritten) {
  cellc_kernel* const kernel = decay();
  Backward b(kernel);
  const cellc_shape s = shape();
  const auto refused = [&](const char* name, cellc_status status, const std::string& says, auto change) {
    std::vector<cellc_array> table = b.call.table;
    change(table[static_cast<std::size_t>(b.call.number(name))]);
    EXPECT_EQ(cellc_backward(kernel, &s, table.data(), b.call.count(), nullptr, nullptr), status) << name;
    EXPECT_NE(error().find(says), std::string::npos) << error();
    EXPECT_TRUE(b.untouched());
  };
  refused("h", CELLC_WRONG_INPUT, "array h: is a null pointer, but derivatives read every step of it",
          [](cellc_array& a) { a.data = nullptr; });
  refused("a", CELLC_WRONG_INPUT, "array a: is a null pointer", [](cellc_array& a) { a.data = nullptr; });
  refused("cotangent.y", CELLC_WRONG_INPUT, "array cotangent.y: has 1 entries", [](cellc_array& a) { a.entries = 1; });
  refused("gradient.x", CELLC_WRONG_INPUT, "array gradient.x: has the dtype f32; expected f64",
          [](cellc_array& a) { a.dtype = CELLC_F32; });
  refused("gradient.x", CELLC_WRONG_INPUT, "do not overlap", [](cellc_array& a) { a.step_stride = 1; });
  refused("gradient.a", CELLC_WRONG_INPUT, "only rows have", [](cellc_array& a) { a.step_stride = 3; });

  const std::int32_t bad[] = {0, 1};
  EXPECT_EQ(b.call.run(nullptr, bad), CELLC_NOT_CONVERGED);
  EXPECT_NE(error().find("sequence 1"), std::string::npos) << error();
  EXPECT_EQ(cellc_backward(kernel, &s, b.call.table.data(), b.call.count() - 1, nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_backward(kernel, &s, nullptr, b.call.count(), nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_backward(kernel, nullptr, b.call.table.data(), b.call.count(), nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_backward(nullptr, &s, b.call.table.data(), b.call.count(), nullptr, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_tangent(nullptr, &s, b.call.table.data(), b.call.count(), nullptr, nullptr), CELLC_WRONG_USAGE);
  cellc_report report{};
  EXPECT_EQ(b.call.run(&report), CELLC_WRONG_USAGE) << "its size is not set";
  EXPECT_TRUE(b.untouched());
}

TEST_F(Derivatives, ArraysAreFoundByWhatTheyAre) {
  // A param whose name is that of an array of the state in the flat list.
  cellc_kernel* const kernel =
      compile("cell c[d] { state h[d]\n param h_start[d]\n h' = h_start*h }", nullptr, nullptr);
  const int start = cellc_call_array_find(kernel, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_START, "h");
  const int param = cellc_call_array_find(kernel, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_PARAM, "h_start");
  EXPECT_GE(start, 0);
  EXPECT_GE(param, 0);
  EXPECT_NE(start, param);
  EXPECT_EQ(cellc_call_array_count(kernel, CELLC_FORWARD), cellc_array_count(kernel));
  EXPECT_EQ(cellc_call_array_find(kernel, CELLC_FORWARD, CELLC_IS_GRADIENT, CELLC_ROLE_PARAM, "h_start"), -1);
  EXPECT_EQ(cellc_call_array_find(kernel, CELLC_BACKWARD, CELLC_IS_GRADIENT, CELLC_ROLE_STATE, "h"), -1);
  EXPECT_EQ(cellc_call_array_find(kernel, 3, CELLC_IS_VALUE, CELLC_ROLE_STATE, "h"), -1);
  EXPECT_EQ(cellc_call_array_find(nullptr, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_STATE, "h"), -1);
  EXPECT_EQ(cellc_call_array_find(kernel, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_STATE, nullptr), -1);
  EXPECT_EQ(cellc_call_array_count(kernel, 3), -1);
  EXPECT_EQ(cellc_call_array_count(nullptr, CELLC_BACKWARD), -1);

  cellc_call_array_info info{};
  EXPECT_EQ(cellc_call_array_describe(kernel, CELLC_BACKWARD, 0, &info), CELLC_WRONG_USAGE) << "its size is not set";
  EXPECT_EQ(cellc_call_array_describe(kernel, CELLC_BACKWARD, 0, nullptr), CELLC_WRONG_USAGE);
  cellc_call_array_info_init(&info);
  EXPECT_EQ(cellc_call_array_describe(kernel, CELLC_BACKWARD, -1, &info), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_call_array_describe(kernel, CELLC_BACKWARD, 99, &info), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_call_array_describe(kernel, -1, 0, &info), CELLC_WRONG_USAGE);
  cellc_call_array_info_init(nullptr);
  const cellc_shape s = shape();
  std::int64_t length = 0;
  int rank = 0;
  EXPECT_EQ(cellc_call_array_shape(kernel, CELLC_FORWARD, &s, start, &length, 1, &rank), CELLC_OK);
  EXPECT_EQ(rank, 2);
  EXPECT_EQ(length, kSequences);
  EXPECT_EQ(cellc_call_array_shape(kernel, CELLC_FORWARD, &s, start, nullptr, 0, &rank), CELLC_OK);
  EXPECT_EQ(cellc_call_array_shape(kernel, CELLC_FORWARD, &s, start, nullptr, 2, &rank), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_call_array_shape(kernel, CELLC_FORWARD, nullptr, start, nullptr, 0, &rank), CELLC_WRONG_USAGE);
}

TEST_F(Derivatives, EightThreadsOnOneKernel) {
  cellc_kernel* const kernel = decay();
  std::vector<std::unique_ptr<Backward>> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(std::make_unique<Backward>(kernel));
  std::vector<std::string> errors(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      if (i % 2) calls[i]->call.give("cotangent.h.final", 0);  // another set of arrays, with the same result
      for (int k = 0; k < 20; ++k)
        if (calls[i]->call.run() != CELLC_OK) errors[i] = cellc_last_error();
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(errors, std::vector<std::string>(8));
  for (const auto& b : calls) b->expect_right();
}

TEST_F(Derivatives, NarrowStorageHasGradientsInArithmeticPrecision) {
  cellc_kernel* const kernel = compile(kDecay, nullptr, [](cellc_options& o) { o.dtype = CELLC_BF16; });
  for (int i = 0; i < cellc_call_array_count(kernel, CELLC_BACKWARD); ++i) {
    cellc_call_array_info info;
    cellc_call_array_info_init(&info);
    ASSERT_EQ(cellc_call_array_describe(kernel, CELLC_BACKWARD, i, &info), CELLC_OK);
    const bool rows = info.role == CELLC_ROLE_INPUT || info.role == CELLC_ROLE_STATE || info.role == CELLC_ROLE_OUT;
    EXPECT_EQ(info.dtype, rows && info.quantity != CELLC_IS_GRADIENT ? CELLC_BF16 : CELLC_F32) << info.name;
  }
}

TEST_F(Derivatives, ErrorsHaveKindsAndAllDiagnostics) {
  const std::string wrong = "cell c[d] {\n state h[d]\n input x[d]\n h' = sqr(h) + y\n out z = q\n}\n";
  cellc_kernel* kernel = nullptr;
  ASSERT_EQ(cellc_compile_text(wrong.data(), wrong.size(), nullptr, &kernel), CELLC_WRONG_INPUT);
  EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_CELL);
  ASSERT_GE(cellc_last_error_diagnostics(), 2) << error();
  cellc_diagnostic first{}, last{};
  first.size = last.size = sizeof first;
  ASSERT_EQ(cellc_last_error_diagnostic(0, &first), CELLC_OK);
  ASSERT_EQ(cellc_last_error_diagnostic(cellc_last_error_diagnostics() - 1, &last), CELLC_OK);
  int line = 0, column = 0;
  cellc_last_error_position(&line, &column);
  EXPECT_EQ(first.line, 4);
  EXPECT_EQ(line, first.line);
  EXPECT_EQ(column, first.column);
  EXPECT_EQ(last.line, 5);
  EXPECT_EQ(wrong.substr(last.offset, last.length), "q");
  EXPECT_NE(error().find(last.message), std::string::npos);
  EXPECT_EQ(cellc_last_error_diagnostic(99, &first), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_last_error_diagnostic(0, nullptr), CELLC_WRONG_USAGE);
  EXPECT_GE(cellc_last_error_diagnostics(), 2) << "asking changes nothing";

  Backward b(decay());
  b.call.at("x").data = nullptr;
  EXPECT_EQ(b.call.run(), CELLC_WRONG_INPUT);
  EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_ARRAY);
  EXPECT_EQ(cellc_last_error_diagnostics(), 0);
  const std::int32_t bad[] = {1, 0};
  b.call.give("x");
  EXPECT_EQ(b.call.run(nullptr, bad), CELLC_NOT_CONVERGED);
  EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_NOT_CONVERGED);
  EXPECT_EQ(cellc_compile_text(nullptr, 0, nullptr, &kernel), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_REQUEST);
}

TEST_F(Derivatives, DevicesTextsAndKernelsAreDescribed) {
  cellc_device_info device{};
  device.size = sizeof device;
  ASSERT_EQ(cellc_device_describe("cpu", &device), CELLC_OK) << error();
  EXPECT_STRNE(device.name, "");
  EXPECT_GT(device.memory_bytes, 0);
  EXPECT_EQ(cellc_device_describe("cuda:4000", &device), CELLC_DEVICE_FAILED);
  EXPECT_EQ(cellc_last_error_kind(), CELLC_ERROR_NO_DEVICE);
  EXPECT_NE(error().find("cuda:4000"), std::string::npos) << error();
  EXPECT_EQ(cellc_device_describe("gpu", &device), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_device_describe(nullptr, &device), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_device_describe("cpu", nullptr), CELLC_WRONG_USAGE);
  device.size = 8;
  EXPECT_EQ(cellc_device_describe("cpu", &device), CELLC_WRONG_USAGE);

  const std::string two = kDecay + "cell other { state s\n s' = s }\n";
  const char* name = nullptr;
  ASSERT_EQ(cellc_text_cell(two.data(), two.size(), 0, &name), CELLC_OK);
  EXPECT_STREQ(name, "decay");
  ASSERT_EQ(cellc_text_cell(two.data(), two.size(), 1, &name), CELLC_OK);
  EXPECT_STREQ(name, "other");
  ASSERT_EQ(cellc_text_cell(two.data(), two.size(), 2, &name), CELLC_OK);
  EXPECT_EQ(name, nullptr);
  EXPECT_EQ(cellc_text_cell("cell", 4, 0, &name), CELLC_WRONG_INPUT);
  EXPECT_EQ(cellc_text_cell(nullptr, 4, 0, &name), CELLC_WRONG_USAGE);

  cellc_kernel_info info{};
  info.size = sizeof info;
  ASSERT_EQ(cellc_kernel_describe(decay(), &info), CELLC_OK) << error();
  EXPECT_STREQ(info.cell, "decay");
  EXPECT_STREQ(info.device, "cpu");
  EXPECT_EQ(info.text, kDecay);
  EXPECT_EQ(info.dtype, CELLC_F64);
  EXPECT_EQ(cellc_kernel_describe(nullptr, &info), CELLC_WRONG_USAGE);
}

TEST_F(Derivatives, ADescriptionOfAnEarlierVersionHasItsRoom) {
  cellc_kernel* const kernel =
      compile("cell c[d] { state h[d] = 2*a\n param a[d] in (0, 1)\n h' = a*h }", nullptr, nullptr);
  const int start = cellc_call_array_find(kernel, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_START, "h");
  const int param = cellc_call_array_find(kernel, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_PARAM, "a");
  cellc_call_array_info info;
  cellc_call_array_info_init(&info);
  ASSERT_EQ(cellc_call_array_describe(kernel, CELLC_FORWARD, start, &info), CELLC_OK) << error();
  EXPECT_STREQ(info.declared, "2*a");
  EXPECT_EQ(info.null, CELLC_NULL_IS_DECLARED);
  ASSERT_EQ(cellc_call_array_describe(kernel, CELLC_FORWARD, param, &info), CELLC_OK) << error();
  EXPECT_EQ(info.low, 0);
  EXPECT_EQ(info.high, 1);
  EXPECT_EQ(info.declared, nullptr);
  info.size = offsetof(cellc_call_array_info, low);
  info.low = -7;
  ASSERT_EQ(cellc_call_array_describe(kernel, CELLC_FORWARD, param, &info), CELLC_OK) << error();
  EXPECT_EQ(info.low, -7);
  EXPECT_EQ(info.size, offsetof(cellc_call_array_info, low));
}

}  // namespace
