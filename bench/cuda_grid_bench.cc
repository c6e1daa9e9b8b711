// A cell with one channel axis over the grid of shapes that the docs quote, on a GPU: a copy of the same
// bytes (the floor) and ours, in one run. Inputs lie as a projection leaves them, [B, T, inputs, d].
//
//   cellc_bench_cuda CELL [SETS [SHAPES [REPEATS [DTYPE [SOLVER [trust]]]]]]
//
// SETS: fast,mixed,slow,stiff,stiff-0,stiff-6 (what the first input and the params are like). SHAPES: all, small, large
// or B,T,d. Every answer is compared with the cell's own sequential kernel. The second line of a shape gives the phases
// of the last call: the sweep, then composing and running again in turn. Of stiff data in f32 a third compares ours and
// the sequential kernel with f64. `trust`: scans do not look at what composed maps were rounded by.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "bench/device_data.h"
#include "compiler/front_end.h"
#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/launch/cuda_solver.h"

using namespace cellc;

namespace {

struct Shape {
  std::int64_t batch, steps, channels;
};
const std::vector<Shape> kShapes = {{1, 512, 1024},  {8, 512, 1024}, {1, 2048, 1024},  {8, 2048, 1024}, {8, 2048, 4096},
                                    {1, 8192, 1024}, {1, 65536, 64}, {1, 1048576, 64}, {32, 2048, 2048}};

double draw(std::uint64_t i) {
  std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return static_cast<double>(z >> 11) * 0x1p-53 * 2 - 1;
}

class Bench {
 public:
  Bench(Gpu& gpu, const AnalysedCell& cell, Dtype dtype, int repeats, Strategy solver, bool checks)
      : gpu_(gpu),
        cell_(cell),
        dtype_(dtype),
        repeats_(repeats),
        solver_(solver),
        checks_(checks),
        data_(gpu, dtype),
        floor_(gpu) {
    for (std::size_t s = 0; s < cell.cell.symbols.size(); ++s)
      if (cell.cell.symbols[s].kind == SymbolKind::Input) inputs_.push_back(static_cast<int>(s));
  }

  void run(const Shape& shape, const std::string& set) {
    const std::int64_t size = static_cast<std::int64_t>(size_of(dtype_)), rows = shape.batch * shape.steps,
                       d = shape.channels;
    const std::int64_t width = d * static_cast<std::int64_t>(inputs_.size()),
                       states = static_cast<std::int64_t>(cell_.cell.updates.size());
    GpuBuffer x(gpu_, static_cast<std::size_t>(rows * width * size)),
        kept(gpu_, static_cast<std::size_t>(rows * d * states * size));
    const float offset = set == "fast" || set == "stiff-0" ? 0.f : set == "stiff" ? -3.f : -6.f;
    const Drawn drawn{-2.4f, 2.4f, 1, 2, width, d, set == "mixed" ? 10 : 1, offset};
    data_.fill(x.address(), rows * width, drawn);

    const BoundRun run = bound(shape, set, dtype_);
    const double floor =
        floor_.ms(x.address(), rows * width * size, kept.address(), rows * d * states * size, repeats_);
    const auto prepared = [&](CudaSolver& solver, Strategy strategy) {
      prepare(solver, run, strategy, x.address(), size);
    };
    CudaSolver reference(gpu_, cell_.cell, cell_.structure, dtype_, &cell_.source);
    prepared(reference, Strategy::Sequential);
    double sequential = -1;
    reference.launch(0);
    if (shape.steps <= 16384) sequential = ms_a_call(gpu_, repeats_, [&] { reference.launch(0); });
    CudaSolver ours(gpu_, cell_.cell, cell_.structure, dtype_, &cell_.source);
    prepared(ours, solver_);
    ours.launch(0);  // compiles
    gpu_.synchronize(0);
    CudaSolver fresh(gpu_, cell_.cell, cell_.structure, dtype_, &cell_.source);
    prepared(fresh, solver_);
    gpu_.synchronize(0);
    gpu_.record(0, 0);
    fresh.launch(0);
    gpu_.record(1, 0);
    SolveReport report;
    ours.report(report, 0);
    const SolveReport first_report = report;
    const double first = gpu_.elapsed_ms(0, 1);
    // What the first call saw may change the plan of the second.
    SolveOptions again;
    again.check_scans = checks_;
    again.solver = solver_;
    ours.replan(again);
    ours.launch(0);
    ours.report(report, 0);
    ours.replan(again);
    const double once = median_call_ms(gpu_, 15, [&] { ours.launch(0); }),
                 time = ms_a_call(gpu_, repeats_, [&] { ours.launch(0); });
    ours.report(report, 0);
    const double far = data_.difference(ours, reference, states, rows * d);
    const StageReport& s = report.stages[0];
    fmt::print(
        "{:>3} {:>8} {:>5}  {:.4f}  {:>7.4f} {:>6.2f}  {:>7.4f}  {:>7.4f}  {:>8.4f}  {:<10} S={} w={} missed {} rounds "
        "{} again {} residual {:.0e} differs {:.0e}\n",
        shape.batch, shape.steps, d, floor, time, time / floor, once, first, sequential, to_string(s.plan.strategy),
        s.plan.segment, s.plan.burn_in, s.misses, s.repair_rounds, s.repaired, report.max_residual, far);
    if (!s.phases_us.empty()) {
      fmt::print("      us:");
      for (const double us : s.phases_us) fmt::print(" {:.1f}", us);
      fmt::print("\n");
    }
    if (set.starts_with("stiff") && dtype_ == Dtype::F32) compare_with_f64(shape, set, drawn, ours, reference);
    std::fflush(stdout);
  }

