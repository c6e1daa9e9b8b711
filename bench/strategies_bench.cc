// The parallel strategies on the CPU beside the sequential kernel and a scalar loop, in one run.
//
//   cellc_bench_strategies [repetitions [case]]      case: fast, mixed, slow, stiff, linear,
//                                           lstm, or lstm256, lstm512, lstm1024
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

#include "compiler/front_end.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/read_text.h"

namespace {

using namespace cellc;

const char* const kLinear = R"(cell linear[d] {
  state h[d]
  input a[d], x[d]
  h' = a*h + x
}
)";

const char* const kLstm = R"(cell lstm[d] {
  state c[d], h[d]
  input xi[d], xf[d], xg[d], xo[d]
  param Ui[d,d], Uf[d,d], Ug[d,d], Uo[d,d]
  c' = sigmoid(Uf@h + xf)*c + sigmoid(Ui@h + xi)*tanh(Ug@h + xg)
  h' = sigmoid(Uo@h + xo)*tanh(c')
}
)";

/// A cell with its arrays, every input and state [steps, channels].
struct Case {
  CellGraph cell;
  Structure structure;
  BoundRun run;

  Case(SourceText text, std::int64_t steps, std::int64_t channels,
       const std::function<double(const Symbol&, std::int64_t channel, std::mt19937&)>& draw) {
    AnalysedCell analysed = analyse_text(std::move(text));
    cell = std::move(analysed.cell);
    structure = std::move(analysed.structure);
    run.sizes[cell.header[0]] = channels;
    run.offsets = {0, steps};
    std::mt19937 random(1);
    for (const Symbol& symbol : cell.symbols) {
      const std::int64_t rows = symbol.kind == SymbolKind::Input ? steps : symbol.axes.size() == 2 ? channels : 1;
      Array array(Dtype::F32, {rows, channels});
      float* data = static_cast<float*>(array.data());
      if (symbol.kind != SymbolKind::State)
        for (std::int64_t i = 0; i < rows * channels; ++i)
          data[i] = static_cast<float>(draw(symbol, i % channels, random));
      if (symbol.kind == SymbolKind::Param && rows == 1) array = array.with_shape({channels});
      run.symbols.push_back(array);
    }
  }
};

/// The fastest of some repetitions, and the least time that all processors together spent on one: the
/// latter says what a run costs where other programs take the processors away.
struct Fastest {
  double ms = 1e300, processor_ms = 1e300;
};

