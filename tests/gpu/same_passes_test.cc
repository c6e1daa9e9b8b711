// What is shipped runs as a call on a caller's arrays does within a program that has cellc: the same kernels in the
// same order, with the same grids, and the same bits. First on a card that runs nothing, where any shape costs nothing:
// every example, with open lengths and with known ones. Then on the emulator, with data.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <regex>
#include <set>

#include "runtime/cuda/call/device_call.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/data/errors.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/gpu/call_setting.h"
#include "tests/gpu/needed_lengths.h"
#include "tests/gpu/pass_recorder.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

using oracle::Example;

struct Shape {
  std::vector<std::int64_t> steps;  ///< by sequence
  bool packed = false;
  bool reverse = false;
  bool outs = true;
};

std::string to_string(const Shape& s) {
  return fmt::format("{} sequences of {}{}{}{}", s.steps.size(), s.steps[0], s.packed ? ", packed" : "",
                     s.reverse ? ", reversed" : "", s.outs ? "" : ", without outs");
}

CallShape call_shape(const CellGraph& cell, const std::map<std::string, std::int64_t>& sizes, const Shape& of) {
  CallShape shape;
  for (const AxisId a : cell.header) {
    const Axis& axis = cell.graph.axis(a);
    shape.lengths.push_back(axis.fixed ? *axis.fixed : sizes.at(axis.name));
  }
  shape.sequences = static_cast<std::int64_t>(of.steps.size());
  shape.reverse = of.reverse;
  if (of.packed) shape.offsets.push_back(0);
  for (const std::int64_t n : of.steps) {
    shape.rows += n;
    if (of.packed) shape.offsets.push_back(shape.rows);
  }
  if (!of.packed) shape.steps = of.steps[0];
  return shape;
}

/// Storage, and what products multiply in: by Storage, what passes between passes has 16 bits, too.
struct Numbers {
  Dtype dtype;
  Products products = Products::Tf32x3;
};
const std::vector<Numbers> kNumbers{{Dtype::F32}, {Dtype::BF16}, {Dtype::BF16, Products::Storage}};

std::string to_string(const Numbers& n) {
  return fmt::format("{} multiplied in {}", cellc::to_string(n.dtype), cellc::to_string(n.products));
}

SolveOptions options_of(const Numbers& numbers) {
  SolveOptions solve = as_shipped();
  solve.products = numbers.products;
  return solve;
}

/// Addresses that nobody reads: all arrays given, by field.
std::vector<GpuAddress> addresses(const CallLayout& layout, bool outs) {
  std::vector<GpuAddress> all;
  for (std::size_t i = 0; i < layout.fields.size(); ++i)
    all.push_back(layout.fields[i].kind == FieldKind::Out && !outs ? 0 : GpuAddress{i + 1} << 44);
  return all;
}

std::vector<LaunchedPass> passes_of_call(PassRecorder& gpu, const LoweredCell& cell, const Numbers& numbers,
                                         const CallShape& shape, bool outs) {
  gpu.passes.clear();
  DeviceCall call(gpu, std::make_shared<LoadedModules>(), cell.graph, cell.structure, numbers.dtype, nullptr, shape,
                  options_of(numbers));
  std::vector<CallArray> arrays;
  for (const GpuAddress a : addresses(call_layout(cell.graph), outs)) arrays.push_back({a, 0, 0});
  call.queue(arrays, 0, 0);
  return gpu.passes;
}

std::vector<LaunchedPass> passes_of_shipped(PassRecorder& gpu, const AotCell& shipped, AotOnDevice& program,
                                            const CellGraph& cell, const CallShape& shape, bool outs) {
  gpu.passes.clear();
  std::vector<std::uint64_t> lengths, arrays(static_cast<std::size_t>(shipped.layout().words));
  for (const AxisId a : shipped.layout().lengths)
    lengths.push_back(static_cast<std::uint64_t>(shape.lengths[static_cast<std::size_t>(
        std::find(cell.header.begin(), cell.header.end(), a) - cell.header.begin())]));
  for (const std::uint64_t word :
       {static_cast<std::uint64_t>(shape.sequences), static_cast<std::uint64_t>(shape.steps),
        shape.packed() ? reinterpret_cast<std::uint64_t>(shape.offsets.data()) : 0,
        shape.packed() ? std::uint64_t{1} << 60 : 0, std::uint64_t{shape.reverse}, std::uint64_t{0}})
    lengths.push_back(word);
  const std::vector<GpuAddress> all = addresses(shipped.layout(), outs);
  for (std::size_t i = 0; i < all.size(); ++i)
    arrays[static_cast<std::size_t>(shipped.layout().fields[i].word)] = all[i];
  program.trusts = true;
  std::int64_t bytes = 0;
  const int counted = program.workspace(lengths.data(), nullptr, &bytes);
  if (counted) throw std::runtime_error(fmt::format("the workspace: {}", cellc_message(counted)));
  const int result = program.forward(lengths.data(), arrays.data(), GpuAddress{1} << 61, bytes, 0);
  if (result) throw std::runtime_error(fmt::format("the call: {}", cellc_message(result)));
  return gpu.passes;
}

