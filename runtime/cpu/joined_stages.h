#pragma once
// All stages of a cell as one, where each is to take a segment a sequence: then no stage needs to know what another
// makes of later steps, and one walk of the lanes runs them all. States pass from stage to stage in registers, and
// every input is gathered once.
#include <memory>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "runtime/cpu/solve.h"

namespace cellc {

class JoinedStages {
 public:
  /// Null where there is nothing to join, or lanes of one stage are not those of the others.
  static std::unique_ptr<JoinedStages> make(const CellGraph& cell, const Structure& structure,
                                            const CompileOptions& options);

  /// `plans` by stage, all of them a segment a sequence.
  RunOutput run(const BoundRun& run, const SolveOptions& solve, const std::vector<StagePlan>& plans,
                SolveReport& report, RunOutput reuse);
  /// A run of which only the time is of interest.
  void sweep(const BoundRun& run, RunOutput& output);
  double compile_ms() const { return compile_ms_; }

 private:
  JoinedStages(const CellGraph& cell, Structure structure, const CompileOptions& options);

  const Structure structure_;
  Solver solver_;
  double compile_ms_ = 0;
};

/// Whether every stage is to take a segment a sequence.
bool takes_whole_sequences(const std::vector<StagePlan>& plans, const BoundRun& run);

}  // namespace cellc
