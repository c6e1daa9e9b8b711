// Runs of the C API on a CPU follow the plans that `cellc tune` kept. Here, since it takes what libcellc does not
// export.
#include <unistd.h>

#include <filesystem>

#include "compiler/front_end.h"
#include "runtime/cpu/timed_cpu.h"
#include "runtime/strategy/tuned_plans.h"
#include "tests/capi/kept_handles.h"

namespace {

const char* const kCell = "cell one[d] {\n state h[d]\n input x[d]\n h' = tanh(0.5*h + x)\n}\n";
std::string directory;  // options take no closure

class Tuned : public KeptHandles {
 protected:
  void SetUp() override {
    directory = std::filesystem::temp_directory_path() / ("cellc_tuned_" + std::to_string(getpid()));
    std::filesystem::remove_all(directory);
  }
  void TearDown() override {
    KeptHandles::TearDown();
    std::filesystem::remove_all(directory);
  }

  /// Iterations of a run over so many steps: shooting has some, what is chosen here for so short a run has none.
  int iterations(cellc_kernel* kernel, std::int64_t steps) {
    const std::int64_t lengths[] = {2};
    const cellc_shape shape = shape_of(lengths, 1, steps);
    std::vector<std::vector<float>> memory;
    std::vector<cellc_array> arrays(static_cast<std::size_t>(cellc_array_count(kernel)));
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      std::int64_t entries = 0;
      EXPECT_EQ(cellc_array_entries(kernel, &shape, static_cast<int>(i), &entries), CELLC_OK);
      memory.emplace_back(static_cast<std::size_t>(entries), 0.25f);
    }
    for (std::size_t i = 0; i < arrays.size(); ++i)
      arrays[i] = {memory[i].data(), static_cast<std::int64_t>(memory[i].size()), CELLC_F32, 0, 0};
    cellc_report report;
    cellc_report_init(&report);
    EXPECT_EQ(cellc_forward(kernel, &shape, arrays.data(), static_cast<int>(arrays.size()), &report), CELLC_OK)
        << cellc_last_error();
    return report.iterations;
  }
};

TEST_F(Tuned, PlansAreFollowedInTheirRange) {
  using namespace cellc;
  const AnalysedCell cell = analyse_text(SourceText("one.cell", kCell));
  BindRequest request;
  request.dims["d"] = 2;
  request.batch = 1;
  request.length = 300;
  request.threads = 1;
  request.random_seed = 1;
  const Binding binding = bind(cell.cell, request);
  TunedPlan plan;
  plan.stages = {{Strategy::Shooting, 64, 8, ""}};
  plan.ms = 1, plan.planner_ms = 2;
  ASSERT_TRUE(TunedPlans(directory).keep(
      tuned_for(cell.cell, cell.structure, binding, "cpu", cpu_and_threads(1), std::nullopt), plan));
  const auto with_cache = [](cellc_options& o) { o.cache_dir = directory.c_str(); };
  cellc_kernel* const kernel = compile(kCell, "cpu", with_cache);
  EXPECT_GT(iterations(kernel, 300), 0);
  EXPECT_GT(iterations(kernel, 400), 0);
  EXPECT_EQ(iterations(kernel, 200), 0) << "another range";
  EXPECT_EQ(iterations(compile(kCell, "cpu", nullptr), 300), 0) << "nothing is kept anywhere";
}

}  // namespace
