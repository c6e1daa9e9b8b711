// The emitted code of every elementwise operator against values that are known from mathematics, in
// f64, in one lane and in many.
#include "tests/oracle/known_values.h"

#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <string>
#include <vector>

#include "compiler/front_end.h"
#include "runtime/cpu/engine.h"
#include "runtime/data/bind.h"

namespace cellc {
namespace {

using Rows = std::vector<oracle::KnownValue>;

std::string expression(const std::string& f, std::size_t operands) {
  if (f == "neg") return "-x0";
  if (!std::isalpha(static_cast<unsigned char>(f[0]))) return "x0 " + f + " x1";
  return f + (operands == 1 ? "(x0)" : operands == 2 ? "(x0, x1)" : "(x0, x1, x2)");
}

/// f of every row at once, the rows laid along the axis k. The inputs are not constants, so nothing
/// is folded; the state is there because a cell has one.
std::vector<double> run(const std::string& f, const Rows& rows) {
  const std::size_t operands = rows[0].args.size();
  std::string text = "cell c[k] {\n  state s\n  input x0[k]";
  for (std::size_t i = 1; i < operands; ++i) text += ", x" + std::to_string(i) + "[k]";
  text += "\n  s' = s\n  out y = " + expression(f, operands) + "\n}\n";
  const AnalysedCell known = analyse_text(SourceText("known", text));
  const Program program = Program::compile(known.cell, known.structure, {.dtype = Dtype::F64});
  BindRequest request;
  const auto count = static_cast<std::int64_t>(rows.size());
  for (std::size_t i = 0; i < operands; ++i) {
    Array x(Dtype::F64, {1, 1, count});
    for (std::int64_t r = 0; r < count; ++r) x.set(r, rows[r].args[i]);
    request.inputs["x" + std::to_string(i)] = {"x", x};
  }
  request.threads = 1;
  const RunOutput output = program.run(bind(known.cell, request).run);
  std::vector<double> values;
  for (std::int64_t r = 0; r < count; ++r) values.push_back(output.outs[0].get(r));
  return values;
}

TEST(EmittedOperators, KnownValues) {
  std::map<std::string, Rows> by_function;
  for (const oracle::KnownValue& known : oracle::known_values()) by_function[known.f].push_back(known);
  for (auto& [f, rows] : by_function) {
    const std::vector<double> single = run(f, {rows[0]});
    EXPECT_TRUE(agrees(single[0], rows[0])) << to_string(rows[0]) << " = " << single[0];
    // Three times over, so that every row is met in whole vectors, whatever their width.
    Rows repeated;
    for (int i = 0; i < 3; ++i) repeated.insert(repeated.end(), rows.begin(), rows.end());
    const std::vector<double> got = run(f, repeated);
    for (std::size_t r = 0; r < got.size(); ++r)
      EXPECT_TRUE(agrees(got[r], repeated[r])) << to_string(repeated[r]) << " = " << got[r];
  }
}

}  // namespace
}  // namespace cellc
