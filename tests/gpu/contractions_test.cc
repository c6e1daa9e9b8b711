// Random sums over several axes (tests/generate/contractions.h) as row kernels and products on a GPU, against the
// oracle: 3xTF32 and f64, all steps at once and in windows of a few.
//
//   CELLC_SEED=N CELLC_CELLS=1 test_gpu --gtest_filter='RandomContractions.*'
#include "tests/generate/contractions.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engines/lowered_cell.h"
#include "tests/generate/try_cells.h"
#include "tests/gpu/nests_on_device.h"
#include "tests/gpu/strategy_matrix.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

std::string failure(const std::string& text, std::uint64_t seed) {
  return try_cell(text, [&](const SourceText& source, const LoweredCell& cell) -> std::string {
    oracle::Random random(seed ^ 0x51ed);
    const Dtype dtype = random.chance(0.6) ? Dtype::F32 : Dtype::F64;
    Trial::Options with{.dtype = dtype, .sizes = oracle::axis_lengths(cell.oracle, {3, 4, 2}), .steps = 9};
    with.starts_given = true;
    with.reverse = random.chance(0.3);
    const Trial trial(cell.graph, cell.oracle, {}, random, with);
    const std::vector<std::int64_t> lengths{9, 0, 4};
    const BoundRun run = trial.bound(lengths, true, 1).run;
    Device device = open_device();
    for (const std::int64_t chunk_bytes : {0, 1}) {
      NestProgram program = NestProgram::compile(*device.gpu, cell.graph, cell.structure, dtype,
                                                 {.source = &source, .chunk_bytes = chunk_bytes});
      const std::string wrong = trial.verify(run, run_on_device(*device.gpu, program, cell.graph, run, dtype), lengths);
      if (!wrong.empty()) return fmt::format("{}, chunks of {} bytes: {}", to_string(dtype), chunk_bytes, wrong);
    }
    return {};
  });
}

TEST(RandomContractions, AgreeWithOracle) {
  turns::Turn turn;
  generate::try_seeds(
      generate::Seeds(12, turn.part(3)), generate::contraction_cell,
      [&](const std::string& text, std::uint64_t seed, bool) { return failure(text, seed); },
      "test_gpu --gtest_filter='RandomContractions.*'", [](const std::string& what) { ADD_FAILURE() << what; });
}

}  // namespace
}  // namespace cellc
