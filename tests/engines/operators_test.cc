// Every row of ops.def as the CPU's code and as a card's (on the emulator's C library) have it, over random operands,
// against its definition. A new row is tested without being named here.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"
#include "compiler/graph/operator_value.h"
#include "runtime/cpu/engine.h"
#include "runtime/data/bind.h"
#include "tests/engines/cuda_lane_code.h"

namespace cellc {
namespace {

struct Row {
  Op op;
  const char* text;
  int arity;
  bool call;
};
constexpr Row kRows[] = {
#define CELLC_OP(Name, text, arity, ...) {Op::Name, text, arity, false},
#define CELLC_CALL(Name, text, arity, ...) {Op::Name, #text, arity, true},
#include "compiler/graph/ops.def"
};
constexpr int kPoints = 400;

/// The operator, of inputs, as a cell has it.
std::string expression(const Row& row) {
  if (!row.call && row.arity == 1) return std::string(row.text) + "x0";
  if (!row.call) return std::string("x0 ") + row.text + " x1";
  std::string list = "x0";
  for (int i = 1; i < row.arity; ++i) list += ", x" + std::to_string(i);
  return std::string(row.text) + "(" + list + ")";
}

/// A cell whose state and out are the operator's value.
std::string cell_of(const Row& row) {
  std::string inputs = "x0[d]";
  for (int i = 1; i < row.arity; ++i) inputs += ", x" + std::to_string(i) + "[d]";
  return "cell c[d] {\n  state s[d]\n  input " + inputs + "\n  s' = where(s < 2, " + expression(row) +
         ", s)\n  out y = " + expression(row) + "\n}\n";
}

/// Operands of every size that f32 holds, often small, sometimes equal, zero or infinite.
std::vector<std::vector<double>> operands(const Row& row) {
  oracle::Random random(static_cast<std::uint64_t>(row.op) + 17);
  std::vector<std::vector<double>> points;
  for (int k = 0; k < kPoints; ++k) {
    std::vector<double> x;
    for (int i = 0; i < row.arity; ++i) {
      double v =
          static_cast<float>(random.chance(0.6) ? random.uniform(-4, 4)
                                                : std::exp2(random.uniform(-30, 7)) * (random.chance(0.5) ? 1 : -1));
      if (random.chance(0.1)) v = i > 0 && random.chance(0.5) ? x[0] : random.chance(0.5) ? 0.0 : -0.0;
      if (random.chance(0.03)) v = std::numeric_limits<double>::infinity() * (random.chance(0.5) ? 1 : -1);
      if (random.chance(0.02)) v = std::numeric_limits<double>::quiet_NaN();
      x.push_back(v);
    }
    points.push_back(std::move(x));
  }
  return points;
}

/// How far the definition itself may be off: by its operands' rounding. In gelu's tail x/sqrt(2) is rounded, and its
/// square is an exponent.
double doubt(Op op, const double* x) {
  double most = 0;
  for (int i = 0; i < op_info(op).arity; ++i)
    for (const double side : {-1.0, 1.0}) {
      double moved[3] = {x[0], x[1], x[2]};
      moved[i] = std::nextafter(x[i], side * std::numeric_limits<double>::infinity());
      const double change = std::fabs(operator_value(op, moved) - operator_value(op, x));
      if (std::isfinite(change)) most = std::max(most, change);
    }
  return 2 * most;
}

/// How far a function of its own may be off, in places of the type: tests/math has the bounds for the CPU, and a card's
/// are compositions of library functions. A card's sigmoid and tanh of a float are within an absolute 4e-7.
constexpr double kPlaces = 16, kHardware = 4e-7;

/// What the column says is exact has the bits of the definition, rounded to the type, and folding relies on it. Of two
/// zeros either may be given.
template <typename Real>
void expect_close(Op op, double got, const std::vector<double>& point, double absolute, const std::string& what) {
  double x[3] = {};
  std::copy(point.begin(), point.end(), x);
  const double want = operator_value(op, x), rounded = static_cast<Real>(want);
  if (std::isnan(want) || got == rounded || op_info(op).bits == Bits::Exact) {
    EXPECT_TRUE(got == rounded || (std::isnan(got) && std::isnan(want))) << what << ": " << got << ", not " << want;
    return;
  }
  const double places = kPlaces * std::max<double>(std::numeric_limits<Real>::epsilon() * std::fabs(want),
                                                   std::numeric_limits<Real>::denorm_min());
  EXPECT_LE(std::fabs(got - want), std::max(places, absolute) + doubt(op, x))
      << what << ": " << got << ", not " << want;
}

std::string called(const Row& row, const std::vector<double>& x) {
  std::string text = std::string(op_name(row.op)) + " of";
  for (const double v : x) text += " " + std::to_string(v);
  return text;
}

template <typename Real>
class EmittedRow : public testing::Test {};
using Formats = testing::Types<float, double>;
TYPED_TEST_SUITE(EmittedRow, Formats);

TYPED_TEST(EmittedRow, OfLlvm) {
  using Real = TypeParam;
  const Dtype dtype = sizeof(Real) == 4 ? Dtype::F32 : Dtype::F64;
  for (const Row& row : kRows) {
    const AnalysedCell cell = analyse_text(SourceText("row", cell_of(row)));
    const Program program = Program::compile(cell.cell, cell.structure, {.dtype = dtype});
    const auto points = operands(row);
    BindRequest request;
    request.threads = 1;
    for (int i = 0; i < row.arity; ++i) {
      Array x(dtype, {1, 1, kPoints});
      for (int k = 0; k < kPoints; ++k) x.set(k, points[k][i]);
      request.inputs["x" + std::to_string(i)] = {"x", x};
    }
    const RunOutput output = program.run(bind(cell.cell, request).run);
    for (int k = 0; k < kPoints; ++k)
      expect_close<Real>(row.op, output.outs[0].get(k), points[k], 0, called(row, points[k]));
  }
}

TYPED_TEST(EmittedRow, OfCuda) {
  using Real = TypeParam;
  constexpr bool f32 = sizeof(Real) == 4;
  const Storage storage = f32 ? Storage::F32 : Storage::F64;
  std::vector<Emitted> all;
  for (const Row& row : kRows) {
    const SourceText source("row", cell_of(row));
    const File file = oracle::parse_or_throw(source);
    const Lowered cell = lowered(source, file, file.cells.at(0));
    const StagedCell staged = split_stages(cell.cell, cell.structure);
    Emitted e{op_name(row.op), staged.stages.at(0).lanes.cell, staged.stages.at(0).lane, {}, {}, {}, {}, -1};
    e.code = emit_cuda_lane(e.cell, e.lane, options_for(cell, source, e, storage));
    all.push_back(std::move(e));
  }
  const Runner<Real> runner(all, storage);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const Row& row = kRows[r];
    const bool hardware = f32 && (row.op == Op::Sigmoid || row.op == Op::Tanh);
    for (const std::vector<double>& point : operands(row)) {
      Values values(all[r].cell.symbols.size(), {0.0});
      for (std::size_t s = 0; s < values.size(); ++s)
        if (const std::string& name = all[r].cell.symbols[s].name; name[0] == 'x')
          values[s][0] = point.at(static_cast<std::size_t>(name[1] - '0'));
      const double got = runner.step(static_cast<int>(r), all[r], values)[0];
      expect_close<Real>(row.op, got, point, hardware ? kHardware : 0, called(row, point));
    }
  }
}

}  // namespace
}  // namespace cellc
