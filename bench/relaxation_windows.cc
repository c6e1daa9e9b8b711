// How many windows of time an iteration of relaxation still moves: whether dropping those that have settled would save
// anything. Counts, and times nothing; on any CPU.
//
//   cellc_bench_windows [STEPS [GAIN [UNITS]]]
//
// An LSTM with weights uniform in ±GAIN/sqrt(UNITS), inputs in ±1, relaxed from zeros as relaxation_on_gpu does: every
// product U@h of the last iterate, then c and h exactly. A line an iteration: the largest change of h, and of the
// windows of 64 steps those that moved by more than 1e-6.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

namespace {

constexpr int kWindow = 64, kMostIterations = 80;

using Rows = std::vector<float>;

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// rows [steps, 4*units] += rows [steps, units] one step earlier, or at the same, times weights [4*units, units].
void add_products(const Rows& weights, const Rows& rows, int units, int earlier, Rows& to) {
  const auto d = static_cast<std::size_t>(units);
  for (std::size_t t = static_cast<std::size_t>(earlier); t * d < rows.size(); ++t)
    for (std::size_t g = 0; g < 4 * d; ++g) {
      const float *w = &weights[g * d], *r = &rows[(t - static_cast<std::size_t>(earlier)) * d];
      float sum = 0;
      for (std::size_t k = 0; k < d; ++k) sum += w[k] * r[k];
      to[t * 4 * d + g] += sum;
    }
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 1024, units = argc > 3 ? std::atoi(argv[3]) : 256;
  const double gain = argc > 2 ? std::atof(argv[2]) : 1;
  const auto d = static_cast<std::size_t>(units), rows = static_cast<std::size_t>(steps);
  std::mt19937 random(7);
  const auto drawn = [&](std::size_t count, double most) {
    std::uniform_real_distribution<float> numbers(static_cast<float>(-most), static_cast<float>(most));
    Rows all(count);
    for (float& x : all) x = numbers(random);
    return all;
  };
  const double width = 1 / std::sqrt(static_cast<double>(units));
  const Rows u = drawn(4 * d * d, gain * width), w = drawn(4 * d * d, width), x = drawn(rows * d, 1);
  Rows fixed(rows * 4 * d), h(rows * d), next(rows * d);
  add_products(w, x, units, 0, fixed);
  for (int iteration = 1; iteration <= kMostIterations; ++iteration) {
    Rows gates = fixed, c(d);
    add_products(u, h, units, 1, gates);
    Rows moved((rows + kWindow - 1) / kWindow);
    for (std::size_t t = 0; t < rows; ++t)
      for (std::size_t j = 0; j < d; ++j) {
        const float* const g = &gates[t * 4 * d + j];
        c[j] = sigmoid(g[d]) * c[j] + sigmoid(g[0]) * std::tanh(g[2 * d]);
        next[t * d + j] = sigmoid(g[3 * d]) * std::tanh(c[j]);
        moved[t / kWindow] = std::max(moved[t / kWindow], std::abs(next[t * d + j] - h[t * d + j]));
      }
    std::swap(h, next);
    const float most = *std::max_element(moved.begin(), moved.end());
    fmt::print("{:3} change {:.1e}, {} of {} windows\n", iteration, most,
               std::count_if(moved.begin(), moved.end(), [](float m) { return m > 1e-6f; }), moved.size());
    if (most <= 1e-6f) break;
  }
}
