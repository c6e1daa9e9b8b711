#pragma once
// A lane cell -> one CUDA C++ struct of the shape that kernels-templates/device/stub_cell.cuh shows: flat lists
// of the entries that a lane holds, and one step as scalar statements. Follows scalarize. Emits text only:
// this file knows no device. The functions that the text calls are in kernels-templates/device/math.cuh.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/derive/scalarize.h"
#include "compiler/derive/stage_cells.h"
#include "compiler/derive/transition_cell.h"
#include "compiler/graph/storage.h"
#include "compiler/syntax/source.h"

namespace cellc {

struct CudaLaneOptions {
  Storage storage = Storage::F32;
  std::map<AxisId, std::int64_t> sizes;  ///< by header axis: of all that the step mentions and that are not fixed
  std::string name = "Step";             ///< of the struct; a step's `next` may not overlap its `state`
  const SourceText* source = nullptr;    ///< where spans point; null: no #line
  const CellGraph* written = nullptr;    ///< the cell as written: the statements take its names; null: numbered
  std::int64_t limit = 4000;             ///< operations a step
  /// Listed whether or not the step reads them: those of another step of the same unit, by that one's symbols. This
  /// cell may have states of those numbers.
  std::vector<SymbolEntry> inputs;
};

struct CudaLaneCode {
  std::string text;
  // What the struct's lists say, in their order.
  std::vector<SymbolEntry> states, inputs, params;
  std::vector<int> uniform_arrays;  ///< params without the lane that the step reads: symbols
  std::int64_t operations = 0;      ///< arithmetic a step
  int map_numbers =
      0;  ///< that tell a lane's map over any number of steps (Map::count() of transitions.cuh); with transitions
};

/// `cell`: StageCells::lanes or a cell derived from it. Throws ScalarizedTooLong, and as scalarize does.
CudaLaneCode emit_cuda_lane(const CellGraph& cell, AxisId lane, const CudaLaneOptions& options);

/// Two structs: `options.name` (use "StepWithTransition"), which leaves out transitions whose entry is proved zero, and
/// `TransitionRule`, which says which states of the first are the others. With n entries in all states of the
/// lane cell, place i*n + j of an affine rule is ∂(entry i)/∂(start of entry j), -1 where it is proved
/// zero; places 4*i … of the others are entry i's a b low high (Clip) or a b c d (Möbius).
CudaLaneCode emit_cuda_step_with_transition(const TransitionCell& transitions, AxisId lane,
                                            const CudaLaneOptions& options);

/// Lengths for a look at the code where the cell leaves them open: 2, 3, 4, 2, … by header axis.
std::map<AxisId, std::int64_t> sizes_to_show(const CellGraph& cell, AxisId lane);

/// `inspect --stage cuda`: step and transitions of every stage.
std::string print_cuda(const CellGraph& cell, const StagedCell& staged, const Structure& structure,
                       const SourceText& source, Storage storage);

}  // namespace cellc
