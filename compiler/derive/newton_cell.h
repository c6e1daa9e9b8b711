#pragma once
// The lane cell linearised about a given trajectory, for Newton per step; and its residual, for the check
// in which every strategy ends. Both take the trajectory before each step, `before.NAME`, as an input,
// so all steps are independent of each other. Follows stage_cells; precedes plan.
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

/// s' = f(g) + J(g)·(s − g) with g the previous iterate one step before: ParaRNN's linear system
/// (arXiv 2510.21450, eq. 5) as a linear cell, so that one scan solves it.
struct NewtonCell {
  CellGraph cell;
  std::vector<int> before;  ///< by state: symbol of the input g
};
NewtonCell linearised(const CellGraph& lanes, AxisId lane);
/// s' = f(g) alone: with g = 0 the first guess of ParaRNN.
NewtonCell evaluated(const CellGraph& lanes);

/// r' = max(r, |f(g) − s|/(1 + |s|)) over all states and entries of a lane, s being the step's own
/// value as an input; good' = good + 1 as long as r stays within the param `tolerance`: the number
/// of the first bad step; since' = since + 1 where this very step is within it, else 0: the steps after
/// the last bad one. A value that is not finite and that f itself gives has residual zero.
struct ResidualCell {
  CellGraph cell;           ///< states: residual [lane], good [lane], since [lane]
  std::vector<int> before;  ///< by state of the lane cell: symbol of g
  std::vector<int> value;   ///< by state: symbol of s
  int tolerance;            ///< symbol
};
ResidualCell residual(const CellGraph& lanes, AxisId lane);

}  // namespace cellc
