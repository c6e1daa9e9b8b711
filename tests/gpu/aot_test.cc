// Shipped cells: what `cellc build` puts into files, run by the tables as they stand in memory, on the
// emulator (or, where CELLC_TEST_DEVICE=gpu asks for it, on a card). The bits are those of CudaSolver on the
// same device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "compiler/front_end.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/ship/build_cuda.h"
#include "runtime/cuda/ship/fat_binary.h"
#include "runtime/data/errors.h"
#include "tests/emulator/emulator.h"
#include "tests/engines/against_oracle.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/gpu/fixtures.h"
#include "tests/gpu/needed_lengths.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

using oracle::Example;

/// `multiprocessors`: of an emulated card; 0: as many as it has.
std::unique_ptr<Gpu> open_device(int multiprocessors = 0) {
  if (const char* asked = std::getenv("CELLC_TEST_DEVICE"); asked && std::string(asked) == "gpu") {
    std::string reason;
    std::unique_ptr<Gpu> gpu = open_gpu("", reason);
    if (!gpu) throw std::runtime_error(reason);
    return gpu;
  }
  EmulatorOptions quick;  // what runs here is short: compiling is what takes time
  quick.optimisation = 0;
  if (multiprocessors) {
    quick.multiprocessors = multiprocessors;
    quick.optimisation = 1;  // and there is more to run
  }
  return open_emulator(quick);
}

/// Where two runs differ, or nothing.
std::string difference(const std::map<std::string, Array>& got,
                       const std::vector<std::pair<std::string, Array>>& want) {
  for (const auto& [name, array] : want) {
    const auto found = got.find(name);
    if (found == got.end()) return name + " is not written";
    if (found->second.count() != array.count() || size_of(found->second.dtype()) != size_of(array.dtype()))
      return fmt::format("{} has {} entries, not {}", name, found->second.count(), array.count());
    const std::size_t size = size_of(array.dtype());
    for (std::int64_t i = 0; i < array.count(); ++i)
      if (std::memcmp(static_cast<const std::byte*>(found->second.data()) + static_cast<std::size_t>(i) * size,
                      static_cast<const std::byte*>(array.data()) + static_cast<std::size_t>(i) * size, size) != 0)
        return fmt::format("{}[{}] is {}, not {}", name, i, found->second.get(i), array.get(i));
  }
  return "";
}

class Shipped : public testing::TestWithParam<const char*> {};

