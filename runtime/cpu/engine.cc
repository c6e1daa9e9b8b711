#include "runtime/cpu/engine.h"

#include <chrono>

#include "runtime/build/compile_plan.h"
#include "runtime/cpu/sequential_run.h"

namespace cellc {

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

struct StepsFromRows::Impl {
  CompiledPlan compiled;
};

StepsFromRows::StepsFromRows(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StepsFromRows::~StepsFromRows() = default;
StepsFromRows::StepsFromRows(StepsFromRows&&) noexcept = default;

StepsFromRows StepsFromRows::compile(const CellGraph& cell, const Structure& structure, const CompileOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->compiled = compile_plan(cell, structure, options, kNoAxis, false, true);
  return StepsFromRows(std::move(impl));
}

std::vector<Array> StepsFromRows::operator()(const BoundRun& run, const std::vector<Array>& rows) const {
  BoundRun steps = run;
  steps.wanted = {};
  steps.wanted.finals.assign(rows.size(), false);
  steps.wanted.outs.assign(impl_->compiled.plan.cell.outs.size(), false);
  return run_sequential(impl_->compiled, steps, {}, &rows).states;
}

double StepsFromRows::compile_ms() const { return impl_->compiled.compile_ms; }
CacheState StepsFromRows::cache() const { return impl_->compiled.module->cache; }

}  // namespace cellc
