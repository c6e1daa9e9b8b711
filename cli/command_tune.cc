#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/following.h"
#include "cli/load.h"
#include "cli/report.h"
#include "cli/request.h"
#include "runtime/cpu/timed_cpu.h"
#include "runtime/cuda/launch/timed_gpu.h"
#include "runtime/evaluate/tune_cell.h"
#include "runtime/strategy/tuned_plans.h"

namespace cellc {
namespace {

/// A cell whose runs are timed: the user's, or its adjoint.
struct Tuned {
  const CellGraph& cell;
  const Structure& structure;
  TunedFor what{};
  TuneResult result{};
  std::string kept{};  ///< the file; empty: it is not kept
};

std::string stages_text(const Tuned& tuned, const std::vector<StagePlan>& stages) {
  std::string text;
  for (std::size_t k = 0; k < stages.size(); ++k) {
    if (stages.size() > 1)
      text += fmt::format("{}{{{}}} ", k ? "; " : "", stage_states(tuned.cell, tuned.structure.stages[k]));
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

nlohmann::json found_json(const Tuned& tuned) {
  using nlohmann::json;
  const TuneResult& result = tuned.result;
  json object = {{"range", tuned.what.range},
                 {"ms", result.best.ms},
                 {"planner_ms", result.best.planner_ms},
                 {"trials", json::array()},
                 {"kept", !tuned.kept.empty()}};
  // In the form that `run --plan` reads.
  const bool planner = result.best.stages.empty();
  object["plan"] = {{"stages", stages_json(planner ? result.planned : result.best.stages)},
                    {"reason", planner ? "the planner's own choice: nothing was faster" : "measured"}};
  object["planner"] = planner;
  if (!tuned.kept.empty()) object["file"] = tuned.kept;
  for (const TuneTrial& t : result.trials)
    object["trials"].push_back({{"stages", stages_json(t.stages)}, {"ms", t.ms}, {"converged", t.converged}});
  return object;
}

/// Times plans of a cell's runs and keeps the fastest; says each as it is found, where it is to be said.
void tune(TimedCell& timed, const Binding& binding, const TuneOptions& options, const SolveOptions& solve,
          const std::string& cache_directory, Tuned& tuned) {
  tuned.what = tuned_for(tuned.cell, tuned.structure, binding, timed.device(), timed.processor(), options.tolerance);
  std::int64_t longest = 0;
  for (std::size_t s = 0; s + 1 < binding.run.offsets.size(); ++s)
    longest = std::max(longest, binding.run.offsets[s + 1] - binding.run.offsets[s]);
  tuned.result = tune_cell(timed, static_cast<int>(tuned.structure.stages.size()), longest, solve, options.repeats,
                           [&](const TuneTrial& t) {
                             if (options.json) return;
                             fmt::print("tried {:>12.4f} ms  {}{}\n", t.ms, stages_text(tuned, t.stages),
                                        t.converged ? "" : " (does not converge)");
                             std::fflush(stdout);
                           });
  const TunedPlans plans(cache_directory);
  if (plans.keep(tuned.what, tuned.result.best)) tuned.kept = plans.path_of(tuned.what);
  if (options.json) return;
  const TunedPlan& best = tuned.result.best;
  fmt::print("planner {:>10.4f} ms  {}\n", best.planner_ms, stages_text(tuned, tuned.result.planned));
  if (best.stages.empty())
    fmt::print("best        the planner's own choice: nothing was faster by more than timing varies\n");
  else
    fmt::print("best    {:>10.4f} ms  {}\n", best.ms, stages_text(tuned, best.stages));
  if (tuned.kept.empty())
    fmt::print("not kept: {}\n",
               cache_directory.empty() ? "there is no cache directory" : cache_directory + " cannot be written");
  else
    fmt::print("kept in     {}\n", tuned.kept);
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
  SolveOptions solve;
  solve.tolerance = options.tolerance;
  take_absolute_tolerances(options.absolute_tolerances, loaded.cell, solve);
  solve.products = products_asked(options.products);
  Tuned forward{loaded.cell, loaded.structure};
  std::unique_ptr<TimedCell> timed =
      found.gpu ? timed_on_gpu(*found.gpu, loaded.cell, loaded.structure, binding.dtype, binding.run, &loaded.source)
                : timed_on_cpu(loaded.cell, loaded.structure, compile, binding.run);
  nlohmann::json object = {{"cell", loaded.cell.name},        {"device", timed->device()},
                           {"processor", timed->processor()}, {"dtype", to_string(binding.dtype)},
                           {"batch", binding.batch},          {"length", binding.length}};
  if (!options.json)
    fmt::print("cell        {}: {}, {}\n{:<11} {}\nfor         {}\n", loaded.cell.name,
               sizes_text(loaded.cell, binding), to_string(binding.dtype), timed->device(), timed->processor(),
               shape_range(loaded.cell, loaded.structure, binding.run));
  tune(*timed, binding, options, solve, compile.cache_directory, forward);
  object.update(found_json(forward));
  if (!loaded.cell.updates.empty()) {
    timed.reset();
    const AdjointRun adjoint(
        loaded.cell, results_with(random_cotangents(loaded.cell, binding.run, binding.dtype, 1), found.gpu != nullptr),
        compile.derive);
    if (!options.json)
      fmt::print("\nbackward    with cotangents of {}\n", loaded.cell.outs.empty() ? "states" : "outs");
    // Tolerances of states by name are of the forward run.
    SolveOptions of_adjoint;
    of_adjoint.tolerance = options.tolerance;
    Tuned backward{adjoint.cell(), adjoint.structure()};
    of_adjoint.products = solve.products;
    timed = found.gpu ? timed_backward_on_gpu(*found.gpu, loaded.cell, loaded.structure, adjoint, binding.dtype,
                                              binding.run, &loaded.source)
                      : timed_backward_on_cpu(loaded.cell, loaded.structure, adjoint, compile, binding.run);
    tune(*timed, in_arithmetic(binding), options, of_adjoint, compile.cache_directory, backward);
    object["backward"] = found_json(backward);
  }
  if (options.json)
    std::fputs((object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n").c_str(), stdout);
  return kDone;
}

}  // namespace cellc