/// `known`: with all lengths; else with as few as it can be built with. Null where those are all.
std::unique_ptr<AotCell> ship(const LoweredCell& cell, const Numbers& numbers, const GpuFacts& card,
                              const std::map<std::string, std::int64_t>& sizes, bool known) {
  ShipRequest request;
  request.dtype = numbers.dtype;
  request.factors = product_factors(numbers.products, numbers.dtype);
  request.card = card;
  request.prefix = "shipped";
  if (known) request.lengths = needed_lengths(cell, sizes, true);
  for (const bool some : {false, true}) {
    if (some) request.lengths = needed_lengths(cell, sizes, false);
    try {
      auto shipped = std::make_unique<AotCell>(cell.graph, cell.structure, request);
      // Stages without channels are run in lanes only where all lengths of them are known.
      if (known || some || !shipped->table().whole.rows) return shipped;
    } catch (const UsageError&) {  // a step mentions the length of a channel
      if (known) throw;
    }
  }
  return nullptr;
}

// Passes that differ by design, all of them scans. The scan is the same, and so are the tiles of it, but for the last:
//  - A run compiles a kernel for its direction. A file has one for both, unless steps are read in chunks
//    (aot_variants.cc): another kernel is 30 to 50 KB of text.
//  - A run of few tiles leaves threads more registers (cellc_scan_crowd). A file has one bound.
//  - Where lengths of channels are open, a file has scans of 32 channels a block and of single ones: which others a
//  call
//    could want depends on them. With lengths that are known it has the run's.
std::vector<LaunchedPass> without_choices_of_scans(std::vector<LaunchedPass> passes, bool known) {
  for (LaunchedPass& pass : passes) {
    if (pass.kernel.find("cellc::Scan ") == std::string::npos) continue;
    if (!known) {
      pass = {"a scan", "", 0, 0, 0, false};
      continue;
    }
    const std::string forward = "  static constexpr bool kScanForward = ";
    if (const std::size_t at = pass.text.find(forward); at != std::string::npos)
      pass.text.erase(at, pass.text.find('\n', at) + 1 - at);
    for (std::string* text : {&pass.kernel, &pass.text}) {
      const std::size_t bounds = text->find("__launch_bounds__("), end = text->find(')', bounds);
      text->erase(bounds, end + 1 - bounds);
    }
  }
  return passes;
}

/// sequential<rows, lockstep, lanes of a sum>
bool makes_sums(const LaunchedPass& pass) {
  return std::regex_search(pass.kernel, std::regex("sequential<\\w+, \\w+, \\d+>"));
}

/// A walk from inputs to outs (compiler/derive/fused_sum_outs.h), which runs of very many lanes have and files have
/// not.
bool is_whole_walk(const LaunchedPass& pass) { return std::regex_search(pass.text, std::regex("kBases = [1-9]")); }

/// Segments in two passes (two_passes.cuh), which runs have and files have not: those walk, or scan and add up behind
/// it.
bool is_of_two_passes(const LaunchedPass& pass) { return pass.kernel.find("cellc::TwoPasses ") != std::string::npos; }

class SamePasses : public testing::TestWithParam<std::size_t> {};

