#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "cli/report.h"
#include "cli/request.h"
#include "runtime/cpu/timed_cpu.h"
#include "runtime/cuda/launch/timed_gpu.h"
#include "runtime/evaluate/tune_cell.h"
#include "runtime/strategy/tuned_plans.h"

namespace cellc {
namespace {

std::string stages_text(const LoadedCell& loaded, const std::vector<StagePlan>& stages) {
  std::string text;
  for (std::size_t k = 0; k < stages.size(); ++k) {
    if (stages.size() > 1)
      text += fmt::format("{}{{{}}} ", k ? "; " : "", stage_states(loaded.cell, loaded.structure.stages[k]));
    text += plan_text(stages[k]);
  }
  return text;
}

nlohmann::json stages_json(const std::vector<StagePlan>& stages) {
  nlohmann::json array = nlohmann::json::array();
  for (const StagePlan& s : stages)
    array.push_back({{"solver", to_string(s.strategy)}, {"segment", s.segment}, {"burn_in", s.burn_in}});
  return array;
}

std::string json_of(const LoadedCell& loaded, const Binding& binding, const TunedFor& what, const TuneResult& result,
                    const std::string& kept) {
  using nlohmann::json;
  json object = {{"cell", loaded.cell.name}, {"device", what.device},  {"processor", what.processor},
                 {"dtype", what.dtype},      {"batch", binding.batch}, {"length", binding.length},
                 {"range", what.range},      {"ms", result.best.ms},   {"planner_ms", result.best.planner_ms},
                 {"trials", json::array()},  {"kept", !kept.empty()}};
  // In the form that `run --plan` reads.
  const bool planner = result.best.stages.empty();
  object["plan"] = {{"stages", stages_json(planner ? result.planned : result.best.stages)},
                    {"reason", planner ? "the planner's own choice: nothing was faster" : "measured"}};
  object["planner"] = planner;
  if (!kept.empty()) object["file"] = kept;
  for (const TuneTrial& t : result.trials)
    object["trials"].push_back({{"stages", stages_json(t.stages)}, {"ms", t.ms}, {"converged", t.converged}});
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

int command_tune(const TuneOptions& options) {
  check_device(options.device);
  LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("bind");
  const Binding binding = bind(loaded.cell, measured_request(loaded.cell, options));
  enter_stage("compile");
  CompileOptions compile;
  compile.derive = derive_hooks();
  compile.dtype = binding.dtype;
  compile.cache_directory = options.cache_dir.value_or(default_cache_directory());
  const FoundGpu found = gpu_for(options.device, compile.cache_directory);
  enter_stage("run");
  const std::unique_ptr<TimedCell> timed =
      found.gpu ? timed_on_gpu(*found.gpu, loaded.cell, loaded.structure, binding.dtype, binding.run, &loaded.source)
                : timed_on_cpu(loaded.cell, loaded.structure, compile, binding.run);
  const TunedFor what =
      tuned_for(loaded.cell, loaded.structure, binding, timed->device(), timed->processor(), options.tolerance);
  if (!options.json)
    fmt::print("cell        {}: {}, {}\n{:<11} {}\nfor         {}\n", loaded.cell.name,
               sizes_text(loaded.cell, binding), what.dtype, what.device, what.processor, what.range);
  SolveOptions solve;
  solve.tolerance = options.tolerance;
  take_absolute_tolerances(options.absolute_tolerances, loaded.cell, solve);
  std::int64_t longest = 0;
  for (std::size_t s = 0; s + 1 < binding.run.offsets.size(); ++s)
    longest = std::max(longest, binding.run.offsets[s + 1] - binding.run.offsets[s]);
  const TuneResult result = tune_cell(*timed, static_cast<int>(loaded.structure.stages.size()), longest, solve,
                                      options.repeats, [&](const TuneTrial& t) {
                                        if (options.json) return;
                                        fmt::print("tried {:>12.4f} ms  {}{}\n", t.ms, stages_text(loaded, t.stages),
                                                   t.converged ? "" : " (does not converge)");
                                        std::fflush(stdout);
                                      });
  enter_stage("write");
  const TunedPlans plans(compile.cache_directory);
  const std::string kept = plans.keep(what, result.best) ? plans.path_of(what) : "";
  if (options.json) {
    std::fputs(json_of(loaded, binding, what, result, kept).c_str(), stdout);
    return kDone;
  }
  fmt::print("planner {:>10.4f} ms  {}\n", result.best.planner_ms, stages_text(loaded, result.planned));
  if (result.best.stages.empty())
    fmt::print("best        the planner's own choice: nothing was faster by more than timing varies\n");
  else
    fmt::print("best    {:>10.4f} ms  {}\n", result.best.ms, stages_text(loaded, result.best.stages));
  if (kept.empty())
    fmt::print("not kept: {}\n", compile.cache_directory.empty() ? "there is no cache directory"
                                                                 : compile.cache_directory + " cannot be written");
  else
    fmt::print("kept in     {}\n", kept);
  return kDone;
}

}  // namespace cellc
