#pragma once
// A call of the C API as a request, for its tests.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "capi/cellc.h"

/// f64 arrays of a call by name, and its report.
struct RequestedCall {
  RequestedCall(cellc_kernel* kernel, cellc_direction direction, const cellc_shape& shape) : kernel(kernel) {
    cellc_request_init(&request);
    request.direction = direction;
    request.shape = &shape;
    const int count = cellc_call_array_count(kernel, direction);
    for (int i = 0; i < count; ++i) {
      cellc_call_array_info info;
      cellc_call_array_info_init(&info);
      EXPECT_EQ(cellc_call_array_describe(kernel, direction, i, &info), CELLC_OK);
      std::int64_t lengths[8], entries = 1;
      int rank = 0;
      EXPECT_EQ(cellc_call_array_shape(kernel, direction, &shape, i, lengths, 8, &rank), CELLC_OK);
      for (int r = 0; r < rank; ++r) entries *= lengths[r];
      std::vector<double>& memory = of[info.name];
      for (std::int64_t k = 0; k < entries; ++k) memory.push_back(0.5 * std::sin(0.7 * static_cast<double>(k) + i));
      views.push_back({memory.data(), CELLC_F64, 0, nullptr, nullptr});
    }
    request.arrays = views.data();
    request.count = count;
    status.assign(static_cast<std::size_t>(shape.sequences), 9);
    first_bad.assign(status.size(), 9);
    first_non_finite = first_bad;
    cellc_report_init(&report);
    report.status = status.data();
    report.first_bad = first_bad.data();
    report.first_non_finite = first_non_finite.data();
    request.report = &report;
  }
  RequestedCall(const RequestedCall&) = delete;
  cellc_status run() { return cellc_apply(kernel, &request); }
  std::vector<cellc_stage> stages() const {
    std::vector<cellc_stage> all;
    for (int i = 0; i < report.stages; ++i) {
      all.push_back({});
      all.back().size = sizeof(cellc_stage);
      EXPECT_EQ(cellc_report_stage(i, &all.back()), CELLC_OK) << cellc_last_error();
    }
    return all;
  }

  cellc_kernel* kernel;
  std::map<std::string, std::vector<double>> of;
  std::vector<cellc_view> views;
  std::vector<std::int32_t> status;
  std::vector<std::int64_t> first_bad, first_non_finite;
  cellc_report report;
  cellc_request request;
};
