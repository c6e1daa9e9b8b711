#pragma once
// Forward calls on arrays of a GPU. Private to capi/.
#include <memory>

#include "capi/kernel.h"

namespace cellc::capi {

inline constexpr const char* kNotAllConverged = "some sequences have not converged, and repair is switched off";

/// How a call on a GPU goes: as the kernel, or as the options of the call that the calling thread makes say.
const SolveOptions& solve_on_gpu(const CompiledCell& kernel);

/// A run on the caller's memory and stream, of arrays that are right, as solve_on_gpu() says; `own`: workspaces of
/// calls that go as the kernel, null: the kernel's. Whether all is well, as far as anyone waited to see.
bool run_on_gpu(CompiledCell& kernel, const std::shared_ptr<CallPool>& own, const Shape& shape,
                const std::vector<Expected>& expected, const cellc_array* arrays, void* stream, std::int32_t* status,
                cellc_report* report);

}  // namespace cellc::capi
