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
#include "runtime/strategy/written_plan.h"

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
  if (options.tangent_solver != "auto" && options.tangents.empty())
    throw UsageError("--tangent-solver: only with --tangent");
  if (options.device == "cpu" && !(options.kernel.empty() && options.write_kernels.empty()))
    throw UsageError("--kernel and --write-kernels are for a GPU; use --device cuda");
  if (!options.kernel.empty() && !options.wanted.empty())
    throw UsageError("--kernel and --write cannot both hold: edited kernels are compared in all that they write");
  if (!options.kernel.empty() && !options.write_kernels.empty())
    throw UsageError("--kernel and --write-kernels cannot both hold");
  if (!options.write_kernels.empty()) spare_cell_file("--write-kernels", options.write_kernels, options.file);
  if (options.max_iterations && options.fixed_iterations)
    throw UsageError("--max-iterations and --fixed-iterations cannot both hold");
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
  solve.products = products_asked(options.products);
  solve.repeat_bits = options.deterministic;
  solve.repair = !options.no_repair;
  if (options.max_iterations) solve.max_iterations = *options.max_iterations;
  if (options.fixed_iterations) solve.fixed_iterations = *options.fixed_iterations;
  if (!options.plan.empty())
    solve.plan = read_plan(std::string(read_source(options.plan).text()), options.plan, stages);
  check_agreement(options, solve.plan);
  return solve;
}

/// --write. Derivatives take a state with its lagged copies.
Wanted wanted_of(const RunOptions& options, const CellGraph& cell) {
  Wanted wanted = wanted_asked(options.wanted, cell);
  return options.cotangents.empty() && options.tangents.empty() ? wanted : with_copies(cell, std::move(wanted));
}

/// Derivatives of what will not be there are refused before anything runs.
void refuse_unkept(const RunOptions& options, const CellGraph& cell, const Wanted& wanted, const Cotangents& cotangents,
                   const Tangents& direction) {
  try {
    if (!options.cotangents.empty() && !options.recompute)
      AdjointRun(cell, results_with(cotangents)).check_kept(wanted);
    if (!options.tangents.empty()) TangentRun(cell, moved_symbols(direction)).check_kept(wanted);
  } catch (const RequestError& e) {
    throw UsageError(fmt::format("--write: {}{}", e.what(), options.cotangents.empty() ? "" : ", or use --recompute"));
  }
}

/// Runs a cell where and how the options say: by kernels that somebody edited, on a GPU or on the CPU.
class RunOfCell {
 public:
  RunOfCell(const RunOptions& options, const LoadedCell& loaded, const Binding& binding,
            std::optional<EditedKernels> edited)
      : solve(solve_options(options, loaded)),
        options_(options),
        loaded_(loaded),
        binding_(binding),
        edited_(std::move(edited)) {
    compile.dtype = binding.dtype;
    compile.cpu = options.cpu;
    // Who names a processor wants the bits that every machine with it gives, and a BLAS has its own ideas of those.
    compile.own_products = options.cpu != "native";
    compile.derive = derive_hooks();
    compile.cache_directory = options.cache_dir.value_or(default_cache_directory());
    // A solver that has no GPU code: `auto` finds another device for it rather than another solver.
    const bool own_kernels = edited_ || !options.write_kernels.empty();
    if (own_kernels) solve.persistent.blocks = -1;  // what is edited is written without lengths
    if (own_kernels || options.device != "auto" || is_on_gpu(solve.solver))
      gpu = gpu_for(own_kernels ? "cuda" : options.device, compile.cache_directory).gpu;
  }

  RunOutput run() {
    // Kernels are edited for the plan that follows from the shape alone.
    std::optional<TunedPlan> tuned;
    if (!edited_ && options_.write_kernels.empty())
      tuned = tuned_plan(loaded_.cell, loaded_.structure, binding_, solve.solver, options_, solve,
                         compile.cache_directory, gpu.get());
    try {
      if (tuned && !tuned->stages.empty())
        if (std::optional<RunOutput> made = run_pinned(tuned->stages)) return std::move(*made);
      RunOutput output = run_by(solve);
      if (tuned && tuned->stages.empty()) note_measured(solved);
      return output;
    } catch (const SolverError& e) {
      throw UsageError(options_.plan.empty() ? fmt::format("--solver {}: {}", options_.solver, e.what())
                                             : fmt::format("--plan {}: {}", options_.plan, e.what()));
    }
  }

  void write_kernels() const {
    const std::filesystem::path file = options_.write_kernels;
    write_files(file.has_parent_path() ? file.parent_path().string() : ".",
                {{file.filename(), kernels_text(launched_sources(*gpu, loaded_.cell, loaded_.structure, binding_.dtype,
                                                                 &loaded_.source, binding_.run, solve))}});
  }

  CompileOptions compile;
  SolveOptions solve;
  std::unique_ptr<Gpu> gpu;  ///< null: on the CPU
  SolveReport solved;
  std::optional<EditedRun> with_edited;

