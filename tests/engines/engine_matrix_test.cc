// Every example on the engine against the oracle: storage types, lengths around vector widths and
// chunks, odd axis lengths, batches, packed sequences, threads, narrower vectors, reversed time.
#include <gtest/gtest.h>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/graph/lower.h"
#include "tests/engines/against_oracle.h"
#include "tests/engines/lowered_cell.h"

namespace cellc {
namespace {

using oracle::Example;

constexpr std::int64_t kLengths[] = {0, 1, 2, 15, 16, 17, 33, 257};

/// Lengths of axes, in the order of the header: small primes, then one axis past any vector width.
std::vector<std::vector<std::int64_t>> axis_choices(std::size_t axes) {
  std::vector<std::vector<std::int64_t>> choices{{3, 5, 2, 7}};
  if (axes >= 1) choices.push_back({37, 3, 5, 2});
  if (axes >= 2) choices.push_back({3, 37, 5, 2});
  if (axes >= 3) choices.push_back({2, 3, 37, 5});
  return choices;
}

class Engine : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { example_ = &oracle::example_named(GetParam()); }

  CellGraph graph_of(const Cell& tree) const { return cellc::graph_of(example_->source, example_->tree, tree); }

  static std::string label(const Trial::Options& o, std::int64_t batch, std::int64_t length, bool packed, int threads) {
    std::string text = std::string(to_string(o.dtype)) + (packed ? " packed" : "") + " B=" + std::to_string(batch) +
                       " T=" + std::to_string(length) + " threads=" + std::to_string(threads);
    for (const auto& [axis, n] : o.sizes) text += " " + axis + "=" + std::to_string(n);
    return text;
  }

  const Example* example_ = nullptr;
  int runs_ = 0;
  std::int64_t compared_ = 0;
};

TEST_P(Engine, AgreesWithOracle) {
  for (const Cell& tree : example_->tree.cells) {
    SCOPED_TRACE(tree.name);
    CellGraph graph = graph_of(tree);
    const Structure structure = analyse(graph, differentiate(graph));
    const oracle::Cell cell(example_->tree, tree.name);
    oracle::Random random(77);
    runs_ = 0;
    for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
      const Program program = Program::compile(graph, structure, {.dtype = dtype});
      int choice = 0;
      for (const auto& lengths : axis_choices(tree.axes.size())) {
        Trial::Options options{.dtype = dtype, .sizes = oracle::axis_lengths(cell, lengths), .steps = 257};
        options.starts_given = choice++ != 1;
        options.step_by_step = example_->amplifies.count(tree.name) > 0;
        const Trial trial(graph, cell, example_->ranges, random, options);
        const auto once = [&](const std::vector<std::int64_t>& run_lengths, bool packed, int threads) {
          ++runs_;
          return trial.run(program, run_lengths, packed, threads);
        };
        for (const std::int64_t length : kLengths)
          for (const std::int64_t batch : {1, 3})
            for (const int threads : {1, 2}) {
              if (threads == 2 && length < 15) continue;
              const std::string wrong = once(std::vector<std::int64_t>(batch, length), false, threads);
              ASSERT_EQ(wrong, "") << label(options, batch, length, false, threads);
            }
        ASSERT_EQ(once({}, false, 1), "") << "an empty batch";
        for (const int threads : {1, 2}) {
          ASSERT_EQ(once({5, 0, 257}, true, threads), "") << label(options, 3, 257, true, threads);
          ASSERT_EQ(once({17, 33, 1}, true, threads), "") << label(options, 3, 33, true, threads);
          ASSERT_EQ(once({0, 0}, true, threads), "") << label(options, 2, 0, true, threads);
        }
        compared_ += trial.compared();
      }
    }
    // Two storage types, axis choices, 26 plain runs, one empty, six packed.
    const int choices = static_cast<int>(axis_choices(tree.axes.size()).size());
    EXPECT_GE(runs_, 2 * choices * 33);
  }
  EXPECT_GE(compared_, 5'000) << "numbers compared";
}

TEST_P(Engine, AgreesInNarrowVectorsAndReversed) {
  for (const Cell& tree : example_->tree.cells) {
    SCOPED_TRACE(tree.name);
    CellGraph graph = graph_of(tree);
    const Structure structure = analyse(graph, differentiate(graph));
    const oracle::Cell cell(example_->tree, tree.name);
    oracle::Random random(78);
    for (const auto& [dtype, bits] : {std::pair{Dtype::F32, 128}, {Dtype::F64, 256}}) {
      const Program program = Program::compile(graph, structure, {.dtype = dtype, .vector_bits = bits});
      Trial::Options options{.dtype = dtype, .sizes = oracle::axis_lengths(cell, {11, 6, 3, 2}), .steps = 33};
      options.starts_given = true;
      options.step_by_step = example_->amplifies.count(tree.name) > 0;
      for (const bool reverse : {false, true}) {
        options.reverse = reverse;
        const Trial trial(graph, cell, example_->ranges, random, options);
        ASSERT_EQ(trial.run(program, {33, 33}, false, 1), "") << bits << " bits, reverse " << reverse;
        ASSERT_EQ(trial.run(program, {4, 33}, true, 2), "") << bits << " bits, packed, reverse " << reverse;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, Engine, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });

// 16-bit storage: a cell of every kind of stage and of every way to store, none that amplifies.
using NarrowEngine = Engine;

TEST_P(NarrowEngine, AgreesWithOracle) {
  for (const Cell& tree : example_->tree.cells) {
    SCOPED_TRACE(tree.name);
    CellGraph graph = graph_of(tree);
    const Structure structure = analyse(graph, differentiate(graph));
    const oracle::Cell cell(example_->tree, tree.name);
    oracle::Random random(79);
    for (const Dtype dtype : {Dtype::F16, Dtype::BF16}) {
      const Program program = Program::compile(graph, structure, {.dtype = dtype});
      for (const auto& lengths : axis_choices(tree.axes.size())) {
        Trial::Options options{.dtype = dtype, .sizes = oracle::axis_lengths(cell, lengths), .steps = 257};
        options.starts_given = true;
        const Trial trial(graph, cell, example_->ranges, random, options);
        for (const std::int64_t length : kLengths)
          ASSERT_EQ(trial.run(program, {length, length, length}, false, length > 16 ? 2 : 1), "")
              << label(options, 3, length, false, 1);
        ASSERT_EQ(trial.run(program, {5, 0, 257}, true, 2), "") << label(options, 3, 257, true, 2);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, NarrowEngine,
                         testing::Values("01_para_gru", "02_para_lstm", "04_lstm", "09_gilr_lstm", "10_min_gru",
                                         "13_s6", "18_delta_net", "26_ind_rnn", "32_ln_state", "33_m2rnn", "34_narx3",
                                         "37_biquad2t", "39_kalman1", "x02_ln_lstm", "x04_gru_d", "x07_mixture",
                                         "x10_mamba", "x16_biquad1", "e_mamba_mixer", "d_mlstm_heads"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cellc
