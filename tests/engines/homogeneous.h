#pragma once
// Cells whose states scale with some of their inputs, and data with long quiet stretches between peaks, where a
// residual is small beside 1 and large beside the signal.
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/data/bind.h"

namespace cellc {

struct Homogeneous {
  const char* name;
  const char* text;  ///< inputs u scale with the states, inputs g do not
  friend void PrintTo(const Homogeneous& cell, std::ostream* out) { *out << cell.name; }
};
const std::vector<Homogeneous>& homogeneous_cells();

struct HomogeneousShape {
  std::vector<std::int64_t> lengths;  ///< of sequences, one behind the other
  std::int64_t channels = 3;
  std::int64_t stretch = 700;      ///< steps of a quiet stretch, and of one between two
  double least = 0, quiet = 0.02;  ///< of inputs, which reach to 1; how loud u is where it is quiet
};
/// Inputs u times two to the power. Starts are zero.
BoundRun homogeneous_run(const CellGraph& cell, Dtype dtype, int power, const HomogeneousShape& shape);

/// Where the rows of two runs differ by more or less than that power; empty: nowhere.
std::string not_scaled(const RunOutput& output, const RunOutput& other, int power);

}  // namespace cellc
