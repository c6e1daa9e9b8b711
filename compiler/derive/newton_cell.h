#pragma once
// The lane cell about a given trajectory: linearised, for Newton per step, and its residual, for the
// check that every strategy ends in. Both take the trajectory before each step, `before.NAME`, as a further
// input (ArraySource::Guess), so all steps are independent of each other. Follows stage_cells; precedes plan.
//
//   linearised   s' = f(g) + J(g)·(s − g) with g the previous iterate one step before: ParaRNN's linear system
//                (arXiv 2510.21450, eq. 5) as a linear cell, so that one scan solves it
//   evaluated    s' = f(g) alone: with g = 0 the first guess of ParaRNN
//   residual     its states, each [lane], are
//                  residual' = max(residual, |f(g) − s|/(1 + |s|)) over all states and entries of a lane, s being the
//                  step's own value, `value.NAME`, as an input in the state's place (ArraySource::Value);
//                  good' = good + 1 as long as that stays within the param `tolerance`: the number of the first bad
//                  step;
//                  since' = since + 1 where this very step is within it, else 0: the steps after the last bad one.
//                A value that is not finite and that f itself gives has residual zero.
#include "compiler/derive/derived_cell.h"
