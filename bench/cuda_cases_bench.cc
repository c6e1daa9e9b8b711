// What the grid of cuda_grid_bench.cc does not show, on a GPU: linear scans of few channels, chaotic cells, HGRN
// in 16 bits, and calls whose data change. Figures of others that stand beside ours were measured on an H200.
//
//   cellc_bench_cases [linear,wide,short,rounded,chaotic,hgrn,changing [REPEATS [B,T,d …]]]
//
// Shapes are for `wide`, instead of its own.
//
// A ratio beside `copy` is ours over a copy of as many bytes; `differs` compares with the sequential kernel, where
// that is run.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "bench/device_data.h"
#include "compiler/front_end.h"
#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/launch/cuda_solver.h"

using namespace cellc;

namespace {

const char* const kLinear = "cell linear[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = a*h + x\n}\n";
const char* const kMinGru =
    "cell min_gru[d] {\n  state h[d]\n  input xz[d], xc[d]\n  z = sigmoid(xz)\n  h' = (1 - z)*h + z*xc\n}\n";
const char* const kClip = "cell clipped[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = clip(a*h + x, -1, 1)\n}\n";
const char* const kMoebius = "cell moebius[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = (a*h + x + 2)/(h + 2)\n}\n";
const char* const kHgrn = "cell hgrn[d] {\n  state h[d]\n  input g[d], x[d]\n  h' = exp(g)*h + x\n}\n";
const char* const kLogistic = "cell logistic {\n  state x = 0.4\n  param r\n  x' = r*x*(1 - x)\n}\n";
const char* const kLorenz = R"(cell lorenz {
  state x = 1, y = 1, z = 20
  dt = 0.01
  x' = x + dt*10*(y - x)
  y' = y + dt*(x*(28 - z) - y)
  z' = z + dt*(x*y - 8/3*z)
}
)";
const char* const kGru = R"(cell para_gru[d] {
  state h[d]
  input xz[d], xr[d], xc[d]
  param az[d], ar[d], ac[d]
  z  = sigmoid(az*h + xz)
  r  = sigmoid(ar*h + xr)
  c  = tanh(ac*(r*h) + xc)
  h' = (1 - z)*h + z*c
}
)";

struct Range {
  float low, high;
  bool triangular = false;
};

