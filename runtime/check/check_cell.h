#pragma once
// `cellc check`: tests with numbers what was derived of a cell. It proves nothing, but it finds a
// derivation or a kernel that is wrong.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"

namespace cellc {

struct CheckItem {
  std::string what;  ///< the claim, e.g. "d h'/d c" or "stage {c, h} is linear"
  bool passed = true;
  double worst = 0;          ///< largest error over what was allowed: at most 1 where it passed
  std::int64_t tried = 0;    ///< numbers compared
  std::int64_t skipped = 0;  ///< at kinks, or not finite
  std::string detail;        ///< where it failed, or what was special
};

struct CheckReport {
  std::uint64_t seed = 0;
  std::vector<std::pair<std::string, std::int64_t>> sizes;  ///< of the header axes
  std::vector<CheckItem> items;
  bool passed() const;
};

/// Adds nodes to the cell's graph (blocks of the Jacobian). Kernels come from `cache_directory` where
/// it has them (engine.h).
CheckReport check_cell(CellGraph& cell, const Jacobian& jacobian, const Structure& structure, std::uint64_t seed,
                       const std::string& cache_directory = "");

}  // namespace cellc
