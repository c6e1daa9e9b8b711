// Filters and other narrow recurrences on one thread: a reverb of delay lines against the time that it sounds, a filter
// of eight biquads over many steps, and batches of a thousand sequences against loops in vectors written by hand.
//
//   cellc_bench_filters [repetitions]
//
// The loops: 16 sequences side by side in a vector, arrays [sequences, steps] as the cell has them, turned 16 by 16 on
// the way.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/front_end.h"
#include "runtime/build/compile_orc.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"
#include "runtime/data/read_text.h"

namespace {

using namespace cellc;

// Loops by hand -------------------------------------------------------------------------------------------

constexpr int kLanes = 16;
typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4)));
typedef int Places __attribute__((vector_size(4 * kLanes)));

/// 16 by 16 numbers, rows for columns.
void transpose(Vector* rows) {
  for (int half = 1; half < kLanes; half *= 2) {
    Places low, high;
    for (int i = 0; i < kLanes; ++i) {
      const bool second = i & half;
      low[i] = second ? i - half + kLanes : i;
      high[i] = second ? i + kLanes : i + half;
    }
    for (int i = 0; i < kLanes; ++i) {
      if (i & half) continue;
      const Vector a = rows[i], b = rows[i + half];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + half] = __builtin_shuffle(a, b, high);
    }
  }
}

/// `n` steps of 16 sequences from `t` on.
template <int kInputs, int kOutputs, class Step, class State>
inline __attribute__((always_inline)) void turn_and_step(std::int64_t first, std::int64_t n, std::int64_t steps,
                                                         const float* const* inputs, float* const* outputs,
                                                         State& state, Step& step) {
  const std::size_t bytes = static_cast<std::size_t>(n) * sizeof(float);
  Vector in[kInputs + 1][kLanes], out[kOutputs][kLanes];
  for (int k = 0; k < kInputs; ++k) {
    for (int i = 0; i < kLanes; ++i) std::memcpy(&in[k][i], inputs[k] + first + i * steps, bytes);
    transpose(in[k]);
  }
  for (std::int64_t j = 0; j < n; ++j) {
    Vector x[kInputs + 1], y[kOutputs];
    for (int k = 0; k < kInputs; ++k) x[k] = in[k][j];
    step(state, x, y);
    for (int k = 0; k < kOutputs; ++k) out[k][j] = y[k];
  }
  for (int k = 0; k < kOutputs; ++k) {
    transpose(out[k]);
    for (int i = 0; i < kLanes; ++i) std::memcpy(outputs[k] + first + i * steps, &out[k][i], bytes);
  }
}

/// Sequences [batch, steps], of which 16 go together, 16 steps at a time. `Step` takes inputs and gives results.
template <int kInputs, int kOutputs, class Step, class State>
void by_hand(std::int64_t batch, std::int64_t steps, const float* const* inputs, float* const* outputs, State start,
             Step step) {
  for (std::int64_t b = 0; b < batch; b += kLanes) {
    State state = start;
    for (std::int64_t t = 0; t < steps; t += kLanes) {
      const std::int64_t first = b * steps + t, left = steps - t;
      if (left >= kLanes)  // a number that the compiler knows: whole vectors are moved
        turn_and_step<kInputs, kOutputs>(first, kLanes, steps, inputs, outputs, state, step);
      else
        turn_and_step<kInputs, kOutputs>(first, left, steps, inputs, outputs, state, step);
    }
  }
}

struct Three {
  Vector a, b, c;
};

// Cells ---------------------------------------------------------------------------------------------------

std::string reverb() {
  const int combs[] = {1116, 1188, 1277, 1356, 1422, 1491, 1557, 1617}, passes[] = {556, 441, 341, 225};
  std::string states, lines, sum;
  for (int i = 0; i < 8; ++i) {
    states += fmt::format("s{0}, c{0}, ", i);
    lines += fmt::format("  o{0} = lag(c{0}, {1})\n  s{0}' = 0.8*o{0} + 0.2*s{0}\n  c{0}' = 0.015*x + 0.84*s{0}'\n", i,
                         combs[i] - 1);
    sum += fmt::format("{}o{}", i ? " + " : "", i);
  }
  lines += "  w0 = " + sum + "\n";
  for (int i = 0; i < 4; ++i) {
    states += fmt::format("a{}{}", i, i < 3 ? ", " : "");
    lines += fmt::format("  d{0} = lag(a{0}, {1})\n  a{0}' = w{0} + 0.5*d{0}\n  w{2} = d{0} - w{0}\n", i, passes[i] - 1,
                         i + 1);
  }
  return "cell reverb {\n  state " + states + "\n  input x\n" + lines + "  out y = w4\n}\n";
}

/// A cascade in transposed direct form II: what scipy's sosfilt computes.
std::string cascade(int sections) {
  std::string states, lines = "  y0 = x\n";
  for (int i = 0; i < sections; ++i) {
    states += fmt::format("{}z{}, w{}", i ? ", " : "", i, i);
    lines += fmt::format(
        "  y{1} = k[{0},0]*y{0} + z{0}\n  z{0}' = k[{0},1]*y{0} - k[{0},3]*y{1} + w{0}\n"
        "  w{0}' = k[{0},2]*y{0} - k[{0},4]*y{1}\n",
        i, i + 1);
  }
  return fmt::format("cell cascade[s={}, c=5] {{\n  state {}\n  input x\n  param k[s,c]\n{}  out y = y{}\n}}\n",
                     sections, states, lines, sections);
}

