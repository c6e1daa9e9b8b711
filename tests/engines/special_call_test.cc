// A call is made special for its cell: no table is left in it, so that a call costs what it does and no more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"
#include "runtime/build/compile_driver.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

/// Of functions that begin so.
int lines_like(const std::regex& what, const std::vector<std::string>& functions, const std::string& assembly) {
  bool within = false;
  int found = 0;
  std::istringstream lines(assembly);
  for (std::string line; std::getline(lines, line);) {
    for (const std::string& function : functions)
      if (line.starts_with(function) && line.find(':') != std::string::npos) within = true;
    if (within && std::regex_match(line, what)) ++found;
    if (line.find(".cfi_endproc") != std::string::npos) within = false;
  }
  return found;
}

/// Calls of kernels whose address is read at run time: from the table of kernels, which is a constant.
int calls_of_what_a_table_says(const std::string& assembly) {
  static const std::regex indirect(R"(\s(callq?|jmpq?)\s+\*%.*|\s(blr|br)\s+x.*)");
  return lines_like(indirect, {"call_cell", "call_side_by_side"}, assembly);
}

/// Numbers of a call that are found by a place which a loop counts: one such loop, and all numbers are memory.
/// (Sequences side by side have lists of lanes, backward calls partial sums of gradients.)
int numbers_in_memory(const std::string& assembly) {
  static const std::regex by_place(R"(\s.*\(%rsp,%r[a-z0-9]+,8\).*)");
  return lines_like(by_place, {"call_cell"}, assembly);
}

TEST(SpecialCall, IsReadFromTheAssembly) {
  const std::string call = "call_cell:\n\tcallq\tkernel@PLT\n\tcallq\t*%rax\n\t.cfi_endproc\n";
  EXPECT_EQ(calls_of_what_a_table_says(call), 1);
  EXPECT_EQ(calls_of_what_a_table_says("call_cell:\n\tblr\tx8\n\t.cfi_endproc\nother:\n\tblr\tx9\n"), 1);
  EXPECT_EQ(calls_of_what_a_table_says("call_cell:\n\tcallq\tkernel@PLT\n\t.cfi_endproc\n"), 0);
  EXPECT_EQ(numbers_in_memory("call_cell:\n\torq\t48(%rsp,%r14,8), %rbx\n\torq\t48(%rsp), %rbx\n\t.cfi_endproc\n"), 1);
}

class SpecialCalls : public testing::TestWithParam<const char*> {};

// Where one function that is not inlined may see the memory of a call, no number of it becomes a constant.
TEST_P(SpecialCalls, WalkNoTable) {
  const AnalysedCell analysed = analyse_text(oracle::example_named(GetParam()).source);
  const CompileOptions options;
  const auto check = [](const CompiledDriver& driver, const char* direction) {
    const std::string assembly = driver.code->assembly();
    ASSERT_NE(assembly.find("\ncall_cell"), std::string::npos);
    EXPECT_EQ(calls_of_what_a_table_says(assembly), 0) << direction;
  };
  const CompiledDriver forward = compile_driver(analysed.cell, analysed.structure, options);
  check(forward, "forward");
  EXPECT_EQ(numbers_in_memory(forward.code->assembly()), 0);
  const CompiledDriver beside = compile_driver(analysed.cell, analysed.structure, options, true);
  check(beside, "side by side");
  // Where sequences cannot be walked so, nothing of it is left.
  EXPECT_EQ(beside.code->assembly().find("\ncall_side_by_side") != std::string::npos,
            sequences_of(analysed.cell).has_value());
  check(compile_backward_driver(analysed.cell, options), "backward");
  check(compile_backward_driver(analysed.cell, options, true), "backward, side by side");
}

INSTANTIATE_TEST_SUITE_P(Examples, SpecialCalls,
                         testing::Values("01_para_gru", "04_lstm", "18_delta_net", "34_narx3", "39_kalman1",
                                         "x16_biquad1"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cellc
