#include "runtime/build/build_object.h"

#include <fmt/format.h>

#include "compiler/codegen_llvm/emit_llvm_driver.h"
#include "compiler/codegen_llvm/print_header.h"
#include "compiler/syntax/version.h"
#include "runtime/build/compile_orc.h"
#include "runtime/build/link_shared.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/fixed_lengths.h"
#include "runtime/data/storage_of.h"

namespace cellc {
BuiltObject build_object(const CellGraph& cell, const Structure& structure, const BuildRequest& request) {
  DriverOptions options;
  options.storage = storage_of(request.dtype);
  options.vector_bits = target_vector_bits(request.cpu);
  options.lengths = fixed_lengths(cell, request.dims);
  options.steps = request.length;
  options.prefix = request.name.empty()
                       ? build_name(cell, {to_string(request.dtype), false, options.lengths, options.steps})
                       : request.name;
  const std::string cpu = request.cpu == "native" ? host_cpu_name() : request.cpu;
  options.about = fmt::format("cell {}, {}, for {}, by cellc {} with {}", cell.name, to_string(request.dtype), cpu,
                              kVersion, llvm_version());
  BuiltObject result;
  DriverModule module;
  std::optional<DriverModule> backward;
  try {
    module = emit_driver(cell, structure, options);
    if (request.backward) backward = emit_backward_driver(cell, options);
  } catch (const std::invalid_argument& e) {
    throw RequestError(e.what());
  }
  result.about = options.about;
  result.functions = module.functions;
  result.header =
      print_header(module, options,
                   fmt::format("{}. Generated: change the cell, not this file.\n"
                               " * structure: {}\n * plan: sequential, products in the step, vectors of {} bits\n",
                               options.about, structure_summary(cell, structure), options.vector_bits),
                   backward ? &*backward : nullptr);
  std::vector<std::string> texts{module.ir}, seen = module.functions;
  for (const char* checked : {"_workspace_as", "_forward_as"}) seen.push_back(options.prefix + checked);
  if (backward) {
    result.functions.insert(result.functions.end(), backward->functions.begin(), backward->functions.end());
    seen.insert(seen.end(), backward->functions.begin(), backward->functions.end());
    for (const char* checked : {"_backward_workspace_as", "_backward_as"}) seen.push_back(options.prefix + checked);
    texts.push_back(backward->ir);
  }
  result.bytes = compile_object(texts, request.cpu, seen);
  if (request.shared) result.bytes = link_shared(result.bytes, request.file);
  return result;
}

}  // namespace cellc
