// A run in which memory or the code generator fails, at every place where it can: the error comes out, and
// the same solver then gives the same bits as if nothing had been.
#include <gtest/gtest.h>

#include <cstring>
#include <new>

#include "compiler/graph/lower.h"
#include "compiler/syntax/parse.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"
#include "runtime/data/fault_points.h"

namespace cellc {
namespace {

struct Faulty {
  const char* text;
  Strategy solver;
};

class Faults : public testing::TestWithParam<Faulty> {
 protected:
  void SetUp() override {
    const SourceText source("test", GetParam().text);
    Diagnostics diagnostics;
    const File file = parse(source, diagnostics);
    auto lowered = lower(file, file.cells.at(0), diagnostics);
    ASSERT_TRUE(lowered) << diagnostics.format(source);
    cell = std::move(*lowered);
    const Jacobian jacobian = differentiate(cell);
    structure = analyse(cell, jacobian);
    BindRequest request;
    request.random_seed = 7;
    request.batch = 2;
    request.length = 1200;
    request.dtype = Dtype::F32;
    request.dims = {{"d", 3}};
    request.threads = 2;
    binding.emplace(bind(cell, request));
    options.solver = GetParam().solver;
  }
  void TearDown() override {
    fail_at(FaultPoint::Allocate, 0);
    fail_at(FaultPoint::Compile, 0);
  }

  static bool same(const RunOutput& a, const RunOutput& b) {
    const auto equal = [](const std::vector<Array>& x, const std::vector<Array>& y) {
      if (x.size() != y.size()) return false;
      for (std::size_t i = 0; i < x.size(); ++i)
        if (x[i].shape() != y[i].shape() ||
            std::memcmp(x[i].data(), y[i].data(), static_cast<std::size_t>(x[i].count()) * size_of(x[i].dtype())))
          return false;
      return true;
    };
    return equal(a.states, b.states) && equal(a.finals, b.finals) && equal(a.outs, b.outs);
  }

  CellGraph cell;
  Structure structure;
  std::optional<Binding> binding;
  SolveOptions options;
};

TEST_P(Faults, OfMemory) {
  Solver solver(cell, structure, {});
  SolveReport report;
  const RunOutput expected = solver.run(binding->run, options, report);
  std::int64_t nth = 1;
  int failed = 0;
  for (;; nth += 1 + nth / 16) {
    ASSERT_LT(nth, 1000000);
    fail_at(FaultPoint::Allocate, nth);
    try {
      const RunOutput output = solver.run(binding->run, options, report);
      fail_at(FaultPoint::Allocate, 0);
      EXPECT_TRUE(same(output, expected));
      break;  // so many allocations there are not
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    fail_at(FaultPoint::Allocate, 0);
    EXPECT_TRUE(same(solver.run(binding->run, options, report), expected)) << "after the failure of allocation " << nth;
  }
  EXPECT_GE(failed, 2);
}

TEST_P(Faults, OfTheCodeGenerator) {
  SolveReport report;
  Solver whole(cell, structure, {});
  const RunOutput expected = whole.run(binding->run, options, report);
  Solver solver(cell, structure, {});
  int failed = 0;
  // Kernels that were made before the failure are kept, so each run comes one further.
  for (;; ++failed) {
    ASSERT_LT(failed, 100);
    fail_at(FaultPoint::Compile, failed % 2 + 1);
    try {
      const RunOutput output = solver.run(binding->run, options, report);
      fail_at(FaultPoint::Compile, 0);
      EXPECT_TRUE(same(output, expected));
      break;
    } catch (const DeviceError& e) {
      EXPECT_NE(std::string(e.what()).find("CELLC_FAULT"), std::string::npos) << e.what();
    }
  }
  EXPECT_GE(failed, 1);
}

// Memory fails while kernels are still being made.
TEST_P(Faults, OfMemoryInAFreshSolver) {
  SolveReport report;
  Solver whole(cell, structure, {});
  const RunOutput expected = whole.run(binding->run, options, report);
  for (const std::int64_t nth : {1, 2, 4, 8, 16, 32}) {
    Solver solver(cell, structure, {});
    fail_at(FaultPoint::Allocate, nth);
    try {
      solver.run(binding->run, options, report);
    } catch (const std::bad_alloc&) {
    }
    fail_at(FaultPoint::Allocate, 0);
    EXPECT_TRUE(same(solver.run(binding->run, options, report), expected)) << "after the failure of allocation " << nth;
  }
}

const char* const kGru = R"(cell gru[d] {
  state h[d]
  input xz[d], xc[d]
  param az[d], ac[d]
  z  = sigmoid(az*h + xz)
  h' = (1 - z)*h + z*tanh(ac*h + xc)
}
)";
const char* const kLinear = R"(cell linear[d] {
  state h[d]
  input a[d], x[d]
  h' = sigmoid(a)*h + x
}
)";
const char* const kElman = R"(cell elman[d] {
  state e[d], h[d]
  input x[d]
  param U[d,d]
  e' = 0.5*e + x
  h' = tanh(0.3*(U@h) + e')
  out y = sum[d](h')
}
)";

INSTANTIATE_TEST_SUITE_P(Strategies, Faults,
                         testing::Values(Faulty{kGru, Strategy::Auto}, Faulty{kGru, Strategy::Sequential},
                                         Faulty{kGru, Strategy::Segmented}, Faulty{kGru, Strategy::Shooting},
                                         Faulty{kGru, Strategy::Newton}, Faulty{kLinear, Strategy::Scan},
                                         Faulty{kElman, Strategy::Sequential}, Faulty{kElman, Strategy::Relaxation}),
                         [](const auto& info) { return std::to_string(info.index) + to_string(info.param.solver); });

}  // namespace
}  // namespace cellc