/// A cell of at most one axis over B sequences of T steps, its inputs on the device: [B, T, d] each.
class Case {
 public:
  Case(Gpu& gpu, const char* text, Dtype dtype, std::int64_t batch, std::int64_t steps, std::int64_t channels,
       const std::vector<Range>& ranges, double param = 1)
      : gpu_(gpu),
        cell_(analyse_text(SourceText("bench", text))),
        dtype_(dtype),
        batch_(batch),
        steps_(steps),
        channels_(channels),
        ranges_(ranges),
        device_data_(gpu, dtype) {
    const CellGraph& cell = cell_.cell;
    for (const AxisId a : cell.header) run_.sizes[a] = channels;
    std::uint64_t seed = 1;
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      const Symbol& symbol = cell.symbols[s];
      Array array;
      std::vector<std::int64_t> shape;
      if (!cell.header.empty()) shape.push_back(channels);
      const Dtype own = dtype == Dtype::F64 ? Dtype::F64 : Dtype::F32;
      if (symbol.kind == SymbolKind::Input) {
        inputs_.push_back(static_cast<int>(s));
        const std::size_t bytes = static_cast<std::size_t>(batch * steps * channels) * size_of(dtype);
        data_.emplace_back(gpu, bytes + 16);
      } else if (symbol.kind == SymbolKind::Param) {
        array = Array(own, shape);
        for (std::int64_t i = 0; i < array.count(); ++i)
          array.set(i, cell.header.empty() ? param : param * (2 * draw(seed++) - 1));
      } else {
        shape.insert(shape.begin(), batch);
        array = Array(own, shape);
        // Cells without inputs differ by where they start.
        if (ranges.empty())
          for (std::int64_t i = 0; i < array.count(); ++i)
            array.set(i, symbol.name == "z" ? 15 + 10 * draw(seed++) : 0.1 + 0.8 * draw(seed++));
      }
      run_.symbols.push_back(array);
    }
    run_.offsets = {0};
    for (std::int64_t b = 0; b < batch; ++b) run_.offsets.push_back((b + 1) * steps);
  }

  /// Draws the inputs anew.
  void fill(unsigned seed, int every = 1, float offset = 0) {
    for (std::size_t i = 0; i < data_.size(); ++i) {
      const unsigned own = seed + 100 * static_cast<unsigned>(i);
      device_data_.fill(data_[i].address(), batch_ * steps_ * channels_,
                        {ranges_[i].low, ranges_[i].high, own, ranges_[i].triangular ? own + 7 : 0, channels_,
                         channels_, every, i == 0 ? offset : 0.f});
    }
  }
  void give(CudaSolver& solver, const Case& data) const {
    for (std::size_t i = 0; i < inputs_.size(); ++i) solver.place(inputs_[i], data.data_[i].address(), channels_);
  }
  /// `checks`: scans look at what they rounded.
  CudaSolver solver(Strategy strategy, bool checks = false) {
    CudaSolver made(gpu_, cell_.cell, cell_.structure, dtype_, &cell_.source);
    SolveOptions options;
    options.solver = strategy;
    options.check_scans = checks;
    made.upload(run_, options);
    give(made, *this);
    return made;
  }
  /// Calls from which the planner learns.
  void settle(CudaSolver& solver, Strategy strategy, SolveReport& report, int calls = 3, bool checks = false) {
    SolveOptions options;
    options.solver = strategy;
    options.check_scans = checks;
    for (int i = 0; i < calls; ++i) {
      solver.launch(0);
      solver.report(report, 0);
      solver.replan(options);
    }
    give(solver, *this);
  }
  double floor(int repeats) {
    const std::int64_t each = batch_ * steps_ * channels_ * static_cast<std::int64_t>(size_of(dtype_));
    const std::int64_t read = each * static_cast<std::int64_t>(inputs_.size()), written = each * states();
    const GpuBuffer from(gpu_, static_cast<std::size_t>(read + 256)), to(gpu_, static_cast<std::size_t>(written + 256));
    gpu_.zero(from.address(), from.bytes(), 0);
    return FloorCopy(gpu_).ms(from.address(), read, to.address(), written, repeats);
  }
  double bytes() const {
    return static_cast<double>(batch_ * steps_ * channels_ * static_cast<std::int64_t>(size_of(dtype_))) *
           static_cast<double>(inputs_.size() + static_cast<std::size_t>(states()));
  }
  double difference(const CudaSolver& a, const CudaSolver& b) {
    return device_data_.difference(a, b, states(), batch_ * steps_ * channels_);
  }
  void hold(double ms) { device_data_.hold(ms); }
  std::int64_t states() const { return static_cast<std::int64_t>(cell_.cell.updates.size()); }

 private:
  static double draw(std::uint64_t i) {
    std::uint64_t z = i * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    return static_cast<double>(z >> 11) * 0x1p-53;
  }
  Gpu& gpu_;
  const AnalysedCell cell_;
  const Dtype dtype_;
  const std::int64_t batch_, steps_, channels_;
  const std::vector<Range> ranges_;
  BoundRun run_;
  const DeviceData device_data_;
  std::vector<int> inputs_;
  std::vector<GpuBuffer> data_;
};

std::string plan_of(const SolveReport& report) {
  const StageReport& s = report.stages[0];
  return fmt::format("{} S={}", to_string(s.plan.strategy), s.plan.segment);
}

