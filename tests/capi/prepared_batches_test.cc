// Prepared calls of narrow batches: sequences lie side by side in vectors, as in shipped code, with the numbers that
// one sequence after another has.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/capi/kept_handles.h"
#include "tests/capi/requested_call.h"

namespace {

const std::string kText = R"(cell gates {
  state h, c
  input x
  param a in (0.2, 0.8), b
  c' = sigmoid(a*h)*c + x
  h' = tanh(c' + b*lag(x, 2))
  out y = h'*x
}
)";
constexpr std::int64_t kSequences = 70, kSteps = 64;
const std::int64_t kNone[] = {0};

class PreparedBatches : public KeptHandles {
 protected:
  cellc_call* prepared(cellc_kernel* kernel, cellc_direction direction, std::int64_t sequences) {
    const cellc_shape shape = shape_of(kNone, sequences, kSteps);
    if (direction == CELLC_FORWARD) return prepare(kernel, shape);
    cellc_call* call = nullptr;
    EXPECT_EQ(cellc_prepare_backward(kernel, &shape, &call), CELLC_OK) << cellc_last_error();
    calls_.push_back(call);
    return call;
  }
  static std::int64_t workspace(cellc_call* call) {
    std::int64_t bytes = 0;
    EXPECT_EQ(cellc_call_workspace(call, &bytes), CELLC_OK);
    return bytes;
  }
};

TEST_F(PreparedBatches, LieSideBySide) {
  cellc_kernel* kernel = compile(kText, nullptr, [](cellc_options& o) { o.dtype = CELLC_F64; });
  const cellc_shape all = shape_of(kNone, kSequences, kSteps), one = shape_of(kNone, 1, kSteps);
  for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD}) {
    // In both orders: a call that needs no code for batches does not keep it from one that does.
    cellc_call* single = prepared(kernel, direction, 1);
    cellc_call* batch = prepared(kernel, direction, kSequences);
    EXPECT_GT(workspace(batch), workspace(single));
    EXPECT_EQ(workspace(prepared(kernel, direction, 1)), workspace(single));
    RequestedCall together(kernel, direction, all);
    std::map<std::string, std::vector<double>> sums;
    const auto given = together.of;
    ASSERT_EQ(cellc_apply_prepared(batch, &together.request), CELLC_OK) << cellc_last_error();
    for (std::int64_t s = 0; s < kSequences; ++s) {
      RequestedCall alone(kernel, direction, one);
      const auto part_of = [&](const std::string& name, const std::vector<double>& whole) {
        const std::size_t part = alone.of[name].size();
        const auto from = whole.begin() + static_cast<std::ptrdiff_t>(part == whole.size() ? 0 : part * s);
        return std::vector<double>(from, from + static_cast<std::ptrdiff_t>(part));
      };
      for (auto& [name, memory] : alone.of) {
        const std::vector<double> part = part_of(name, given.at(name));
        std::copy(part.begin(), part.end(), memory.begin());
      }
      ASSERT_EQ(cellc_apply_prepared(single, &alone.request), CELLC_OK) << cellc_last_error();
      for (auto& [name, memory] : alone.of) {
        if (name == "gradient.a" || name == "gradient.b")
          sums[name].resize(1), sums[name][0] += memory[0];
        else
          EXPECT_EQ(memory, part_of(name, together.of[name])) << name << " of sequence " << s;
      }
    }
    for (const auto& [name, sum] : sums)
      EXPECT_NEAR(together.of[name][0], sum[0], 1e-12 * (1 + std::fabs(sum[0]))) << name;
    EXPECT_EQ(sums.size(), direction == CELLC_FORWARD ? 0u : 2u);
  }
}

}  // namespace
