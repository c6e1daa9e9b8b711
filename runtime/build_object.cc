#include "runtime/build_object.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/diagnostic.h"
#include "compiler/emit_llvm_driver.h"
#include "compiler/print_header.h"
#include "compiler/version.h"
#include "runtime/bind.h"
#include "runtime/compile_orc.h"
#include "runtime/compile_plan.h"
#include "runtime/link_shared.h"

namespace cellc {
namespace {

std::map<AxisId, std::int64_t> fixed_lengths(const CellGraph& cell,
                                             const std::map<std::string, std::int64_t>& dims) {
  std::map<AxisId, std::int64_t> lengths;
  std::vector<std::string> names;
  for (const AxisId a : cell.header) names.push_back(cell.graph.axis(a).name);
  for (const auto& [name, length] : dims) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) {
      const std::string near = closest_name(name, names);
      throw UsageError(fmt::format("--dim {}: cell {} has no axis '{}'{}", name, cell.name, name,
                                   near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
    }
    const AxisId axis = cell.header[static_cast<std::size_t>(found - names.begin())];
    const auto header = cell.graph.axis(axis).fixed;
    if (header && *header != length)
      throw RequestError(
          fmt::format("--dim {}={}: cell {} has {}={}", name, length, cell.name, name, *header));
    if (!header) lengths[axis] = length;
  }
  return lengths;
}

std::string structure_text(const CellGraph& cell, const Structure& structure) {
  std::string text;
  for (const Stage& stage : structure.stages) {
    std::string states;
    for (const int u : stage.states) {
      const Symbol& s = cell.symbols[cell.updates[u].symbol];
      if (s.lag_of < 0) states += (states.empty() ? "" : ", ") + s.name;
    }
    text += fmt::format("{}{{{}}} {}", text.empty() ? "" : "; ", states, to_string(stage.kind));
  }
  return text.empty() ? "no states" : text;
}

}  // namespace

BuiltObject build_object(const CellGraph& cell, const Structure& structure, const BuildRequest& request) {
  DriverOptions options;
  options.storage = storage_of(request.dtype);
  options.vector_bits = target_vector_bits(request.cpu);
  options.prefix = c_name(cell.name);
  options.lengths = fixed_lengths(cell, request.dims);
  options.steps = request.length;
  const std::string cpu = request.cpu == "native" ? host_cpu_name() : request.cpu;
  options.about = fmt::format("cell {}, {}, for {}, by cellc {} with {}", cell.name, to_string(request.dtype),
                              cpu, kVersion, llvm_version());
  BuiltObject result;
  DriverModule module;
  try {
    module = emit_driver(cell, structure, options);
  } catch (const std::invalid_argument& e) {
    throw RequestError(e.what());
  }
  result.about = options.about;
  result.functions = module.functions;
  result.header = print_header(
      module, options,
      fmt::format("{}. Generated: change the cell, not this file.\n"
                  " * structure: {}\n * plan: sequential, products in the step, vectors of {} bits\n",
                  options.about, structure_text(cell, structure), options.vector_bits));
  result.bytes = compile_object(module.ir, request.cpu, module.functions);
  if (request.shared) result.bytes = link_shared(result.bytes, request.name);
  return result;
}

}  // namespace cellc