double processor_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Fastest fastest(int repetitions, const std::function<void()>& work) {
  Fastest best;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const double busy = processor_ms();
    work();
    best.processor_ms = std::min(best.processor_ms, processor_ms() - busy);
    best.ms =
        std::min(best.ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

struct Timed {
  double ms, processor_ms;
  RunOutput output;
  SolveReport report;
};

Timed timed(Case& c, Strategy solver, int threads, int repetitions) {
  Solver s(c.cell, c.structure, {});
  c.run.threads = threads;
  SolveOptions options;
  options.solver = solver;
  Timed t;
  t.output = s.run(c.run, options, t.report);
  const Fastest best = fastest(repetitions, [&] { t.output = s.run(c.run, options, t.report, std::move(t.output)); });
  t.ms = best.ms;
  t.processor_ms = best.processor_ms;
  return t;
}

double difference(const RunOutput& a, const RunOutput& b) {
  const float *x = static_cast<const float*>(a.states[0].data()), *y = static_cast<const float*>(b.states[0].data());
  double most = 0;
  for (std::int64_t i = 0; i < a.states[0].count(); ++i)
    most = std::max(most, std::fabs(double(x[i]) - y[i]) / (1 + std::fabs(double(y[i]))));
  return most;
}

void line(const char* what, const Timed& t, double reference, double far) {
  const StageReport& s = t.report.stages[0];
  fmt::print(
      "  {:<30}{:>9.2f} ms ({:>7.2f} busy)  {:>5.2f}x  {:<11} segment {:>7}, early {:>5}, missed {:>4}, iterations {}, "
      "off by {:.1e}\n",
      what, t.ms, t.processor_ms, reference / t.ms, to_string(s.plan.strategy), s.plan.segment, s.plan.burn_in,
      s.misses, s.iterations, far);
}

void gru(const char* name, double offset, int every, double a, int repetitions) {
  Case c(read_text(CELLC_PARA_GRU), 1000000, 8, [&](const Symbol& s, std::int64_t channel, std::mt19937& random) {
    if (s.kind == SymbolKind::Param) return std::uniform_real_distribution<double>(-a, a)(random);
    std::uniform_real_distribution<double> half(-1.2, 1.2);
    return half(random) + half(random) + (s.name == "xz" && channel % every == 0 ? offset : 0.0);
  });
  const Timed sequential = timed(c, Strategy::Sequential, 1, repetitions);
  fmt::print("ParaGRU, {} data, B=1, T=1000000, d=8, f32\n", name);
  line("sequential, one thread", sequential, sequential.ms, 0);
  const Timed two = timed(c, Strategy::Auto, 2, repetitions);
  line("auto, two threads", two, sequential.ms, difference(two.output, sequential.output));
  const Timed one = timed(c, Strategy::Auto, 1, repetitions);
  line("auto, one thread", one, sequential.ms, difference(one.output, sequential.output));
}

void linear(int repetitions) {
  constexpr std::int64_t kSteps = 10000000;
  Case c({"bench", kLinear}, kSteps, 1, [](const Symbol& s, std::int64_t, std::mt19937& random) {
    return s.name == "a" ? std::uniform_real_distribution<double>(0.5, 1.0)(random)
                         : std::uniform_real_distribution<double>(-1, 1)(random);
  });
  std::vector<float> h(kSteps);
  const float *a = static_cast<const float*>(c.run.symbols[c.cell.find_symbol("a")].data()),
              *x = static_cast<const float*>(c.run.symbols[c.cell.find_symbol("x")].data());
  const double scalar = fastest(repetitions, [&] {
                          float s = 0;
                          for (std::int64_t t = 0; t < kSteps; ++t) h[t] = s = a[t] * s + x[t];
                        }).ms;
  fmt::print("h' = a*h + x, B=1, T=10000000, d=1, f32\n  {:<30}{:>9.2f} ms  {:>5.2f}x\n", "scalar loop", scalar, 1.0);
  const Timed two = timed(c, Strategy::Auto, 2, repetitions);
  double far = 0;
  const float* got = static_cast<const float*>(two.output.states[0].data());
  for (std::int64_t t = 0; t < kSteps; ++t)
    far = std::max(far, std::fabs(double(got[t]) - h[t]) / (1 + std::fabs(double(h[t]))));
  line("auto, two threads", two, scalar, far);
}

/// As torch initialises it: weights uniform within 1/sqrt(d), inputs what W@x + b gives for x of variance 1.
void lstm(std::int64_t channels, int repetitions) {
  const double most = 1 / std::sqrt(static_cast<double>(channels));
  Case c({"bench", kLstm}, 4096, channels, [&](const Symbol& s, std::int64_t, std::mt19937& random) {
    if (s.kind == SymbolKind::Param) return std::uniform_real_distribution<double>(-most, most)(random);
    return std::normal_distribution<double>(0, std::sqrt(1.0 / 3))(random);
  });
  fmt::print("LSTM at torch's initialisation, B=1, T=4096, d={}, f32\n", channels);
  const Timed sequential = timed(c, Strategy::Sequential, 2, repetitions);
  line("sequential, two threads", sequential, sequential.ms, 0);
  for (const Strategy solver : {Strategy::Relaxation, Strategy::Auto}) {
    const Timed two = timed(c, solver, 2, repetitions);
    line(solver == Strategy::Auto ? "auto, two threads" : "relaxation, two threads", two, sequential.ms,
         difference(two.output, sequential.output));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 10;
  const std::string only = argc > 2 ? argv[2] : "";
  const auto wanted = [&](const char* name) { return only.empty() || only == name; };
  if (wanted("fast")) gru("fast", 0, 1, 1, repetitions);
  if (wanted("mixed")) gru("mixed", -6, 10, 1, repetitions);
  if (wanted("slow")) gru("slow", -6, 1, 1, repetitions);
  if (wanted("stiff")) gru("stiff", -6, 3, 3, repetitions);
  if (wanted("linear")) linear(repetitions);
  for (const std::int64_t channels : {256, 512, 1024})
    if (wanted("lstm") || only == fmt::format("lstm{}", channels)) lstm(channels, std::min(repetitions, 5));
}
