#include "cli/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/data/npy.h"
#include "runtime/data/threads.h"
#include "runtime/strategy/written_plan.h"

namespace cellc {
namespace {

const CellGraph& cell_of(const RunReport& report) { return report.loaded.cell; }

int threads_of(const Binding& binding) { return thread_count(binding.run.threads); }

/// Steps times the entries of the largest state: what a time per step and channel divides by.
double step_channels(const RunReport& report) {
  double channels = 0;
  for (const StateUpdate& u : cell_of(report).updates) {
    double entries = 1;
    for (const std::int64_t n : lengths(cell_of(report), report.binding.run, cell_of(report).symbol_of(u).axes))
      entries *= static_cast<double>(n);
    channels = std::max(channels, entries);
  }
  return channels * static_cast<double>(report.binding.run.offsets.back());
}

std::string axis_names(const CellGraph& cell, const std::vector<AxisId>& axes) {
  std::vector<std::string> names;
  // The second place of P[d,d] is another index variable along the same axis.
  for (const AxisId a : axes) names.push_back(cell.graph.axis(cell.graph.axis(a).extent_of).name);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ","));
}

/// Where the arrays hold the first bad step. A solver counts steps in the order in which they are run; every
/// step that a report names is one that can be looked up.
std::int64_t first_bad_row(const RunReport& report, const Unconverged& u) {
  const BoundRun& run = report.binding.run;
  const std::int64_t steps = run.offsets[u.sequence + 1] - run.offsets[u.sequence];
  return run.reverse ? steps - 1 - u.first_bad_step : u.first_bad_step;
}

/// The steps that are run after one that is named.
const char* onwards(const RunReport& report) { return report.binding.run.reverse ? "back" : "on"; }

/// What --verify found where no error can be told: a number against none.
std::string infinitely_far(const RunReport& report) {
  const Deviation& d = *report.verified;
  const char* dtype = to_string(report.binding.dtype);
  const bool beyond = std::isfinite(d.want) && std::abs(d.want) > largest_number(report.binding.dtype);
  const std::string why = std::isfinite(d.got) ? std::string()
                          : beyond             ? fmt::format(", more than {} can hold", dtype)
                          : std::isfinite(d.want)
                              ? fmt::format(": something on the way to it left the numbers that {} has", dtype)
                              : std::string();
  return fmt::format(
      "no error can be told from {} (sequence {}, step {}) {}: it is {:.6g}, and the sequential f64 reference has "
      "{:.6g}{}; where both are numbers, the largest error is {:.3g} of |value| + the largest of its lane",
      d.array, d.sequence, d.step, onwards(report), d.got, d.want, why, d.finite_error);
}

}  // namespace

std::string plan_text(const StagePlan& plan) {
  std::string text = to_string(plan.strategy);
  if (plan.segment) text += fmt::format(", segments of {} steps", plan.segment);
  if (plan.burn_in) text += fmt::format(" started {} early", plan.burn_in);
  return text;
}

nlohmann::json plan_json(const SolveReport& report) { return nlohmann::json::parse(written_plan(report)); }

