#include "runtime/build/compile_plan.h"

#include <fmt/format.h>

#include <chrono>

#include "runtime/data/errors.h"
#include "runtime/data/storage_of.h"

namespace cellc {

CompiledPlan compile_plan(const CellGraph& cell, const Structure& structure, const CompileOptions& options,
                          AxisId split_axis, bool whole_vectors, bool from_given) {
  const auto start = std::chrono::steady_clock::now();
  EmitOptions emit;
  emit.storage = storage_of(options.dtype);
  emit.vector_bits = options.vector_bits ? options.vector_bits : host_vector_bits(options.cpu);
  if (emit.vector_bits != 128 && emit.vector_bits != 256 && emit.vector_bits != 512) {
    throw RequestError(fmt::format("vectors of {} bits: expected 128, 256 or 512", emit.vector_bits));
  }
  emit.whole_vectors = whole_vectors;
  emit.one_vector = !from_given;
  emit.from_given = from_given;
  emit.even_rows = !whole_vectors;  // lanes find some rows in arrays and others in buffers
  CompiledPlan result;
  result.vector_lanes = emit.vector_bits / (options.dtype == Dtype::F64 ? 64 : 32);
  result.dtype = options.dtype;
  result.plan = make_plan(cell, structure,
                          {.narrow_storage = size_of(options.dtype) == 2,
                           .split_axis = split_axis,
                           .hoist_products = !options.own_products});
  if (from_given) leave_out_outs(result.plan);
  EmittedModule emitted = emit_llvm(result.plan, emit);
  result.ir = std::move(emitted.ir);
  result.module = compile_orc(result.ir, options.cpu, {}, options.cache_directory);
  result.kernels = std::move(emitted.kernels);
  result.functions = functions_of(result.kernels, *result.module);
  if (!whole_vectors && KernelsTogether::serve(result.plan))
    result.together = std::make_shared<KernelsTogether>(result.plan, emit, options.cpu, options.cache_directory);
  result.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace cellc
