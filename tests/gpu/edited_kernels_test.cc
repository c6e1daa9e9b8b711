// Kernels that were edited by hand: what is run, what is refused, what is found wrong.
#include "runtime/cuda/ship/edited_kernels.h"

#include <gtest/gtest.h>

#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/parse.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "tests/engines/against_oracle.h"
#include "tests/gpu/fixtures.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {
namespace {

class Edited : public testing::Test {
 protected:
  Edited()
      : device_(open_device()),
        file_(oracle::example_named("01_para_gru")),
        cell_(file_.source, file_.tree, file_.tree.cells.at(0)),
        random_(3) {
    const Trial::Options with{.dtype = Dtype::F32, .sizes = oracle::axis_lengths(cell_.oracle, {32}), .steps = 67};
    trial_ = std::make_unique<Trial>(cell_.graph, cell_.oracle, file_.ranges, random_, with);
    binding_ = trial_->bound({67, 67}, false, 1);
  }
  std::string written() {
    return kernels_text(
        launched_sources(*device_.gpu, cell_.graph, cell_.structure, Dtype::F32, &file_.source, binding_.run, {}));
  }
  EditedRun run(const std::string& text, bool verify = true) {
    return run_edited(*device_.gpu, cell_.graph, cell_.structure, Dtype::F32, &file_.source, binding_.run, {},
                      EditedKernels("edited.cu", text), verify);
  }
  template <typename Error>
  std::string refusal(const std::string& text) {
    try {
      run(text, false);
    } catch (const Error& e) {
      return e.what();
    }
    return "not refused";
  }
  static std::string with(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    return text;
  }

  Device device_;
  const oracle::Example& file_;
  LoweredCell cell_;
  oracle::Random random_;
  std::unique_ptr<Trial> trial_;
  Binding binding_;
};

TEST_F(Edited, KernelAsItWasWrittenGivesTheSame) {
  const std::string text = written();
  EXPECT_TRUE(starts(text, "// para_gru."));
  const EditedRun result = run(text);
  EXPECT_FALSE(result.wrong);
  EXPECT_EQ(trial_->verify(binding_.run, result.output, {67, 67}), "");
  ASSERT_TRUE(result.verified);
  EXPECT_EQ(result.verified->error, result.generated_verified->error);
  EXPECT_EQ(result.step_error, result.generated_step_error);
  EXPECT_GT(result.ms, 0);
  EXPECT_GT(result.generated_ms, 0);
}

// Regular expressions go down a stack frame a character.
TEST_F(Edited, LinesMayBeLong) {
  const std::string text = written();
  const EditedRun result = run(
      text.substr(0, text.find('\n') + 1) + "//" + std::string(1000000, 'x') + "\n" + text.substr(text.find('\n') + 1),
      false);
  EXPECT_FALSE(result.wrong);
}

TEST_F(Edited, KernelIsTheOneThatRuns) {
  // What is written, doubled.
  const std::string text = with(written(), "CELLC_DEVICE void store(Stored* at, Real value) { *at = narrow(value); }",
                                "CELLC_DEVICE void store(Stored* at, Real value) { *at = narrow(2 * value); }");
  const EditedRun result = run(text);
  EXPECT_TRUE(result.wrong);
  EXPECT_GT(result.verified->error, 0.01);
  EXPECT_LT(result.generated_verified->error, 1e-4);
  EXPECT_FALSE(run(text, false).wrong) << "nobody asked";
}

/// A step reads inputs of the steps before it in its own sequence, in the order of time, and before the first
/// one its history.
TEST(EditedSteps, ReadLagsOfTheirSequence) {
  const SourceText source("lags.cell",
                          "cell lags[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(0.5*h + x + lag(x, 2))\n}\n");
  Diagnostics diagnostics;
  const File tree = parse(source, diagnostics);
  const LoweredCell cell(source, tree, tree.cells.at(0));
  const Device device = open_device();
  for (const bool reverse : {false, true}) {
    oracle::Random random(4);
    Trial::Options with{.dtype = Dtype::F32, .sizes = {{"d", 3}}, .steps = 9};
    with.starts_given = true;
    with.reverse = reverse;
    const Binding binding = Trial(cell.graph, cell.oracle, {}, random, with).bound({9, 0, 5}, true, 1);
    const std::string text =
        kernels_text(launched_sources(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source, binding.run, {}));
    const EditedRun result = run_edited(*device.gpu, cell.graph, cell.structure, Dtype::F32, &source, binding.run, {},
                                        EditedKernels("edited.cu", text), true);
    EXPECT_LT(result.step_error, 1e-5) << (reverse ? "reversed" : "forward");
    EXPECT_FALSE(result.wrong);
  }
}

TEST_F(Edited, KernelThatDoesNotCompileIsPointedAt) {
  const std::string text = with(written(), "namespace cellc {\n", "namespace cellc {\nint broken = missing;\n");
  const std::size_t line =
      1 + static_cast<std::size_t>(
              std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(text.find("int broken")), '\n'));
  EXPECT_TRUE(
      has(refusal<DeviceError>(text), "edited.cu" + std::string(device_.emulator ? ":" : "(") + std::to_string(line)));
}

TEST_F(Edited, FilesThatCannotBeMeant) {
  EXPECT_TRUE(
      has(refusal<RequestError>("int x;\n"), "edited.cu: holds no kernels; expected units under lines such as"));
  const std::string text = written();
  EXPECT_TRUE(has(refusal<UsageError>(with(text, "int kWidth = 1;", "int kWidth = 2;")),
                  "lacks \" static constexpr int kWidth = 1;\""));
  EXPECT_TRUE(has(refusal<UsageError>(text + "\n// other.cu: as launched\nint x;\n"),
                  "has 2 units, of which this run launches 1"));
}

}  // namespace
}  // namespace cellc
