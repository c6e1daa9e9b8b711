#include "capi/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "capi/views.h"
#include "runtime/strategy/written_plan.h"

namespace cellc::capi {
namespace {

constexpr cellc_report kDefaultReport = {sizeof(cellc_report), nullptr, 0,      0, 0, 0, 0, 0, 0, 0, "", -1, 0,
                                         CELLC_CACHE_OFF,      nullptr, nullptr};
constexpr std::size_t kFirstReport = offsetof(cellc_report, plan);

cellc_cache c_cache(CacheState state) {
  switch (state) {
    case CacheState::Miss:
      return CELLC_CACHE_MISS;
    case CacheState::Hit:
      return CELLC_CACHE_HIT;
    default:
      return CELLC_CACHE_OFF;
  }
}

std::int64_t steps_of(const Shape& shape, std::int64_t sequence) {
  const auto s = static_cast<std::size_t>(sequence);
  return shape.packed() ? shape.offsets[s + 1] - shape.offsets[s] : shape.steps;
}

/// Whether rows are made from the last to the first.
bool goes_back(CallDirection direction, const Shape& shape) {
  return shape.reverse != (direction == CallDirection::Backward);
}

/// Lowers `found`, by sequence in the order of the run, to the first step of an array that is not finite there.
void look_through(const Array& all, const cellc_strides& strides, std::int64_t part, bool back, const Shape& shape,
                  std::vector<std::int64_t>& found) {
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    const std::int64_t steps = steps_of(shape, s),
                       begin = shape.packed() ? shape.offsets[static_cast<std::size_t>(s)] * strides.step
                                              : s * strides.sequence;
    std::int64_t& first = found[static_cast<std::size_t>(s)];
    for (std::int64_t t = 0; t < std::min(steps, first); ++t) {
      const std::int64_t row = begin + (back ? steps - 1 - t : t) * strides.step;
      for (std::int64_t e = 0; e < part && t < first; ++e)
        if (!std::isfinite(all.get(row + e))) first = t;
    }
  }
}

}  // namespace

void check_report(const cellc_report* report) {
  if (report) sized(report, kDefaultReport, kFirstReport, "the report");
}

void check_verifiable(const cellc_report* report) {
  if (!report || !has(*report, &cellc_report::verified))
    throw Misuse("verify: there is no report that says what was found");
}

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::vector<StageReport>& last_stages() {
  thread_local std::vector<StageReport> stages;
  return stages;
}

void fill(cellc_report& report, const SolveReport& solved, CallDirection direction, const Shape& shape, double run_ms) {
  last_stages() = solved.stages;
  report.converged = solved.converged;
  report.max_residual = solved.max_residual;
  report.error_estimate = solved.error_estimate;
  report.repaired = solved.repaired;
  report.unconverged = static_cast<std::int64_t>(solved.unconverged.size());
  report.iterations = 0;
  for (const StageReport& s : solved.stages) report.iterations = std::max(report.iterations, s.iterations);
  report.compile_ms = solved.compile_ms;
  report.run_ms = run_ms;
  if (has(report, &cellc_report::plan)) {
    thread_local std::string plan;
    plan = written_plan(solved);
    report.plan = plan.c_str();
  }
  if (has(report, &cellc_report::verified)) report.verified = -1;
  if (has(report, &cellc_report::stages)) report.stages = static_cast<int>(solved.stages.size());
  if (has(report, &cellc_report::cache)) report.cache = c_cache(solved.cache);
  fill_status(report.status, solved, shape);
  if (has(report, &cellc_report::first_bad) && report.first_bad) {
    std::fill_n(report.first_bad, shape.sequences, -1);
    const bool back = goes_back(direction, shape);
    for (const Unconverged& u : solved.unconverged)
      report.first_bad[u.sequence] = back ? steps_of(shape, u.sequence) - 1 - u.first_bad_step : u.first_bad_step;
  }
}

