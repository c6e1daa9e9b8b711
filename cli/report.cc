#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/npy.h"
#include "runtime/threads.h"

namespace cellc {
namespace {

const CellGraph& cell_of(const RunReport& report) { return report.loaded.cell; }

int threads_of(const Binding& binding) { return thread_count(binding.run.threads); }

/// Steps times the entries of the largest state: what a time per step and channel divides by.
double step_channels(const RunReport& report) {
  double channels = 0;
  for (const StateUpdate& u : cell_of(report).updates) {
    double entries = 1;
    for (const std::int64_t n :
         lengths(cell_of(report), report.binding.run, cell_of(report).symbol_of(u).axes))
      entries *= static_cast<double>(n);
    channels = std::max(channels, entries);
  }
  return channels * static_cast<double>(report.binding.run.offsets.back());
}

std::string axis_names(const CellGraph& cell, const std::vector<AxisId>& axes) {
  std::vector<std::string> names;
  for (const AxisId a : axes) names.push_back(cell.graph.axis(a).name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

std::string stage_states(const CellGraph& cell, const Stage& stage) {
  std::vector<std::string> names;
  for (const int u : stage.states) names.push_back(cell.symbol_of(cell.updates[u]).name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string sizes_text(const RunReport& report) {
  std::vector<std::string> parts;
  for (const AxisId a : cell_of(report).header)
    parts.push_back(fmt::format("{}={}", cell_of(report).graph.axis(a).name, report.binding.run.sizes.at(a)));
  if (report.binding.packed)
    parts.push_back(
        fmt::format("{} sequences of {} steps together", report.binding.batch, report.binding.length));
  else
    parts.push_back(fmt::format("B={}, T={}", report.binding.batch, report.binding.length));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

std::string run_text(const RunReport& report) {
  const CellGraph& cell = cell_of(report);
  std::string text;
  const auto line = [&](const char* label, const std::string& what) {
    text += fmt::format("{:<11} {}\n", label, what);
  };
  line("cell", fmt::format("{}: {}", cell.name, sizes_text(report)));
  for (const Stage& stage : report.loaded.structure.stages)
    line("derived",
         fmt::format("{{{}}} {}, N {}{}{}, lanes {}", stage_states(cell, stage), to_string(stage.kind),
                     stage.block.text, stage.rank ? ", rank " + *stage.rank : "",
                     !stage.linear          ? ", nonlinear"
                     : stage.time_invariant ? ", linear, time-invariant"
                                            : ", linear",
                     axis_names(cell, stage.channel_axes)));
  const double work = step_channels(report);
  line("ran",
       fmt::format("sequential on cpu, {}, {} thread{}; compiled in {:.1f} ms (cache {})",
                   to_string(report.binding.dtype), threads_of(report.binding),
                   threads_of(report.binding) == 1 ? "" : "s", report.compile_ms, to_string(report.cache)));
  line("time", work > 0 ? fmt::format("{:.3f} ms, {:.3f} ns per step and channel", report.output.run_ms,
                                      report.output.run_ms * 1e6 / work)
                        : fmt::format("{:.3f} ms", report.output.run_ms));
  if (!report.binding.filled.empty())
    line("random", fmt::format("{}", fmt::join(report.binding.filled, ", ")));
  if (report.nonfinite)
    line("warning", fmt::format("{} is not finite from sequence {}, step {} on", report.nonfinite->state,
                                report.nonfinite->sequence, report.nonfinite->step));
  if (report.verified) {
    const Deviation& d = *report.verified;
    line("verified", d.array.empty()
                         ? std::string("nothing to compare")
                         : fmt::format("largest error {:.3g} of 1 + |value|, in {} (sequence {}, step {}), "
                                       "against the sequential f64 reference",
                                       d.error, d.array, d.sequence, d.step));
  }
  for (const auto& [name, array] : report.arrays)
    line(report.out.empty() ? "result" : "wrote",
         fmt::format("{}{} {} {}", report.out.empty() ? "" : report.out + "/",
                     name + (report.out.empty() ? "" : ".npy"), shape_text(array.shape()),
                     to_string(array.dtype())));
  return text;
}

std::string run_json(const RunReport& report) {
  using nlohmann::json;
  const CellGraph& cell = cell_of(report);
  const std::size_t stages = report.loaded.structure.stages.size();
  json object;
  object["cell"] = cell.name;
  object["device"] = "cpu";
  object["dtype"] = to_string(report.binding.dtype);
  object["solver"] = std::vector<std::string>(stages, "sequential");
  object["iterations"] = std::vector<int>(stages, 0);
  object["plan"] = {{"parameters", {{"solver", "sequential"}, {"threads", threads_of(report.binding)}}},
                    {"reason", "sequential is the one solver of this version"}};
  object["converged"] = true;
  object["max_residual"] = 0;
  object["error_estimate"] = 0;
  object["repaired"] = json::array();
  object["unconverged"] = json::array();
  object["compile_ms"] = report.compile_ms;
  object["cache"] = to_string(report.cache);
  object["run_ms"] = report.output.run_ms;
  const double work = step_channels(report);
  if (work > 0) object["ns_per_step_channel"] = report.output.run_ms * 1e6 / work;
  object["arrays"] = json::object();
  for (const auto& [name, array] : report.arrays) object["arrays"][name] = array.shape();
  object["random"] = report.binding.filled;
  if (!report.out.empty()) object["out"] = report.out;
  if (report.nonfinite)
    object["first_nonfinite"] = {{"state", report.nonfinite->state},
                                 {"sequence", report.nonfinite->sequence},
                                 {"step", report.nonfinite->step}};
  if (report.verified) {
    // JSON has no infinity: null says that a number stands against none.
    const Deviation& d = *report.verified;
    object["verify"] = {{"max_error", std::isfinite(d.error) ? json(d.error) : json()},
                        {"array", d.array},
                        {"sequence", d.sequence},
                        {"step", d.step},
                        {"reference", "sequential f64"}};
  }
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace cellc
