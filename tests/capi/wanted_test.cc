// Results that are null: what is not has the bits of a full call, and nobody holds a trajectory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/capi/call_arrays.h"
#include "tests/capi/kept_handles.h"

namespace {

const std::string kLagged = R"(cell narx[d] {
  state h[d]
  input x[d]
  h' = tanh(0.5*h + 0.25*lag(h, 2) + x - 0.5*lag(x, 3))
}
)";

class WantedInC : public KeptHandles {};

// Whatever else is null: lengths beyond blocks and parts of time, packed, reversed, in each solver.
TEST_F(WantedInC, WhatIsNotNullHasTheBitsOfAFullCall) {
  const std::int64_t d[] = {5}, offsets[] = {0, 400, 400, 401, 700};
  for (const cellc_dtype dtype : {CELLC_F32, CELLC_F64})
    for (const char* solver : {"sequential", "segmented", "newton"})
      for (const bool reverse : {false, true}) {
        SCOPED_TRACE(testing::Message() << dtype << solver << reverse);
        cellc_options options;
        cellc_options_init(&options);
        options.dtype = dtype;
        options.solver = solver;
        cellc_kernel* kernel = nullptr;
        ASSERT_EQ(cellc_compile_text(kLagged.data(), kLagged.size(), &options, &kernel), CELLC_OK);
        kernels_.push_back(kernel);
        cellc_shape shape = shape_of(d, 4, 0);
        shape.offsets = offsets;
        shape.reverse = reverse;
        cellc_call* call = prepare(kernel, shape);
        const auto compare = [&](auto number) {
          using Number = decltype(number);
          Arrays<Number> all(kernel, shape, dtype), prepared(kernel, shape, dtype);
          ASSERT_EQ(cellc_forward(kernel, &shape, all.table.data(), all.count(), nullptr), CELLC_OK)
              << cellc_last_error();
          ASSERT_EQ(cellc_run(call, prepared.table.data(), prepared.count()), CELLC_OK) << cellc_last_error();
          const std::vector<std::string> written = {"h", "h_final", "h_lag_final", "x_lag_final"};
          for (const std::string& wanted : written) {
            Arrays<Number> one(kernel, shape, dtype);
            for (const std::string& other : written)
              if (other != wanted) one.at(other.c_str()).data = nullptr;
            ASSERT_EQ(cellc_forward(kernel, &shape, one.table.data(), one.count(), nullptr), CELLC_OK)
                << cellc_last_error();
            EXPECT_EQ(one.of(wanted.c_str()), all.of(wanted.c_str())) << wanted;
            ASSERT_EQ(cellc_run(call, one.table.data(), one.count()), CELLC_OK) << cellc_last_error();
            EXPECT_EQ(one.of(wanted.c_str()), prepared.of(wanted.c_str())) << wanted << " of a prepared call";
          }
        };
        dtype == CELLC_F32 ? compare(float()) : compare(double());
      }
}

/// The most memory that the process has held, in bytes.
std::int64_t peak_bytes() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return std::int64_t{used.ru_maxrss} << 10;
}

// 128 MiB of states for 2 of outs.
TEST_F(WantedInC, NoMemoryForAStateThatIsNull) {
  cellc_kernel* kernel = KeptHandles::compile(
      "cell attention[v, k] {\n  state S[v,k]\n  input key[k], val[v], query[k]\n  S' = 0.9*S + val*key\n"
      "  out o = S'@query\n}\n",
      nullptr, nullptr);
  const std::int64_t lengths[] = {128, 64};
  const cellc_shape shape = shape_of(lengths, 1, 4096), none = shape_of(lengths, 0, 4096);
  Arrays<float> arrays(kernel, none, CELLC_F32);  // and then those that are given
  std::vector<std::vector<float>> memory;
  for (const auto& [name, entries] : {std::pair{"key", 64}, {"val", 128}, {"query", 64}, {"o", 128}}) {
    memory.emplace_back(static_cast<std::size_t>(4096 * entries), 0.25f);
    arrays.at(name) = {memory.back().data(), 4096 * entries, CELLC_F32, 0, 0};
  }
  std::vector<float> last(128 * 64);
  for (const char* name : {"S", "S_start"}) arrays.at(name).data = nullptr;
  arrays.at("S_final") = {last.data(), 128 * 64, CELLC_F32, 0, 0};
  const std::int64_t before = peak_bytes();
  ASSERT_EQ(cellc_forward(kernel, &shape, arrays.table.data(), arrays.count(), nullptr), CELLC_OK)
      << cellc_last_error();
  ASSERT_EQ(cellc_run(prepare(kernel, shape), arrays.table.data(), arrays.count()), CELLC_OK) << cellc_last_error();
  EXPECT_LT(peak_bytes() - before, std::int64_t{96} << 20);
}

}  // namespace
