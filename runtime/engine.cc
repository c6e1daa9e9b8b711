#include "runtime/engine.h"

#include <fmt/format.h>

#include <chrono>

#include "compiler/emit_llvm.h"
#include "compiler/plan.h"
#include "runtime/compile_orc.h"
#include "runtime/sequential_run.h"

namespace cellc {

namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Storage storage_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32: return Storage::F32;
    case Dtype::F64: return Storage::F64;
    case Dtype::F16: return Storage::F16;
    case Dtype::BF16: return Storage::BF16;
    default: throw RequestError(fmt::format("arrays of {} cannot be run; use f32, f64, f16 or bf16", to_string(dtype)));
  }
}

}  // namespace

struct Program::Impl {
  CompiledPlan compiled;
  std::unique_ptr<CompiledModule> module;
  std::string ir;
  double compile_ms = 0;
};

Program::Program(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Program::~Program() = default;
Program::Program(Program&&) noexcept = default;

Program Program::compile(const CellGraph& cell, const Structure& structure, const CompileOptions& options) {
  const auto start = Clock::now();
  EmitOptions emit;
  emit.storage = storage_of(options.dtype);
  const int widest = host_vector_bits(options.cpu);
  emit.vector_bits = options.vector_bits ? options.vector_bits : widest;
  if (emit.vector_bits != 128 && emit.vector_bits != 256 && emit.vector_bits != 512) {
    throw RequestError(fmt::format("vectors of {} bits: expected 128, 256 or 512", emit.vector_bits));
  }
  auto impl = std::make_unique<Impl>();
  CompiledPlan& compiled = impl->compiled;
  compiled.dtype = options.dtype;
  compiled.plan = make_plan(cell, structure, {.narrow_storage = size_of(options.dtype) == 2});
  EmittedModule emitted = emit_llvm(compiled.plan, emit);
  impl->ir = std::move(emitted.ir);
  impl->module = compile_orc(impl->ir, options.cpu);
  compiled.kernels = std::move(emitted.kernels);
  for (const KernelCode& kernel : compiled.kernels) {
    void* address = kernel.function.empty() ? nullptr : impl->module->symbol(kernel.function);
    if (!address && !kernel.function.empty()) throw DeviceError("LLVM lost the function " + kernel.function);
    compiled.functions.push_back(reinterpret_cast<KernelFunction>(address));
  }
  impl->compile_ms = ms_since(start);
  return Program(std::move(impl));
}

RunOutput Program::run(const BoundRun& run) const {
  const auto start = Clock::now();
  RunOutput output = run_sequential(impl_->compiled, run);
  output.run_ms = ms_since(start);
  return output;
}

double Program::compile_ms() const { return impl_->compile_ms; }
const std::string& Program::llvm_ir() const { return impl_->ir; }
std::string Program::assembly() const { return impl_->module->assembly(); }

}  // namespace cellc
