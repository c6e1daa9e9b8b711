#pragma once
// The gradients of a shipped cell: its adjoint, which is a shipped cell like any other, and the tables by which a call
// brings the adjoint's inputs and sums over steps (kernels-templates/host/host_backward.h).
#include <deque>
#include <set>
#include <vector>

#include "compiler/codegen_llvm/backward_layout.h"
#include "compiler/derive/adjoint_cell.h"
#include "runtime/cuda/ship/aot_cell.h"

namespace cellc {

class AotBackward {
 public:
  /// Of `whole`, whose forward call is `forward`, shipped by `request`. All three must outlive it. Throws UsageError
  /// where there is no such call: the adjoint needs a length that is not given, or a sum has too many axes.
  AotBackward(const CellGraph& whole, const AotCell& forward, const ShipRequest& request);
  AotBackward(const AotBackward&) = delete;
  AotBackward& operator=(const AotBackward&) = delete;

  const cellc_backward& table() const { return table_; }
  const CallLayout& layout() const { return layout_.layout; }
  const AotCell& adjoint() const { return *shipped_; }
  const CellGraph& whole() const { return fixed_; }        ///< with the lengths that are fixed
  const ShipRequest& request() const { return request_; }  ///< of the adjoint: its prefix is NAME_backward

  // What the table points to.
  std::vector<cellc_field> fields;
  std::vector<int> axes;
  std::vector<cellc_adjoint_input> inputs;
  std::vector<cellc_adjoint_out> outs;
  std::vector<cellc_later_rows> later;
  std::vector<cellc_past_state> past;
  std::vector<cellc_adjoint_array> arrays;
  std::vector<cellc_zero_gradient> zeros;
  std::vector<cellc_step_sum> sums;

 private:
  cellc_dims dims(const std::vector<AxisId>& of);
  cellc_dims listed(const std::vector<int>& numbers);
  int word(FieldKind kind, int id) const;
  void add_arrays();
  void add_outs();
  void add_past();
  void add_gradients();
  void add_sum(int field, const std::vector<AxisId>& param, const StepProduct& product);

  const CellGraph& whole_;
  const CellGraph fixed_;
  AdjointCell adjoint_;
  BackwardLayout layout_;
  ShipRequest request_;
  std::optional<AotCell> shipped_;
  std::map<int, int> input_of_, out_of_;  ///< of the adjoint, by symbol and by out: numbers here
  std::set<int> begun_;                   ///< gradients of rows that an out is, before others are added
  cellc_backward table_{};
};

}  // namespace cellc