TEST_P(SamePasses, OfEveryShape) {
  const MatrixCell& of = matrix_cells()[GetParam()];
  const LoweredCell cell(of.file->source, of.file->tree, *of.tree);
  GpuFacts facts = facts_of_architecture("sm_90");
  facts.memory_bytes = std::int64_t{4} << 30;  // as shipped code takes any card's to be
  PaperGpu card(facts);
  PassRecorder gpu(card);
  const std::vector<Shape> shapes = {{std::vector<std::int64_t>(3, 20)},
                                     {std::vector<std::int64_t>(3, 20), false, false, false},
                                     {{64, 0, 97}, true, true},
                                     {{4096}},
                                     {{70000, 70000}},
                                     {std::vector<std::int64_t>(512, 100)}};
  std::ptrdiff_t sums = 0;
  turns::Turn turn;
  for (const Numbers& numbers : turn.of(kNumbers))
    for (const std::vector<std::int64_t>& axes :
         std::vector<std::vector<std::int64_t>>{{64, 16, 2, 2}, {3, 96, 64, 2}}) {
      const std::map<std::string, std::int64_t> sizes = oracle::axis_lengths(cell.oracle, axes);
      for (const bool known : {true, false}) {
        if (!known && of.name == "17_mlstm" && axes[1] == 96) continue;  // SamePassesOfSums
        const std::unique_ptr<AotCell> shipped = ship(cell, numbers, facts, sizes, known);
        if (!shipped) continue;
        AotOnDevice program(gpu, *shipped);
        for (const Shape& shape : shapes) {
          const CallShape call = call_shape(cell.graph, sizes, shape);
          const std::vector<LaunchedPass> run = passes_of_call(gpu, cell, numbers, call, shape.outs),
                                          other =
                                              passes_of_shipped(gpu, *shipped, program, cell.graph, call, shape.outs);
          sums += std::count_if(run.begin(), run.end(), makes_sums);
          if (std::any_of(run.begin(), run.end(), is_of_two_passes)) {
            EXPECT_TRUE(std::any_of(other.begin(), other.end(), [](const LaunchedPass& pass) {
              return makes_sums(pass) || pass.kernel.find("cellc::Scan ") != std::string::npos;
            }));
            continue;
          }
          if (std::any_of(run.begin(), run.end(), is_whole_walk)) {
            EXPECT_EQ(shape.steps.size(), 512u);
            EXPECT_TRUE(std::any_of(other.begin(), other.end(), makes_sums)) << "then its lanes make the sums alone";
            continue;
          }
          EXPECT_EQ(difference(without_choices_of_scans(run, known), without_choices_of_scans(other, known)), "")
              << fmt::format("{} of {}, {} lengths, {}", to_string(numbers), axes, known ? "known" : "open",
                             to_string(shape));
        }
      }
    }
  const std::set<std::string> with_sums{"13_s6",         "14_mamba2",     "15_s4d",    "17_mlstm",
                                        "d_mlstm_heads", "e_mamba_mixer", "x10_mamba", "x13_xlstm_m"};
  EXPECT_EQ(sums > 0, with_sums.contains(of.name)) << sums << " walks that make sums";
}

std::string name_of_cell(const testing::TestParamInfo<std::size_t>& info) { return matrix_cells()[info.param].name; }

INSTANTIATE_TEST_SUITE_P(Examples, SamePasses, testing::Range<std::size_t>(0, matrix_cells().size()), name_of_cell);

/// What else differs by design: of several stages whose lengths are open a file has no outs for sums in three parts
/// (ways_of_summing), so that those sums are left to the outs.
TEST(SamePassesOfSums, InThreePartsOfSeveralStagesNeedKnownLengths) {
  const Example& file = oracle::example_named("17_mlstm");
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  GpuFacts facts = facts_of_architecture("sm_90");
  PaperGpu card(facts);
  PassRecorder gpu(card);
  for (const std::int64_t parts : {2, 3})
    for (const bool known : {true, false}) {
      std::map<std::string, std::int64_t> sizes{{"k", 32 * parts}, {"v", 2}};
      const std::unique_ptr<AotCell> shipped = ship(cell, {Dtype::F32}, facts, sizes, known);
      AotOnDevice program(gpu, *shipped);
      const CallShape call = call_shape(cell.graph, sizes, {{20, 20}});
      const std::vector<LaunchedPass> run = passes_of_call(gpu, cell, {Dtype::F32}, call, true),
                                      other = passes_of_shipped(gpu, *shipped, program, cell.graph, call, true);
      EXPECT_EQ(std::count_if(run.begin(), run.end(), makes_sums), 2);
      EXPECT_EQ(std::count_if(other.begin(), other.end(), makes_sums), known || parts == 2 ? 2 : 0);
      EXPECT_EQ(difference(run, other).empty(), known || parts == 2);
    }
}

