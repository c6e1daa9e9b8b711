// Shipped code whose sequences lie side by side in vectors against runs of one sequence after another, bit by bit:
// batches that fill vectors and that do not, lengths that differ, every layout of rows, every type and width.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "compiler/derive/pipeline.h"
#include "compiler/front_end.h"
#include "runtime/cpu/engine.h"
#include "tests/engines/driver_call.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

constexpr std::int64_t kRows = 4096;  // from so many on (kernels-templates/abi/side_by_side.h)

/// Lengths that have nothing to do with each other, some of them 0.
GivenArray ragged(std::int64_t sequences) {
  Array offsets(Dtype::I64, {sequences + 1});
  std::int64_t at = 0;
  std::uint32_t seed = 1;
  for (std::int64_t s = 0; s <= sequences; ++s) {
    std::memcpy(static_cast<std::byte*>(offsets.data()) + 8 * s, &at, 8);
    seed = seed * 1664525u + 1013904223u;
    at += s % 5 == 3 ? 0 : s == 4 ? kRows : seed >> 25;
  }
  return {"offsets", offsets};
}

SourceText text_of(const std::string& name) {
  const std::string path = std::string(CELLC_SOURCE_DIR) + "/dsl-examples/" + name + ".cell";
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return {path, text.str()};
}

struct Setting {
  std::int64_t batch = 0, length = 0;  ///< length 0: lengths differ
  bool reverse = false, defaults = false, rows_wanted = true, steps_outside = false;
  std::int64_t gap = 0;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const std::int64_t batch : {1, 2, 7, 8, 9, 64, 65}) all.push_back({batch, kRows / batch + 1});
  all.push_back({64, kRows / 64, true, true});
  all.push_back({130, 33, false, true, false});
  all.push_back({67, 70, true, false, true, true});
  all.push_back({16, 301, false, false, true, true, 2});
  all.push_back({9, 600, true, false, true, false, 3});
  for (const bool reverse : {false, true}) all.push_back({90, 0, reverse, reverse, !reverse});
  all.push_back({13, 0, false, false, true, false, 1});
  return all;
}

class SideBySide : public testing::TestWithParam<std::string> {
 public:
  void expect_same_bits(const AnalysedCell& analysed, const CompileOptions& options, std::int64_t channels) {
    const CellGraph& cell = analysed.cell;
    const Program program = Program::compile(cell, analysed.structure, options);
    const CompiledDriver driver = compile_driver(cell, analysed.structure, options, true);
    const bool in_registers = size_of(options.dtype) > 2 && steps_in_registers(cell);
    const int vector = host_vector_bits(options.cpu) / (options.dtype == Dtype::F64 ? 64 : 32);
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(fmt::format("{} {} on '{}': {} x {}, {} channels, reverse={} defaults={} rows={} outside={} gap={}",
                               cell.name, to_string(options.dtype), options.cpu, setting.batch, setting.length,
                               channels, setting.reverse, setting.defaults, setting.rows_wanted, setting.steps_outside,
                               setting.gap));
      BindRequest request = request_for(cell, options.dtype, setting.batch, setting.length);
      for (auto& [name, length] : request.dims) length = channels;
      request.reverse = setting.reverse;
      if (setting.length == 0) {
        request.batch.reset();
        request.length.reset();
        request.offsets = ragged(setting.batch);
      }
      Binding binding = bind(cell, request);
      if (!setting.defaults) {
        give_starts(cell, binding, request);
        binding = bind(cell, request);
      }
      const RunOutput expected = program.run(binding.run);
      Call call(driver, binding);
      call.gap = setting.gap;
      call.steps_outside = setting.steps_outside;
      const int result = call(setting.defaults, setting.rows_wanted);
      ASSERT_EQ(result, 0) << driver.message(result);
      ASSERT_EQ(call.differences(expected, 0), "");
      // It has room for lanes where that is what it does; with less it does the same.
      std::vector<std::uint64_t> one = call.lengths;
      const std::size_t sequences = driver.module.layout.lengths.size();
      one[sequences] = 1;
      std::int64_t most = 0, plain = 0;
      ASSERT_EQ(driver.workspace(call.lengths.data(), &most), 0);
      ASSERT_EQ(driver.workspace(one.data(), &plain), 0);
      EXPECT_EQ(most > plain, setting.batch >= (in_registers ? vector : 4)) << most << " against " << plain;
      Call again(driver, binding);
      again.gap = setting.gap;
      again.steps_outside = setting.steps_outside;
      again.room = plain;
      ASSERT_EQ(again(setting.defaults, setting.rows_wanted), 0);
      ASSERT_EQ(again.differences(expected, 0), "");
    }
  }
};

