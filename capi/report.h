#pragma once
// What calls say of how they went. Private to capi/.
#include <chrono>
#include <cstddef>
#include <vector>

#include "capi/kernel.h"

namespace cellc::capi {

using Clock = std::chrono::steady_clock;
/// Milliseconds.
double since(Clock::time_point start);

/// May be null; throws where it is not one.
void check_report(const cellc_report* report);
/// Throws where it cannot say what a comparison with the reference found.
void check_verifiable(const cellc_report* report);

/// Whether the caller's report, which may be of an earlier version, has the field.
template <typename T>
bool has(const cellc_report& report, T cellc_report::*field) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&(report.*field));
  return report.size >= static_cast<std::size_t>(begin - reinterpret_cast<const std::byte*>(&report)) + sizeof(T);
}

/// What stages there were is the thread's from now on.
void fill(cellc_report& report, const SolveReport& solved, CallDirection direction, const Shape& shape, double run_ms);
/// By sequence, 0 where it has converged, else 1. `status` may be null.
void fill_status(std::int32_t* status, const SolveReport& solved, const Shape& shape);
/// As fill(), of a call of the driver, which walks every step.
void fill_of_driver(cellc_report& report, const CompiledCell& kernel, const CompiledDriver& driver,
                    CallDirection direction, const Shape& shape, double run_ms);

/// Looks through the rows that the call wrote, where the report asks for it. `gpu`: where they are, after what is
/// queued on the stream; null: on the host.
void find_non_finite(const cellc_report& report, const DirectedCall& call, Dtype storage, const Shape& shape,
                     const cellc_array* arrays, Gpu* gpu = nullptr, GpuStream stream = 0);

/// Throws NotConverged where the status of a forward run, which may be null, says that a sequence has not converged.
void check_converged(const std::int32_t* status, const Shape& shape);

/// The stages of the thread's last report, for reports of several runs.
std::vector<StageReport>& last_stages();

}  // namespace cellc::capi