 private:
  RunOutput run_by(const SolveOptions& asked) {
    if (edited_) {
      with_edited = run_edited(*gpu, loaded_.cell, loaded_.structure, binding_.dtype, &loaded_.source, binding_.run,
                               asked, *edited_, options_.verify);
      solved = with_edited->report;
      return with_edited->output;
    }
    if (gpu) {
      CudaSolver solver(*gpu, loaded_.cell, loaded_.structure, binding_.dtype, &loaded_.source, compile.derive);
      return solver.run(binding_.run, asked, solved);
    }
    Solver solver(loaded_.cell, loaded_.structure, compile);
    // Memory is allocated and touched beforehand: what is timed is the run.
    return solver.run(binding_.run, asked, solved, prepare_output(loaded_.cell, binding_.run, binding_.dtype));
  }

  std::optional<RunOutput> run_pinned(const std::vector<StagePlan>& stages) {
    SolveOptions pinned = solve;
    pinned.plan = stages;
    try {
      return run_by(pinned);
    } catch (const SolverError&) {
      return std::nullopt;  // a plan that these sizes do not admit is none
    } catch (const MemoryError&) {
      return std::nullopt;  // nor is one of smaller sizes that leaves no room
    }
  }

  const RunOptions& options_;
  const LoadedCell& loaded_;
  const Binding& binding_;
  std::optional<EditedKernels> edited_;
};

/// What is wrong with a run that was made, in a line on standard error: the exit status.
int status_of(const RunOptions& options, const RunReport& report) {
  const auto failed = [](int status, const std::string& why) {
    std::fputs(fmt::format("cellc: error: {}\n", why).c_str(), stderr);
    return status;
  };
  if (const std::string where = not_finite(report); !where.empty() && !options.json)
    std::fputs(fmt::format("cellc: warning: {}\n", where).c_str(), stderr);
  if (const std::string wrong = wrong_kernel(report); !wrong.empty()) return failed(kWrongInput, wrong);
  if (!(options.cotangents.empty() && options.tangents.empty()) && !report.solve.converged)
    return failed(kNotConverged, fmt::format("{}: the run did not converge, so there are no {}",
                                             options.cotangents.empty() ? "--tangent" : "--cotangent",
                                             options.cotangents.empty() ? "tangents" : "gradients"));
  const auto residual = [](const char* of, const SolveReport& solve) {
    return fmt::format("{} did not converge; its residual is {:.2g}", of, solve.max_residual);
  };
  if (report.backward && !report.backward->solve.converged)
    return failed(kNotConverged, residual("the adjoint", report.backward->solve));
  if (report.tangent && !report.tangent->solve.converged)
    return failed(kNotConverged, residual("the tangent", report.tangent->solve));
  if (const std::string missed = not_converged(report); !missed.empty()) return failed(kNotConverged, missed);
  return kDone;
}

}  // namespace

int command_run(const RunOptions& options) {
  refuse_unavailable(options);
  std::optional<EditedKernels> edited;
  if (!options.kernel.empty()) edited.emplace(options.kernel, read_source(options.kernel).text());
  LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("bind");
  const Wanted wanted = wanted_of(options, loaded.cell);
  const BindRequest request = read_request(options);
  Binding binding = bind(loaded.cell, request);
  binding.run.wanted = wanted;
  const Cotangents cotangents = bind_cotangents(loaded.cell, binding, read_cotangents(options));
  const Tangents direction = bind_tangents(loaded.cell, binding, read_tangents(options));
  if (!options.wanted.empty()) refuse_unkept(options, loaded.cell, wanted, cotangents, direction);
  enter_stage("compile");
  RunOfCell run(options, loaded, binding, std::move(edited));
  enter_stage("run");
  const RunOutput output = run.run();
  if (!options.write_kernels.empty()) {
    enter_stage("write");
    run.write_kernels();
  }

  RunReport report{loaded,
                   run.gpu ? run.gpu->facts().name : std::string(),
                   binding,
                   output,
                   run.solved,
                   run.solve.repair,
                   products_of(run.solve.products, binding.dtype, run.gpu != nullptr),
                   written_arrays(loaded.cell, binding, output),
                   options.out,
                   first_nonfinite(loaded.cell, binding.run, output),
                   {},
                   options.kernel,
                   run.with_edited ? &*run.with_edited : nullptr};
  const FollowingRequest finished{loaded, request, binding, output, run.compile, run.solve, run.gpu.get()};
  std::optional<BackwardReport> backward;
  // About trajectories that are none, gradients would be of nothing.
  if (!options.cotangents.empty() && run.solved.converged) {
    backward.emplace(run_backward(options, cotangents, finished));
    report.backward = &*backward;
    report.arrays.insert(report.arrays.end(), backward->arrays.begin(), backward->arrays.end());
  }
  std::optional<TangentReport> tangent;
  if (!options.tangents.empty() && run.solved.converged) {
    tangent.emplace(run_tangent(options, direction, finished));
    report.tangent = &*tangent;
    report.arrays.insert(report.arrays.end(), tangent->arrays.begin(), tangent->arrays.end());
  }
  if (run.with_edited) {
    report.verified = run.with_edited->verified;
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
  return status_of(options, report);
}

}  // namespace cellc