void linear(Gpu& gpu, int repeats) {
  fmt::print("\nlinear scans of few channels, one sequence\n{:<9}{:<5}{:>10}{:>4}{:>9}{:>9}{:>8}{:>10}  plan\n", "cell",
             "type", "T", "d", "copy", "ours", "of copy", "differs");
  struct One {
    const char *name, *text;
    Dtype dtype;
    std::int64_t channels;
    std::vector<Range> ranges;
  };
  const std::vector<Range> decays = {{0.5f, 1.f}, {-1.f, 1.f}};
  std::vector<One> all;
  for (const std::int64_t d : {1, 2, 3, 4, 8, 16, 32, 64, 128, 256})
    all.push_back({"linear", kLinear, Dtype::F32, d, decays});
  all.push_back({"linear", kLinear, Dtype::F64, 1, decays});
  all.push_back({"linear", kLinear, Dtype::BF16, 1, decays});
  all.push_back({"linear", kLinear, Dtype::BF16, 4, decays});
  all.push_back({"clip", kClip, Dtype::F32, 1, decays});
  all.push_back({"Möbius", kMoebius, Dtype::F32, 1, {{1.f, 2.f}, {0.f, 1.f}}});
  for (const One& one : all) {
    const std::int64_t steps = (std::int64_t{1} << 26) / one.channels;
    Case c(gpu, one.text, one.dtype, 1, steps, one.channels, one.ranges);
    c.fill(1);
    const double floor = c.floor(repeats);
    CudaSolver ours = c.solver(Strategy::Auto);
    SolveReport report;
    c.settle(ours, Strategy::Auto, report, 2);
    const double ms = ms_a_call(gpu, repeats, [&] { ours.launch(0); });
    // A step at a time takes seconds: a scan of other pieces stands in, and the sequential kernel for few steps below.
    SolveOptions other;
    other.solver = Strategy::Scan;
    other.check_scans = false;
    other.plan.push_back({Strategy::Scan, 2048, 0, "other pieces"});
    CudaSolver again = c.solver(Strategy::Auto);
    again.replan(other);
    again.launch(0);
    fmt::print("{:<9}{:<5}{:>10}{:>4}{:>9.4f}{:>9.4f}{:>8.2f}{:>10.0e}  {}\n", one.name, to_string(one.dtype), steps,
               one.channels, floor, ms, floor / ms, c.difference(ours, again), plan_of(report));
    std::fflush(stdout);
  }
}

/// Many channels, of data like those of gates.
void wide(Gpu& gpu, int repeats, const std::vector<std::array<std::int64_t, 3>>& shapes) {
  fmt::print(
      "\nscans of many channels, ms; `checked`: with a look at all starts, and shares of channels that were walked\n"
      "{:<9}{:<5}{:>4}{:>10}{:>6}{:>9}{:>9}{:>8}{:>9}{:>8}{:>8}{:>12}\n",
      "cell", "type", "B", "T", "d", "copy", "scan", "of copy", "checked", "of copy", "walked", "sequential");
  struct One {
    const char *name, *text;
    Dtype dtype;
    std::int64_t batch, steps, channels;
    std::vector<Range> ranges;
  };
  const std::vector<Range> decays = {{0.5f, 1.f}, {-1.f, 1.f}}, gates = {{-2.f, 2.f}, {-1.f, 1.f}};
  std::vector<One> all;
  for (const auto& [batch, steps, channels] : shapes) {
    all.push_back({"linear", kLinear, Dtype::F32, batch, steps, channels, decays});
    if (batch * channels >= 128) all.push_back({"minGRU", kMinGru, Dtype::F32, batch, steps, channels, gates});
    if (batch == 8)
      for (const Dtype dtype : {Dtype::F64, Dtype::BF16})
        all.push_back({"linear", kLinear, dtype, batch, steps, channels, decays});
  }
  for (const One& one : all) {
    Case c(gpu, one.text, one.dtype, one.batch, one.steps, one.channels, one.ranges);
    c.fill(1);
    const double floor = c.floor(repeats);
    CudaSolver scan = c.solver(Strategy::Scan), checked = c.solver(Strategy::Scan, true);
    const double ms = ms_a_call(gpu, repeats, [&] { scan.launch(0); }),
                 checked_ms = ms_a_call(gpu, repeats, [&] { checked.launch(0); });
    SolveReport report;
    checked.report(report, 0);
    checked.launch(0);
    checked.report(report, 0);
    double walk = -1;
    if (one.steps <= 8192) {
      CudaSolver sequential = c.solver(Strategy::Sequential);
      walk = ms_a_call(gpu, repeats, [&] { sequential.launch(0); });
    }
    fmt::print("{:<9}{:<5}{:>4}{:>10}{:>6}{:>9.4f}{:>9.4f}{:>8.3f}{:>9.4f}{:>8.3f}{:>8}{:>12.4f}\n", one.name,
               to_string(one.dtype), one.batch, one.steps, one.channels, floor, ms, floor / ms, checked_ms,
               floor / checked_ms, report.stages[0].repaired, walk);
    std::fflush(stdout);
  }
}