/// Of the processor: all is done by one thread, and who else has work for the machine does not count.
double fastest_ms(int repetitions, const std::function<void()>& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
  };
  double best = 1e300;
  for (int i = 0; i < repetitions; ++i) {
    const double start = now();
    work();
    best = std::min(best, now() - start);
  }
  return best;
}

struct Timed {
  AnalysedCell cell;
  Binding binding;
  RunOutput output;
  double ms = 0;
  std::string how;
};

Timed time_cell(const std::string& text, const std::string& name, Dtype dtype, std::int64_t batch, std::int64_t steps,
                const std::map<std::string, Array>& params, int repetitions) {
  Timed t{analyse_text(SourceText("bench", text), name), {}, {}, 0, {}};
  BindRequest request;
  request.dtype = dtype;
  request.batch = batch;
  request.length = steps;
  request.random_seed = 1;
  request.threads = 1;
  for (const AxisId a : t.cell.cell.header)
    if (!t.cell.cell.graph.axis(a).fixed) request.dims[t.cell.cell.graph.axis(a).name] = 1;
  for (const auto& [param, array] : params) request.params[param] = {param, array};
  t.binding = bind(t.cell.cell, request);
  CompileOptions options{.dtype = dtype};
  Solver solver(t.cell.cell, t.cell.structure, options);
  SolveReport report;
  t.output = solver.run(t.binding.run, {}, report);
  t.ms = fastest_ms(repetitions, [&] { t.output = solver.run(t.binding.run, {}, report, std::move(t.output)); });
  for (const StageReport& s : report.stages) {
    const std::string strategy = to_string(s.plan.strategy);
    if (t.how.find(strategy) == std::string::npos) t.how += (t.how.empty() ? "" : ", ") + strategy;
  }
  return t;
}

const float* input_of(const Timed& t, const std::string& name) {
  return static_cast<const float*>(
      t.binding.run.symbols[static_cast<std::size_t>(t.cell.cell.find_symbol(name))].data());
}

Vector number(const Timed& t, const std::string& param) {
  const Array& array = t.binding.run.symbols[static_cast<std::size_t>(t.cell.cell.find_symbol(param))];
  Vector v;
  for (int i = 0; i < kLanes; ++i) v[i] = static_cast<float>(array.get(0));
  return v;
}

/// Runs the loop into arrays of its own, and says how the cell compares.
template <int kInputs, int kOutputs, class Step, class State>
void beside(const std::string& name, const Timed& t, std::int64_t batch, std::int64_t steps,
            std::vector<const float*> inputs, const std::vector<const Array*>& wanted, State start, Step step,
            int repetitions) {
  std::vector<std::vector<float>> memory(kOutputs, std::vector<float>(static_cast<std::size_t>(batch * steps)));
  std::vector<float*> outputs;
  for (auto& m : memory) outputs.push_back(m.data());
  const double ms = fastest_ms(
      repetitions, [&] { by_hand<kInputs, kOutputs>(batch, steps, inputs.data(), outputs.data(), start, step); });
  double error = 0;
  for (int k = 0; k < kOutputs; ++k)
    for (std::int64_t i = 0; i < std::min<std::int64_t>(steps, 30); ++i)
      error = std::max(error, std::abs(wanted[static_cast<std::size_t>(k)]->get(i) - double(memory[k][i])));
  const double per = 1e6 / static_cast<double>(batch * steps);
  fmt::print("  {:<12} {:>8.3f} {:>8.3f}  {:>5.2f}   {:<24} {:.0e}\n", name, t.ms * per, ms * per, t.ms / ms, t.how,
             error);
}

const Array* state_of(const Timed& t, const std::string& name) {
  for (std::size_t u = 0; u < t.cell.cell.updates.size(); ++u)
    if (t.cell.cell.symbol_of(t.cell.cell.updates[u]).name == name) return &t.output.states[u];
  return nullptr;
}

