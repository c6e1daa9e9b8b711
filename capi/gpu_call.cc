#include "capi/gpu_call.h"

#include <bit>
#include <optional>
#include <vector>

#include "capi/call_settings.h"
#include "capi/report.h"
#include "capi/verification.h"
#include "capi/views.h"

namespace cellc::capi {
namespace {

/// A call's arrays on the host, to be held against the reference.
class HostCopies {
 public:
  /// Before the run: what it reads.
  HostCopies(CompiledCell& kernel, const Shape& shape, const std::vector<Expected>& expected,
             const std::vector<CallArray>& places, GpuStream stream)
      : kernel_(kernel), shape_(shape) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      const bool written = expected[i].field->is_written();
      memory_.push_back(!places[i].data ? Array()
                        : written       ? Array::uninitialised(expected[i].type, array_shape(*expected[i].field, shape))
                                        : fetched(places[i], i, stream));
      arrays_.push_back({places[i].data ? memory_.back().data() : nullptr, expected[i].all, expected[i].dtype, 0, 0});
    }
    verification_.emplace(kernel, shape, expected, arrays_.data());
  }
  /// After it.
  double error(const std::vector<CallArray>& places, GpuStream stream) {
    for (std::size_t i = 0; i < places.size(); ++i)
      if (places[i].data && kernel_.forward.fields[i].written) {
        memory_[i] = fetched(places[i], i, stream);
        arrays_[i].data = memory_[i].data();
      }
    return verification_->error();
  }

 private:
  Array fetched(const CallArray& place, std::size_t i, GpuStream stream) const {
    return on_host(kernel_.on_gpu->gpu(), stream, kernel_.forward.fields[i], kernel_.compile.dtype, shape_, place);
  }

  CompiledCell& kernel_;
  const Shape& shape_;
  std::vector<Array> memory_;
  std::vector<cellc_array> arrays_;
  std::optional<Verification> verification_;
};

}  // namespace

const SolveOptions& solve_on_gpu(const CompiledCell& kernel) {
  const CallSettings* const settings = call_settings();
  return settings ? settings->solve : kernel.solve;
}

bool run_on_gpu(CompiledCell& kernel, const std::shared_ptr<CallPool>& own, const Shape& shape,
                const std::vector<Expected>& expected, const cellc_array* arrays, void* stream, std::int32_t* status,
                cellc_report* report) {
  Gpu& gpu = kernel.on_gpu->gpu();
  const std::vector<CallArray>& places = placed_arrays(arrays, kernel.layout.fields.size());
  const auto on_device = std::bit_cast<GpuAddress>(status);
  check_on_device(gpu, kernel.forward, shape, kernel.compile.dtype, places, on_device);
  const auto on = std::bit_cast<GpuStream>(stream);
  const CallSettings* const settings = call_settings();
  const bool verifies = settings && settings->verify;
  if (verifies) check_verifiable(report);
  const SolveOptions& solve = solve_on_gpu(kernel);
  const std::shared_ptr<CallPool> pool = own && !settings ? own : kernel.on_gpu->kept(shape, solve);
  if (settings && settings->ahead) {
    pool->rehearse(places, on_device);
    return true;
  }
  if (!report) {
    pool->run(places, on, on_device, nullptr);
    return true;
  }
  std::optional<HostCopies> copies;
  if (verifies && !gpu.capturing(on)) copies.emplace(kernel, shape, expected, places, on);
  SolveReport solved;
  const Clock::time_point start = Clock::now();
  pool->run(places, on, on_device, &solved);
  fill(*report, solved, CallDirection::Forward, shape, since(start));
  find_non_finite(*report, kernel.forward, kernel.compile.dtype, shape, arrays, &gpu, on);
  if (copies) report->verified = copies->error(places, on);
  return solved.converged || (solve.repair && !solve.fixed_iterations);
}

}  // namespace cellc::capi
