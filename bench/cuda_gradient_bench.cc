// Forward and backward of a cell on a GPU, beside copies of the values that they must move.
//
//   cellc_bench_cuda_gradients CELL READ WRITTEN [B,T,d[,n…][;B,T,d…] [REPEATS [DTYPE [SOLVER [PRODUCTS]]]]]
//
// DTYPE: f32, f64, bf16 or f16, of what the forward run stores; the backward run's arrays are of the arithmetic.
//
// d, n…: lengths of the header's axes in order; those that are not named are as long as the last one.
// `more`: what the backward run keeps on the device beside inputs, states, cotangents and gradients, in per cent of
// those.
//
// READ, WRITTEN: values a step and channel of forward and backward together; of ParaGRU 7 and 5, which are 3 + 1
// forward and 4 + 4 backward: inputs, the state before the step and its cotangent; gradients of inputs... what a kernel
// that keeps nothing else would move.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>

#include "bench/device_data.h"
#include "compiler/front_end.h"
#include "compiler/graph/axes.h"
#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/device/wrapped_gpu.h"
#include "runtime/cuda/launch/backward_on_gpu.h"
#include "runtime/cuda/launch/timed_gpu.h"

namespace {

using namespace cellc;

struct Shape {
  std::int64_t batch, steps;
  std::vector<std::int64_t> lengths;  ///< of the header's axes
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

/// All arrays of a forward and a backward run on the device, filled at random.
struct Workload {
  Workload(Gpu& gpu, const AnalysedCell& cell, const Shape& shape, Dtype dtype)
      : gpu(gpu),
        cell(cell.cell),
        shape(shape),
        size(size_of(dtype)),
        wide_size(size_of(arithmetic_of(dtype))),
        rows(shape.batch * shape.steps),
        data(gpu, dtype),
        wide(gpu, arithmetic_of(dtype)),
        of_states(cell.cell.outs.empty()) {
    for (std::size_t a = 0; a < this->cell.header.size(); ++a)
      run.sizes[this->cell.header[a]] = shape.lengths[std::min(a, shape.lengths.size() - 1)];
    run.offsets = {0};
    for (std::int64_t b = 0; b < shape.batch; ++b) run.offsets.push_back((b + 1) * shape.steps);
    run.histories.resize(this->cell.symbols.size());
    const std::size_t symbols = this->cell.symbols.size();
    device.inputs.resize(symbols);
    device.values.resize(symbols);
    device.histories.resize(symbols);
    for (const Symbol& symbol : this->cell.symbols)
      add(symbol, symbol.kind == SymbolKind::Input ? dtype : arithmetic_of(dtype));
    add_results();
  }

  std::int64_t first(const Symbol& symbol) const {
    return symbol.kind == SymbolKind::Input ? rows : symbol.kind == SymbolKind::State ? shape.batch : 1;
  }
  std::int64_t width(const std::vector<AxisId>& axes) const { return AxisLengths(cell.graph, run.sizes).entries(axes); }

  Gpu& gpu;
  const CellGraph& cell;
  const Shape& shape;
  const std::size_t size, wide_size;
  const std::int64_t rows;
  const DeviceData data, wide;  ///< of the storage type, and of the arithmetic, as params and starts are
  const bool of_states;         ///< otherwise cotangents are those of the outs
  BoundRun run;
  BackwardArrays backward;
  DeviceArrays device;
  double gradients = 0;  ///< bytes of the gradients of inputs, params and starts
  double results = 0;    ///< of states, outs and cotangents

 private:
  GpuAddress fresh(std::int64_t count, std::size_t bytes) {
    kept_.emplace_back(gpu, static_cast<std::size_t>(count) * bytes);
    return kept_.back().address();
  }
  GpuAddress filled(std::int64_t count, std::int64_t width, float low, float high, bool stored = true) {
    const GpuAddress at = fresh(count * width, stored ? size : wide_size);
    (stored ? data : wide).fill(at, count * width, Drawn{low, high, ++seed_, 0, width, width, 1, 0.f});
    return at;
  }
  PlacedRows placed(GpuAddress at, std::int64_t width) const { return {at, shape.steps * width, width}; }

  /// Its entries are drawn as torch draws them. Larger ones would make gradients overflow, and products of what is not
  /// finite are made twice.
  bool is_large_matrix(const Symbol& symbol) const {
    return symbol.kind == SymbolKind::Param && symbol.axes.size() > 1 && width({symbol.axes.back()}) >= 64;
  }

  void add(const Symbol& symbol, Dtype dtype) {
    const float low = symbol.range                       ? static_cast<float>(symbol.range->low)
                      : symbol.kind == SymbolKind::Input ? -2.f
                      : is_large_matrix(symbol) ? -1 / std::sqrt(static_cast<float>(width({symbol.axes.back()})))
                                                : -1.f;
    const std::int64_t entries = width(symbol.axes);
    const std::size_t s = run.symbols.size();
    backward.symbols.push_back(filled(first(symbol), entries, low,
                                      symbol.range ? static_cast<float>(symbol.range->high) : -low,
                                      symbol.kind == SymbolKind::Input));
    Array shaped;  // the solver looks at shapes alone
    if (symbol.kind != SymbolKind::Input)
      shaped = Array(
          dtype, AxisLengths(cell.graph, run.sizes)
                     .shape(symbol.kind == SymbolKind::State ? std::vector{shape.batch} : std::vector<std::int64_t>{},
                            symbol.axes));
    run.symbols.push_back(shaped);
    if (symbol.kind == SymbolKind::Input)
      device.inputs[s] = placed(backward.symbols[s], entries);
    else
      device.values[s] = backward.symbols[s];
    gradients += static_cast<double>(first(symbol) * entries) * static_cast<double>(size);
  }