void batches(int repetitions) {
  constexpr std::int64_t kBatch = 1024, kSteps = 1000;
  const auto example = [](const char* file) {
    return std::string(read_text(std::string(CELLC_EXAMPLES) + file).text());
  };
  fmt::print("batches of {} sequences, {} steps, f32; ns a step: cell, loop by hand, quotient\n", kBatch, kSteps);
  const auto time = [&](const char* file, const char* cell) {
    return time_cell(example(file), cell, Dtype::F32, kBatch, kSteps, {}, repetitions);
  };
  const Vector one = Vector{} + 1.0f;
  {
    const Timed t = time("35_lorenz.cell", "lorenz_rk4");
    const auto slope = [](Three s) {
      return Three{10.0f * (s.b - s.a), s.a * (28.0f - s.c) - s.b, s.a * s.b - (8.0f / 3) * s.c};
    };
    const auto moved = [](Three s, float by, Three d) { return Three{s.a + by * d.a, s.b + by * d.b, s.c + by * d.c}; };
    beside<0, 3>(
        "lorenz_rk4", t, kBatch, kSteps, {}, {state_of(t, "x"), state_of(t, "y"), state_of(t, "z")},
        Three{one, one, 20.0f * one},
        [&](Three& s, const Vector*, Vector* y) {
          constexpr float dt = 0.01f;
          const Three a = slope(s), b = slope(moved(s, dt / 2, a)), c = slope(moved(s, dt / 2, b)),
                      d = slope(moved(s, dt, c));
          s.a += dt / 6 * (a.a + 2.0f * b.a + 2.0f * c.a + d.a);
          s.b += dt / 6 * (a.b + 2.0f * b.b + 2.0f * c.b + d.b);
          s.c += dt / 6 * (a.c + 2.0f * b.c + 2.0f * c.c + d.c);
          y[0] = s.a, y[1] = s.b, y[2] = s.c;
        },
        repetitions);
  }
  {
    const Timed t = time("40_logistic.cell", "");
    const Vector r = number(t, "r");
    beside<0, 1>(
        "logistic", t, kBatch, kSteps, {}, {state_of(t, "x")}, 0.4f * one,
        [&](Vector& x, const Vector*, Vector* y) { y[0] = x = r * x * (one - x); }, repetitions);
  }
  {
    const Timed t = time("42_pid.cell", "");
    const Vector kp = number(t, "kp"), ki = number(t, "ki"), kd = number(t, "kd");
    beside<1, 3>(
        "pid", t, kBatch, kSteps, {input_of(t, "r")}, {state_of(t, "I"), state_of(t, "y"), state_of(t, "e0")}, Three{},
        [&](Three& s, const Vector* r, Vector* y) {
          constexpr float dt = 0.01f;
          const Vector e = r[0] - s.b, sum = s.a + dt * e, low = sum < -5.0f ? -5.0f * one : sum;
          s.a = low > 5.0f ? 5.0f * one : low;
          const Vector u = kp * e + ki * s.a + kd * (e - s.c) / dt;
          s.b += dt * (u - s.b);
          s.c = e;
          y[0] = s.a, y[1] = s.b, y[2] = s.c;
        },
        repetitions);
  }
  {
    const Timed t = time("39_kalman1.cell", "");
    const Vector f = number(t, "f"), q = number(t, "q"), r = number(t, "r");
    beside<1, 2>(
        "kalman", t, kBatch, kSteps, {input_of(t, "z")}, {state_of(t, "P"), state_of(t, "x")},
        Three{one, 0.0f * one, one},
        [&](Three& s, const Vector* z, Vector* y) {
          const Vector p = f * f * s.a + q, k = p / (p + r);
          y[0] = s.a = (one - k) * p;
          y[1] = s.b = (one - k) * f * s.b + k * z[0];
        },
        repetitions);
  }
  {
    const Timed t = time("37_biquad2t.cell", "");
    const Vector b0 = number(t, "b0"), b1 = number(t, "b1"), b2 = number(t, "b2"), a1 = number(t, "a1"),
                 a2 = number(t, "a2");
    beside<1, 3>(
        "biquad", t, kBatch, kSteps, {input_of(t, "u")}, {state_of(t, "s1"), state_of(t, "s2"), &t.output.outs[0]},
        Three{},
        [&](Three& s, const Vector* u, Vector* y) {
          const Vector out = b0 * u[0] + s.a;
          s.a = b1 * u[0] - a1 * out + s.b;
          s.b = b2 * u[0] - a2 * out;
          y[0] = s.a, y[1] = s.b, y[2] = out;
        },
        repetitions);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 10;
  fmt::print("{} ({}-bit vectors), one thread\n", host_cpu_name(), host_vector_bits("native"));
  {
    const std::int64_t steps = 441000;
    const Timed t = time_cell(reverb(), "", Dtype::F32, 1, steps, {}, repetitions);
    fmt::print(
        "reverb, 8 combs and 4 all-passes, 10 s at 44.1 kHz: {:.1f} ms, {:.1f} ns a step, {:.0f} times real time "
        "({})\n",
        t.ms, t.ms * 1e6 / static_cast<double>(steps), 1e4 / t.ms, t.how);
  }
  for (const Dtype dtype : {Dtype::F64, Dtype::F32}) {
    constexpr std::int64_t kSteps = 200000;
    Array k(dtype, {8, 5});
    const double section[] = {0.2, 0.3, 0.2, -0.5, 0.3};
    for (std::int64_t i = 0; i < k.count(); ++i) k.set(i, section[i % 5]);
    const Timed t = time_cell(cascade(8), "", dtype, 1, kSteps, {{"k", k}}, repetitions);
    fmt::print("8 biquads, {}, T = {}: {:.2f} ms, {:.1f} ns a step ({})\n", to_string(dtype), kSteps, t.ms,
               t.ms * 1e6 / kSteps, t.how);
  }
  batches(repetitions);
  return 0;
}
