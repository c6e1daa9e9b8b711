// Cells whose steps multiply by matrices, forward, on a GPU: kernels that live through all steps (persistent.cuh).
//
//   cellc_bench_cuda_dense [ROW … | all] [REPEATS]
//
// Each row is a cell at a shape, a storage type and what products are made of. Weights are uniform in ±1/sqrt(d), as
// torch draws them, inputs in ±1. `steps` is the time of a step; `error`: the largest of |h - h64| over all rows, h64
// run in f64 by the sequential kernels on the same rounded data (with CELLC_BENCH_ERRORS). CELLC_BENCH_BLOCKS, _SLOTS
// and _THREADS force a shape, CELLC_BENCH_EXCHANGE=cluster or group how blocks tell each other values;
// CELLC_BENCH_SOLVER=relaxation, stepped, sequential or auto runs it so instead. CELLC_BENCH_STREAMS=2 also makes so
// many solvers run REPEATS times in a row at the same time, and says how many end with other bits. What torch takes for
// the same: against_lstm.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <vector>

#include "compiler/front_end.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"

using namespace cellc;

namespace {

const char* const kLstm = R"(cell lstm[d, m] {
  state c[d], h[d]
  input x[m]
  param Wi[d,m], Wf[d,m], Wg[d,m], Wo[d,m], Ui[d,d], Uf[d,d], Ug[d,d], Uo[d,d], bi[d], bf[d], bg[d], bo[d]
  c' = sigmoid(Wf@x + Uf@h + bf)*c + sigmoid(Wi@x + Ui@h + bi)*tanh(Wg@x + Ug@h + bg)
  h' = sigmoid(Wo@x + Uo@h + bo)*tanh(c')
}
)";
const char* const kGru = R"(cell gru[d, m] {
  state h[d]
  input x[m]
  param Wz[d,m], Wr[d,m], Wc[d,m], Uz[d,d], Ur[d,d], Uc[d,d]
  z = sigmoid(Wz@x + Uz@h)
  r = sigmoid(Wr@x + Ur@h)
  h' = z*h + (1 - z)*tanh(Wc@x + Uc@(r*h))
}
)";
const char* const kHeads = R"(cell heads[heads, k] {
  state n[heads,k], c[heads,k], m[heads,k], h[heads,k]
  input uf[heads,k], ui[heads,k], uz[heads,k], uo[heads,k]
  param Rf[heads,k,k], Ri[heads,k,k], Rz[heads,k,k], Ro[heads,k,k]
  a = Rf@h + uf
  b = Ri@h + ui
  m' = max(a + m, b)
  f = exp(a + m - m')
  i = exp(b - m')
  c' = f*c + i*tanh(Rz@h + uz)
  n' = f*n + i
  h' = sigmoid(Ro@h + uo)*c'/n'
}
)";

struct Row {
  const char *name, *text;
  std::int64_t batch, steps;
  std::vector<std::int64_t> lengths;  ///< by header axis
  Dtype dtype;
  Products products;
};
const std::vector<Row> kRows = {
    {"lstm768bf16", kLstm, 16, 1024, {768, 768}, Dtype::BF16, Products::Storage},
    {"lstm768f16", kLstm, 16, 1024, {768, 768}, Dtype::F16, Products::Storage},
    {"lstm768tf32x3", kLstm, 16, 1024, {768, 768}, Dtype::F32, Products::Tf32x3},
    {"lstm1024bf16", kLstm, 16, 1024, {1024, 1024}, Dtype::BF16, Products::Storage},
    {"lstm1536bf16", kLstm, 16, 1024, {1536, 1536}, Dtype::BF16, Products::Storage},
    {"lstm2048bf16", kLstm, 16, 1024, {2048, 2048}, Dtype::BF16, Products::Storage},
    {"lstm256bf16", kLstm, 16, 1024, {256, 256}, Dtype::BF16, Products::Storage},
    {"lstm256f16", kLstm, 16, 1024, {256, 256}, Dtype::F16, Products::Storage},
    {"one512", kLstm, 1, 1024, {512, 512}, Dtype::BF16, Products::Storage},
    {"long512", kLstm, 1, 16384, {512, 512}, Dtype::BF16, Products::Storage},
    {"mid512", kLstm, 1, 8192, {512, 512}, Dtype::BF16, Products::Storage},
    {"two512", kLstm, 2, 16384, {512, 512}, Dtype::BF16, Products::Storage},
    {"many512", kLstm, 64, 512, {512, 512}, Dtype::F16, Products::Storage},
    {"lstm256tf32", kLstm, 16, 1024, {256, 256}, Dtype::F32, Products::Tf32},
    {"lstm256f32", kLstm, 16, 1024, {256, 256}, Dtype::F32, Products::Tf32x3},
    {"lstm768tf32", kLstm, 16, 1024, {768, 768}, Dtype::F32, Products::Tf32},
    // Whose weights fit no group of an H100.
    {"lstm3072bf16", kLstm, 16, 128, {3072, 3072}, Dtype::BF16, Products::Storage},
    {"lstm3072f32", kLstm, 16, 128, {3072, 3072}, Dtype::F32, Products::Tf32},
    {"heads", kHeads, 16, 1024, {12, 64}, Dtype::BF16, Products::Storage},
    {"gru512", kGru, 16, 1024, {512, 512}, Dtype::BF16, Products::Storage},
    {"gru256f32", kGru, 16, 1024, {256, 256}, Dtype::F32, Products::Tf32x3},
};

