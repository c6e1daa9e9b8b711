#pragma once
// Forward calls on arrays of a GPU. Private to capi/.
#include <memory>

#include "capi/kernel.h"

namespace cellc::capi {

inline constexpr const char* kNotAllConverged = "some sequences have not converged, and repair is switched off";

/// A run on the caller's memory and stream, of arrays that are right. Whether all is well, as far as anyone waited to
/// see.
bool run_on_gpu(CompiledCell& kernel, CallPool& pool, const Shape& shape, const cellc_array* arrays, void* stream,
                std::int32_t* status, cellc_report* report);

}  // namespace cellc::capi