TEST_P(Shipped, HasTheBitsOfARun) {
  const std::unique_ptr<Gpu> gpu = open_device();
  WithoutClusters alike(*gpu);
  const Example& file = oracle::example_named(GetParam());
  for (const Cell& tree : file.tree.cells) {
    const LoweredCell cell(file.source, file.tree, tree);
    for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
      if (dtype == Dtype::BF16 && std::string(GetParam()) != "01_para_gru" && std::string(GetParam()) != "06_sru")
        continue;
      oracle::Random random(5);
      for (const std::int64_t channels : {32, 3}) {
        const std::map<std::string, std::int64_t> sizes = oracle::axis_lengths(cell.oracle, {channels, 2, 3, 2});
        ShipRequest request;
        request.dtype = dtype;
        request.lengths = needed_lengths(cell, sizes, channels == 3);
        request.card = gpu->facts();
        request.prefix = "shipped";
        const AotCell shipped(cell.graph, cell.structure, request);
        AotOnDevice program(*gpu, shipped);
        for (const bool given : {true, false}) {
          Trial::Options with{.dtype = dtype, .sizes = sizes, .steps = 97};
          with.starts_given = given;
          with.reverse = given && channels == 3;
          const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
          const auto compare = [&](const std::vector<std::int64_t>& lengths, bool packed,
                                   const AotOnDevice::Options& how) {
            const Binding binding = trial.bound(lengths, packed, 1);
            SolveReport report;
            // What earlier calls saw would change the next plan; a shipped call learns only if it is asked
            // to.
            CudaSolver fresh(alike, cell.graph, cell.structure, dtype);
            const RunOutput output = fresh.run(binding.run, as_shipped(), report);
            return difference(program.run(binding, dtype, how), written_arrays(cell.graph, binding, output));
          };
          SCOPED_TRACE(fmt::format("{}, {}, {} channels, starts {}", tree.name, to_string(dtype), channels,
                                   given ? "given" : "by default"));
          AotOnDevice::Options how;
          how.defaults = !given;
          ASSERT_EQ(compare({97, 97, 97}, false, how), "");
          if (!given) continue;
          how.less_memory = true;
          ASSERT_EQ(compare({1, 1}, false, how), "") << "one step";
          ASSERT_EQ(compare({0, 0}, false, how), "") << "no steps";
          ASSERT_EQ(compare({64, 0, 97}, true, how), "") << "packed";
          how.in_place = true;
          ASSERT_EQ(compare({97, 97, 97}, false, how), "") << "finals over starts";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, Shipped,
                         testing::Values("01_para_gru", "03_gru", "06_sru", "08_gilr", "13_s6", "34_narx3",
                                         "39_kalman1", "delay_lines", "e_mamba_mixer", "x06_kalman2", "x15_qrnn2"),
                         [](const auto& info) { return std::string(info.param); });
CELLC_ONE_IN(3, "Examples/Shipped");

/// A default that is a number is kept in the storage type, as an array in its place would be. (0.3 is none that 16 bits
/// hold.)
TEST(AotDefaults, OfSixteenBitsAreRoundedLikeArrays) {
  const SourceText source(
      "default.cell",
      "cell default[d] {\n  state h[d] = 0.3\n  input x[d]\n  param a = 0.3\n  h' = tanh(a*h + x)\n}\n");
  const AnalysedCell cell = analyse_text(source, "");
  const std::unique_ptr<Gpu> gpu = open_device();
  for (const Dtype dtype : {Dtype::F16, Dtype::BF16, Dtype::F32}) {
    ShipRequest request;
    request.dtype = dtype;
    request.card = gpu->facts();
    request.prefix = "shipped";
    const AotCell shipped(cell.cell, cell.structure, request);
    AotOnDevice program(*gpu, shipped);
    BindRequest asked;
    asked.dtype = dtype;
    asked.batch = 2;
    asked.length = 5;
    asked.dims["d"] = 3;
    asked.random_seed = 1;
    const Binding drawn = bind(cell.cell, asked);
    asked.random_seed = std::nullopt;
    asked.inputs["x"] = {
        "test", drawn.run.symbols[static_cast<std::size_t>(shipped.layout().fields.at(0).id)].with_shape({2, 5, 3})};
    const Binding binding = bind(cell.cell, asked);
    CudaSolver fresh(*gpu, cell.cell, cell.structure, dtype);
    SolveReport report;
    const RunOutput output = fresh.run(binding.run, as_shipped(), report);
    EXPECT_EQ(difference(program.run(binding, dtype, {.defaults = true}), written_arrays(cell.cell, binding, output)),
              "")
        << to_string(dtype);
  }
}

// One cell in detail -------------------------------------------------------------------------------------

class AotCall : public testing::Test {
 protected:
  /// With open lengths; for an emulated card of so many multiprocessors with those that will be.
  void make(const std::string& name, std::int64_t channels, Strategy solver = Strategy::Auto, int multiprocessors = 0) {
    gpu = open_device(multiprocessors);
    file = &oracle::example_named(name);
    cell = std::make_unique<LoweredCell>(file->source, file->tree, file->tree.cells.at(0));
    sizes = oracle::axis_lengths(cell->oracle, {channels, 2, 2, 2});
    ShipRequest request;
    request.lengths = needed_lengths(*cell, sizes, multiprocessors != 0);
    request.card = gpu->facts();
    request.prefix = "shipped";
    request.solver = solver;
    shipped = std::make_unique<AotCell>(cell->graph, cell->structure, request);
    program = std::make_unique<AotOnDevice>(*gpu, *shipped);
    random = std::make_unique<oracle::Random>(3);
  }
  Trial trial(std::int64_t steps) {
    return Trial(cell->graph, cell->oracle, file->ranges, *random,
                 {.sizes = sizes, .steps = steps, .starts_given = true});
  }
  std::string kernel(std::size_t launch) const {
    return launch < program->launched.size() ? shipped->kernels[static_cast<std::size_t>(program->launched[launch])]
                                             : "";
  }
  bool launched(const std::string& part) const {
    for (std::size_t i = 0; i < program->launched.size(); ++i)
      if (kernel(i).find(part) != std::string::npos) return true;
    return false;
  }

  std::unique_ptr<Gpu> gpu;
  const Example* file = nullptr;
  std::unique_ptr<LoweredCell> cell;
  std::map<std::string, std::int64_t> sizes;
  std::unique_ptr<AotCell> shipped;
  std::unique_ptr<AotOnDevice> program;
  std::unique_ptr<oracle::Random> random;
};

/// The planner is the one of a run: short sequences are walked, long ones cut; whole rows where memory allows
/// it.
TEST_F(AotCall, ChoosesAKernelByTheShape) {
  make("01_para_gru", 32);
  const Trial of = trial(300);
  program->run(of.bound({20, 20}, false, 1), Dtype::F32, {});
  EXPECT_TRUE(launched("stage0_walk_rows"));
  program->run(of.bound({300, 300}, false, 1), Dtype::F32, {});
  EXPECT_TRUE(launched("stage0_segments_rows"));
  program->run(of.bound({300, 300}, false, 1), Dtype::F32, {.gap = 1});
  EXPECT_TRUE(launched("stage0_segments"));
  EXPECT_FALSE(launched("stage0_segments_"));
}

/// Of many lanes each asks for less at a time, and the rows are the same.
TEST_F(AotCall, WalksOfManyLanesDoNotCrowdMemory) {
  for (const std::int64_t channels : {128, 512}) {
    make("01_para_gru", channels, Strategy::Auto, 1);
    if (gpu->facts().multiprocessors != 1) GTEST_SKIP() << "a card needs fifty thousand lanes to be crowded";
    const Trial of = trial(21);
    const std::vector<std::int64_t> lengths = {21, 21};
    const Binding binding = of.bound(lengths, false, 1);
    const std::map<std::string, Array> got = program->run(binding, Dtype::F32, {});
    EXPECT_TRUE(launched(channels == 128 ? "stage0_walk_lockstep8" : "stage0_walk_lockstep4"));
    RunOutput output;
    output.states.push_back(got.at("h").with_shape({42, channels}));
    output.finals.push_back(got.at("h.final").with_shape({2, channels}));
    EXPECT_EQ(of.verify(binding.run, output, lengths), "");
  }
}

TEST_F(AotCall, ScansAreThoseOfOpenLengths) {
  make("08_gilr", 32);
  const Trial of = trial(300);
  program->run(of.bound({300, 300}, false, 1), Dtype::F32, {});
  EXPECT_TRUE(launched("scan_rows32"));
  make("08_gilr", 5);
  const Trial odd = trial(300);
  const Binding binding = odd.bound({300, 300}, false, 1);
  const std::map<std::string, Array> got = program->run(binding, Dtype::F32, {});
  EXPECT_TRUE(launched("scan_each1"));
  RunOutput output;
  output.states.push_back(got.at("h").with_shape({600, 5}));
  output.finals.push_back(got.at("h.final").with_shape({2, 5}));
  EXPECT_EQ(odd.verify(binding.run, output, {300, 300}), "");
}

/// Long sequences stream: by rows with several transitions or, where those would be too many for the card, with one.
TEST_F(AotCall, LongSequencesStreamAsARunDoes) {
  struct Case {
    std::int64_t channels, steps;  // ten pieces a multiprocessor, 64 of more than eight channels
    int multiprocessors;
    const char* kernel;
  };
  for (const Case& c : turns::Turn().of(std::vector{Case{1, 45000, 1, "stream_time1"},
                                                    Case{8, 6000, 1, "stream_rows8_forward_carried8"},
                                                    Case{8, 93000, 16, "stream_rows8_forward_carried4"},
                                                    Case{32, 18500, 1, "stream_rows32_forward_carried32"}})) {
    SCOPED_TRACE(c.kernel);
    make("08_gilr", c.channels, Strategy::Scan, c.multiprocessors);
    if (gpu->facts().multiprocessors != c.multiprocessors) GTEST_SKIP() << "a card needs a million steps to stream";
    const Trial of = trial(c.steps);
    const Binding binding = of.bound({c.steps}, false, 1);
    const std::map<std::string, Array> got = program->run(binding, Dtype::F32, {});
    EXPECT_TRUE(launched(c.kernel));
    SolveOptions options;
    options.solver = Strategy::Scan;
    SolveReport report;
    CudaSolver run(*gpu, cell->graph, cell->structure, Dtype::F32);
    EXPECT_EQ(difference(got, written_arrays(cell->graph, binding, run.run(binding.run, options, report))), "");
  }
}

/// Lanes that walk and make the sums of the outs leave them unwritten; a scan's are read after it.
TEST_F(AotCall, StatesThatNobodyWantsTakeNoMemoryWhereLanesWalk) {
  make("13_s6", 32);
  std::vector<std::uint64_t> lengths;
  for (const AxisId a : shipped->layout().lengths)
    lengths.push_back(static_cast<std::uint64_t>(sizes.at(cell->graph.graph.axis(a).name)));
  const std::size_t steps = lengths.size() + 1;
  lengths.insert(lengths.end(), {2, 20, 0, 0, 0, 0});
  const auto bytes = [&](bool states) {
    std::vector<std::uint64_t> arrays(static_cast<std::size_t>(shipped->layout().words));
    for (const CallField& f : shipped->layout().fields)
      if (states || f.kind != FieldKind::State)
        arrays[static_cast<std::size_t>(f.word)] = std::uint64_t(f.word + 1) << 32;
    std::int64_t result = 0;
    EXPECT_EQ(program->workspace(lengths.data(), arrays.data(), &result), 0);
    return result;
  };
  EXPECT_EQ(bytes(false), bytes(true));
  lengths[steps] = 400;
  EXPECT_GE(bytes(false), bytes(true) + 2 * 400 * 32 * 2 * 4);
}

/// Whole steps carry states in memory of their own, and write rows for whoever wants them.
TEST_F(AotCall, StatesThatNobodyWantsTakeNoMemoryInWholeSteps) {
  make("05_elman", 70);
  CallShape shape;
  for (const AxisId a : cell->graph.header) shape.lengths.push_back(sizes.at(cell->graph.graph.axis(a).name));
  shape.sequences = 2, shape.steps = 50, shape.rows = 100;
  std::vector<std::uint64_t> lengths;
  for (const AxisId a : shipped->layout().lengths)
    lengths.push_back(static_cast<std::uint64_t>(sizes.at(cell->graph.graph.axis(a).name)));
  lengths.insert(lengths.end(), {2, 50, 0, 0, 0, 0});
  program->trusts = true;
  std::vector<std::vector<float>> finals;
  std::vector<std::int64_t> sizes_of_workspace;
  for (const bool states : {true, false}) {
    std::vector<GpuBuffer> buffers;
    std::vector<std::uint64_t> arrays(static_cast<std::size_t>(shipped->layout().words));
    GpuAddress last = 0;
    for (const CallField& f : shipped->layout().fields) {
      if ((f.kind == FieldKind::State && !states) || f.is_history()) continue;
      std::vector<float> some(static_cast<std::size_t>(all_entries(f, shape)));
      for (std::size_t i = 0; i < some.size(); ++i) some[i] = 0.1f * std::sin(static_cast<float>(i));
      buffers.emplace_back(*gpu, some.size() * 4);
      gpu->copy_in(buffers.back().address(), some.data(), some.size() * 4, 0);
      arrays[static_cast<std::size_t>(f.word)] = buffers.back().address();
      if (f.kind == FieldKind::Final) last = buffers.back().address(), finals.push_back(std::move(some));
    }
    std::int64_t bytes = 0;
    ASSERT_EQ(program->workspace(lengths.data(), arrays.data(), &bytes), 0);
    sizes_of_workspace.push_back(bytes);
    const GpuBuffer workspace(*gpu, static_cast<std::size_t>(bytes));
    ASSERT_EQ(program->forward(lengths.data(), arrays.data(), workspace.address(), bytes, 0), 0);
    gpu->copy_out(finals.back().data(), last, finals.back().size() * 4, 0);
  }
  EXPECT_EQ(finals[0], finals[1]);
  EXPECT_EQ(sizes_of_workspace[0], sizes_of_workspace[1]);
}

/// Rows with gaps: the same numbers, and nothing between the rows.
TEST_F(AotCall, StridesAreTheCallersOwn) {
  for (const char* name : {"01_para_gru", "06_sru", "03_gru"}) {
    make(name, 32);
    const Trial of = trial(40);
    for (const bool packed : {false, true}) {
      const Binding binding = of.bound({40, 40}, packed, 1);
      const std::map<std::string, Array> plain = program->run(binding, Dtype::F32, {}),
                                         apart = program->run(binding, Dtype::F32, {.gap = 3}),
                                         down = program->run(binding, Dtype::F32, {.descending = true});
      EXPECT_EQ(difference(apart, {plain.begin(), plain.end()}), "") << name << (packed ? ", packed" : "");
      EXPECT_EQ(difference(down, {plain.begin(), plain.end()}), "")
          << name << (packed ? ", packed, descending" : ", descending");
    }
  }
}

/// What is learned from the data stays in a workspace that is kept.
TEST_F(AotCall, WorkspacesCanBeKept) {
  make("01_para_gru", 32);
  const std::int64_t steps = 200, d = 32;
  std::vector<GpuBuffer> buffers;
  std::vector<std::uint64_t> arrays(static_cast<std::size_t>(shipped->layout().words)),
      lengths{static_cast<std::uint64_t>(d), 1, static_cast<std::uint64_t>(steps), 0, 0, 0, 0};
  const auto room = [&](std::int64_t count) {
    buffers.emplace_back(*gpu, static_cast<std::size_t>(count) * 4);
    const std::vector<float> some(static_cast<std::size_t>(count), 0.25f);
    gpu->copy_in(buffers.back().address(), some.data(), some.size() * 4, 0);
    return buffers.back().address();
  };
  GpuAddress h = 0;
  for (const CallField& f : shipped->layout().fields) {
    if (f.kind == FieldKind::Input) arrays[static_cast<std::size_t>(f.word)] = room(steps * d);
    if (f.kind == FieldKind::Param) arrays[static_cast<std::size_t>(f.word)] = room(d);
    if (f.kind == FieldKind::State) h = arrays[static_cast<std::size_t>(f.word)] = room(steps * d);
  }
  // Programs ask the driver whose memory is whose; here nothing else is there.
  std::vector<std::vector<float>> results;
  std::int64_t bytes = 0;
  program->trusts = true;
  ASSERT_EQ(program->workspace(lengths.data(), arrays.data(), &bytes), 0);
  const GpuBuffer workspace(*gpu, static_cast<std::size_t>(bytes));
  for (int call = 0; call < 4; ++call) {
    lengths[6] = call == 1 || call == 2;  // keep
    ASSERT_EQ(program->forward(lengths.data(), arrays.data(), workspace.address(), bytes, 0), 0);
    results.emplace_back(static_cast<std::size_t>(steps * d));
    gpu->copy_out(results.back().data(), h, results.back().size() * 4, 0);
  }
  EXPECT_EQ(results[0], results[3]);
  for (std::size_t i = 0; i < results[0].size(); ++i)
    for (int call = 1; call < 3; ++call)
      ASSERT_NEAR(results[static_cast<std::size_t>(call)][i], results[0][i], 1e-5f) << i;
}

TEST_F(AotCall, BadUseGivesAMessageAndDoesNothing) {
  make("01_para_gru", 32);
  std::vector<std::uint64_t> arrays(static_cast<std::size_t>(shipped->layout().words)), lengths{32, 2, 100, 0, 0, 0, 0};
  std::int64_t bytes = 0;
  const GpuBuffer memory(*gpu, 1 << 22);
  const auto call = [&](std::int64_t with) {
    return program->forward(lengths.data(), arrays.data(), memory.address(), with, 0);
  };
  EXPECT_EQ(program->workspace(nullptr, nullptr, &bytes), CELLC_NO_LENGTHS);
  EXPECT_EQ(program->workspace(lengths.data(), nullptr, nullptr), CELLC_NO_BYTES);
  ASSERT_EQ(program->workspace(lengths.data(), nullptr, &bytes), 0);
  EXPECT_EQ(program->forward(nullptr, arrays.data(), memory.address(), bytes, 0), CELLC_NO_LENGTHS);
  EXPECT_EQ(program->forward(lengths.data(), nullptr, memory.address(), bytes, 0), CELLC_NO_ARRAYS);
  EXPECT_EQ(program->forward(lengths.data(), arrays.data(), 0, bytes, 0), CELLC_NO_WORKSPACE);
  EXPECT_EQ(call(0), CELLC_SMALL_WORKSPACE);
  EXPECT_EQ(call(bytes), CELLC_MISSING_FIELD);
  for (std::size_t f = 0; f < shipped->layout().fields.size(); ++f)
    if (shipped->layout().fields[f].required())
      arrays[static_cast<std::size_t>(shipped->layout().fields[f].word)] = memory.address() + (f << 16);
  EXPECT_EQ(call(bytes), CELLC_FOREIGN_FIELD) << "memory of somebody else";
  program->trusts = true;
  for (std::size_t f = 0; f < shipped->layout().fields.size(); ++f) {
    std::uint64_t& word = arrays[static_cast<std::size_t>(shipped->layout().fields[f].word)];
    const std::uint64_t right = word;
    word = memory.address() + (f << 16) + 2;
    EXPECT_EQ(call(bytes), CELLC_UNALIGNED_FIELD + static_cast<int>(f));
    word = right;
  }
  EXPECT_EQ(program->forward(lengths.data(), arrays.data(), memory.address(), bytes, memory.address() + (1 << 21) + 2),
            CELLC_UNALIGNED_STATUS);
  EXPECT_TRUE(program->launched.empty());
  EXPECT_EQ(program->forward(lengths.data(), arrays.data(), memory.address() + (1 << 21), 256, 0),
            CELLC_SMALL_WORKSPACE);
  const auto with = [&](std::size_t word, std::uint64_t value, int result) {
    std::vector<std::uint64_t> other = lengths;
    other[word] = value;
    EXPECT_EQ(program->forward(other.data(), arrays.data(), memory.address(), 1 << 22, 0), result) << word;
    EXPECT_TRUE(program->launched.empty());
    EXPECT_STRNE(cellc_message(result), "no such result");
  };
  const std::int64_t decreasing[] = {0, 5, 3}, late[] = {1, 2, 3}, right[] = {0, 5, 9};
  with(0, 0, CELLC_SHORT_AXIS);
  with(1, static_cast<std::uint64_t>(-1), CELLC_NEGATIVE_SEQUENCES);
  with(2, static_cast<std::uint64_t>(-7), CELLC_NEGATIVE_STEPS);
  with(2, std::uint64_t{1} << 60, CELLC_TOO_LARGE);
  with(0, std::uint64_t{1} << 61, CELLC_TOO_LARGE);
  with(3, reinterpret_cast<std::uint64_t>(decreasing), CELLC_DECREASING_OFFSETS);
  with(3, reinterpret_cast<std::uint64_t>(late), CELLC_BAD_OFFSETS);
  with(3, reinterpret_cast<std::uint64_t>(right), CELLC_NO_DEVICE_OFFSETS);
}

/// What is told in 32 bits: how far the entries of a channel lie apart.
TEST(AotLimits, EntriesOfAChannelFarApart) {
  const AnalysedCell cell = analyse_text(
      SourceText("wide.cell",
                 "cell wide[n=3, d] {\n  state h[n,d]\n  input x[d]\n  param a[n,n]\n  h' = tanh(a@h + x)\n}\n"),
      "");
  const std::unique_ptr<Gpu> gpu = open_device();
  ShipRequest request;
  request.card = gpu->facts();
  request.prefix = "shipped";
  const AotCell shipped(cell.cell, cell.structure, request);
  AotOnDevice program(*gpu, shipped);
  std::int64_t bytes = 0;
  const auto workspace = [&](std::uint64_t d) {
    const std::vector<std::uint64_t> lengths{d, 1, 100, 0, 0, 0, 0};
    return program.workspace(lengths.data(), nullptr, &bytes);
  };
  EXPECT_EQ(workspace(1u << 29), 0);
  EXPECT_EQ(workspace(std::uint64_t{1} << 31), CELLC_TOO_WIDE);
}

TEST(AotCells, AskForTheLengthsThatCodeDependsOn) {
  const auto built = [](const char* name, std::map<std::string, std::int64_t> dims,
                        Strategy solver = Strategy::Auto) -> std::string {
    const Example& file = oracle::example_named(name);
    const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
    CudaBuildRequest request;
    request.dims = std::move(dims);
    request.solver = solver;
    try {
      return build_cuda(cell.graph, cell.structure, request).bytes;
    } catch (const UsageError& e) {
      return std::string("usage: ") + e.what();
    }
  };
  EXPECT_TRUE(starts(built("18_delta_net", {}),
                     "usage: the stage {S} is compiled for lengths that must be known: add --dim k=N"));
  EXPECT_TRUE(has(built("18_delta_net", {{"k", 4}}), "the stage {S}, a lane a thread: step by step"));
  // Nothing says that it forgets, and no thread holds transitions of 16 by 16: segments are not even shipped.
  EXPECT_TRUE(has(built("18_delta_net", {{"k", 16}}), "the stage {S}, a lane a thread: step by step"));
  EXPECT_FALSE(has(built("18_delta_net", {{"k", 16}}), "step by step, segments"));
  EXPECT_TRUE(has(built("18_delta_net", {{"k", 16}}, Strategy::Segmented), "step by step, segments"));
  EXPECT_TRUE(has(built("18_delta_net", {{"k", 64}}),
                  "all of the cell step by step, as row kernels: the stage {S}: 64 coupled entries"));
  EXPECT_TRUE(has(built("03_gru", {}), "all of the cell step by step, as row kernels"));
  EXPECT_TRUE(starts(built("03_gru", {}, Strategy::Segmented),
                     "usage: --solver segmented: the cell is run step by step on a GPU"));
  EXPECT_EQ(built("01_para_gru", {}), built("01_para_gru", {}));
}

/// The workspace of any arrays is enough for those that are given, also where all of these are copied on their way in
/// any case, and starts as well, since finals are written over them.
TEST(AotCells, NeedNoMoreThanForAnyArrays) {
  const std::unique_ptr<Gpu> gpu = open_device();
  const AnalysedCell cell = analyse_text(SourceText("two_scans.cell", R"(cell two_scans[d] {
  state h[d], g[d]
  input x[d]
  param p[d]
  h' = 0.5*p*h + x
  g' = 0.5*p*g + h*x
}
)"));
  ShipRequest request;
  request.dtype = Dtype::F16;
  request.card = gpu->facts();
  request.prefix = "shipped";
  const AotCell shipped(cell.cell, cell.structure, request);
  AotOnDevice program(*gpu, shipped);
  const std::vector<std::uint64_t> lengths{3, 2, 100, 0, 0, 0, 0};
  std::vector<std::uint64_t> arrays(static_cast<std::size_t>(shipped.layout().words));
  for (const CallField& f :
       shipped.layout().fields)  // by symbol: nothing runs, and all that counts is that the two are one
    arrays[static_cast<std::size_t>(f.word)] = (std::uint64_t{1} << 20) * static_cast<std::uint64_t>(f.id + 1);
  std::int64_t any = 0, these = 0;
  ASSERT_EQ(program.workspace(lengths.data(), nullptr, &any), 0);
  ASSERT_EQ(program.workspace(lengths.data(), arrays.data(), &these), 0);
  EXPECT_LE(these, any);
}

/// Two codes in one file, as `fatbinary` lays them out.
TEST(FatBinary, HoldsACodeForEachArchitecture) {
  std::string elf(
      "\x7f"
      "ELF",
      4);
  elf.resize(21, 'e');
  elf[8] = 8;
  EXPECT_EQ(fat_binary({{90, elf}}), elf);
  const std::string both = fat_binary({{80, elf}, {90, elf}});
  ASSERT_EQ(both.size(), 16u + 2 * (64 + 24));
  EXPECT_EQ(both.substr(0, 8), std::string("\x50\xed\x55\xba\x01\x00\x10\x00", 8));
  EXPECT_EQ(static_cast<unsigned char>(both[16 + 28]), 80);
  EXPECT_EQ(static_cast<unsigned char>(both[16 + 88 + 28]), 90);
  EXPECT_EQ(both.substr(16 + 64, 21), elf);
}

}  // namespace
}  // namespace cellc
