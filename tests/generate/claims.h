#pragma once
// What is claimed of a cell against numbers: the printed Jacobian against finite differences, and
// stages, channel axes, masks and linearity against finite (not infinitesimal) moves of the states
// in the oracle, so that steps and kinks count as well.
#include <string>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "compiler/syntax/source.h"
#include "tests/oracle/examples.h"

namespace cellc::generate {

struct ClaimReport {
  std::string wrong;        ///< what is wrong, or empty
  int jacobian_points = 0;  ///< points at which the Jacobian was compared
  int moves = 0;            ///< finite moves made
};

/// `points` points for the Jacobian and as many for the other claims.
ClaimReport check_claims(CellGraph& graph, const SourceText& source, const File& tree, const oracle::Ranges& ranges,
                         oracle::Random& random, int points);

}  // namespace cellc::generate
