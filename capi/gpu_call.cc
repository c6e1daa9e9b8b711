#include "capi/gpu_call.h"

#include <bit>
#include <vector>

#include "capi/report.h"
#include "capi/views.h"

namespace cellc::capi {

bool run_on_gpu(CompiledCell& kernel, CallPool& pool, const Shape& shape, const cellc_array* arrays, void* stream,
                std::int32_t* status, cellc_report* report) {
  Gpu& gpu = kernel.on_gpu->gpu();
  const std::vector<CallArray>& places = placed_arrays(arrays, kernel.layout.fields.size());
  const auto on_device = std::bit_cast<GpuAddress>(status);
  check_on_device(gpu, kernel.forward, shape, kernel.compile.dtype, places, on_device);
  const auto on = std::bit_cast<GpuStream>(stream);
  if (!report) {
    pool.run(places, on, on_device, nullptr);
    return true;
  }
  SolveReport solved;
  const Clock::time_point start = Clock::now();
  pool.run(places, on, on_device, &solved);
  fill(*report, solved, CallDirection::Forward, shape, since(start));
  find_non_finite(*report, kernel.forward, kernel.compile.dtype, shape, arrays, &gpu, on);
  return solved.converged || kernel.solve.repair;
}

}  // namespace cellc::capi
