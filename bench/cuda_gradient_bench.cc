// Forward and backward of a cell of one channel axis on a GPU, beside copies of the values that they must move.
//
//   cellc_bench_cuda_gradients CELL READ WRITTEN [B,T,d[;B,T,d…] [REPEATS [f32|f64 [SOLVER]]]]
//
// `more`: what the backward run keeps on the device beside inputs, states, cotangents and gradients, in per cent of
// those.
//
// READ, WRITTEN: values a step and channel of forward and backward together; of ParaGRU 7 and 5, which are 3 + 1
// forward and 4 + 4 backward: inputs, the state before the step and its cotangent; gradients of inputs... what a kernel
// that keeps nothing else would move.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "bench/device_data.h"
#include "compiler/front_end.h"
#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/timed_gpu.h"

namespace {

using namespace cellc;

struct Shape {
  std::int64_t batch, steps, channels;
};

/// Counts what is allocated.
class CountingGpu : public WrappedGpu {
 public:
  using WrappedGpu::WrappedGpu;
  GpuAddress allocate(std::size_t bytes) override {
    allocated += bytes;
    return WrappedGpu::allocate(bytes);
  }
  std::size_t allocated = 0;
};

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, by);) parts.push_back(part);
  return parts;
}

void bench(Gpu& gpu, const AnalysedCell& cell, const Shape& shape, double read, double written, int repeats,
           Dtype dtype, Strategy solver) {
  const std::int64_t rows = shape.batch * shape.steps, d = shape.channels;
  const std::size_t size = size_of(dtype), bytes = static_cast<std::size_t>(rows * d) * size;
  const DeviceData data(gpu, dtype);
  BoundRun run;
  for (const AxisId a : cell.cell.header) run.sizes[a] = d;
  run.offsets = {0};
  for (std::int64_t b = 0; b < shape.batch; ++b) run.offsets.push_back((b + 1) * shape.steps);
  run.histories.resize(cell.cell.symbols.size());

  BackwardArrays arrays;
  std::vector<GpuBuffer> kept;
  unsigned seed = 1;
  const auto filled = [&](std::int64_t count, std::int64_t width, float low, float high) {
    kept.emplace_back(gpu, static_cast<std::size_t>(count * width) * size);
    data.fill(kept.back().address(), count * width, Drawn{low, high, ++seed, 0, width, width, 1, 0.f});
    return kept.back().address();
  };
  for (const Symbol& symbol : cell.cell.symbols) {
    const std::int64_t first = symbol.kind == SymbolKind::Input   ? rows
                               : symbol.kind == SymbolKind::State ? shape.batch
                                                                  : 1;
    const float low = symbol.range                       ? static_cast<float>(symbol.range->low)
                      : symbol.kind == SymbolKind::Input ? -2.f
                                                         : -1.f;
    arrays.symbols.push_back(filled(first, d, low, symbol.range ? static_cast<float>(symbol.range->high) : -low));
    Array shaped;
    if (symbol.kind != SymbolKind::Input) {  // the solver looks at shapes alone
      shaped = Array(dtype, symbol.kind == SymbolKind::State ? std::vector<std::int64_t>{shape.batch, d}
                                                             : std::vector<std::int64_t>{d});
    }
    run.symbols.push_back(shaped);
  }
  SolveOptions options;
  options.solver = solver;
  CudaSolver forward(gpu, cell.cell, cell.structure, dtype, &cell.source);
  forward.prepare(run, options);
  DeviceArrays device;
  const std::size_t symbols = cell.cell.symbols.size(), updates = cell.cell.updates.size();
  device.inputs.resize(symbols);
  device.values.resize(symbols);
  device.histories.resize(symbols);
  device.trajectories.resize(updates);
  device.finals.resize(updates);
  device.outs.resize(cell.cell.outs.size());
  for (std::size_t s = 0; s < symbols; ++s)
    if (cell.cell.symbols[s].kind == SymbolKind::Input)
      device.inputs[s] = {arrays.symbols[s], shape.steps * d, d};
    else
      device.values[s] = arrays.symbols[s];
  for (std::size_t u = 0; u < updates; ++u) {
    kept.emplace_back(gpu, bytes);
    arrays.trajectories.push_back(kept.back().address());
    device.trajectories[u] = {kept.back().address(), shape.steps * d, d};
    arrays.states.push_back(filled(rows, d, -1, 1));
  }
  for (std::size_t o = 0; o < cell.cell.outs.size(); ++o) arrays.outs.push_back(filled(rows, d, -1, 1));
  forward.place_all(device);
  const AdjointRun adjoint(cell.cell, results_with({}, true));
  CountingGpu counting(gpu);
  BackwardOnGpu backward(counting, cell.cell, adjoint, dtype);
  backward.prepare(run, options);
  backward.place(arrays);
  SolveReport ahead, back;
  for (int i = 0; i < 3; ++i) {  // compiles, and lets plans learn
    forward.launch(0);
    forward.report(ahead, 0);
    backward.launch(0);
    backward.report(back, 0);
  }
  double gradients = 0, others = 0;
  for (const Symbol& symbol : cell.cell.symbols)
    (symbol.kind == SymbolKind::Input ? gradients : others) +=
        static_cast<double>((symbol.kind == SymbolKind::Input   ? rows
                             : symbol.kind == SymbolKind::State ? shape.batch
                                                                : 1) *
                            d) *
        static_cast<double>(size);
  const double asked = 2 * gradients + 2 * others + static_cast<double>((2 * updates + arrays.outs.size()) * bytes),
               more = static_cast<double>(counting.allocated) - gradients - others;
  const double forward_ms = ms_a_call(gpu, repeats, [&] { forward.launch(0); }),
               backward_ms = ms_a_call(gpu, repeats, [&] { backward.launch(0); }),
               both_ms = ms_a_call(gpu, repeats, [&] {
                 forward.launch(0);
                 backward.launch(0);
               });
  FloorCopy floor(gpu);
  const auto whole = [&](double values) { return static_cast<std::int64_t>(values * static_cast<double>(bytes)); };
  const GpuBuffer from(gpu, static_cast<std::size_t>(whole(read))), to(gpu, static_cast<std::size_t>(whole(written)));
  const double floor_ms = floor.ms(from.address(), whole(read), to.address(), whole(written), repeats);
  fmt::print("{:>3} {:>8} {:>5}  {:.4f}  {:.4f} {:.4f}  {:.4f} {:>6.2f} {:>5.1f}%  {}, {}: {}\n", shape.batch,
             shape.steps, d, floor_ms, forward_ms, backward_ms, both_ms, both_ms / floor_ms, 100 * more / asked,
             to_string(ahead.stages[0].plan.strategy), to_string(back.stages[0].plan.strategy),
             back.converged ? "converged" : "not converged");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: {} CELL READ WRITTEN [B,T,d[;B,T,d...] [REPEATS [f32|f64 [SOLVER]]]]\n", argv[0]);
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
      fmt::print(stderr, "{}\n", reason);
      return 4;
    }
    fmt::print("{}, {}, {}; ms\n  B        T     d   floor  forward backward  both  ratio   more\n", gpu->facts().name,
               cell.cell.name, argument(6, "f32"));
    for (const std::string& one :
         split(argument(4, "8,512,256;8,2048,256;8,2048,1024;8,2048,4096;32,2048,2048;1,1048576,64;1,65536,64"), ';')) {
      const auto numbers = split(one, ',');
      bench(*gpu, cell,
            {std::atoll(numbers[0].c_str()), std::atoll(numbers[1].c_str()), std::atoll(numbers[2].c_str())},
            std::atof(argv[2]), std::atof(argv[3]), std::atoi(argument(5, "20").c_str()),
            argument(6, "f32") == "f64" ? Dtype::F64 : Dtype::F32,
            strategy_named(argument(7, "auto")).value_or(Strategy::Auto));
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", argv[0], e.what());
    return 4;
  }
  return 0;
}
