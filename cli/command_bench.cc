#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "cli/names.h"
#include "cli/report.h"
#include "cli/request.h"
#include "runtime/cpu/timed_cpu.h"
#include "runtime/cuda/launch/timed_gpu.h"
#include "runtime/evaluate/bench_cell.h"

namespace cellc {
namespace {

/// A device, and what it made of the cell; `unavailable`: why there is none.
struct BenchedDevice {
  std::string device, processor, unavailable;
  Bench bench, backward, both;
};

/// What is timed of a cell: its runs, or those of its adjoint.
struct Timed {
  const char* pass;
  const CellGraph& cell;
  const Structure& structure;
  Traffic traffic;
};

std::vector<Strategy> strategies_asked(const std::string& solver) {
  if (solver == "all") return {};
  return {strategy_asked(solver, {"all", "auto"})};
}

/// With the solver's name first only where a plan is not what was asked for.
std::string how_text(const Timed& timed, const BenchedStrategy& s) {
  std::string text;
  const auto& stages = s.report.stages;
  for (std::size_t k = 0; k < stages.size(); ++k) {
    if (stages.size() > 1)
      text += fmt::format("{}{{{}}} ", k ? "; " : "", stage_states(timed.cell, timed.structure.stages[k]));
    text += plan_text(stages[k].plan);
    if (stages[k].misses) text += fmt::format(", {} of {} boundaries missed", stages[k].misses, stages[k].boundaries);
  }
  if (!s.report.converged) text += fmt::format("; NOT converged, residual {:.1e}", s.report.max_residual);
  return text;
}

/// What forward runs make: "all", "outs and finals", or the names of --write.
std::string written_of(const BenchOptions& options, const CellGraph& cell) {
  if (options.wanted.empty()) return cell.outs.empty() ? "all" : "outs and finals";
  const bool all = std::find(options.wanted.begin(), options.wanted.end(), "all") != options.wanted.end();
  return all ? "all" : fmt::format("{}", fmt::join(options.wanted, ", "));
}

std::string head_text(const BenchOptions& options, const LoadedCell& loaded, const Binding& binding,
                      const Traffic& traffic) {
  std::string written;
  if (!options.wanted.empty())
    written = fmt::format(", written: {}", written_of(options, loaded.cell));
  else if (!loaded.cell.outs.empty())
    written = ", as of states only the finals are wanted (--write all: every result)";
  return fmt::format("cell        {}: {}, {}; {:.3g} MB in, {:.3g} MB out{}\n", loaded.cell.name,
                     sizes_text(loaded.cell, binding), to_string(binding.dtype),
                     1e-6 * static_cast<double>(traffic.read), 1e-6 * static_cast<double>(traffic.written), written);
}

std::string unavailable_text(const BenchedDevice& d) { return fmt::format("\n{}: {}\n", d.device, d.unavailable); }

/// What was measured last: the device's head with the floor, or a strategy's row.
std::string last_row(const Timed& timed, TimedCell& cell, const Bench& bench) {
  const Traffic& traffic = timed.traffic;
  const auto row = [&](const char* what, double ms, const std::string& how) {
    const auto ratio = [&](double over, double under) {
      return under > 0 ? fmt::format("{:.2f}", over / under) : std::string("-");
    };
    const double bytes = static_cast<double>(traffic.read + traffic.written);
    return fmt::format("{:<12}{:>11.4f}{:>9}{:>9}{:>13}  {}\n", what, ms, ratio(ms, bench.floor_ms),
                       ratio(1e-6 * bytes, ms),
                       traffic.step_channels > 0 ? fmt::format("{:.4f}", ms * 1e6 / traffic.step_channels) : "-", how);
  };
  if (bench.strategies.empty())
    return fmt::format("\n{}: {}\n{:<12}{:>11}{:>9}{:>9}{:>13}  {}\n", cell.device(), cell.processor(), timed.pass,
                       "ms", "x copy", "GB/s", "ns/step/ch", "plan") +
           row("copy", bench.floor_ms, "of as many bytes: the floor");
  const BenchedStrategy& s = bench.strategies.back();
  if (!s.refused) return row(to_string(s.strategy), s.ms, how_text(timed, s));
  const bool left_out = s.refused->rfind("left out", 0) == 0;
  return fmt::format("{:<12}{}{}\n", to_string(s.strategy), left_out ? "" : "refused: ", *s.refused);
}

nlohmann::json strategy_json(const BenchedStrategy& s, const Traffic& traffic, double floor_ms) {
  using nlohmann::json;
  json object = {{"solver", to_string(s.strategy)}};
  if (s.refused) {
    object["refused"] = *s.refused;
    return object;
  }
  object["ms"] = s.ms;
  object["ratio"] = floor_ms > 0 ? json(s.ms / floor_ms) : json();
  object["gb_per_s"] = s.ms > 0 ? json(1e-6 * static_cast<double>(traffic.read + traffic.written) / s.ms) : json();
  object["ns_per_step_channel"] = traffic.step_channels > 0 ? json(s.ms * 1e6 / traffic.step_channels) : json();
  object["plan"] = plan_json(s.report);
  object["converged"] = s.report.converged;
  object["max_residual"] = std::isfinite(s.report.max_residual) ? json(s.report.max_residual) : json();
  object["repaired"] = s.report.repaired;
  object["compile_ms"] = s.report.compile_ms;
  return object;
}

nlohmann::json bench_json(const Bench& bench, const Traffic& traffic) {
  using nlohmann::json;
  json object = {{"floor_ms", bench.floor_ms}, {"strategies", json::array()}};
  for (const BenchedStrategy& s : bench.strategies)
    object["strategies"].push_back(strategy_json(s, traffic, bench.floor_ms));
  return object;
}

std::string json_of(const LoadedCell& loaded, const Binding& binding, const BindRequest& request,
                    const std::string& written, const Traffic& traffic, const Traffic& backward,
                    const std::vector<BenchedDevice>& devices) {
  using nlohmann::json;
  json object = {{"cell", loaded.cell.name},   {"dtype", to_string(binding.dtype)}, {"batch", binding.batch},
                 {"length", binding.length},   {"random", *request.random_seed},    {"pass", "forward"},
                 {"read_bytes", traffic.read}, {"written_bytes", traffic.written},  {"devices", json::array()}};
  object["written"] = written;
  object["axes"] = json::object();
  for (const AxisId a : loaded.cell.header) object["axes"][loaded.cell.graph.axis(a).name] = binding.run.sizes.at(a);
  for (const BenchedDevice& d : devices) {
    json device = {{"device", d.device}};
    if (!d.unavailable.empty()) {
      device["unavailable"] = d.unavailable;
    } else {
      device.update(bench_json(d.bench, traffic));
      device["processor"] = d.processor;
      device["backward"] = bench_json(d.backward, backward);
      device["backward"]["read_bytes"] = backward.read;
      device["backward"]["written_bytes"] = backward.written;
      if (!d.both.strategies.empty()) {
        const double ms = d.both.strategies[0].ms, floor = d.both.floor_ms;
        device["both"] = {{"floor_ms", floor}, {"ms", ms}, {"ratio", floor > 0 ? json(ms / floor) : json()}};
      }
    }
    object["devices"].push_back(device);
  }
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

/// How long a strategy took; nullopt: it was not asked for, or is refused.
std::optional<double> ms_of(const Bench& bench, Strategy strategy) {
  for (const BenchedStrategy& s : bench.strategies)
    if (s.strategy == strategy && !s.refused) return s.ms;
  return std::nullopt;
}

/// What --write names. By default a cell with outs is a layer of which they are read, and the finals to go on from.
Wanted wanted_of(const BenchOptions& options, const CellGraph& cell) {
  Wanted wanted = wanted_asked(options.wanted, cell);
  if (options.wanted.empty() && !cell.outs.empty()) wanted.states.assign(cell.updates.size(), false);
  return with_lines(cell, std::move(wanted));
}

/// The same run with no step: which results there are, without their arrays.
BoundRun without_rows(BoundRun run) {
  run.offsets.assign(1, 0);
  return run;
}

/// One solver that no device runs is a request that cannot be met.
void refuse_if_nothing_ran(const BenchOptions& options, const std::vector<BenchedDevice>& devices) {
  if (options.solver == "all") return;
  std::string why;
  for (const BenchedDevice& d : devices)
    for (const BenchedStrategy& s : d.bench.strategies) {
      if (!s.refused) return;
      why = *s.refused;
    }
  throw UsageError(fmt::format("--solver {}: {}", options.solver, why));
}

}  // namespace

int command_bench(const BenchOptions& options) {
  check_device(options.device);
  const std::vector<Strategy> strategies = strategies_asked(options.solver);
  LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("bind");
  const BindRequest request = measured_request(loaded.cell, options);
  const Binding whole = bind(loaded.cell, request);
  Binding binding = whole;
  binding.run.wanted = wanted_of(options, loaded.cell);
  const Traffic traffic = traffic_of(loaded.cell, binding.run, binding.dtype);
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
  solve.repeat_bits = options.deterministic;
  std::vector<BenchedDevice> devices;
  // Rows are seen as they come, but for one solver alone: where no device has it there is a message and no table.
  std::string text;
  const auto print = [&](const std::string& more) {
    if (options.json) return;
    text += more;
    if (options.solver != "all") return;
    std::fputs(std::exchange(text, {}).c_str(), stdout);
    std::fflush(stdout);
  };
  print(head_text(options, loaded, binding, traffic));
  const Cotangents cotangents = random_cotangents(loaded.cell, without_rows(binding.run), binding.dtype, 1);
  const AdjointRun adjoint(loaded.cell, results_with(cotangents), compile.derive),
      on_gpu(loaded.cell, results_with(cotangents, true), compile.derive);
  const Timed forward{"forward", loaded.cell, loaded.structure, traffic};
  const Timed backward{"backward", adjoint.cell(), adjoint.structure(),
                       backward_traffic_of(adjoint, binding.run, binding.dtype)};
  const Timed both{
      "both",
      adjoint.cell(),
      adjoint.structure(),
      {traffic.read + backward.traffic.read, traffic.written + backward.traffic.written, traffic.step_channels}};
  const auto measure = [&](const Timed& timed, TimedCell& cell) {
    const auto told = [&](const Bench& so_far) { print(last_row(timed, cell, so_far)); };
    return bench_cell(cell, static_cast<int>(timed.structure.stages.size()), timed.traffic, strategies, solve,
                      options.repeats, told);
  };
  // A forward strategy that is asked for alone may be none of the adjoint's, which is linear: that is a row, no error.
  const auto measure_both = [&](std::unique_ptr<TimedCell> ahead, const auto& back) {
    BenchedDevice& device = devices.emplace_back();
    device.device = ahead->device();
    device.processor = ahead->processor();
    device.bench = measure(forward, *ahead);
    ahead.reset();
    const std::unique_ptr<TimedCell> behind = back();
    device.backward = measure(backward, *behind);
    const auto there = ms_of(device.bench, Strategy::Auto), home = ms_of(device.backward, Strategy::Auto);
    if (!there || !home) return;
    device.both.floor_ms = behind->floor_ms(both.traffic, options.repeats);
    print(last_row(both, *behind, device.both));
    BenchedStrategy& sum = device.both.strategies.emplace_back();
    sum.strategy = Strategy::Auto;
    sum.ms = *there + *home;
    sum.report.converged = true;
    print(last_row(both, *behind, device.both));
  };
  if (options.device != "cuda")
    measure_both(timed_on_cpu(loaded.cell, loaded.structure, compile, binding.run),
                 [&] { return timed_backward_on_cpu(loaded.cell, loaded.structure, adjoint, compile, whole.run); });
  if (found.gpu)
    measure_both(timed_on_gpu(*found.gpu, loaded.cell, loaded.structure, binding.dtype, binding.run, &loaded.source),
                 [&] {
                   return timed_backward_on_gpu(*found.gpu, loaded.cell, loaded.structure, on_gpu, binding.dtype,
                                                whole.run, &loaded.source);
                 });
  else if (options.device == "auto")
    print(unavailable_text(devices.emplace_back(BenchedDevice{"cuda", "", found.reason, {}, {}})));
  refuse_if_nothing_ran(options, devices);
  if (options.json)
    text = json_of(loaded, binding, request, written_of(options, loaded.cell), traffic, backward.traffic, devices);
  std::fputs(text.c_str(), stdout);
  return kDone;
}

}  // namespace cellc
