#pragma once
// What a run promises, for whichever device: cells that try it, data for them, and what is wrong with an answer.
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/data/bind.h"
#include "runtime/strategy/solve_options.h"
#include "tests/engines/recheck.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/random.h"

namespace cellc {

/// A cell of one to three states along channels, drawn from a seed: linear, clip, Möbius, smooth and with jumps; later
/// states read earlier ones, their lags and lags of inputs; outs sum over a second axis.
std::string promise_cell(std::uint64_t seed);

/// Cells whose later states make a thousand times as much of an earlier one, which is a sum of products: of states,
/// inputs and params, of fewer axes, read twice, beside maxima. Whoever rounds a product otherwise breaks the promise.
std::string amplifying_cell(std::uint64_t seed);

/// Sequences one after the other. Inputs and params normal, or within their declared ranges, starts in [-1, 1].
struct PromiseShape {
  std::vector<std::int64_t> lengths;
  std::int64_t axis = 3;  ///< length of axes that the header leaves open
  double inputs = 1;      ///< deviation
  bool reverse = false;
  oracle::Ranges ranges{};  ///< by name, of what makes sense there alone
};
BoundRun promise_run(const CellGraph& cell, Dtype dtype, const PromiseShape& shape, oracle::Random& random);

/// Nothing, or what of the promise does not hold: every step within the tolerance of what the sequential kernel makes
/// of the rows before it, finals that are the last rows, outs that belong to the rows, and a report that says so.
std::string broken_promise(const StepRecheck& recheck, const BoundRun& run, const RunOutput& output,
                           const SolveReport& report, double tolerance);

/// A case that once broke the promise.
struct BrokenPromise {
  const char* name;
  const char* text;  ///< of the cell
  const char* why;
  PromiseShape shape;
};
/// Inside a segment a lag of a state reads what the segment guessed, not the row that was written.
extern const BrokenPromise kLagOfAGuess;
/// Sums run in another order than in the sequential kernel.
extern const BrokenPromise kSumInAnotherOrder;
/// The same, where nothing but what the order leaves is the state.
extern const BrokenPromise kStateIsRounding;
/// A later stage amplifies last bits: of a product that an out reads too, and of one that another nest makes.
extern const BrokenPromise kProductReadTwice, kProductOfFewerAxes;
/// A relaxed stage's residuals are of sums in a BLAS's order.
extern const BrokenPromise kSumByBlas;
/// On arrays of a caller nobody looks at what a later stage makes of a scan.
extern const BrokenPromise kScanFeedsStage;

}  // namespace cellc
