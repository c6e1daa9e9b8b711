// All code that forward calls of a kernel may need, before the first of them.
#include <memory>
#include <string>
#include <vector>

#include "capi/guard.h"
#include "capi/host_arrays.h"
#include "capi/kernel.h"
#include "runtime/data/random_fill.h"
#include "runtime/strategy/strategy.h"

namespace cellc::capi {
namespace {

/// Arrays of a call of the shape, of small numbers: what they are does not matter to code.
class SomeArrays {
 public:
  explicit SomeArrays(const std::vector<Expected>& expected) {
    for (const Expected& e : expected) {
      if (e.field->is_written() || !e.required) {
        arrays_.push_back({nullptr, 0, e.dtype, 0, 0});
        continue;
      }
      memory_.push_back(Array::uninitialised(e.type, {e.all}));
      fill_uniform(memory_.back(), 1, e.name, 0.25, 0.75);
      arrays_.push_back({memory_.back().data(), e.all, e.dtype, 0, 0});
    }
  }
  const cellc_array* data() const { return arrays_.data(); }

 private:
  std::vector<Array> memory_;
  std::vector<cellc_array> arrays_;
};

/// Runs a few steps by every strategy that the kernel's calls may take: code does not depend on how many they are.
void compile_for_cpu(CompiledCell& k, Shape shape) {
  constexpr std::int64_t kSequences = 2, kSteps = 96;
  shape.offsets.clear();
  shape.sequences = kSequences;
  shape.steps = kSteps;
  shape.rows = kSequences * kSteps;
  const std::vector<Expected> expected = expected_arrays(k, shape);
  const SomeArrays some(expected);
  const HostArrays arrays(k, shape, expected, some.data());
  Binding binding = arrays.bound().binding;
  std::unique_ptr<Solver> solver = k.take_solver();
  std::vector<std::string> without_rows;
  for (const Expected& e : expected)
    if (e.field->is_written() && e.field->kind != FieldKind::State) without_rows.push_back(e.field->file);
  const auto run = [&](Strategy strategy, bool all) {
    SolveOptions solve = k.solve;
    solve.solver = strategy;
    binding.run.wanted = all ? Wanted{} : wanted_results(k.cell(), without_rows);
    SolveReport report;
    solver->run(binding.run, solve, report);
  };
  const bool free = k.solve.solver == Strategy::Auto && k.solve.plan.empty();
  const int stages = static_cast<int>(k.analysed.structure.stages.size());
  for (const StrategyFacts& facts : strategies()) {
    if (!free || facts.strategy == Strategy::Auto) continue;
    bool admitted = true;
    for (int s = 0; s < stages; ++s) {
      try {
        admitted &= !solver->refusal(s, facts.strategy, binding.run);
      } catch (const SolverError&) {
        admitted = false;
      }
    }
    if (!admitted) continue;
    for (const bool all : {true, false}) run(facts.strategy, all);
  }
  for (const bool all : {true, false}) run(k.solve.solver, all);
  k.give_solver(std::move(solver));
}

}  // namespace
}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

cellc_status cellc_compile_ahead(cellc_kernel* kernel, const cellc_shape* given, int prepared) {
  return guarded([&] {
    CompiledCell& k = opened(kernel);
    const UseHostMemory memory(k.own_memory());
    const Shape shape = read_shape(k, given);
    if (k.on_gpu) {
      k.on_gpu->kept(shape, k.solve);
      return;
    }
    compile_for_cpu(k, shape);
    if (prepared) k.own_driver();
  });
}

}  // extern "C"