 private:
  BoundRun bound(const Shape& shape, const std::string& set, Dtype dtype) const {
    BoundRun run;
    for (const AxisId a : cell_.cell.header) run.sizes[a] = shape.channels;
    for (std::size_t s = 0; s < cell_.cell.symbols.size(); ++s) {
      const Symbol& symbol = cell_.cell.symbols[s];
      Array array;
      if (symbol.kind == SymbolKind::State)
        array = Array(dtype == Dtype::F64 ? Dtype::F64 : Dtype::F32, {shape.batch, shape.channels});
      if (symbol.kind == SymbolKind::Param) {
        array = Array(dtype, {shape.channels});
        // The same numbers in every type that holds an f32.
        for (std::int64_t c = 0; c < shape.channels; ++c)
          array.set(c, static_cast<float>(draw(static_cast<std::uint64_t>(s * 1000003 + c)) *
                                          (set.starts_with("stiff") ? 3 : 1)));
      }
      run.symbols.push_back(array);
    }
    run.offsets = {0};
    for (std::int64_t b = 0; b < shape.batch; ++b) run.offsets.push_back((b + 1) * shape.steps);
    return run;
  }
  void prepare(CudaSolver& solver, const BoundRun& run, Strategy strategy, GpuAddress x, std::int64_t size) const {
    const std::int64_t d = run.sizes.begin()->second, width = d * static_cast<std::int64_t>(inputs_.size());
    SolveOptions options;
    options.check_scans = checks_;
    options.solver = strategy;
    solver.upload(run, options);
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      solver.place(inputs_[i], x + static_cast<GpuAddress>(static_cast<std::int64_t>(i) * d * size), width);
  }
  /// How far ours and the sequential kernel are from f64, at 99 lanes of 100.
  void compare_with_f64(const Shape& shape, const std::string& set, const Drawn& drawn, const CudaSolver& ours,
                        const CudaSolver& steps) {
    const DeviceData data(gpu_, Dtype::F64);
    const std::int64_t count = shape.batch * shape.steps * drawn.width;
    const GpuBuffer x(gpu_, static_cast<std::size_t>(count * 8));
    data.fill(x.address(), count, drawn);
    CudaSolver exact(gpu_, cell_.cell, cell_.structure, Dtype::F64, &cell_.source);
    prepare(exact, bound(shape, set, Dtype::F64), Strategy::Sequential, x.address(), 8);
    exact.launch(0);
    const auto error = [&](const CudaSolver& of) {
      return data.error_of_most(of, exact, shape.batch, shape.steps, shape.channels, 0.99);
    };
    const double own = error(ours), sequential = error(steps);
    fmt::print("      from f64: {:.1e}, sequential {:.1e}, {:.2f} times\n", own, sequential, own / sequential);
  }

  Gpu& gpu_;
  const AnalysedCell& cell_;
  const Dtype dtype_;
  const int repeats_;
  const Strategy solver_;
  const bool checks_;
  const DeviceData data_;
  FloorCopy floor_;
  std::vector<int> inputs_;
};

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr,
               "usage: cellc_bench_cuda CELL [fast,mixed,slow,stiff,stiff-0,stiff-6 [all|small|large|B,T,d [REPEATS "
               "[f32|f64|bf16 [SOLVER [trust]]]]]]\n");
    return 2;
  }
  const auto argument = [&](int i, const char* otherwise) { return std::string(argc > i ? argv[i] : otherwise); };
  try {
    std::ifstream file(argv[1]);
    std::stringstream text;
    text << file.rdbuf();
    const AnalysedCell cell = analyse_text(SourceText(argv[1], text.str()));
    std::string reason;
    const auto gpu = open_gpu("", reason);
    if (!gpu) {
      fmt::print(stderr, "cellc_bench_cuda: {}\n", reason);
      return 4;
    }
    const std::string which = argument(3, "all"), type = argument(5, "f32");
    const Dtype dtype = type == "f64" ? Dtype::F64 : type == "bf16" ? Dtype::BF16 : Dtype::F32;
    Bench bench(*gpu, cell, dtype, std::atoi(argument(4, "20").c_str()),
                strategy_named(argument(6, "auto")).value_or(Strategy::Auto), argument(7, "") != "trust");
    for (const std::string& set : split(argument(2, "fast"))) {
      fmt::print(
          "{}, {}, {}, {} data; ms\n  B        T     d  floor      ours  ratio     once    first  stepwise  plan\n",
          gpu->facts().name, cell.cell.name, to_string(dtype), set);
      if (const auto numbers = split(which); numbers.size() == 3) {
        bench.run({std::atoll(numbers[0].c_str()), std::atoll(numbers[1].c_str()), std::atoll(numbers[2].c_str())},
                  set);
        continue;
      }
      for (const Shape& shape : kShapes) {
        const bool large = shape.batch * shape.channels >= 32768;
        if ((which == "small" && large) || (which == "large" && !large)) continue;
        bench.run(shape, set);
      }
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "cellc_bench_cuda: {}\n", e.what());
    return 4;
  }
  return 0;
}
