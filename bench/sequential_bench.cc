// The sequential CPU engine on ParaGRU: nanoseconds per step and channel beside a scalar libm loop in
// the same run, the gain of a second thread, and the time from cell text to running code.
//
//   cellc_bench_sequential [steps [channels [repetitions]]]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "compiler/front_end.h"
#include "runtime/build/compile_orc.h"
#include "runtime/cpu/engine.h"
#include "runtime/data/read_text.h"

namespace {

using namespace cellc;
using Clock = std::chrono::steady_clock;

double ms(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// The fastest of some runs: what the machine can do when nothing else disturbs it.
double fastest_ms(int repetitions, const std::function<void()>& work) {
  double best = 1e300;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = Clock::now();
    work();
    best = std::min(best, ms(start, Clock::now()));
  }
  return best;
}

/// One channel after another in a step, as one writes it first.
void scalar_loop(std::int64_t steps, std::int64_t channels, const float* const x[3], const float* const a[3],
                 const float* start, float* h) {
  const float* old = start;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t i = t * channels + c;
      const float z = 1.0f / (1.0f + std::exp(-(a[0][c] * old[c] + x[0][i])));
      const float r = 1.0f / (1.0f + std::exp(-(a[1][c] * old[c] + x[1][i])));
      const float n = std::tanh(a[2][c] * (r * old[c]) + x[2][i]);
      h[i] = (1 - z) * old[c] + z * n;
    }
    old = h + t * channels;
  }
}

int bench(std::int64_t steps, std::int64_t channels, int repetitions) {
  // From text to code, as the first use of a process pays it, then again.
  const SourceText text = read_text(CELLC_PARA_GRU);
  double compile[2], front[2];
  std::optional<Program> program;
  std::optional<AnalysedCell> cell;
  for (int i = 0; i < 2; ++i) {
    const auto start = Clock::now();
    cell.emplace(analyse_text(text));
    const auto middle = Clock::now();
    program.emplace(Program::compile(cell->cell, cell->structure, {}));
    front[i] = ms(start, middle);
    compile[i] = ms(middle, Clock::now());
  }

  BoundRun run;
  run.sizes[cell->cell.header[0]] = channels;
  run.offsets = {0, steps};
  std::mt19937 random(1);
  const float* inputs[3];
  const float* params[3];
  int input = 0, param = 0;
  for (const Symbol& symbol : cell->cell.symbols) {
    const bool is_input = symbol.kind == SymbolKind::Input;
    Array array(Dtype::F32, is_input                           ? std::vector<std::int64_t>{steps, channels}
                            : symbol.kind == SymbolKind::State ? std::vector<std::int64_t>{1, channels}
                                                               : std::vector<std::int64_t>{channels});
    std::uniform_real_distribution<float> draw(is_input ? -2.4f : -1.0f, is_input ? 2.4f : 1.0f);
    float* data = static_cast<float*>(array.data());
    if (symbol.kind != SymbolKind::State) std::generate_n(data, array.count(), [&] { return draw(random); });
    if (is_input) inputs[input++] = data;
    if (symbol.kind == SymbolKind::Param) params[param++] = data;
    run.symbols.push_back(array);
  }
  const double per = 1e6 / static_cast<double>(steps * channels);

  std::vector<float> plain(static_cast<std::size_t>(steps * channels)), zeros(static_cast<std::size_t>(channels));
  const double scalar = fastest_ms(std::max(1, repetitions / 10),
                                   [&] { scalar_loop(steps, channels, inputs, params, zeros.data(), plain.data()); });
  double timed[2];
  RunOutput output;
  for (int threads = 1; threads <= 2; ++threads) {
    run.threads = threads;
    timed[threads - 1] = fastest_ms(repetitions, [&] { output = program->run(run, std::move(output)); });
  }
  double error = 0;
  const float* got = static_cast<const float*>(output.states[0].data());
  for (std::size_t i = 0; i < plain.size(); ++i) error = std::max(error, std::abs(double(got[i]) - plain[i]));

  fmt::print("ParaGRU, f32, B=1, T={}, d={}, {} ({}-bit vectors)\n", steps, channels, host_cpu_name(),
             host_vector_bits("native"));
  fmt::print("  {:<34}{:>9.3f} ns per step and channel\n", "scalar libm loop, one thread", scalar * per);
  fmt::print("  {:<34}{:>9.3f} ns   {:.1f}x the scalar loop\n", "cellc, one thread", timed[0] * per, scalar / timed[0]);
  fmt::print("  {:<34}{:>9.3f} ns   {:.2f}x one thread\n", "cellc, two threads", timed[1] * per, timed[0] / timed[1]);
  fmt::print("  {:<34}{:>9.1e}\n", "largest difference from the loop", error);
  fmt::print("  {:<34}{:>9.2f} ms   (front end {:.2f}, code {:.2f})\n", "cell text to code, first time",
             front[0] + compile[0], front[0], compile[0]);
  fmt::print("  {:<34}{:>9.2f} ms   (front end {:.2f}, code {:.2f})\n", "cell text to code, again",
             front[1] + compile[1], front[1], compile[1]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, std::int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const std::int64_t steps = number(1, 4096), channels = number(2, 1024), repetitions = number(3, 50);
  if (steps < 1 || channels < 1 || repetitions < 1) {
    fmt::print(stderr, "usage: cellc_bench_sequential [steps [channels [repetitions]]]\n");
    return 2;
  }
  return bench(steps, channels, static_cast<int>(repetitions));
}
