#include "placed_call.h"

#include <chrono>
#include <optional>
#include <vector>

#include "faults.h"

namespace nb = nanobind;

namespace cellc::python {

cellc_status PlacedCall::run_on_copies(cellc_direction direction, cellc_report* report) const {
  std::vector<cellc_view> views;
  for (int i = 0; i < count; ++i) views.push_back({arrays[i].data, arrays[i].dtype, 0, nullptr, nullptr});
  cellc_request request;
  cellc_request_init(&request);
  request.direction = direction;
  request.shape = &shape;
  request.arrays = views.data();
  request.count = count;
  request.report = report;
  request.on_host = 1;
  return cellc_apply(kernel.handle(), &request);
}

cellc_status PlacedCall::run_forward(cellc_report* report) const {
  if (prepared) {
    const auto start = std::chrono::steady_clock::now();
    const cellc_status status = cellc_run(prepared, arrays, count);
    if (!report) return status;
    report->converged = 1;  // steps are exact
    report->run_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    return status;
  }
  if (on_host) return run_on_copies(CELLC_FORWARD, report);
  if (!kernel.on_gpu()) return cellc_forward(kernel.handle(), &shape, arrays, count, report);
  return cellc_forward_on(kernel.handle(), &shape, arrays, count, stream, nullptr, report);
}

cellc_status PlacedCall::run_backward() const {
  if (prepared) return cellc_run(prepared, arrays, count);
  if (on_host) return run_on_copies(CELLC_BACKWARD, nullptr);
  if (!kernel.on_gpu()) return cellc_backward(kernel.handle(), &shape, arrays, count, nullptr, nullptr);
  return cellc_backward_on(kernel.handle(), &shape, arrays, count, stream, nullptr, nullptr);
}

cellc_status PlacedCall::forward(cellc_report* report) const {
  std::optional<nb::gil_scoped_release> others_run;
  if (!prepared) others_run.emplace();
  return run_forward(report);
}

void PlacedCall::backward() const {
  std::optional<nb::gil_scoped_release> others_run;
  if (!prepared) others_run.emplace();
  const cellc_status status = run_backward();
  others_run.reset();
  check(status);
}

void PlacedCall::tangent() const {
  cellc_status status;
  {
    const nb::gil_scoped_release others_run;
    status = on_host           ? run_on_copies(CELLC_TANGENT, nullptr)
             : kernel.on_gpu() ? cellc_tangent_on(kernel.handle(), &shape, arrays, count, stream, nullptr, nullptr)
                               : cellc_tangent(kernel.handle(), &shape, arrays, count, nullptr, nullptr);
  }
  check(status);
}

}  // namespace cellc::python
