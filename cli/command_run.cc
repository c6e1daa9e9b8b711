#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/backward.h"
#include "cli/command.h"
#include "cli/fault.h"
#include "cli/following.h"
#include "cli/load.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/request.h"
#include "cli/tangent.h"
#include "runtime/cpu/solve.h"
#include "runtime/cpu/timed_cpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/ship/edited_kernels.h"
#include "runtime/data/bind.h"
#include "runtime/data/npy.h"
#include "runtime/data/write_files.h"
#include "runtime/evaluate/reference.h"
#include "runtime/gradient/name_gradients.h"
#include "runtime/strategy/tuned_plans.h"

namespace cellc {
namespace {

/// What this version does not do is refused before anything is read.
void refuse_unavailable(const RunOptions& options) {
  check_device(options.device);
  check_processor(options.cpu);
  strategy_asked(options.solver);
  strategy_asked(options.backward_solver, {"auto"}, "--backward-solver");
  strategy_asked(options.tangent_solver, {"auto"}, "--tangent-solver");
  if (options.backward_solver != "auto" && options.cotangents.empty())
    throw UsageError("--backward-solver: only with --cotangent");
  if (options.recompute && options.cotangents.empty()) throw UsageError("--recompute: only with --cotangent");
  if (options.recompute && options.device == "cuda")
    throw UsageError("--recompute runs on CPUs only; use --device cpu");
  if (options.tangent_solver != "auto" && options.tangents.empty())
    throw UsageError("--tangent-solver: only with --tangent");
  if (options.device == "cpu" && !(options.kernel.empty() && options.write_kernels.empty()))
    throw UsageError("--kernel and --write-kernels are for a GPU; use --device cuda");
  if (!options.kernel.empty() && !options.write_kernels.empty())
    throw UsageError("--kernel and --write-kernels cannot both hold");
  if (!options.write_kernels.empty()) spare_cell_file("--write-kernels", options.write_kernels, options.file);
  if (options.max_iterations && options.fixed_iterations)
    throw UsageError("--max-iterations and --fixed-iterations cannot both hold");
}

/// A plan as `run --json` prints it: that object, or the whole report around it.
std::vector<StagePlan> read_plan(const std::string& path, std::size_t stages) {
  const auto wrong = [&](const std::string& what) { return RequestError(fmt::format("{}: {}", path, what)); };
  nlohmann::json json = nlohmann::json::parse(read_source(path).text(), nullptr, false);
  if (json.is_object() && json.contains("plan")) json = nlohmann::json(json["plan"]);
  if (!json.is_object() || !json.contains("stages") || !json["stages"].is_array())
    throw wrong("not a plan; expected the object that `cellc run --json` prints under \"plan\"");
  std::vector<StagePlan> plan;
  for (const auto& s : json["stages"]) {
    const auto number = [&](const char* key) -> std::int64_t {
      if (!s.contains(key)) return 0;
      if (!s[key].is_number_integer() || s[key].get<std::int64_t>() < 0)
        throw wrong(fmt::format("{} of a stage is not a number of steps", key));
      return s[key].get<std::int64_t>();
    };
    if (!s.is_object() || !s.contains("solver") || !s["solver"].is_string())
      throw wrong("a stage of the plan names no solver");
    const auto strategy = strategy_named(s["solver"].get<std::string>());
    if (!strategy || *strategy == Strategy::Auto)
      throw wrong(fmt::format("'{}' is no solver that a plan can name", s["solver"].get<std::string>()));
    plan.push_back({*strategy, number("segment"), number("burn_in"), "pinned by " + path});
  }
  if (plan.size() != stages)
    throw wrong(fmt::format("the plan has {} stage{}, the cell {}", plan.size(), plan.size() == 1 ? "" : "s", stages));
  return plan;
}

/// A solver that is asked for beside a plan is that of the plan's stages, but for those that go step by step.
void check_agreement(const RunOptions& options, const std::vector<StagePlan>& plan) {
  const Strategy asked = strategy_asked(options.solver);
  if (asked == Strategy::Auto || plan.empty()) return;
  const auto same = [&](const StagePlan& p) { return p.strategy == asked; };
  const bool agrees = std::any_of(plan.begin(), plan.end(), same) &&
                      std::all_of(plan.begin(), plan.end(),
                                  [&](const StagePlan& p) { return same(p) || p.strategy == Strategy::Sequential; });
  if (agrees) return;
  std::vector<std::string> named;
  for (const StagePlan& p : plan) named.push_back(to_string(p.strategy));
  throw UsageError(fmt::format("--solver {}: {} says {}; leave out --solver or --plan", options.solver, options.plan,
                               fmt::join(named, ", ")));
}

SolveOptions solve_options(const RunOptions& options, const LoadedCell& loaded) {
  const std::size_t stages = loaded.structure.stages.size();
  SolveOptions solve;
  solve.solver = strategy_asked(options.solver);
  solve.tolerance = options.tolerance;
  take_absolute_tolerances(options.absolute_tolerances, loaded.cell, solve);
  solve.repair = !options.no_repair;
  if (options.max_iterations) solve.max_iterations = *options.max_iterations;
  if (options.fixed_iterations) solve.fixed_iterations = *options.fixed_iterations;
  if (!options.plan.empty()) solve.plan = read_plan(options.plan, stages);
  check_agreement(options, solve.plan);
  return solve;
}

}  // namespace

int command_run(const RunOptions& options) {
  refuse_unavailable(options);
  std::optional<EditedKernels> edited;
  if (!options.kernel.empty()) edited.emplace(options.kernel, read_source(options.kernel).text());
  LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("bind");
  const BindRequest request = read_request(options);
  const Binding binding = bind(loaded.cell, request);
  const Cotangents cotangents = bind_cotangents(loaded.cell, binding, read_cotangents(options));
  const Tangents direction = bind_tangents(loaded.cell, binding, read_tangents(options));
  enter_stage("compile");
  CompileOptions compile;
  compile.dtype = binding.dtype;
  compile.cpu = options.cpu;
  // Who names a processor wants the bits that every machine with it gives, and a BLAS has its own ideas of those.
  compile.own_products = options.cpu != "native";
  compile.derive = derive_hooks();
  compile.cache_directory = options.cache_dir.value_or(default_cache_directory());
  const SolveOptions solve = solve_options(options, loaded);
  // A solver that has no GPU code: `auto` finds another device for it rather than another solver.
  std::unique_ptr<Gpu> gpu;
  const bool own_kernels = edited || !options.write_kernels.empty();
  if (own_kernels || options.device != "auto" || (is_on_gpu(solve.solver) && !options.recompute))
    gpu = gpu_for(own_kernels ? "cuda" : options.device, compile.cache_directory).gpu;
  enter_stage("run");
  // Kernels are edited for the plan that follows from the shape alone.
  const std::optional<TunedPlan> tuned = own_kernels ? std::nullopt
                                                     : tuned_plan(loaded.cell, loaded.structure, binding, solve.solver,
                                                                  options, solve, compile.cache_directory, gpu.get());
  SolveReport solved;
  std::optional<EditedRun> with_edited;
  const auto run = [&](const SolveOptions& asked) {
    if (edited) {
      with_edited = run_edited(*gpu, loaded.cell, loaded.structure, binding.dtype, &loaded.source, binding.run, asked,
                               *edited, options.verify);
      solved = with_edited->report;
      return with_edited->output;
    }
    if (gpu) {
      CudaSolver solver(*gpu, loaded.cell, loaded.structure, binding.dtype, &loaded.source, compile.derive);
      return solver.run(binding.run, asked, solved);
    }
    Solver solver(loaded.cell, loaded.structure, compile);
    // Memory is allocated and touched beforehand: what is timed is the run.
    return solver.run(binding.run, asked, solved, prepare_output(loaded.cell, binding.run, binding.dtype));
  };
  const auto run_tuned = [&]() -> std::optional<RunOutput> {
    if (!tuned || tuned->stages.empty()) return std::nullopt;
    SolveOptions pinned = solve;
    pinned.plan = tuned->stages;
    try {
      return run(pinned);
    } catch (const SolverError&) {
      return std::nullopt;  // a plan that these sizes do not admit is none
    } catch (const MemoryError&) {
      return std::nullopt;  // nor is one of smaller sizes that leaves no room
    }
  };
  RunOutput output;
  try {
    if (std::optional<RunOutput> made = run_tuned()) {
      output = std::move(*made);
    } else {
      output = run(solve);
      if (tuned && tuned->stages.empty()) note_measured(solved);
    }
  } catch (const SolverError& e) {
    throw UsageError(options.plan.empty() ? fmt::format("--solver {}: {}", options.solver, e.what())
                                          : fmt::format("--plan {}: {}", options.plan, e.what()));
  }

  if (!options.write_kernels.empty()) {
    enter_stage("write");
    const std::filesystem::path file = options.write_kernels;
    write_files(file.has_parent_path() ? file.parent_path().string() : ".",
                {{file.filename(), kernels_text(launched_sources(*gpu, loaded.cell, loaded.structure, binding.dtype,
                                                                 &loaded.source, binding.run, solve))}});
  }

  RunReport report{loaded,
                   gpu ? gpu->facts().name : std::string(),
                   binding,
                   output,
                   solved,
                   solve.repair,
                   written_arrays(loaded.cell, binding, output),
                   options.out,
                   first_nonfinite(loaded.cell, binding.run, output),
                   {},
                   options.kernel,
                   with_edited ? &*with_edited : nullptr};
  std::optional<BackwardReport> backward;
  // About trajectories that are none, gradients would be of nothing.
  if (!options.cotangents.empty() && solved.converged) {
    backward.emplace(run_backward(options, cotangents, {loaded, request, binding, output, compile, solve, gpu.get()}));
    report.backward = &*backward;
    report.arrays.insert(report.arrays.end(), backward->arrays.begin(), backward->arrays.end());
  }
  std::optional<TangentReport> tangent;
  if (!options.tangents.empty() && solved.converged) {
    tangent.emplace(run_tangent(options, direction, {loaded, request, binding, output, compile, solve, gpu.get()}));
    report.tangent = &*tangent;
    report.arrays.insert(report.arrays.end(), tangent->arrays.begin(), tangent->arrays.end());
  }
  if (with_edited) {
    report.verified = with_edited->verified;
  } else if (options.verify) {
    enter_stage("verify");
    report.verified = compare(loaded.cell, binding.run, output, reference_run(loaded.cell, binding.run));
  }
  // Who gets no report of the results does not get the results either.
  const auto say = [&] { return print_out(options.json ? run_json(report) : run_text(report)); };
  if (options.out.empty()) {
    say();
  } else {
    enter_stage("write");
    write_arrays(options.out, report.arrays, say);
  }
  if (options.trace && !options.json) std::fputs(trace_text(report).c_str(), stdout);
  if (const std::string where = not_finite(report); !where.empty() && !options.json)
    std::fputs(fmt::format("cellc: warning: {}\n", where).c_str(), stderr);
  if (const std::string wrong = wrong_kernel(report); !wrong.empty()) {
    std::fputs(fmt::format("cellc: error: {}\n", wrong).c_str(), stderr);
    return kWrongInput;
  }
  if (!(options.cotangents.empty() && options.tangents.empty()) && !solved.converged) {
    std::fputs(fmt::format("cellc: error: {}: the run did not converge, so there are no {}\n",
                           options.cotangents.empty() ? "--tangent" : "--cotangent",
                           options.cotangents.empty() ? "tangents" : "gradients")
                   .c_str(),
               stderr);
    return kNotConverged;
  }
  if ((backward && !backward->solve.converged) || (tangent && !tangent->solve.converged)) {
    std::fputs(
        fmt::format("cellc: error: {} did not converge; its residual is {:.2g}\n",
                    backward && !backward->solve.converged ? "the adjoint" : "the tangent",
                    backward && !backward->solve.converged ? backward->solve.max_residual : tangent->solve.max_residual)
            .c_str(),
        stderr);
    return kNotConverged;
  }
  if (const std::string missed = not_converged(report); !missed.empty()) {
    std::fputs(fmt::format("cellc: error: {}\n", missed).c_str(), stderr);
    return kNotConverged;
  }
  return kDone;
}

}  // namespace cellc