void fill_status(std::int32_t* status, const SolveReport& solved, const Shape& shape) {
  if (!status) return;
  std::fill_n(status, shape.sequences, 0);
  for (const Unconverged& u : solved.unconverged) status[u.sequence] = 1;
}

void fill_of_driver(cellc_report& report, const CompiledCell& kernel, const CompiledDriver& driver,
                    CallDirection direction, const Shape& shape, double run_ms) {
  SolveReport solved;
  // The adjoint is walked as a whole.
  const std::size_t stages =
      direction == CallDirection::Forward ? kernel.analysed.structure.stages.size() : std::size_t{1};
  StageReport stage;
  stage.plan.reason = "a prepared call goes step by step";
  solved.stages.assign(stages, stage);
  solved.compile_ms = driver.code->compile_ms;
  solved.cache = driver.code->cache;
  fill(report, solved, direction, shape, run_ms);
}

void check_converged(const std::int32_t* status, const Shape& shape) {
  for (std::int64_t s = 0; status && s < shape.sequences; ++s)
    if (status[s] != 0)
      throw NotConverged(fmt::format(
          "sequence {} of the forward run has not converged: derivatives about its states would mean nothing", s));
}

void find_non_finite(const cellc_report& report, const DirectedCall& call, Dtype storage, const Shape& shape,
                     const cellc_array* arrays, Gpu* gpu, GpuStream stream) {
  if (!has(report, &cellc_report::first_non_finite) || !report.first_non_finite) return;
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::vector<std::int64_t> found(static_cast<std::size_t>(shape.sequences), kNone);
  const bool back = goes_back(call.direction, shape);
  for (std::size_t i = 0; i < call.fields.size(); ++i) {
    const DirectedField& field = call.fields[i];
    const std::int64_t part = part_entries(field.of, shape);
    if (!arrays[i].data || !field.written || !field.of.is_rows() || shape.rows == 0 || part == 0) continue;
    const Dtype dtype = dtype_of(field, storage);
    if (gpu) {
      const Array rows = on_host(*gpu, stream, field, storage, shape, placed_arrays(arrays, call.fields.size())[i]);
      look_through(rows, strides_of(field.of, shape, {0, 0}), part, back, shape, found);
      continue;
    }
    const cellc_strides full = strides_of(field.of, shape, {arrays[i].sequence_stride, arrays[i].step_stride});
    const std::int64_t sequences = shape.packed() ? 1 : shape.sequences,
                       steps = shape.packed() ? shape.rows : shape.steps,
                       reach = (sequences - 1) * full.sequence + (steps - 1) * full.step + part;
    look_through(Array::view(dtype, {reach}, arrays[i].data), full, part, back, shape, found);
  }
  for (std::int64_t s = 0; s < shape.sequences; ++s) {
    const std::int64_t first = found[static_cast<std::size_t>(s)];
    report.first_non_finite[s] = first == kNone ? -1 : back ? steps_of(shape, s) - 1 - first : first;
  }
}

}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

#undef cellc_report_init  // the function of this name writes the struct of the first version
void cellc_report_init_sized(cellc_report* report, size_t size) { initialise(report, kDefaultReport, size); }
void cellc_report_init(cellc_report* report) { cellc_report_init_sized(report, kFirstReport); }

cellc_status cellc_report_stage(int number, cellc_stage* stage) {
  return guarded([&] {
    const std::vector<StageReport>& stages = last_stages();
    if (number < 0 || number >= static_cast<int>(stages.size()))
      throw Misuse("there is no stage of that number in the thread's last report");
    const StageReport& from = stages[static_cast<std::size_t>(number)];
    cellc_stage found{};
    found.solver = to_string(from.plan.strategy);
    found.reason = from.plan.reason.c_str();
    found.segment = from.plan.segment;
    found.burn_in = from.plan.burn_in;
    found.iterations = from.iterations;
    found.max_residual = from.max_residual;
    found.error_estimate = from.error_estimate;
    found.repaired = from.repaired;
    describe(stage, found, sizeof found, "the description");
  });
}

}  // extern "C"
