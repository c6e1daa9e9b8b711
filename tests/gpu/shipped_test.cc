// Shipped cells: what `cellc build` puts into files, run by the tables as they stand in memory, on the emulator (or,
// where CELLC_TEST_DEVICE=gpu asks for it, on a card). The bits are those of CudaSolver on the same device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "compiler/jacobian.h"
#include "compiler/lower.h"
#include "runtime/cuda/build_cuda.h"
#include "runtime/cuda/card_on_paper.h"
#include "runtime/cuda/cuda_solver.h"
#include "runtime/cuda/fat_binary.h"
#include "runtime/errors.h"
#include "tests/emulator/emulator.h"
#include "tests/engines/against_oracle.h"
#include "tests/gpu/fixtures.h"
#include "tests/gpu/shipped_on_device.h"

namespace cellc {
namespace {

using oracle::Example;

const std::vector<Example>& examples() {
  static const std::vector<Example> all = oracle::load_all_cells(CELLC_SOURCE_DIR);
  return all;
}

struct Loaded {
  Loaded(const Example& file, const Cell& tree) : graph(lowered(file, tree)), structure(analyse(graph, differentiate(graph))), oracle(file.tree, tree.name) {}
  static CellGraph lowered(const Example& file, const Cell& tree) {
    Diagnostics diagnostics;
    std::optional<CellGraph> graph = lower(file.tree, tree, diagnostics);
    if (!graph) throw std::runtime_error(diagnostics.format(file.source));
    return std::move(*graph);
  }
  CellGraph graph;
  Structure structure;
  oracle::Cell oracle;
};

std::unique_ptr<Gpu> open_device() {
  if (const char* asked = std::getenv("CELLC_TEST_DEVICE"); asked && std::string(asked) == "gpu") {
    std::string reason;
    std::unique_ptr<Gpu> gpu = open_gpu("", reason);
    if (!gpu) throw std::runtime_error(reason);
    return gpu;
  }
  EmulatorOptions quick;  // what runs here is short: compiling is what takes time
  quick.optimisation = 0;
  return open_emulator(quick);
}

/// Axes of channels stay open where they may; all others get lengths.
std::map<AxisId, std::int64_t> needed_lengths(const Loaded& cell, const std::map<std::string, std::int64_t>& sizes, bool all) {
  std::map<AxisId, std::int64_t> lengths;
  for (const AxisId a : cell.graph.header) {
    if (cell.graph.graph.axis(a).fixed) continue;
    bool channel = !all;
    for (const Stage& s : cell.structure.stages) {
      const StagedCell staged = split_stages(cell.graph, cell.structure);
      (void)s;
      for (const StageCells& k : staged.stages)
        channel = channel && std::any_of(k.channels.begin(), k.channels.end(), [&](AxisId c) { return cell.graph.graph.axis(c).extent_of == a; });
      break;
    }
    if (!channel) lengths[a] = sizes.at(cell.graph.graph.axis(a).name);
  }
  return lengths;
}

/// Where two runs differ, or nothing.
std::string difference(const std::map<std::string, Array>& got, const std::vector<std::pair<std::string, Array>>& want) {
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
  const Example& file = *std::find_if(examples().begin(), examples().end(), [](const Example& e) { return e.name == GetParam(); });
  for (const Cell& tree : file.tree.cells) {
    const Loaded cell(file, tree);
    for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
      if (dtype == Dtype::BF16 && std::string(GetParam()) != "01_para_gru" && std::string(GetParam()) != "06_sru") continue;
      CudaSolver solver(*gpu, cell.graph, cell.structure, dtype);
      oracle::Random random(5);
      for (const std::int64_t channels : {32, 3}) {
        const std::map<std::string, std::int64_t> sizes = oracle::axis_lengths(cell.oracle, {channels, 2, 3, 2});
        ShipRequest request;
        request.dtype = dtype;
        request.lengths = needed_lengths(cell, sizes, channels == 3);
        request.card = gpu->facts();
        request.prefix = "shipped";
        const ShippedCell shipped(cell.graph, cell.structure, request);
        ShippedOnDevice program(*gpu, shipped);
        for (const bool given : {true, false}) {
          Trial::Options with{.dtype = dtype, .sizes = sizes, .steps = 97};
          with.starts_given = given;
          with.reverse = given && channels == 3;
          const Trial trial(cell.graph, cell.oracle, file.ranges, random, with);
          const auto compare = [&](const std::vector<std::int64_t>& lengths, bool packed, const ShippedOnDevice::Options& how) {
            const Binding binding = trial.bound(lengths, packed, 1);
            SolveReport report;
            // What earlier calls saw would change the next plan; a shipped call learns only if it is asked to.
            CudaSolver fresh(*gpu, cell.graph, cell.structure, dtype);
            const RunOutput output = fresh.run(binding.run, {}, report);
            return difference(program.run(binding, dtype, how), written_arrays(cell.graph, binding, output));
          };
          SCOPED_TRACE(fmt::format("{}, {}, {} channels, starts {}", tree.name, to_string(dtype), channels, given ? "given" : "by default"));
          ShippedOnDevice::Options how;
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
                         testing::Values("01_para_gru", "03_gru", "06_sru", "08_gilr", "13_s6", "34_narx3", "39_kalman1", "e_mamba_mixer",
                                         "x06_kalman2", "x15_qrnn2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cellc