TEST_P(SideBySide, SameBitsAsTheEngine) {
  const AnalysedCell analysed = analyse_text(text_of(GetParam()));
  turns::Turn turn;
  std::vector<CompileOptions> machines;
  for (const char* cpu : {"x86-64-v2", "x86-64-v3", "native"}) machines.push_back({.cpu = cpu, .own_products = true});
  const std::vector<Dtype> dtypes = turn.of(std::vector{Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16});
  const std::vector<std::int64_t> channels = turn.of(std::vector<std::int64_t>{1, 2});
  for (const Dtype dtype : dtypes)
    for (CompileOptions options : turn.of(machines))
      for (const std::int64_t each : channels) {
        options.dtype = dtype;
        expect_same_bits(analysed, options, each);
      }
}

// Sums would be added up in another order, and what a delay line brings lies in rows of earlier steps.
TEST(SideBySideSequences, AreThoseOfElementwiseSteps) {
  const auto may = [](const std::string& text) {
    return sequences_of(analyse_text({"a.cell", text}).cell).has_value();
  };
  EXPECT_TRUE(may("cell a[d] {\n state h[d]\n input x[d]\n h' = tanh(h + lag(x, 2)) + lag(h, 1)\n}\n"));
  EXPECT_TRUE(may("cell a[d] {\n state h\n input x\n param w[d]\n h' = h*sum[d](w^2) + x\n}\n"));
  EXPECT_FALSE(may("cell a[d] {\n state h[d]\n input x\n h' = x + h - mean[d](h)\n}\n"));
  EXPECT_FALSE(may("cell a[d] {\n state h\n input x[d]\n h' = h + sum[d](x)\n}\n"));
  EXPECT_FALSE(may("cell a[k] {\n state h\n input x\n param w[k]\n h' = h + sum[k](w*lag[k](x))\n}\n"));
  EXPECT_FALSE(may("cell a {\n state h\n input x\n h' = x + 0.5*lag(h, 900)\n}\n"));
}

/// Whether 64 sequences of 100 steps have room to lie side by side, where the cell's one axis is `length` long.
bool lie_side_by_side(const std::string& text, std::int64_t length, std::int64_t steps = 100) {
  const AnalysedCell analysed = analyse_text({"a.cell", text});
  const CompiledDriver driver = compile_driver(analysed.cell, analysed.structure, {}, true);
  std::int64_t bytes[2] = {};
  for (const std::uint64_t sequences : {1, 64}) {
    const std::uint64_t lengths[] = {static_cast<std::uint64_t>(length), sequences, static_cast<std::uint64_t>(steps),
                                     0, 0};
    EXPECT_EQ(driver.workspace(lengths, &bytes[sequences > 1]), 0);
  }
  return bytes[1] > bytes[0];
}

TEST(SideBySideSequences, AreNarrowAndNotTooFew) {
  const std::string states = "cell a[d] {\n state h[d]\n input x[d]\n h' = tanh(h + x)\n}\n";
  EXPECT_TRUE(lie_side_by_side(states, 4));
  EXPECT_FALSE(lie_side_by_side(states, 5));
  EXPECT_FALSE(lie_side_by_side(states, 4, 63));
  const std::string outs = "cell a[d] {\n state h\n input x\n param w[d]\n h' = tanh(h + x)\n out y = h*w\n}\n";
  EXPECT_TRUE(lie_side_by_side(outs, 32));
  EXPECT_FALSE(lie_side_by_side(outs, 33));
  // Of lengths that never change no code is made for nothing.
  const AnalysedCell analysed = analyse_text({"a.cell", states});
  DriverOptions options;
  options.side_by_side = true;
  const auto has_lanes = [&] {
    return emit_driver(analysed.cell, analysed.structure, options).ir.find(".lanes") != std::string::npos;
  };
  EXPECT_TRUE(has_lanes());
  options.lengths[analysed.cell.header[0]] = 4;
  EXPECT_TRUE(has_lanes());
  options.lengths[analysed.cell.header[0]] = 5;
  EXPECT_FALSE(has_lanes());
}

INSTANTIATE_TEST_SUITE_P(Narrow, SideBySide,
                         testing::Values("01_para_gru", "37_biquad2t", "40_logistic", "42_pid", "x16_biquad1"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cellc
