#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "cli/names.h"
#include "cli/report.h"
#include "runtime/bind.h"
#include "runtime/cuda/cuda_solver.h"
#include "runtime/npy.h"
#include "runtime/reference.h"
#include "runtime/solve.h"
#include "runtime/write_files.h"

namespace cellc {
namespace {

/// What this version does not do is refused before anything is read.
void refuse_unavailable(const RunOptions& options) {
  if (options.device != "auto" && options.device != "cpu" && options.device != "cuda")
    throw UsageError(fmt::format("--device {}: expected auto, cpu or cuda", options.device));
  if (options.solver == "persistent")
    throw UsageError(fmt::format("--solver {}: not available in this version", options.solver));
  if (!strategy_named(options.solver))
    throw UsageError(fmt::format(
        "--solver {}: expected auto, sequential, segmented, shooting, newton, scan, relaxation or persistent",
        options.solver));
  if (!options.cotangents.empty())
    throw UsageError("--cotangent: gradients are not available in this version");
  if (options.max_iterations && options.fixed_iterations)
    throw UsageError("--max-iterations and --fixed-iterations cannot both hold");
}

void read_arrays(const std::string& option, const std::vector<std::string>& given,
                 std::map<std::string, GivenArray>& arrays) {
  for (const std::string& text : given) {
    const auto [name, path] = split_assignment(option, text);
    if (arrays.count(name)) throw UsageError(fmt::format("{} {} is given twice", option, name));
    arrays[name] = {path, read_npy(path)};
  }
}

bool is_number(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  struct stat status {};
  // A file that is called "2" is a file.
  return end == text.c_str() + text.size() && stat(text.c_str(), &status) != 0;
}

BindRequest read_request(const RunOptions& options) {
  BindRequest request;
  if (!options.dtype.empty()) request.dtype = dtype_named(options.dtype);
  request.dims = dims_named(options.dims);
  std::vector<std::string> param_files;
  for (const std::string& text : options.params) {
    const auto [name, value] = split_assignment("--param", text);
    double number = 0;
    if (!is_number(value, number))
      param_files.push_back(text);
    else if (!request.param_numbers.emplace(name, number).second)
      throw UsageError(fmt::format("--param {} is given twice", name));
  }
  request.batch = options.batch;
  request.length = options.length;
  request.random_seed = options.random;
  request.reverse = options.reverse;
  request.threads = options.threads;
  read_arrays("--input", options.inputs, request.inputs);
  read_arrays("--param", param_files, request.params);
  read_arrays("--state", options.states, request.states);
  if (!options.offsets.empty()) request.offsets = GivenArray{options.offsets, read_npy(options.offsets)};
  return request;
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

SolveOptions solve_options(const RunOptions& options, std::size_t stages) {
  constexpr std::int64_t kMost = 1 << 30;
  SolveOptions solve;
  solve.solver = *strategy_named(options.solver);
  solve.tolerance = options.tolerance;
  solve.repair = !options.no_repair;
  if (options.max_iterations) solve.max_iterations = static_cast<int>(std::min(*options.max_iterations, kMost));
  if (options.fixed_iterations) solve.fixed_iterations = static_cast<int>(std::min(*options.fixed_iterations, kMost));
  if (!options.plan.empty()) solve.plan = read_plan(options.plan, stages);
  return solve;
}

/// The GPU that the options ask for; nullptr: the CPU.
std::unique_ptr<Gpu> device_for(const RunOptions& options, const SolveOptions& solve, const std::string& cache) {
  // Relaxation has no GPU code yet: `auto` finds another device for it rather than another solver.
  if (options.device == "cpu" || (options.device == "auto" && solve.solver == Strategy::Relaxation)) return nullptr;
  std::string reason;
  std::unique_ptr<Gpu> gpu = open_gpu(cache, reason);
  if (!gpu && options.device == "cuda") throw DeviceError(fmt::format("--device cuda: {}; use --device cpu", reason));
  return gpu;
}

}  // namespace

int command_run(const RunOptions& options) {
  refuse_unavailable(options);
  LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("bind");
  const Binding binding = bind(loaded.cell, read_request(options));
  enter_stage("compile");
  CompileOptions compile;
  compile.dtype = binding.dtype;
  compile.cpu = options.cpu;
  // Who names a processor wants the bits that every machine with it gives, and a BLAS has its own ideas of those.
  compile.own_products = options.cpu != "native";
  compile.cache_directory = options.cache_dir.value_or(default_cache_directory());
  const SolveOptions solve = solve_options(options, loaded.structure.stages.size());
  const std::unique_ptr<Gpu> gpu = device_for(options, solve, compile.cache_directory);
  enter_stage("run");
  SolveReport solved;
  RunOutput output;
  try {
    if (gpu) {
      CudaSolver solver(*gpu, loaded.cell, loaded.structure, binding.dtype, &loaded.source);
      output = solver.run(binding.run, solve, solved);
    } else {
      Solver solver(loaded.cell, loaded.structure, compile);
      // Memory is allocated and touched beforehand: what is timed is the run.
      output = solver.run(binding.run, solve, solved, prepare_output(loaded.cell, binding.run, binding.dtype));
    }
  } catch (const SolverError& e) {
    throw UsageError(options.plan.empty() ? fmt::format("--solver {}: {}", options.solver, e.what())
                                          : fmt::format("--plan {}: {}", options.plan, e.what()));
  }

  RunReport report{loaded,
                   gpu ? gpu->facts().name : std::string(),
                   binding,
                   output,
                   solved,
                   written_arrays(loaded.cell, binding, output),
                   options.out,
                   first_nonfinite(loaded.cell, binding.run, output),
                   {}};
  if (options.verify) {
    enter_stage("verify");
    report.verified = compare(loaded.cell, binding.run, output, reference_run(loaded.cell, binding.run));
  }
  if (!options.out.empty()) {
    enter_stage("write");
    write_arrays(options.out, report.arrays);
  }
  std::fputs((options.json ? run_json(report) : run_text(report)).c_str(), stdout);
  if (options.trace && !options.json) std::fputs(trace_text(report).c_str(), stdout);
  // A fixed number of iterations is what was asked for; its residual is told.
  return solved.converged || solve.repair ? kDone : kNotConverged;
}

}  // namespace cellc