/// Sums of large numbers that come back to small ones: composed maps round by more than the tolerance, and checked
/// scans walk.
void rounded(Gpu& gpu, int repeats) {
  fmt::print(
      "\nh' = a*h + x of x up to 10, f32; ms; `walked`: shares of channels, of a checked call; `learned`: checked "
      "calls after those\n"
      "{:>4}{:>10}{:>6}{:>9}{:>9}{:>9}{:>9}{:>9}{:>12}  plan\n",
      "B", "T", "d", "copy", "scan", "checked", "walked", "learned", "sequential");
  struct Shape {
    std::int64_t batch, steps, channels;
  };
  for (const auto& [batch, steps, channels] : std::vector<Shape>{{1, 2048, 1024},
                                                                 {8, 2048, 1536},
                                                                 {1, 65536, 32},
                                                                 {1, std::int64_t{1} << 22, 1},
                                                                 {1, std::int64_t{1} << 26, 1}}) {
    Case c(gpu, kLinear, Dtype::F32, batch, steps, channels, {{0.97f, 1.f}, {-10.f, 10.f}});
    c.fill(1);
    const double floor = c.floor(repeats);
    CudaSolver scan = c.solver(Strategy::Scan), checked = c.solver(Strategy::Scan, true);
    const int few = std::min(repeats, 3);
    const double ms = ms_a_call(gpu, repeats, [&] { scan.launch(0); }),
                 checked_ms = ms_a_call(gpu, few, [&] { checked.launch(0); });
    SolveReport report;
    checked.report(report, 0);
    checked.launch(0);
    checked.report(report, 0);
    double walk = -1;
    if (steps <= 65536) {
      CudaSolver sequential = c.solver(Strategy::Sequential);
      walk = ms_a_call(gpu, repeats, [&] { sequential.launch(0); });
    }
    CudaSolver ours = c.solver(Strategy::Auto, true);
    SolveReport learned;
    c.settle(ours, Strategy::Auto, learned, 3, true);
    const double learned_ms = ms_a_call(gpu, repeats, [&] { ours.launch(0); });
    fmt::print("{:>4}{:>10}{:>6}{:>9.4f}{:>9.4f}{:>9.4f}{:>9}{:>9.4f}{:>12.4f}  {}\n", batch, steps, channels, floor,
               ms, checked_ms, report.stages[0].repaired, learned_ms, walk, plan_of(learned));
    std::fflush(stdout);
  }
}

