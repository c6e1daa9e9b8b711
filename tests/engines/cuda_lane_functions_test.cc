// The elementwise functions as CUDA text has them (math.cuh), compiled for the host: values that are known,
// values beyond numbers, formulas of our own over their range.
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>

#include "compiler/derive/pipeline.h"
#include "tests/engines/cuda_lane_code.h"
#include "tests/oracle/functions.h"
#include "tests/oracle/known_values.h"

namespace cellc {
namespace {

using Rows = std::map<std::string, std::vector<oracle::KnownValue>>;

/// NaN and infinities as they are, zeros with their sign, anything else to `tolerance`.
bool agrees(const std::string& f, double got, double want, double tolerance, bool f32) {
  const bool zero = got == 0 && want == 0;
  if (zero && (f == "min" || f == "max" || f == "clip")) return true;  // of equal zeros either may be given
  if (std::isnan(want)) return std::isnan(got);
  if (want == 0 || std::isinf(want)) return got == want && std::signbit(got) == std::signbit(want);
  // f32's sigmoid and tanh are good to an absolute 4e-7.
  const bool bounded = f32 && (f == "tanh" || f == "sigmoid");
  return std::fabs(got - want) <= tolerance * std::fabs(want) || (bounded && std::fabs(got - want) <= 4e-7);
}

/// One cell a function, its operands inputs, so that nothing is folded.
template <typename Real>
void compare_functions(const Rows& by_function, double tolerance) {
  constexpr bool f32 = sizeof(Real) == 4;
  const Storage storage = f32 ? Storage::F32 : Storage::F64;
  std::vector<Emitted> all;
  std::vector<std::string> functions;
  for (const auto& [f, rows] : by_function) {
    const std::size_t n = rows[0].args.size();
    const bool call = std::isalpha(static_cast<unsigned char>(f[0])) != 0;
    std::string list = "x0";
    for (std::size_t i = 1; i < n; ++i) list += ", x" + std::to_string(i);
    const std::string value = f == "neg" ? "-x0" : call ? f + "(" + list + ")" : "x0 " + f + " x1";
    const SourceText source(
        "test.cell", "cell c[d] {\n  state s[d]\n  input " +
                         [&] {
                           std::string inputs = "x0[d]";
                           for (std::size_t i = 1; i < n; ++i) inputs += ", x" + std::to_string(i) + "[d]";
                           return inputs;
                         }() +
                         "\n  s' = where(s < 2, " + value + ", s)\n}\n");
    const File file = oracle::parse_or_throw(source);
    const Lowered cell = lowered(source, file, file.cells.at(0));
    const StagedCell staged = split_stages(cell.cell, cell.structure);
    Emitted e{f, staged.stages.at(0).lanes.cell, staged.stages.at(0).lane, {}, {}, {}, {}, -1};
    e.code = emit_cuda_lane(e.cell, e.lane, options_for(cell, source, e, storage));
    all.push_back(std::move(e));
    functions.push_back(f);
  }
  std::int64_t compared = 0;
  const Runner<Real> runner(all, storage);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const oracle::KnownValue& known : by_function.at(functions[i])) {
      Values values(all[i].cell.symbols.size(), {0.0});
      bool exact = true;
      for (std::size_t s = 0; s < values.size(); ++s)
        if (const std::string& name = all[i].cell.symbols[s].name; name[0] == 'x') {
          values[s][0] = known.args.at(static_cast<std::size_t>(name[1] - '0'));
          exact &= std::isnan(values[s][0]) || static_cast<Real>(values[s][0]) == values[s][0];
        }
      const double got = runner.step(static_cast<int>(i), all[i], values)[0];
      // What f32 does not hold says nothing of f32.
      const double want = static_cast<Real>(known.value);
      if (!exact || (std::isfinite(known.value) && known.value != 0 && !std::isnormal(static_cast<Real>(want))))
        continue;
      ++compared;
      EXPECT_TRUE(agrees(functions[i], got, want, tolerance, f32))
          << oracle::to_string(known) << ": " << got << ", wanted " << want;
    }
  EXPECT_GT(compared, f32 ? 150 : 250);
}

/// Values that are known from mathematics and from IEEE 754.
Rows known_rows() {
  Rows rows;
  for (const oracle::KnownValue& known : oracle::known_values()) rows[known.f].push_back(known);
  EXPECT_GT(rows.size(), 28u);
  return rows;
}
TEST(CudaLane, KnownValuesInF64) { compare_functions<double>(known_rows(), 4e-15); }
TEST(CudaLane, KnownValuesInF32) { compare_functions<float>(known_rows(), 1.5e-6); }

/// Formulas of our own over their range, both signs, arguments that an f32 holds. In gelu's tail a composition
/// of libm's functions in f64 is the less accurate one: x/sqrt(2) is rounded, and its square is an exponent.
Rows ranges_of_functions() {
  Rows rows;
  oracle::Random random(5);
  for (const char* f : {"sigmoid", "tanh", "silu", "gelu", "softplus", "rsqrt"})
    for (int i = 0; i < 4000; ++i) {
      double x = static_cast<float>(std::exp2(random.uniform(-20, 6.4)) * (random.chance(0.5) ? -1 : 1));
      if (std::string(f) == "rsqrt") x = std::fabs(x);
      double value = *oracle::apply(f, {x});
      if (std::string(f) == "gelu" && x < -5) value = static_cast<double>(0.5L * x * std::erfc(-x / std::sqrt(2.0L)));
      if (std::string(f) == "gelu" && value == 0) value = -0.0;
      rows[f].push_back({f, {x}, value});
    }
  return rows;
}
TEST(CudaLane, FormulasInF64) { compare_functions<double>(ranges_of_functions(), 4e-15); }
TEST(CudaLane, FormulasInF32) { compare_functions<float>(ranges_of_functions(), 1.2e-6); }

}  // namespace
}  // namespace cellc
