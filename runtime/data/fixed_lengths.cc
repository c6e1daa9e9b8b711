#include "runtime/data/fixed_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compiler/syntax/diagnostic.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"

namespace cellc {

std::map<AxisId, std::int64_t> fixed_lengths(const CellGraph& cell, const std::map<std::string, std::int64_t>& dims) {
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
      throw RequestError(fmt::format("--dim {}={}: cell {} has {}={}", name, length, cell.name, name, *header));
    if (!header) lengths[axis] = length;
  }
  return lengths;
}

}  // namespace cellc