void short_scans(Gpu& gpu, int repeats) {
  fmt::print(
      "\nh' = a*h + x, one sequence, f32; ms; `theirs`: Martin & Cundy's "
      "kernels\n{:>4}{:>9}{:>9}{:>9}{:>9}{:>12}{:>10}  plan\n",
      "d", "T", "copy", "ours", "theirs", "sequential", "differs");
  struct Theirs {
    std::int64_t channels, steps;
    double ms;
  };
  for (const Theirs& t : std::vector<Theirs>{{4, 16, 0},
                                             {4, 256, 0.016},
                                             {4, 4096, 0.022},
                                             {4, 65536, 0.034},
                                             {4, 1048576, 0.118},
                                             {32, 16, 0},
                                             {32, 256, 0.019},
                                             {32, 4096, 0.025},
                                             {32, 65536, 0.041},
                                             {32, 1048576, 0.261},
                                             {128, 16, 0},
                                             {128, 256, 0.020},
                                             {128, 4096, 0.030},
                                             {128, 65536, 0.130},
                                             {128, 1048576, 0.824}}) {
    Case c(gpu, kLinear, Dtype::F32, 1, t.steps, t.channels, {{0.5f, 1.f}, {-1.f, 1.f}});
    c.fill(1);
    CudaSolver ours = c.solver(Strategy::Auto), steps = c.solver(Strategy::Sequential);
    SolveReport report;
    c.settle(ours, Strategy::Auto, report);
    const double floor = c.floor(repeats), ms = ms_a_call(gpu, repeats, [&] { ours.launch(0); });
    double sequential = 0, far = 0;
    if (t.steps <= 65536) {
      steps.launch(0);
      far = c.difference(ours, steps);
      sequential = ms_a_call(gpu, t.steps > 4096 ? 2 : repeats, [&] { steps.launch(0); });
    }
    fmt::print("{:>4}{:>9}{:>9.4f}{:>9.4f}{:>9}{:>12}{:>10.0e}  {}\n", t.channels, t.steps, floor, ms,
               t.ms ? fmt::format("{:.3f}", t.ms) : "-", sequential ? fmt::format("{:.4f}", sequential) : "-", far,
               plan_of(report));
    std::fflush(stdout);
  }
}

void chaotic(Gpu& gpu, int repeats) {
  fmt::print("\nchaotic cells, T = 10000, f32; ms\n{:<10}{:>7}{:>9}{:>9}{:>12}{:>7}{:>10}{:>10}  plan\n", "cell",
             "lanes", "first", "ours", "sequential", "ratio", "residual", "differs");
  for (const auto& [name, text] : {std::pair{"logistic", kLogistic}, {"Lorenz", kLorenz}}) {
    for (const std::int64_t lanes : {1, 1024, 65536}) {
      Case c(gpu, text, Dtype::F32, lanes, 10000, 1, {}, 4);
      CudaSolver ours = c.solver(Strategy::Auto), steps = c.solver(Strategy::Sequential);
      SolveReport report;
      ours.launch(0);  // compiles
      gpu.synchronize(0);
      // Loading kernels and taking memory is not what is timed.
      CudaSolver fresh = c.solver(Strategy::Auto);
      c.hold(30);
      gpu.record(0, 0);
      fresh.launch(0);
      gpu.record(1, 0);
      const double first = gpu.elapsed_ms(0, 1);
      fresh.report(report, 0);
      const std::vector<double> phases = report.stages[0].phases_us;
      c.settle(ours, Strategy::Auto, report);
      steps.launch(0);
      const double ms = ms_a_call(gpu, repeats, [&] { ours.launch(0); }),
                   sequential = ms_a_call(gpu, repeats, [&] { steps.launch(0); });
      ours.report(report, 0);
      fmt::print("{:<10}{:>7}{:>9.4f}{:>9.4f}{:>12.4f}{:>7.2f}{:>10.0e}{:>10.0e}  {}\n", name, lanes, first, ms,
                 sequential, ms / sequential, report.max_residual, c.difference(ours, steps), plan_of(report));
      if (!phases.empty()) fmt::print("     us of the first: {:.0f}\n", fmt::join(phases, " "));
      std::fflush(stdout);
    }
  }
}

