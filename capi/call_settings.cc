#include "capi/call_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "capi/guard.h"
#include "runtime/strategy/written_plan.h"

namespace cellc::capi {
namespace {

thread_local const CallSettings* current = nullptr;

constexpr std::size_t kFirstOptions = offsetof(cellc_call_options, deterministic);

}  // namespace

cellc_call_options read_call_options(const cellc_call_options* given) {
  return given ? sized(given, cellc_call_options{}, kFirstOptions, "the options of the call") : cellc_call_options{};
}

CallSettings::CallSettings(const cellc_call_options& o, const CompiledCell& kernel, bool forward,
                           const cellc_report* report)
    : solve(kernel.solve) {
  if (kernel.on_gpu && o.threads != 0)
    throw Misuse(fmt::format("{} threads: no thread of the host works for a call on a GPU; leave it 0", o.threads));
  if (kernel.on_gpu && o.run_tasks)
    throw Misuse("run_tasks: a call on a GPU has no tasks for threads of the host; leave it null");
  if (o.threads < 0) throw Misuse(fmt::format("{} threads: expected 0 (as the kernel) or more", o.threads));
  if (o.threads > 0) threads = o.threads;
  if (o.has_tolerance) {
    if (!std::isfinite(o.tolerance) || o.tolerance < 0)
      throw Misuse(fmt::format("a tolerance of {}: expected a number from 0 on", o.tolerance));
    solve.tolerance = tolerance = o.tolerance;
  }
  if (o.max_iterations < 0 || o.fixed_iterations < 0)
    throw Misuse(fmt::format("{} iterations: expected 0 (as the kernel) or more",
                             std::min(o.max_iterations, o.fixed_iterations)));
  as_kernel = !o.solver && !o.plan && o.max_iterations == 0 && o.fixed_iterations == 0;
  if (!forward && (!as_kernel || o.verify))
    throw Misuse(
        "solver, plan, iterations and verify are of forward calls: what they say holds for the forward cell alone");
  if (o.deterministic && forward && kernel.on_gpu) solve.repeat_bits = true;
  if (o.solver) {
    const auto strategy = strategy_named(o.solver);
    if (!strategy) throw Misuse(fmt::format("solver '{}': expected {}", o.solver, strategy_names()));
    named = solve.solver = *strategy;
    solve.plan.clear();
  }
  planned = o.plan != nullptr;
  if (o.plan) solve.plan = read_plan(o.plan, "options.plan", kernel.analysed.structure.stages.size());
  if (o.max_iterations > 0) solve.max_iterations = o.max_iterations;
  if (o.fixed_iterations > 0) solve.fixed_iterations = o.fixed_iterations;
  verify = o.verify != 0;
  controls = o.cancel || o.go_on || o.run_tasks;
  control.cancel = o.cancel;
  control.goes_on = o.go_on;
  control.host = o.host;
  control.run_tasks = o.run_tasks;
  control.pool = o.pool;
  control.waits = report != nullptr;
}

void CallSettings::go_step_by_step() {
  by_driver =
      !planned && named.value_or(Strategy::Sequential) == Strategy::Sequential && !controls && threads.value_or(1) == 1;
  if (!planned && !named) {
    solve.solver = Strategy::Sequential;
    solve.plan.clear();
    as_kernel = false;
  }
  if (!threads) threads = 1;
}

const CallSettings* call_settings() { return current; }

UseCallSettings::UseCallSettings(const CallSettings* settings) : before_(current) {
  current = settings;
  if (settings && settings->controls) control_.emplace(&settings->control);
}
UseCallSettings::~UseCallSettings() { current = before_; }

}  // namespace cellc::capi

using namespace cellc::capi;

extern "C" {

#undef cellc_call_options_init  // the function of this name writes the struct of the first version
void cellc_call_options_init_sized(cellc_call_options* options, size_t size) { initialise(options, {}, size); }
void cellc_call_options_init(cellc_call_options* options) { cellc_call_options_init_sized(options, sizeof *options); }

}  // extern "C"