BoundRun data_of(const AnalysedCell& cell, const Row& row) {
  std::mt19937 random(7);
  BoundRun run;
  std::size_t axis = 0;
  for (const AxisId a : cell.cell.header) run.sizes[a] = row.lengths[axis++];
  const auto length = [&](AxisId a) { return run.sizes.at(cell.cell.graph.axis(a).extent_of); };
  const double width = 1 / std::sqrt(static_cast<double>(row.lengths.back()));
  for (const Symbol& symbol : cell.cell.symbols) {
    std::vector<std::int64_t> shape;
    for (const AxisId a : symbol.axes) shape.push_back(length(a));
    const bool input = symbol.kind == SymbolKind::Input, state = symbol.kind == SymbolKind::State;
    if (input) shape.insert(shape.begin(), row.batch * row.steps);
    if (state) shape.insert(shape.begin(), row.batch);
    const double most = input ? 1 : state ? 0 : width;
    std::uniform_real_distribution<double> numbers(-most, most);
    Array array(input ? row.dtype : Dtype::F32, shape);
    for (std::int64_t i = 0; i < array.count(); ++i)
      array.set(i, state ? (symbol.name == "n" ? 1 : 0) : numbers(random));
    // Weights as products in 16 bits take them, so that all runs have the same.
    if (!input && !state && row.products == Products::Storage) array = convert(convert(array, row.dtype), Dtype::F32);
    run.symbols.push_back(std::move(array));
  }
  run.offsets = {0};
  for (std::int64_t b = 0; b < row.batch; ++b) run.offsets.push_back((b + 1) * row.steps);
  return run;
}