  void add_results() {
    const auto keep = [&](std::int64_t width, int arrays) {
      results += static_cast<double>(arrays * rows * width) * static_cast<double>(size);
    };
    device.finals.resize(cell.updates.size());
    for (const StateUpdate& update : cell.updates) {
      const std::int64_t entries = width(cell.symbol_of(update).axes);
      device.trajectories.push_back(placed(fresh(rows * entries, size), entries));
      backward.trajectories.push_back(device.trajectories.back().data);
      backward.states.push_back(of_states ? filled(rows, entries, -1, 1) : 0);
      keep(entries, of_states ? 2 : 1);
    }
    for (const Out& out : cell.outs) {
      const std::int64_t entries = width(out.index);
      device.outs.push_back(fresh(rows * entries, size));
      backward.outs.push_back(filled(rows, entries, -1, 1));
      keep(entries, 2);
    }
  }

  std::vector<GpuBuffer> kept_;
  unsigned seed_ = 1;
};

void bench(Gpu& gpu, const AnalysedCell& cell, const Shape& shape, double read, double written, int repeats,
           Dtype dtype, Strategy solver, Products products) {
  const Dtype arithmetic = arithmetic_of(dtype);
  const Workload work(gpu, cell, shape, arithmetic);
  const std::optional<Workload> stored =
      dtype == arithmetic ? std::nullopt : std::optional<Workload>(std::in_place, gpu, cell, shape, dtype);
  SolveOptions options;
  options.solver = solver;
  options.products = products;
  CudaSolver forward(gpu, cell.cell, cell.structure, dtype, &cell.source);
  forward.prepare(work.run, options);
  forward.place_all(stored ? stored->device : work.device);
  if (stored) {  // the backward run reads a trajectory of its own arrays
    CudaSolver once(gpu, cell.cell, cell.structure, arithmetic);
    once.prepare(work.run, options);
    once.place_all(work.device);
    once.launch(0);
    gpu.synchronize(0);
  }
  options.products = gradient_products(products, dtype);
  AdjointOf of;
  of.states.assign(cell.cell.updates.size(), work.of_states);
  of.outs.assign(cell.cell.outs.size(), true);
  of.multiplies_factors = true;
  const AdjointRun adjoint(cell.cell, of);
  CountingGpu counting(gpu);
  BackwardOnGpu backward(counting, cell.cell, adjoint, arithmetic);
  backward.prepare(work.run, options);
  backward.place(work.backward);
  SolveReport ahead, back;
  for (int i = 0; i < 3; ++i) {  // compiles, and lets plans learn
    forward.launch(0);
    forward.report(ahead, 0);
    backward.launch(0);
    backward.report(back, 0);
  }
  const double asked = 2 * work.gradients + work.results,
               more = static_cast<double>(counting.allocated) - work.gradients;
  const double forward_ms = ms_a_call(gpu, repeats, [&] { forward.launch(0); }),
               backward_ms = ms_a_call(gpu, repeats, [&] { backward.launch(0); }),
               both_ms = ms_a_call(gpu, repeats, [&] {
                 forward.launch(0);
                 backward.launch(0);
               });
  FloorCopy floor(gpu);
  const std::int64_t d = shape.lengths.front();
  const auto whole = [&](double values) {
    return static_cast<std::int64_t>(values * static_cast<double>(work.rows * d) * static_cast<double>(work.size));
  };
  const GpuBuffer from(gpu, static_cast<std::size_t>(whole(read))), to(gpu, static_cast<std::size_t>(whole(written)));
  const double floor_ms = floor.ms(from.address(), whole(read), to.address(), whole(written), repeats);
  fmt::print("{:>3} {:>8} {:>5}  {:.4f}  {:.4f} {:.4f}  {:.4f} {:>6.2f} {:>5.1f}%  {}, {}: {}\n", shape.batch,
             shape.steps, d, floor_ms, forward_ms, backward_ms, both_ms, both_ms / floor_ms, 100 * more / asked,
             to_string(ahead.stages[0].plan.strategy), to_string(back.stages[0].plan.strategy),
             back.converged ? "converged" : "not converged");
  std::fflush(stdout);
}

template <class Value>
Value known(const std::optional<Value>& value, const std::string& name) {
  if (!value) throw std::runtime_error(fmt::format("\"{}\" is unknown", name));
  return *value;
}

Dtype dtype_named(const std::string& name) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16})
    if (to_string(dtype) == name) return dtype;
  throw std::runtime_error(fmt::format("\"{}\" is no dtype", name));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(
        stderr,
        "usage: {} CELL READ WRITTEN [B,T,d[,n...][;B,T,d...] [REPEATS [f32|f64|bf16|f16 [SOLVER [PRODUCTS]]]]]\n",
        argv[0]);
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
      Shape shape{1, 1, {}};
      const auto numbers = split(one, ',');
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::int64_t number = std::atoll(numbers[i].c_str());
        if (i > 1)
          shape.lengths.push_back(number);
        else
          (i == 0 ? shape.batch : shape.steps) = number;
      }
      if (shape.lengths.empty()) throw std::runtime_error(fmt::format("\"{}\" is no shape B,T,d", one));
      bench(*gpu, cell, shape, std::atof(argv[2]), std::atof(argv[3]), std::atoi(argument(5, "20").c_str()),
            dtype_named(argument(6, "f32")), known(strategy_named(argument(7, "auto")), argument(7, "auto")),
            known(products_named(argument(8, "3xtf32")), argument(8, "3xtf32")));
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", argv[0], e.what());
    return 4;
  }
  return 0;
}
