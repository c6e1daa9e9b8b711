// From the text of a cell to kernels that are loaded, on a GPU: with nothing cached, with nothing cached and both
// kernels compiled at the same time, and from the cache.
//
//   cellc_bench_compile CELL [LENGTH]   (axes are 1024 long)
//
// The kernels are those that `auto` may launch: step by step, and what it takes for one sequence of LENGTH steps. NVRTC
// 13 keeps what it compiled, so the cell has another name each time, which puts other text into its kernels. A context
// is there before, as in a process that does something else on the card; what a run needs besides (its memory, its
// params) is part of the time.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "compiler/front_end.h"
#include "runtime/cuda/launch/cuda_solver.h"

using namespace cellc;

namespace {

constexpr std::int64_t kAxis = 1024;

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

/// The same cell under a name that nobody has compiled.
std::string renamed(const std::string& text, const std::string& ending) {
  const std::size_t name = text.find_first_not_of(' ', text.find("cell ") + 5), end = text.find_first_of("[ {", name);
  return text.substr(0, end) + ending + text.substr(end);
}

struct Times {
  double all = 0, analysis = 0, compiling = 0;
  std::string solver, cache;
};

Times ready(Gpu& gpu, const std::string& text, Strategy strategy, std::int64_t length) {
  const auto begin = std::chrono::steady_clock::now();
  const SourceText source("cell", text);
  const AnalysedCell cell = analyse_text(source);
  Times times;
  times.analysis = ms_since(begin);
  BoundRun run;
  for (const AxisId a : cell.cell.header) run.sizes[a] = kAxis;
  run.offsets = {0, length};
  for (const Symbol& symbol : cell.cell.symbols) {
    Array array;
    if (symbol.kind == SymbolKind::State) array = Array(Dtype::F32, {1, kAxis});
    if (symbol.kind == SymbolKind::Param) array = Array(Dtype::F32, {kAxis});
    run.symbols.push_back(array);
  }
  const GpuBuffer x(gpu, static_cast<std::size_t>(length * kAxis * 4));  // all inputs are the same
  SolveOptions options;
  options.solver = strategy;
  CudaSolver solver(gpu, cell.cell, cell.structure, Dtype::F32, &source);
  solver.upload(run, options);
  for (std::size_t s = 0; s < cell.cell.symbols.size(); ++s)
    if (cell.cell.symbols[s].kind == SymbolKind::Input) solver.place(static_cast<int>(s), x.address(), kAxis);
  solver.launch(0);
  times.all = ms_since(begin);
  SolveReport report;
  solver.report(report, 0);
  times.compiling = report.compile_ms;
  times.solver = to_string(report.stages[0].plan.strategy);
  times.cache = to_string(report.cache);
  return times;
}

void print(const char* what, const Times& t) {
  fmt::print("{:<24}{:<12}{:>10.2f}{:>10.2f}{:>10.2f}   {}\n", what, t.solver, t.all, t.analysis, t.compiling, t.cache);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: cellc_bench_compile CELL [LENGTH]\n");
    return 2;
  }
  const std::filesystem::path cache =
      std::filesystem::temp_directory_path() / fmt::format("cellc-compile-bench-{}", getpid());
  int status = 0;
  try {
    std::ifstream file(argv[1]);
    std::stringstream text;
    text << file.rdbuf();
    const std::int64_t length = argc > 2 ? std::max(1ll, std::atoll(argv[2])) : 2048;
    std::string reason;
    const auto gpu = open_gpu(cache.string(), reason);
    if (!gpu) {
      fmt::print(stderr, "cellc_bench_compile: {}\n", reason);
      return 4;
    }
    const auto seed = std::chrono::system_clock::now().time_since_epoch().count();
    fmt::print("{}; ms\n{:<24}{:<12}{:>10}{:>10}{:>10}   cache\n", gpu->facts().name, "", "kernel", "in all",
               "front end", "NVRTC");
    std::string last;
    for (int turn = 0; turn < 2; ++turn) {
      last = renamed(text.str(), fmt::format("_{:x}_{}", seed, turn));
      print("nothing cached", ready(*gpu, last, Strategy::Sequential, length));
      print("nothing cached", ready(*gpu, last, Strategy::Auto, length));
    }
    const std::string other = renamed(text.str(), fmt::format("_{:x}_both", seed));
    const auto begin = std::chrono::steady_clock::now();
    std::thread walks([&] { ready(*gpu, other, Strategy::Sequential, length); });
    ready(*gpu, other, Strategy::Auto, length);
    walks.join();
    fmt::print("{:<24}{:<12}{:>10.2f}\n", "both at the same time", "", ms_since(begin));
    // As another process would: whose context has none of the modules.
    for (int turn = 0; turn < 3; ++turn) {
      const auto again = open_gpu(cache.string(), reason);
      print("from the cache", ready(*again, last, Strategy::Sequential, length));
      print("from the cache", ready(*again, last, Strategy::Auto, length));
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "cellc_bench_compile: {}\n", e.what());
    status = 4;
  }
  std::error_code ignored;
  std::filesystem::remove_all(cache, ignored);
  return status;
}