double time_of(Gpu& gpu, CudaSolver& solver, int repeats) {
  std::vector<double> times;
  for (int i = 0; i < repeats + 2; ++i) {
    gpu.record(0, 0);
    solver.launch(0);
    gpu.record(1, 0);
    if (i >= 2) times.push_back(gpu.elapsed_ms(0, 1));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// The same run by several solvers, each on a stream of its own, `calls` times in a row: how many end with other bits
/// than the one at the beginning.
int differing(Gpu& gpu, const AnalysedCell& cell, const Row& row, const BoundRun& run, const SolveOptions& options,
              int streams, int calls) {
  std::vector<CudaSolver> solvers;
  std::vector<GpuStream> on;
  for (int i = 0; i < streams; ++i) {
    solvers.emplace_back(gpu, cell.cell, cell.structure, row.dtype).upload(run, options);
    on.push_back(gpu.make_stream());
  }
  gpu.synchronize(0);
  solvers[0].launch(0);
  const RunOutput first = solvers[0].download(0);
  for (int call = 0; call < calls; ++call)
    for (int i = 0; i < streams; ++i) solvers[i].launch(on[i]);
  int others = 0;
  const std::size_t h = cell.cell.updates.size() - 1;
  for (int i = 0; i < streams; ++i) {
    const RunOutput last = solvers[i].download(on[i]);
    bool same = true;
    for (std::int64_t j = 0; j < last.states[h].count(); ++j)
      same = same && last.states[h].get(j) == first.states[h].get(j);
    others += !same;
  }
  return others;
}

void bench(Gpu& gpu, const Row& row, int repeats, bool errors) {
  const SourceText source("dense.cell", row.text);
  const AnalysedCell cell = analyse_text(source);
  const BoundRun run = data_of(cell, row);
  SolveOptions options;
  const char* const solver_name = std::getenv("CELLC_BENCH_SOLVER");
  options.solver = strategy_named(solver_name ? solver_name : "persistent").value();
  options.products = row.products;
  const auto wish = [](const char* name) { return std::getenv(name) ? std::atoi(std::getenv(name)) : 0; };
  options.persistent = {wish("CELLC_BENCH_BLOCKS"), wish("CELLC_BENCH_SLOTS"), wish("CELLC_BENCH_THREADS")};
  if (const char* const exchange = std::getenv("CELLC_BENCH_EXCHANGE"))
    options.persistent.exchange =
        exchange == std::string("group") ? PersistentWish::Exchange::Group : PersistentWish::Exchange::Cluster;
  CudaSolver solver(gpu, cell.cell, cell.structure, row.dtype);
  std::string shape = fmt::format("{:<12} ({}, {}, {})", row.name, row.batch, row.steps, fmt::join(row.lengths, "x"));
  try {
    solver.upload(run, options);
    SolveReport report;
    const double ms = time_of(gpu, solver, repeats);
    solver.report(report, 0);
    double error = NAN;
    if (errors) {
      const RunOutput got = solver.download(0);
      BoundRun exact = run;
      for (Array& a : exact.symbols) a = convert(a, Dtype::F64);
      CudaSolver plain(gpu, cell.cell, cell.structure, Dtype::F64);
      SolveOptions sequential;
      sequential.solver = Strategy::Sequential;
      SolveReport unused;
      const RunOutput want = plain.run(exact, sequential, unused);
      error = 0;
      const std::size_t h = cell.cell.updates.size() - 1;
      for (std::int64_t i = 0; i < got.states[h].count(); ++i)
        error = std::max(error, std::abs(got.states[h].get(i) - want.states[h].get(i)));
    }
    if (const int streams = wish("CELLC_BENCH_STREAMS"))
      fmt::print("{:<32} {} calls on each of {} streams: {} end with other bits\n", shape, repeats, streams,
                 differing(gpu, cell, row, run, options, streams, repeats));
    const StageReport& stage = report.stages.at(0);
    const std::string reason = stage.plan.reason;
    fmt::print("{:<32} {:<5} {:<8} {:8.3f} ms {:7.3f} us/step  error {:.1e}  {}{}\n", shape, to_string(row.dtype),
               to_string(row.products), ms, 1000 * ms / static_cast<double>(row.steps), error,
               stage.plan.strategy == Strategy::Relaxation ? fmt::format("{} iterations; ", stage.iterations) : "",
               reason.substr(reason.rfind("; ") == std::string::npos ? 0 : reason.rfind("; ") + 2));
  } catch (const std::exception& e) {
    fmt::print("{:<32} {}\n", shape, e.what());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  std::string reason;
  const std::unique_ptr<Gpu> gpu =
      open_gpu(std::getenv("CELLC_BENCH_CACHE") ? std::getenv("CELLC_BENCH_CACHE") : "", reason);
  if (!gpu) {
    fmt::print(stderr, "{}\n", reason);
    return 1;
  }
  const bool last_is_number = argc > 2 && std::atoi(argv[argc - 1]) > 0;
  const int repeats = last_is_number ? std::atoi(argv[argc - 1]) : 10;
  for (const Row& row : kRows) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; ++i) wanted = wanted || argv[i] == std::string("all") || argv[i] == std::string(row.name);
    if (wanted) bench(*gpu, row, repeats, std::getenv("CELLC_BENCH_ERRORS") != nullptr);
  }
}