void hgrn(Gpu& gpu, int repeats) {
  fmt::print(
      "\nh' = exp(g)*h + x, bf16; ms; `fla`: flash-linear-attention's chunk "
      "kernel\n{:>3}{:>8}{:>6}{:>9}{:>9}{:>8}{:>8}{:>7}{:>10}  plan\n",
      "B", "T", "d", "copy", "ours", "of copy", "fla", "times", "differs");
  struct Shape {
    std::int64_t batch, steps, channels;
    double fla;
  };
  for (const Shape& s : {Shape{8, 2048, 1024, 0.218}, {1, 16384, 2048, 0.550}, {1, 65536, 512, 1.39}}) {
    Case c(gpu, kHgrn, Dtype::BF16, s.batch, s.steps, s.channels, {{-1.5f, -0.01f}, {-1.f, 1.f}});
    c.fill(1);
    CudaSolver ours = c.solver(Strategy::Auto), steps = c.solver(Strategy::Sequential);
    SolveReport report;
    c.settle(ours, Strategy::Auto, report);
    steps.launch(0);
    const double floor = c.floor(repeats), ms = ms_a_call(gpu, repeats, [&] { ours.launch(0); });
    fmt::print("{:>3}{:>8}{:>6}{:>9.4f}{:>9.4f}{:>8.2f}{:>8.3f}{:>7.1f}{:>10.0e}  {}\n", s.batch, s.steps, s.channels,
               floor, ms, floor / ms, s.fla, s.fla / ms, c.difference(ours, steps), plan_of(report));
    std::fflush(stdout);
  }
}

/// The grid's shapes: calls on one data set, calls that alternate between two, and the first call of all, which is
/// compared with single calls. Both sets are drawn alike; `mixed` alternates with one whose every tenth channel is
/// slow.
constexpr int kFresh = 9;

