#include "runtime/check/check_cell.h"

#include <algorithm>
#include <map>

#include "runtime/check/check_claims.h"

namespace cellc {
namespace {

/// Lengths that tell axes apart: a different small prime each, so that a mixed-up axis shows. A
/// mixed axis of a low-rank stage gets room for minors beside the diagonal (2*rank + 2).
std::map<std::string, std::int64_t> choose_sizes(const CellGraph& cell, const Structure& structure) {
  constexpr std::int64_t primes[] = {3, 2, 5, 7, 11, 13, 17, 19, 23, 29};
  constexpr std::int64_t kMostEntries = 300;  // finite differences cost entries * entries
  std::map<AxisId, std::int64_t> sizes;
  std::size_t next = 0;
  for (const AxisId a : cell.header)
    if (!cell.graph.axis(a).fixed) sizes[a] = primes[std::min<std::size_t>(next++, 9)];

  for (const Stage& stage : structure.stages) {
    if (!stage.rank) continue;
    for (const SizeExpression::Term& term : stage.rank->terms)
      for (const AxisId a : term.axes) sizes[a] = 2;
    const std::int64_t whole = stage.rank->value(sizes), rank = whole > kMostRank ? 0 : whole;
    for (const AxisId a : stage.coupled_axes) {
      const AxisId header = cell.graph.axis(a).extent_of;
      if (sizes.count(header)) sizes[header] = std::max(sizes[header], 2 * rank + 3);
    }
  }

  const auto entries = [&] {
    std::int64_t total = 0;
    for (const StateUpdate& u : cell.updates) {
      std::int64_t count = 1;
      for (const AxisId a : cell.symbol_of(u).axes) {
        const auto& axis = cell.graph.axis(cell.graph.axis(a).extent_of);
        const auto size = sizes.find(cell.graph.axis(a).extent_of);
        count *= size != sizes.end() ? size->second : axis.fixed.value_or(1);
        count = std::min<std::int64_t>(count, 1'000'000);
      }
      total += count;
    }
    return total;
  };
  while (entries() > kMostEntries) {
    auto largest =
        std::max_element(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (largest == sizes.end() || largest->second <= 2) break;
    --largest->second;
  }
  std::map<std::string, std::int64_t> named;
  for (const auto& [axis, size] : sizes) named[cell.graph.axis(axis).name] = size;
  return named;
}

}  // namespace

bool CheckReport::passed() const {
  return std::all_of(items.begin(), items.end(), [](const CheckItem& item) { return item.passed; });
}

CheckReport check_cell(CellGraph& cell, const Jacobian& jacobian, const Structure& structure, std::uint64_t seed,
                       const std::string& cache_directory) {
  CheckReport report;
  report.seed = seed;
  BindRequest request;
  request.dims = choose_sizes(cell, structure);
  request.batch = 1;
  request.length = 12;
  request.dtype = Dtype::F64;
  request.random_seed = seed;
  const Binding binding = bind(cell, request);
  for (const AxisId a : cell.header) report.sizes.emplace_back(cell.graph.axis(a).name, binding.run.sizes.at(a));
  check_claims(cell, jacobian, structure, binding, seed, report.items);
  check_engine(cell, structure, request, cache_directory, report.items);
  check_gradients(cell, binding, request, seed, cache_directory, report.items);
  return report;
}

}  // namespace cellc
