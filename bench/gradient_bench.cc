// Forward and backward of a cell on the CPU, beside a copy of as many bytes as each must move.
//
//   cellc_bench_gradients CELL B T AXIS=N[,AXIS=N…] [repetitions [threads [backward solver]]]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "compiler/front_end.h"
#include "runtime/cpu/backward_on_cpu.h"
#include "runtime/data/bind.h"
#include "runtime/data/random_fill.h"
#include "runtime/data/read_text.h"

namespace {

using namespace cellc;

double fastest(int repetitions, const std::function<void()>& work) {
  double best = 1e300;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    fmt::print(stderr, "usage: {} CELL B T AXIS=N[,AXIS=N...] [repetitions [threads [solver]]]\n", argv[0]);
    return 2;
  }
  AnalysedCell analysed = analyse_text(read_text(argv[1]));
  BindRequest request;
  request.batch = std::atoll(argv[2]);
  request.length = std::atoll(argv[3]);
  request.random_seed = 1;
  request.dtype = Dtype::F32;
  std::stringstream dims(argv[4]);
  for (std::string one; std::getline(dims, one, ',');)
    request.dims[one.substr(0, one.find('='))] = std::atoll(one.c_str() + one.find('=') + 1);
  const int repetitions = argc > 5 ? std::atoi(argv[5]) : 10;
  request.threads = argc > 6 ? std::atoi(argv[6]) : 1;
  const Binding binding = bind(analysed.cell, request);

  CompileOptions compile;
  compile.dtype = Dtype::F32;
  Solver solver(analysed.cell, analysed.structure, compile);
  SolveReport report;
  RunOutput output = solver.run(binding.run, {}, report);
  const double forward = fastest(repetitions, [&] {
    report = {};
    output = solver.run(binding.run, {}, report, std::move(output));
  });

  Cotangents cotangents;
  cotangents.finals.resize(analysed.cell.updates.size());
  const auto random = [&](const Array& like, const std::string& name) {
    Array array(Dtype::F32, like.shape());
    fill_uniform(array, 1, name, -1, 1);
    return array;
  };
  const bool of_outs = !analysed.cell.outs.empty();  // a layer's loss is of its outs, where it has any
  for (const Array& a : output.states)
    cotangents.states.push_back(of_outs ? Array() : random(a, "cotangent of states"));
  for (const Array& a : output.outs) cotangents.outs.push_back(random(a, "cotangent of outs"));
  const AdjointRun adjoint(analysed.cell, results_with(cotangents));
  BackwardOnCpu backward(adjoint, compile);
  SolveOptions options;
  if (argc > 7) options.solver = *strategy_named(argv[7]);
  SolveReport back;
  Gradients gradients = backward.run(binding.run, output, cotangents, options, back);
  double solved = 1e300;
  const double reverse = fastest(repetitions, [&] {
    back = {};
    gradients = {};
    gradients = backward.run(binding.run, output, cotangents, options, back);
    solved = std::min(solved, backward.run_ms());
  });
  fmt::print("{} B {} T {} {}, {} thread(s): forward {:.3f} ms ({}), backward {:.3f} ms ({}), ratio {:.2f}\n",
             analysed.cell.name, *request.batch, *request.length, argv[4], request.threads, forward,
             to_string(report.stages.at(0).plan.strategy), reverse, to_string(back.stages.at(0).plan.strategy),
             reverse / forward);
  return 0;
}
