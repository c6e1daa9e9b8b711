#pragma once
// The arrays of a sequential run: those that it is given, those that it writes, those in between; and how kernels are
// given them. Private to the engine.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compiler/graph/axes.h"
#include "compiler/plan/call_layout.h"
#include "runtime/build/compile_plan.h"
#include "runtime/cpu/run_tasks.h"
#include "runtime/data/array.h"
#include "runtime/data/run.h"

namespace cellc {

/// Memory of one task at a time.
struct TaskScratch {
  std::vector<Array> temps, chunks;
  std::vector<Array> carried[2];    ///< by state, narrow storage: step t writes carried[t % 2]
  std::vector<Array> states, outs;  ///< rows of results that are not wanted, of two parts in turn; else without a shape
};

class SequentialArrays {
 public:
  /// Both must outlive it. Throws RequestError where an array is missing or has another number of entries.
  /// `given`: of a plan that steps from given rows, these, by state; otherwise null.
  SequentialArrays(const CompiledPlan& compiled, const BoundRun& run, RunOutput reuse, const std::vector<Array>* given);

  /// Whether a kernel may run all steps of a chunk in one call.
  bool has_all_rows() const { return part_rows_ == 0; }
  /// Whether a kernel may go on amid a span, from where another call has left it.
  bool goes_on_inside() const { return part_rows_ == 0 || !by_span_; }
  /// Decides how many steps' rows of unwanted results are kept at a time. To be called once the run is cut.
  void cut_parts(std::int64_t largest_span);
  /// Calls `each` with the steps of a chunk that a kernel may run in one call.
  template <typename Each>
  void each_part(const StepChunk& chunk, Each each) const {
    if (part_rows_ == 0 || by_span_) return each(chunk);
    for (std::int64_t begin = chunk.begin, end; begin < chunk.end; begin = end) {
      end = std::min(chunk.end, (begin / part_rows_ + 1) * part_rows_);
      each(StepChunk{chunk.sequence, begin, end});
    }
  }

  /// What a kernel's slot stands for where it runs a part of a chunk.
  std::uint64_t slot_value(const Slot& slot, const TaskScratch& scratch, const RowSpan& span,
                           const StepChunk& chunk) const;
  std::int64_t row_bytes(SlotKind kind, int id) const;
  TaskScratch make_scratch(std::int64_t largest_span) const;
  /// A product's matrix, and what its rows of a span are multiplied by.
  const std::byte* matrix_of(const Product& product) const;
  const std::byte* operand_of(const Product& product, const TaskScratch& scratch, const RowSpan& span,
                              std::int64_t row_bytes) const;

  /// Whether states at the end of these steps are only in the scratch memory, until the next sequence takes it, and are
  /// wanted: those of narrow storage are carried there, others are where rows are not wanted.
  bool ends_in_scratch(const StepChunk& chunk) const;
  /// Keeps them. `kernel`: whose states.
  void keep_finals(int kernel, const TaskScratch& scratch, const RowSpan& span, const StepChunk& chunk);
  /// The other finals.
  void write_finals();

  const AxisLengths length;
  const bool narrow;  ///< states are carried in more precision than they are stored in
  const Dtype arithmetic;
  const std::int64_t sequences;
  std::int64_t work = 0;  ///< entries of states and outs times rows
  RunOutput output;

 private:
  Array checked(const Symbol& symbol, const Array& given, FieldKind kind, std::int64_t depth) const;
  void take(std::size_t symbol);
  Array written(std::vector<Array>& earlier, std::size_t number, FieldKind kind, const std::vector<AxisId>& axes) const;
  const std::vector<AxisId>& state_axes(std::size_t update) const;
  void copy_final(std::size_t update, std::int64_t sequence, const Array& from, std::int64_t entry);
  /// Where in scratch memory the part of a step begins, and the row of that step.
  std::int64_t part_of(std::int64_t step) const { return step / part_rows_ % 2 * part_rows_; }
  std::int64_t row_in_part(const RowSpan& span, std::int64_t sequence, std::int64_t step) const;
  std::int64_t row_before(std::int64_t sequence, std::int64_t begin) const;

  const CompiledPlan& compiled_;
  const Plan& plan_;
  const BoundRun& run_;
  const std::vector<Array>* const given_;
  std::vector<Array> arrays_, histories_, once_;
  std::vector<std::int64_t> history_depth_;
  std::int64_t part_rows_ = 0;  ///< steps of a part; 0: all rows are wanted
  bool by_span_ = false;        ///< a part is a span, as later kernels or products read its rows
};

}  // namespace cellc
