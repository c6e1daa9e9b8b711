#pragma once
// Gradients of small cells, each of which has something that others lack, by the adjoint step after step in f64: what
// kernels are held to, those of a run (backward_test.cc) and shipped ones (aot_backward_test.cc).
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/gradient/adjoint_run.h"

namespace cellc {

struct GradientCell {
  const char* name;
  const char* text;
  bool shipped = true;  ///< shipped gradients are tested of it, too
};
/// `h' = a*h + x`, one of the cells.
extern const char* const kLinearCell;
const std::vector<GradientCell>& gradient_cells();
const GradientCell& gradient_cell(const std::string& name);

/// The plainest sum over steps.
void sum_plainly(const StepSum& sum);

struct GradientShape {
  std::vector<std::int64_t> offsets;
  bool reverse = false;
  std::int64_t channels = 7;  ///< of the first axis whose length is open; two more of each that follows
  bool echoes = false;        ///< histories are the start at every step
  bool some = false;          ///< the first state has no cotangent
};

/// A run of a shape, and cotangents of all that it writes.
struct BackwardTrial {
  BackwardTrial(const CellGraph& cell, const GradientShape& shape, Dtype storage = Dtype::F64);

  BoundRun run;
  Cotangents cotangents;
  RunOutput output;

  /// By the adjoint, which must be of the cell and of these cotangents.
  Gradients expected(const AdjointRun& adjoint) const;
};

/// `within`: of the largest of the array. And the same bits as `again`.
void expect_same(const std::string& about, const Array& found, const Array& again, const Array& expected,
                 double within);

}  // namespace cellc