/// Where two runs differ, or nothing.
std::string difference(const std::map<std::string, Array>& shipped,
                       const std::vector<std::pair<std::string, Array>>& run) {
  for (const auto& [name, array] : run) {
    const Array& other = shipped.at(name);
    const std::size_t size = size_of(array.dtype());
    if (other.count() != array.count() || size_of(other.dtype()) != size) return name + " has another shape";
    for (std::int64_t i = 0; i < array.count(); ++i)
      if (std::memcmp(static_cast<const std::byte*>(other.data()) + static_cast<std::size_t>(i) * size,
                      static_cast<const std::byte*>(array.data()) + static_cast<std::size_t>(i) * size, size) != 0)
        return fmt::format("{}[{}] is {}, not {}", name, i, other.get(i), array.get(i));
  }
  return "";
}

/// Scans draw their tiles, by as many blocks as fit on a multiprocessor at a time, and the emulator counts the static
/// shared memory of all kernels of a module for each: a file's products leave its scans fewer blocks than a run has,
/// whose kernels are modules of their own. SamePasses compares those grids, on a card where all kernels fit alike.
std::vector<LaunchedPass> without_blocks_of_scans(std::vector<LaunchedPass> passes) {
  for (LaunchedPass& pass : passes)
    if (pass.kernel.find("cellc::Scan ") != std::string::npos) pass.blocks = 0;
  return passes;
}

class SameBits : public testing::TestWithParam<std::size_t> {};

TEST_P(SameBits, OfACallAndShippedCode) {
  const MatrixCell& of = matrix_cells()[GetParam()];
  const LoweredCell cell(of.file->source, of.file->tree, *of.tree);
  Device device = open_device();
  PassRecorder gpu(*device.gpu);
  turns::Turn turn;
  for (const Numbers& numbers : turn.of(kNumbers)) {
    const Dtype dtype = numbers.dtype;
    const std::map<std::string, std::int64_t> sizes = oracle::axis_lengths(cell.oracle, {3, 16, 64, 2});
    oracle::Random random(11);
    Trial::Options with{.dtype = dtype, .sizes = sizes, .steps = 97};
    with.starts_given = with.step_by_step = true;  // the oracle is not asked
    const Trial trial(cell.graph, cell.oracle, of.file->ranges, random, with);
    for (const bool known : {true, false}) {
      const std::unique_ptr<AotCell> shipped = ship(cell, numbers, gpu.facts(), sizes, known);
      if (!shipped) continue;
      if (!known && shipped->reduced.empty()) continue;  // what there is to see here are walks with sums
      AotOnDevice program(gpu, *shipped);
      std::vector<Shape> shapes{{{13, 13, 13}}};
      if (known) shapes.insert(shapes.end(), {{{97}}, {{64, 0, 97}, true}});
      for (const Shape& shape : shapes) {
        SCOPED_TRACE(fmt::format("{}, {} lengths, {}", to_string(numbers), known ? "known" : "open", to_string(shape)));
        const Binding binding = trial.bound(shape.steps, shape.packed, 1);
        CallArrays arrays(gpu, cell.graph, binding, dtype, {});
        DeviceCall call(gpu, std::make_shared<LoadedModules>(), cell.graph, cell.structure, dtype, nullptr,
                        arrays.shape(), options_of(numbers));
        gpu.passes.clear();
        call.queue(arrays.arrays(), 0, 0);
        const std::vector<LaunchedPass> run = without_blocks_of_scans(without_choices_of_scans(gpu.passes, known));
        const RunOutput output = arrays.read(binding);
        gpu.passes.clear();
        const std::map<std::string, Array> written = program.run(binding, dtype, {});
        ASSERT_EQ(difference(run, without_blocks_of_scans(without_choices_of_scans(gpu.passes, known))), "");
        ASSERT_EQ(difference(written, written_arrays(cell.graph, binding, output)), "");
        // Nor does it matter whether states are wanted.
        for (const auto& [name, array] : program.run(binding, dtype, {.no_states = true}))
          ASSERT_EQ(difference({{name, array}}, {{name, written.at(name)}}), "") << "without states";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, SameBits, testing::Range<std::size_t>(0, matrix_cells().size()), name_of_cell);
CELLC_ONE_IN(24, "Examples/SameBits");

}  // namespace
}  // namespace cellc
