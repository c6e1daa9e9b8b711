#include "runtime/build/build_object.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <vector>

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

namespace {

/// The functions of a build for one width of vectors.
struct Emitted {
  DriverModule forward;
  std::optional<DriverModule> backward;
};

Emitted emit(const CellGraph& cell, const Structure& structure, const DriverOptions& options, bool backward) {
  Emitted result;
  try {
    result.forward = emit_driver(cell, structure, options);
    if (backward) result.backward = emit_backward_driver(cell, options);
  } catch (const std::invalid_argument& e) {
    throw RequestError(e.what());
  }
  return result;
}

}  // namespace

BuiltObject build_object(const CellGraph& cell, const Structure& structure, const BuildRequest& request) {
  DriverOptions options;
  options.storage = storage_of(request.dtype);
  options.lengths = fixed_lengths(cell, request.dims);
  options.steps = request.length;
  options.side_by_side = true;
  options.prefix = request.name.empty()
                       ? build_name(cell, {to_string(request.dtype), false, options.lengths, options.steps})
                       : request.name;
  for (const std::string& cpu : request.cpus) options.processors.push_back(cpu == "native" ? host_cpu_name() : cpu);
  options.about = fmt::format("cell {}, {}, for {}, by cellc {} with {}", cell.name, to_string(request.dtype),
                              fmt::join(options.processors, ", "), kVersion, llvm_version());
  BuiltObject result;
  result.about = options.about;
  ObjectRequest object;
  Emitted emitted;
  std::vector<int> widths;
  for (const std::string& cpu : request.cpus) {
    options.vector_bits = target_vector_bits(cpu);
    if (widths.empty() || widths.back() != options.vector_bits)
      emitted = emit(cell, structure, options, request.backward);
    widths.push_back(options.vector_bits);
    object.parts.push_back({cpu, {emitted.forward.ir}});
    if (emitted.backward) object.parts.back().ir_texts.push_back(emitted.backward->ir);
  }
  result.header =
      print_header(emitted.forward, options,
                   fmt::format("{}. Generated: change the cell, not this file.\n"
                               " * structure: {}\n * plan: sequential, products in the step, vectors of {} bits\n",
                               options.about, structure_summary(cell, structure), fmt::join(widths, ", ")),
                   emitted.backward ? &*emitted.backward : nullptr);
  const auto facts = [&](const DriverModule& module, const char* suffix, const std::string& forward) {
    return array_facts(
        {module.cell, module.layout, options.storage, options.steps, options.prefix + suffix, false, forward});
  };
  result.forward = facts(emitted.forward, "", "");
  result.lengths =
      length_members({emitted.forward.cell, emitted.forward.layout, options.storage, options.steps, options.prefix});
  if (emitted.backward) result.backward = facts(*emitted.backward, "_backward", options.prefix);
  object.supported = options.prefix + "_supported";
  const auto add = [&](const DriverModule& module) {
    const std::vector<std::string>& names = module.functions;  // workspace, the call, message, about
    result.functions.insert(result.functions.end(), names.begin(), names.end());
    for (std::size_t f = 0; f < 2; ++f) object.run.insert(object.run.end(), {names[f], names[f] + "_as"});
    object.told.insert(object.told.end(), names.begin() + 2, names.end());
  };
  add(emitted.forward);
  if (emitted.backward) add(*emitted.backward);
  result.functions.push_back(object.supported);
  result.bytes = compile_object(object);
  if (request.shared) result.bytes = link_shared(result.bytes, request.file);
  return result;
}

}  // namespace cellc
