#pragma once
// A test of the C API that frees what it compiled and prepared; and shapes, briefly.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "capi/cellc.h"

class KeptHandles : public testing::Test {
 protected:
  void TearDown() override {
    for (cellc_call* c : calls_) cellc_call_free(c);
    for (cellc_kernel* k : kernels_) cellc_kernel_free(k);
  }

  /// `device`: null for the default. Null where `want` is no success.
  cellc_kernel* compile(const std::string& text, const char* device, const std::function<void(cellc_options&)>& change,
                        cellc_status want = CELLC_OK) {
    cellc_options options;
    cellc_options_init(&options);
    options.device = device;
    options.threads = 1;
    if (change) change(options);
    cellc_kernel* kernel = nullptr;
    EXPECT_EQ(cellc_compile_text(text.data(), text.size(), &options, &kernel), want) << cellc_last_error();
    if (kernel) kernels_.push_back(kernel);
    return kernel;
  }
  cellc_call* prepare(cellc_kernel* kernel, const cellc_shape& shape) {
    cellc_call* call = nullptr;
    EXPECT_EQ(cellc_prepare(kernel, &shape, &call), CELLC_OK) << cellc_last_error();
    calls_.push_back(call);
    return call;
  }

  std::vector<cellc_kernel*> kernels_;
  std::vector<cellc_call*> calls_;
};

inline cellc_shape shape_of(const std::int64_t* lengths, std::int64_t sequences, std::int64_t steps) {
  cellc_shape shape;
  cellc_shape_init(&shape);
  shape.lengths = lengths;
  shape.sequences = sequences;
  shape.steps = steps;
  return shape;
}