std::string sizes_text(const CellGraph& cell, const Binding& binding) {
  std::vector<std::string> parts;
  for (const AxisId a : cell.header)
    parts.push_back(fmt::format("{}={}", cell.graph.axis(a).name, binding.run.sizes.at(a)));
  if (binding.packed)
    parts.push_back(fmt::format("{} sequences of {} steps together", binding.batch, binding.length));
  else
    parts.push_back(fmt::format("B={}, T={}", binding.batch, binding.length));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string stage_states(const CellGraph& cell, const Stage& stage) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < stage.states.size(); ++i) {
    // Many copies that lag behind one state are told in one word.
    const auto at = [&](std::size_t k) -> const Symbol& { return cell.symbol_of(cell.updates[stage.states[k]]); };
    std::size_t last = i;
    while (at(i).lag_of >= 0 && last + 1 < stage.states.size() && at(last + 1).lag_of == at(i).lag_of) ++last;
    if (last - i < 3) {
      names.push_back(at(i).name);
      continue;
    }
    names.push_back(fmt::format("lag({}, {} to {})", cell.symbols[static_cast<std::size_t>(at(i).lag_of)].name,
                                at(i).lag, at(last).lag));
    i = last;
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string run_text(const RunReport& report) {
  const CellGraph& cell = cell_of(report);
  std::string text;
  const auto line = [&](const char* label, const std::string& what) {
    text += fmt::format("{:<11} {}\n", label, what);
  };
  line("cell", fmt::format("{}: {}", cell.name, sizes_text(cell, report.binding)));
  for (const Stage& stage : report.loaded.structure.stages)
    line("derived", fmt::format("{{{}}} {}, N {}{}{}, lanes {}", stage_states(cell, stage), to_string(stage.kind),
                                stage.block.text, stage.rank ? ", rank " + stage.rank->text : "",
                                !stage.linear          ? ", nonlinear"
                                : stage.time_invariant ? ", linear, time-invariant"
                                                       : ", linear",
                                axis_names(cell, stage.channel_axes)));
  const double work = step_channels(report);
  const std::string where = report.gpu.empty() ? fmt::format("{} thread{}", threads_of(report.binding),
                                                             threads_of(report.binding) == 1 ? "" : "s")
                                               : report.gpu;
  line("ran",
       fmt::format("{}, {}, {}; compiled in {:.1f} ms (cache {})", report.gpu.empty() ? "cpu" : "cuda",
                   to_string(report.binding.dtype), where, report.solve.compile_ms, to_string(report.solve.cache)));
  for (std::size_t k = 0; k < report.solve.stages.size(); ++k) {
    const StageReport& stage = report.solve.stages[k];
    std::string how = plan_text(stage.plan);
    if (stage.iterations) how += fmt::format(", {} iteration{}", stage.iterations, stage.iterations == 1 ? "" : "s");
    if (stage.repaired)
      how += fmt::format(", {} repaired in {} round{}", stage.repaired, stage.repair_rounds,
                         stage.repair_rounds == 1 ? "" : "s");
    line("solved",
         fmt::format("{{{}}} {}: {}", stage_states(cell, report.loaded.structure.stages[k]), how, stage.plan.reason));
  }
  line(report.solve.converged ? "converged" : "unconverged",
       fmt::format("largest residual {:.2g}, error estimate {:.2g}", report.solve.max_residual,
                   report.solve.error_estimate));
  for (const Unconverged& u : report.solve.unconverged)
    line("", fmt::format("sequence {}: first bad step {}, residual {:.3g}", u.sequence, first_bad_row(report, u),
                         u.residual));
  line("time", work > 0 ? fmt::format("{:.3f} ms, {:.3f} ns per step and channel", report.output.run_ms,
                                      report.output.run_ms * 1e6 / work)
                        : fmt::format("{:.3f} ms", report.output.run_ms));
  if (!report.binding.filled.empty()) line("random", fmt::format("{}", fmt::join(report.binding.filled, ", ")));
  if (report.verified) {
    const Deviation& d = *report.verified;
    line("verified",
         d.array.empty() ? std::string("nothing to compare")
         : std::isinf(d.error)
             ? infinitely_far(report)
             : fmt::format("largest error {:.3g} of |value| + the largest of its lane, in {} (sequence {}, step {}), "
                           "against the sequential f64 reference",
                           d.error, d.array, d.sequence, d.step));
  }
  const auto after = [&](const char* label, const CellGraph& derived, const Structure& structure, const auto& r) {
    for (std::size_t k = 0; k < r.solve.stages.size(); ++k)
      line(label, fmt::format("{{{}}} {}: {}", stage_states(derived, structure.stages[k]),
                              plan_text(r.solve.stages[k].plan), r.solve.stages[k].plan.reason));
    line("", fmt::format("{:.3f} ms; largest residual {:.2g}", r.run_ms, r.solve.max_residual));
    if (r.verified)
      line("",
           fmt::format("largest error {:.3g} of |value| + the largest of the array, in {}, against the f64 reference",
                       r.verified->error, r.verified->array));
  };
  if (const BackwardReport* b = report.backward) {
    after("backward", b->adjoint->cell(), b->adjoint->structure(), *b);
    if (b->segment > 0) line("", fmt::format("segments of {} steps were run again", b->segment));
  }
  if (const TangentReport* t = report.tangent) after("tangent", t->tangent->cell(), t->tangent->structure(), *t);
  if (report.edited) {
    line("kernel", fmt::format("{}: {:.4f} ms a call; the generated one: {:.4f} ms", report.kernel, report.edited->ms,
                               report.edited->generated_ms));
    if (report.edited->generated_verified)
      line("", fmt::format("largest error of the generated one: {:.3g}; of a step from the row before it: {:.3g}, the "
                           "generated one's {:.3g}",
                           report.edited->generated_verified->error, report.edited->step_error,
                           report.edited->generated_step_error));
  }
  for (const auto& [name, array] : report.arrays)
    line(report.out.empty() ? "result" : "wrote",
         fmt::format("{}{} {} {}", report.out.empty() ? "" : report.out + "/",
                     name + (report.out.empty() ? "" : ".npy"), shape_text(array.shape()), to_string(array.dtype())));
  return text;
}

namespace {

void solve_json(const RunReport& report, nlohmann::json& object) {
  using nlohmann::json;
  // JSON has no infinity: null says that a number is none.
  const auto finite = [](double v) { return std::isfinite(v) ? json(v) : json(); };
  const auto optional = [&](const std::optional<double>& v) { return v ? finite(*v) : json(); };
  object["solver"] = object["iterations"] = json::array();
  json details = json::array();
  for (const StageReport& s : report.solve.stages) {
    object["solver"].push_back(to_string(s.plan.strategy));
    object["iterations"].push_back(s.iterations);
    json trace = json::array();
    for (const IterationTrace& t : s.trace) trace.push_back({{"change", finite(t.change)}, {"lanes", t.active}});
    details.push_back({{"boundaries", s.boundaries},
                       {"misses", s.misses},
                       {"repaired", s.repaired},
                       {"repair_rounds", s.repair_rounds},
                       {"changed_over", s.changed_over ? json(*s.changed_over) : json()},
                       {"max_residual", finite(s.max_residual)},
                       {"contraction", optional(s.contraction)},
                       {"lyapunov", optional(s.lyapunov)},
                       {"predicted_iterations", s.predicted_iterations ? json(*s.predicted_iterations) : json()},
                       {"trace", trace}});
  }
  object["plan"] = plan_json(report.solve);
  object["plan"]["threads"] = threads_of(report.binding);
  object["stages"] = details;
  object["converged"] = report.solve.converged;
  object["max_residual"] = finite(report.solve.max_residual);
  object["error_estimate"] = finite(report.solve.error_estimate);
  object["repaired"] = report.solve.repaired;
  object["unconverged"] = json::array();
  for (const Unconverged& u : report.solve.unconverged)
    object["unconverged"].push_back(
        {{"sequence", u.sequence}, {"first_bad_step", first_bad_row(report, u)}, {"residual", finite(u.residual)}});
  object["compile_ms"] = report.solve.compile_ms;
  object["cache"] = to_string(report.solve.cache);
}

/// A run that followed the forward run: of its adjoint or its tangent.
nlohmann::json following_json(const auto& run) {
  using nlohmann::json;
  json object = {{"run_ms", run.run_ms},
                 {"plan", plan_json(run.solve)},
                 {"converged", run.solve.converged},
                 {"max_residual", run.solve.max_residual},
                 {"compile_ms", run.solve.compile_ms}};
  if (run.verified)
    object["verify"] = {{"max_error", std::isfinite(run.verified->error) ? json(run.verified->error) : json()},
                        {"array", run.verified->array},
                        {"reference", "sequential f64"}};
  return object;
}

}  // namespace

std::string run_json(const RunReport& report) {
  using nlohmann::json;
  const CellGraph& cell = cell_of(report);
  json object;
  object["cell"] = cell.name;
  object["device"] = report.gpu.empty() ? "cpu" : "cuda";
  object["products"] = report.products;
  if (!report.gpu.empty()) object["gpu"] = report.gpu;
  object["dtype"] = to_string(report.binding.dtype);
  solve_json(report, object);
  object["run_ms"] = report.output.run_ms;
  const double work = step_channels(report);
  if (work > 0) object["ns_per_step_channel"] = report.output.run_ms * 1e6 / work;
  object["arrays"] = json::object();
  for (const auto& [name, array] : report.arrays) object["arrays"][name] = array.shape();
  object["random"] = report.binding.filled;
  if (!report.out.empty()) object["out"] = report.out;
  if (report.nonfinite)
    object["first_nonfinite"] = {{report.nonfinite->is_state ? "state" : "out", report.nonfinite->array},
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
    if (std::isinf(d.error)) {
      object["verify"]["why"] = infinitely_far(report);
      object["verify"]["max_finite_error"] = d.finite_error;
    }
  }
  if (report.backward) {
    object["backward"] = following_json(*report.backward);
    if (report.backward->segment > 0) object["backward"]["recomputed_segment"] = report.backward->segment;
    if (report.backward->device_bytes > 0) object["backward"]["device_bytes"] = report.backward->device_bytes;
  }
  if (report.tangent) object["tangent"] = following_json(*report.tangent);
  if (const std::string missed = not_converged(report); !missed.empty()) object["error"] = missed;
  if (const EditedRun* edited = report.edited) {
    const auto finite = [](double v) { return std::isfinite(v) ? json(v) : json(); };
    object["kernel"] = {{"file", report.kernel}, {"ms", edited->ms}, {"generated_ms", edited->generated_ms}};
    if (edited->generated_verified) {
      object["kernel"]["wrong"] = edited->wrong;
      object["kernel"]["step_error"] = finite(edited->step_error);
      object["kernel"]["generated"] = {{"max_error", finite(edited->generated_verified->error)},
                                       {"step_error", finite(edited->generated_step_error)}};
    }
    if (const std::string wrong = wrong_kernel(report); !wrong.empty()) object["error"] = wrong;
  }
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string not_finite(const RunReport& report) {
  if (!report.nonfinite) return {};
  return fmt::format("{} is not finite from sequence {}, step {} {}", report.nonfinite->array,
                     report.nonfinite->sequence, report.nonfinite->step, onwards(report));
}

std::string wrong_kernel(const RunReport& report) {
  if (!report.edited || !report.edited->wrong) return {};
  return fmt::format(
      "{}: wrong answers: {:.3g} of |value| + the largest of its lane off in {} (sequence {}, step {}), where the "
      "generated kernels are "
      "{:.3g} off; "
      "a step from the row before it {:.3g}, theirs {:.3g}",
      report.kernel, report.verified->error, report.verified->array, report.verified->sequence, report.verified->step,
      report.edited->generated_verified->error, report.edited->step_error, report.edited->generated_step_error);
}

std::string not_converged(const RunReport& report) {
  // A fixed number of iterations is what was asked for; its residual is told.
  if (report.solve.converged || report.repair) return {};
  std::string text = "not converged";
  const std::vector<Unconverged>& missed = report.solve.unconverged;
  if (!missed.empty()) {
    const Unconverged& worst =
        *std::max_element(missed.begin(), missed.end(),
                          [](const Unconverged& a, const Unconverged& b) { return a.residual < b.residual; });
    text += fmt::format(": {} of {} sequences, the worst of them sequence {} from step {} {} with a residual of {:.3g}",
                        missed.size(), report.binding.batch, worst.sequence, first_bad_row(report, worst),
                        onwards(report), worst.residual);
  }
  // Segments are run once each and scans are exact but for rounding: only what iterates gains by more iterations.
  const auto any = [&](auto is) {
    return std::any_of(report.solve.stages.begin(), report.solve.stages.end(),
                       [&](const StageReport& s) { return is(facts_of(s.plan.strategy)); });
  };
  text += "; leave out --no-repair, or give it a larger ";
  if (any([](const StrategyFacts& f) { return f.iterates; })) return text + "--max-iterations or --tolerance";
  const bool warms_up = any([](const StrategyFacts& f) { return f.pins == StrategyFacts::Pins::SegmentAndBurnIn; });
  return text + "--tolerance" +
         (warms_up ? fmt::format(" or --solver {}, which iterates", to_string(Strategy::Shooting)) : "");
}

std::string trace_text(const RunReport& report) {
  std::string text;
  for (std::size_t k = 0; k < report.solve.stages.size(); ++k) {
    const StageReport& stage = report.solve.stages[k];
    text += fmt::format("trace       {{{}}} {}\n", stage_states(cell_of(report), report.loaded.structure.stages[k]),
                        to_string(stage.plan.strategy));
    if (stage.boundaries)
      text += fmt::format("  boundaries {}, missed {}, repaired {} in {} rounds\n", stage.boundaries, stage.misses,
                          stage.repaired, stage.repair_rounds);
    if (stage.contraction)
      text += fmt::format("  a difference shrinks by {:.4g} {}\n", *stage.contraction,
                          stage.plan.strategy == Strategy::Relaxation ? "an iteration" : "a step in a typical lane");
    if (stage.lyapunov) text += fmt::format("  largest Lyapunov exponent, estimated: {:.4g} a step\n", *stage.lyapunov);
    if (stage.changed_over) text += fmt::format("  changed over to shooting after round {}\n", *stage.changed_over);
    if (stage.predicted_iterations)
      text += fmt::format("  predicted from the first few: {} iteration{}\n", *stage.predicted_iterations,
                          *stage.predicted_iterations == 1 ? "" : "s");
    if (const auto bound = report.loaded.structure.stages[k].norm_bound)
      text += fmt::format("  proved: the Jacobian's norm is at most {:.4g}\n", *bound);
    for (std::size_t i = 0; i < stage.trace.size(); ++i) {
      const double change = stage.trace[i].change;
      // A bar from 1e-16 to 1e4, two characters a decade.
      const double decades = std::isfinite(change) ? std::log10(std::max(change, 1e-16)) + 16 : 20;
      text += fmt::format("  {:>3}  {:>9.2e}  {:>9} lanes  {}\n", i + 1, change, stage.trace[i].active,
                          std::string(static_cast<std::size_t>(std::clamp(2 * decades, 0.0, 40.0)), '#'));
    }
  }
  return text;
}

}  // namespace cellc