void changing(Gpu& gpu, int repeats) {
  fmt::print(
      "\nParaGRU, f32: calls whose data change; ms a call; of first calls the median and the longest of {}\n"
      "{:>3}{:>9}{:>6}{:>9}{:>9}{:>8}{:>8}{:>9}{:>9}{:>11}{:>9}{:>11}\n",
      kFresh, "B", "T", "d", "steady", "first", "+us", "most", "busy +us", "two sets", "+us", "mixed", "+us");
  struct Shape {
    std::int64_t batch, steps, channels;
  };
  for (const Shape& s : {Shape{1, 512, 1024},
                         {8, 512, 1024},
                         {1, 2048, 1024},
                         {8, 2048, 1024},
                         {8, 2048, 4096},
                         {1, 8192, 1024},
                         {1, 65536, 64},
                         {1, 1048576, 64},
                         {32, 2048, 2048}}) {
    const std::vector<Range> wide(3, Range{-2.4f, 2.4f, true});
    Case one(gpu, kGru, Dtype::F32, s.batch, s.steps, s.channels, wide),
        two(gpu, kGru, Dtype::F32, s.batch, s.steps, s.channels, wide);
    one.fill(1);
    two.fill(1000);
    SolveReport report;
    CudaSolver ours = one.solver(Strategy::Auto);
    ours.launch(0);  // compiles
    gpu.synchronize(0);
    // The first call of a process whose kernels are cached and loaded: what ran before it, on data that forget at
    // once, has taught nothing.
    const auto first_calls = [&](bool busy) {
      std::vector<double> ms;
      for (int i = 0; i < kFresh; ++i) {
        CudaSolver fresh = one.solver(Strategy::Auto);
        two.fill(1000, 1, 6.f);
        one.give(fresh, two);
        fresh.launch(0);
        one.give(fresh, one);
        gpu.synchronize(0);
        if (busy) one.hold(0.1);  // then the host has queued all of it before the device gets there
        gpu.record(0, 0);
        fresh.launch(0);
        gpu.record(1, 0);
        ms.push_back(gpu.elapsed_ms(0, 1));
      }
      std::sort(ms.begin(), ms.end());
      return ms;
    };
    const std::vector<double> first = first_calls(false), busy = first_calls(true);
    two.fill(1000);
    one.settle(ours, Strategy::Auto, report);
    const auto steady = [&](Case& of) {
      one.give(ours, of);
      return ms_a_call(gpu, repeats, [&] { ours.launch(0); });
    };
    const auto alternating = [&] {
      bool other = false;
      return ms_a_call(gpu, 2 * repeats, [&] {
        one.give(ours, other ? two : one);
        other = !other;
        ours.launch(0);
      });
    };
    one.give(ours, one);
    const double single = median_call_ms(gpu, 9, [&] { ours.launch(0); });
    one.hold(0.1);
    gpu.record(0, 0);
    ours.launch(0);
    gpu.record(1, 0);
    const double busy_single = gpu.elapsed_ms(0, 1);
    const double own = steady(one), both = alternating(), same = 0.5 * (own + steady(two));
    two.fill(1000, 10, -6.f);
    const double slow = steady(two), mixed = alternating(), each = 0.5 * (steady(one) + slow);
    fmt::print("{:>3}{:>9}{:>6}{:>9.4f}{:>9.4f}{:>8.1f}{:>8.1f}{:>9.1f}{:>9.4f}{:>11.1f}{:>9.4f}{:>11.1f}\n", s.batch,
               s.steps, s.channels, own, first[kFresh / 2], 1e3 * (first[kFresh / 2] - single),
               1e3 * (first.back() - single), 1e3 * (busy[kFresh / 2] - busy_single), both, 1e3 * (both - same), mixed,
               1e3 * (mixed - each));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string reason;
    // Kernels come from the cache where a first call is timed.
    const auto gpu = open_gpu((std::filesystem::temp_directory_path() / "cellc-bench-cache").string(), reason);
    if (!gpu) {
      fmt::print(stderr, "cellc_bench_cases: {}\n", reason);
      return 4;
    }
    const int repeats = argc > 2 ? std::max(1, std::atoi(argv[2])) : 10;
    fmt::print("{}\n", gpu->facts().name);
    std::vector<std::array<std::int64_t, 3>> shapes;
    for (int i = 3; i < argc; ++i) {
      std::array<std::int64_t, 3> shape{};
      std::stringstream numbers(argv[i]);
      std::string number;
      for (std::int64_t& n : shape)
        n = std::getline(numbers, number, ',') ? std::max(1ll, std::atoll(number.c_str())) : 1;
      shapes.push_back(shape);
    }
    if (shapes.empty())
      shapes = {{1, 2048, 1024}, {1, 4096, 128},  {8, 2048, 1536},  {32, 2048, 2048}, {1, 8192, 1024},
                {1, 1 << 26, 1}, {1, 1 << 24, 4}, {1, 1 << 21, 32}, {1, 1 << 20, 128}};
    std::stringstream parts(argc > 1 ? argv[1] : "linear,wide,short,rounded,chaotic,hgrn,changing");
    for (std::string part; std::getline(parts, part, ',');) {
      if (part == "linear")
        linear(*gpu, repeats);
      else if (part == "short")
        short_scans(*gpu, repeats);
      else if (part == "wide")
        wide(*gpu, repeats, shapes);
      else if (part == "rounded")
        rounded(*gpu, repeats);
      else if (part == "chaotic")
        chaotic(*gpu, repeats);
      else if (part == "hgrn")
        hgrn(*gpu, repeats);
      else if (part == "changing")
        changing(*gpu, repeats);
      else {
        fmt::print(stderr, "cellc_bench_cases: {}: expected linear, wide, short, rounded, chaotic, hgrn or changing\n",
                   part);
        return 2;
      }
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "cellc_bench_cases: {}\n", e.what());
    return 4;
  }
  return 0;
}
