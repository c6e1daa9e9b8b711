#include "runtime/build/kernels_together.h"

#include <algorithm>
#include <utility>

#include "runtime/data/errors.h"

namespace cellc {
namespace {

/// Whether a sum walks a param along its rows and its terms: one that has only terms is small, and stays in the cache.
bool multiplies_matrix(const Nest& nest) {
  return nest.is_reduction() && std::any_of(nest.loads.begin(), nest.loads.end(), [&](const Access& a) {
           if (a.home.place != Place::Param && a.home.place != Place::Once) return false;
           const auto has_one_of = [&](const std::vector<AxisId>& axes) {
             return std::any_of(a.index.begin(), a.index.end(),
                                [&](const Index& i) { return i.is_axis() && contains(axes, i.axis); });
           };
           return has_one_of(nest.axes) && has_one_of(nest.bound);
         });
}

/// Of every kernel that walks steps.
template <typename Each>
void each_matrix(const Plan& plan, Each each) {
  for (const Kernel& kernel : plan.kernels)
    for (const Nest& nest : kernel.nests)
      if (!kernel.once && multiplies_matrix(nest)) each(nest);
}

}  // namespace

std::vector<KernelFunction> functions_of(const std::vector<KernelCode>& kernels, const CompiledModule& module) {
  std::vector<KernelFunction> functions;
  for (const KernelCode& kernel : kernels) {
    void* address = kernel.function.empty() ? nullptr : module.symbol(kernel.function);
    if (!address && !kernel.function.empty()) throw DeviceError("LLVM lost the function " + kernel.function);
    functions.push_back(reinterpret_cast<KernelFunction>(address));
  }
  return functions;
}

bool KernelsTogether::serve(const Plan& plan) {
  bool any = false;
  each_matrix(plan, [&](const Nest&) { any = true; });
  return any;
}

KernelsTogether::KernelsTogether(Plan plan, const EmitOptions& emit, std::string cpu, std::string cache_directory)
    : plan_(std::move(plan)), emit_(emit), cpu_(std::move(cpu)), cache_directory_(std::move(cache_directory)) {
  emit_.sequences = kSequences;
  emit_.functions = "cellc.together";
  emit_.even_rows = emit_.one_vector = false;  // of narrow cells
}

const KernelsTogether::Code& KernelsTogether::code() {
  std::call_once(compiled_, [&] {
    EmittedModule emitted = emit_llvm(plan_, emit_);
    code_.module = compile_orc(emitted.ir, cpu_, {}, cache_directory_);
    code_.kernels = std::move(emitted.kernels);
    code_.functions = functions_of(code_.kernels, *code_.module);
  });
  return code_;
}

bool KernelsTogether::pays_after(const AxisLengths& lengths, std::int64_t steps) {
  std::int64_t all = 0;
  each_matrix(plan_, [&](const Nest& nest) {
    all += lengths.entries(nest.axes) * lengths.entries(nest.bound) * static_cast<std::int64_t>(nest.nodes.size());
  });
  counted_ += all * steps;
  return counted_ >= worth;
}

}  // namespace cellc
