#include "runtime/engine.h"

#include <chrono>

#include "runtime/compile_plan.h"
#include "runtime/sequential_run.h"

namespace cellc {

RunOutput prepare_output(const CellGraph& cell, const BoundRun& run, Dtype dtype) {
  const auto shape = [&](std::int64_t first, const std::vector<AxisId>& axes) {
    std::vector<std::int64_t> lengths{first};
    for (const AxisId a : axes) lengths.push_back(run.sizes.at(cell.graph.axis(a).extent_of));
    return lengths;
  };
  const std::int64_t rows = run.offsets.back(), sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  RunOutput output;
  for (const StateUpdate& u : cell.updates) {
    const std::vector<AxisId>& axes = cell.symbols[u.symbol].axes;
    output.states.push_back(Array(dtype, shape(rows, axes)));
    output.finals.push_back(Array(dtype == Dtype::F64 ? Dtype::F64 : Dtype::F32, shape(sequences, axes)));
  }
  for (const Out& o : cell.outs) output.outs.push_back(Array(dtype, shape(rows, o.index)));
  return output;
}

struct Program::Impl {
  CompiledPlan compiled;
};

Program::Program(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Program::~Program() = default;
Program::Program(Program&&) noexcept = default;

Program Program::compile(const CellGraph& cell, const Structure& structure, const CompileOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->compiled = compile_plan(cell, structure, options);
  return Program(std::move(impl));
}

RunOutput Program::run(const BoundRun& run, RunOutput reuse) const {
  const auto start = std::chrono::steady_clock::now();
  RunOutput output = run_sequential(impl_->compiled, run, std::move(reuse));
  output.run_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return output;
}

double Program::compile_ms() const { return impl_->compiled.compile_ms; }
CacheState Program::cache() const { return impl_->compiled.module->cache; }
const std::string& Program::llvm_ir() const { return impl_->compiled.ir; }
std::string Program::assembly() const { return impl_->compiled.module->assembly(); }

}  // namespace cellc
