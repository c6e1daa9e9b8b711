// Cells of thousands of operations: the code generator gets them in short pieces, and what runs is still the cell.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Support/SourceMgr.h>

#include <algorithm>

#include "compiler/front_end.h"
#include "runtime/build/cut_blocks.h"
#include "runtime/cpu/engine.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/reference.h"

namespace cellc {
namespace {

std::string many(int n, const char* format) {
  std::string text;
  for (int i = 1; i < n; ++i) text += fmt::format(fmt::runtime(format), i, i - 1);
  return text;
}

/// One long expression in one state.
std::string chain(int n, const char* step) {
  return "cell chain {\n state h = 0.2\n input x\n a0 = h + x\n" + many(n, step) +
         fmt::format(" h' = 0.5*a{}\n}}\n", n - 1);
}

/// Each state reads two others, so that all old values are needed until the last of them was read.
std::string ring(int n) {
  std::string text = "cell ring[d] {\n input x[d]\n state s0[d] = 0.1";
  for (int i = 1; i < n; ++i) text += fmt::format(", s{}[d] = {}", i, 0.1 + 0.001 * i);
  text += "\n";
  for (int i = 0; i < n; ++i)
    text += fmt::format(" s{0}' = 0.5*s{0} + 0.1*(s{1} - s{2}*x)\n", i, (i + n / 2) % n, (i + 7) % n);
  return text + "}\n";
}

struct Large {
  const char* name;
  std::string text;
};

class LargeCells : public testing::TestWithParam<Large> {};

TEST_P(LargeCells, RunAsTheReference) {
  const AnalysedCell c = analyse_text(SourceText("test", GetParam().text));
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::F16}) {
    const Program program = Program::compile(c.cell, c.structure, {.dtype = dtype, .cpu = "native"});
    for (const std::int64_t length : {1, 2, 7}) {
      BindRequest request;
      if (!c.cell.header.empty()) request.dims = {{"d", 5}};
      request.batch = 3;
      request.length = length;
      request.random_seed = 5;
      request.dtype = dtype;
      request.threads = 1;
      const Binding b = bind(c.cell, request);
      const Deviation d = compare(c.cell, b.run, program.run(b.run), reference_run(c.cell, b.run));
      EXPECT_LE(d.error, dtype == Dtype::F64   ? 1e-12
                         : dtype == Dtype::F32 ? 1e-5
                                               : 1.1e-3)
          << to_string(dtype) << ", " << length << " steps: " << d.array << ", step " << d.step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, LargeCells,
                         testing::Values(Large{"Sum", chain(900, " a{0} = a{1} + 0.0001*(0.001*{0}*h + 0.1*x)^3\n")},
                                         Large{"Sigmoids", chain(1500, " a{0} = sigmoid(a{1} + x)\n")},
                                         Large{"States", ring(260)}),
                         [](const auto& info) { return std::string(info.param.name); });

/// A loop of one long block, whose values are read soon, late, in the next turn and behind the loop.
std::string long_loop(int n) {
  std::string text =
      "define double @f(double %x, i64 %n) {\nentry:\n  br label %loop\nloop:\n"
      "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]\n  %s = phi double [ %x, %entry ], [ %v" +
      std::to_string(n - 1) + ", %loop ]\n  %v0 = fadd double %s, %x\n";
  for (int k = 1; k < n; ++k)
    text += fmt::format("  %v{} = fadd double %v{}, %v{}\n", k, k - 1, k % 10 == 0 ? k / 2 : k - 1);
  return text + fmt::format(
                    "  %next = add i64 %i, 1\n  %more = icmp slt i64 %next, %n\n  br i1 %more, label %loop, "
                    "label %done\ndone:\n  %r = fadd double %v{}, %v3\n  ret double %r\n}}\n",
                    n - 1);
}

struct Cut {
  std::size_t longest = 0, instructions = 0, places = 0;
};

Cut cut(int n) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  const std::unique_ptr<llvm::Module> module = llvm::parseAssemblyString(long_loop(n), diagnostic, context);
  EXPECT_TRUE(module) << diagnostic.getMessage().str();
  cut_blocks(*module);
  EXPECT_FALSE(llvm::verifyModule(*module, &llvm::errs()));
  Cut result;
  for (const llvm::BasicBlock& block : *module->getFunction("f")) {
    std::size_t size = 0;
    for (const llvm::Instruction& i : block) {
      const bool place = llvm::isa<llvm::AllocaInst>(i);
      result.places += place;
      size += !place;
    }
    result.longest = std::max(result.longest, size);
    result.instructions += size;
  }
  return result;
}

TEST(CutBlocks, NoBlockIsLongAndThereIsLittleMore) {
  const BlockLimits limits;
  for (const int n : {4000, 16000}) {
    const Cut made = cut(n);
    // An instruction of these may load two values and store one.
    EXPECT_LE(made.longest, 4 * limits.piece + 8) << n;
    EXPECT_LE(made.instructions, static_cast<std::size_t>(n) * 5 / 4) << n;
    EXPECT_LT(made.places, static_cast<std::size_t>(n) / 10) << n;
  }
}

TEST(CutBlocks, ShortBlocksStay) {
  const Cut made = cut(static_cast<int>(BlockLimits().longest) - 20);
  EXPECT_EQ(made.places, 0u);
}

}  // namespace
}  // namespace cellc
