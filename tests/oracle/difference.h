#pragma once
// The Jacobian of one step by finite differences of the oracle.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/oracle.h"

namespace cellc::oracle {

/// A state as it goes into a step: the state itself (lag 0), or what it was `lag` steps before.
using Source = std::pair<std::string, int>;

/// ∂(state after the step)/∂(source), [entries of the state, entries of the source].
struct Difference {
  std::vector<double> values;
  std::int64_t rows = 0, columns = 0;
};
using DifferenceJacobian = std::map<std::pair<std::string, Source>, Difference>;

/// Differences at the point `data` (starts, histories, inputs of step 0), for states and the given
/// depth of history of each (data.histories must hold it). nullopt where a kink or a jump lies
/// within 1e-3 of the point along some coordinate, or a value is not finite: take another point.
std::optional<DifferenceJacobian> difference_jacobian(const Cell& cell, const Data& data,
                                                      const std::map<std::string, int>& depths);

}  // namespace cellc::oracle
