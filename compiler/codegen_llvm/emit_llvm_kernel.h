#pragma once
// Writes the text of one kernel, nest by nest. Private to emit_llvm*.cc.
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/codegen_llvm/emit_llvm.h"
#include "compiler/codegen_llvm/llvm_math.h"
#include "compiler/graph/graph_walk.h"

namespace cellc {

class KernelEmitter {
 public:
  KernelEmitter(const Plan& plan, int kernel, const EmitOptions& options, std::set<llvm_math::Request>& functions);
  std::string emit(const std::string& function);
  std::vector<Slot> slots;

  /// For calls whose lanes fit into one vector, with the slots of another emitter of the same kernel before its own.
  void expect_one_vector(std::vector<Slot> known);
  /// Whether a kernel's states can stay in one vector each: nothing but elementwise loops over the axis that is cut, of
  /// operations of a few instructions: functions take more time than memory does.
  static bool fits_one_vector(const Plan& plan, const Kernel& kernel);
  int lanes_of_vector() const { return wide_; }

 private:
  // A pointer that moves one row a step.
  struct Row {
    std::string name, first, step;
    int even = 0;  ///< bytes of its one number, where such rows are found by one offset
  };
  // An access of the current nest on its way from base address to element.
  struct Reference {
    const Access* load = nullptr;
    const Store* store = nullptr;
    std::vector<Index> index;
    const Home* home = nullptr;
    int depth = 0;  ///< number of loops that it needs to be inside of
    bool lanes = false, contiguous = false;
    std::vector<std::string> pointer;  ///< one, or one for each row of the block
  };
  /// How rows move with time: what the loop carries, what a step begins with and ends with.
  struct Motion {
    std::string carried, first, last;
  };
  struct Loop {
    std::vector<AxisId> axes;
    std::vector<std::string> position;  ///< one, or one for each row of the block
  };
  struct StepWithTransition {
    std::string type, name, first;
  };
  struct OpenLoop {
    std::string before, header, latch, exit, counter, begin, end, step, from;
    std::vector<StepWithTransition> carried;
  };

  const Node& node(NodeId id) const { return plan_.cell.graph[id]; }
  AxisId extent(AxisId axis) const { return plan_.cell.graph.axis(axis).extent_of; }

  // Text (emit_llvm_kernel.cc)
  template <typename... Args>
  void line(const char* format, const Args&... args);
  std::string fresh(const char* stem = "v");
  std::string slot(SlotKind kind, int id);
  std::string length(AxisId axis);
  std::string length_of(const std::vector<AxisId>& axes);
  Home row_of(int state) const;
  std::string row(SlotKind kind, const Home& home, SlotKind step);
  std::string base(const Home& home);
  SlotKind next_old() const;
  bool is_held(const Home& home) const;
  std::string old_state(int state) const;
  std::string new_state(int state) const;
  std::string of_sequence(const std::string& name) const;
  bool is_coefficient(const Reference& reference) const;
  std::string coefficient(const Reference& reference);
  Motion carried_rows();
  const char* before_time() const;
  const std::string& one_mask();
  void carry_held(Motion& motion);
  void carry_offsets(Motion& motion);
  Motion computed_rows();
  std::string lagged_base(const Access& access, const std::string& lag_position);
  std::string steps_so_far();
  void label(const std::string& name);
  OpenLoop open_loop(const std::string& begin, const std::string& end, const std::string& step,
                     std::vector<StepWithTransition> carried = {});
  void close_loop(OpenLoop& loop, const std::vector<std::string>& next = {});

  // Nests (emit_llvm_nest.cc)
  void nest(const Nest& nest);
  void map_nest(const Nest& nest);
  void reduction_nest(const Nest& nest);
  void choose_block(const Nest& nest, bool lanes_bound);
  Loop block_of_rows(const Nest& nest, const OpenLoop& open, const std::string& end, bool lanes);
  void keep_scalars(const Nest& nest);
  void begin_nest(const Nest& nest);
  void enter(const Loop& loop);
  void emit_bound(const Nest& nest, std::size_t depth, std::vector<std::string>& sums);
  void accumulate(const Nest& nest, std::vector<std::string>& sums);
  std::pair<std::string, std::string> range(const std::vector<AxisId>& group);
  void advance(Reference& reference);
  void load_reference(Reference& reference);
  std::string value(NodeId id, int block);
  void compute(NodeId id, int block);
  bool is_fused(NodeId product) const;
  std::string add_product(NodeId product, int block, const std::string& sum, bool minus = false);
  std::string sum_with_product(const Node& node, int block);
  std::string position_value(const Node& node, int block);
  void emit_stores(const Nest& nest);
  bool in_whole_vectors(const std::vector<AxisId>& group) const;
  std::string lane_mask(const std::string& position, const std::string& end);
  bool has_axis(const std::vector<AxisId>& axes, AxisId axis) const;
  bool differs_in_block(NodeId id);
  bool differs_by_sequence(const Home& home) const;

  // Instructions (emit_llvm_ops.cc)
  int element_bits() const { return f64_ ? 64 : 32; }
  std::string scalar_type() const { return f64_ ? "double" : "float"; }
  std::string type() const { return vector_type(scalar_type()); }
  std::string vector_type(const std::string& element) const;
  std::string suffix() const;
  std::string constant(double value) const;
  std::string splat(const std::string& element_type, const std::string& scalar);
  std::string iota(const std::string& element_type) const;
  std::string arithmetic(const char* instruction, const std::string& a, const std::string& b);
  std::string multiply_add(const std::string& a, const std::string& b, const std::string& c);
  std::string negated(const std::string& a);
  std::string compare(const char* predicate, const std::string& a, const std::string& b);
  std::string select(const std::string& condition, const std::string& yes, const std::string& no);
  std::string pick_extreme(bool largest, const std::string& a, const std::string& b);
  std::string elementwise(Op op, const std::vector<std::string>& args);
  std::string call(Op op, const std::vector<std::string>& args);
  std::string fold_lanes(Op op, std::string vector);
  std::string widen(const std::string& raw);
  std::string narrow(const std::string& value);
  bool stored_narrow(const Home& home) const;
  std::string storage_type(const Home& home) const;
  std::string load(const Home& home, const std::string& pointer, bool lanes, bool contiguous, const std::string& stride,
                   const std::string& mask);
  void store(const Home& home, const std::string& pointer, bool lanes, bool contiguous, const std::string& stride,
             const std::string& mask, const std::string& value);
  std::string lane_stride(const Reference& reference);
  std::string stride(const Home& home, std::size_t place);

  const Plan& plan_;
  const Kernel& kernel_;
  const int kernel_index_;
  const EmitOptions options_;
  std::set<llvm_math::Request>& functions_;
  const bool f64_;
  const int wide_;     ///< lanes of a full vector
  Dependence varies_;  ///< on more than params: what is another number in each sequence

  std::string entry_;  ///< before the loop over time
  std::string top_;    ///< start of a step
  std::string code_;   ///< what is being written
  std::string block_;  ///< label of the basic block that is being written
  int counter_ = 0;
  int sequence_ = 0;  ///< of those that a call steps together: whose code is being written
  std::map<std::tuple<SlotKind, int, int>, std::string> slot_names_;  ///< of kind, number, sequence
  std::map<std::vector<AxisId>, std::string> lengths_;
  std::map<std::tuple<SlotKind, int, int>, Row> rows_;
  std::map<int, std::string> even_steps_;  ///< by bytes of a number: what rows of one number move by
  /// States, by sequence and number. Narrow storage: carried in pairs of buffers.
  std::set<std::pair<int, int>> carried_;
  /// Those that stay in registers from step to step; what the step makes of each.
  std::map<std::pair<int, int>, std::string> held_;
  std::unordered_map<NodeId, std::string> coefficients_;  ///< numbers that are the same at every step, loaded once
  bool one_vector_ = false;
  std::optional<std::string> one_mask_;  ///< of the lanes of one vector
  std::string begin_;                    ///< before the loop over time, where there are steps
  std::map<std::tuple<int, int, int>, std::string> lag_bases_;
  std::map<int, std::string> steps_names_;
  std::vector<std::unordered_map<NodeId, std::string>> registers_;  ///< scalars of the step, by sequence
  std::unordered_set<NodeId> new_states_;

  // The current nest
  int lanes_ = 1;
  int blocks_ = 1;  ///< rows computed side by side: of each of `together_` sequences as many
  int together_ = 1;
  AxisId block_axis_ = kNoAxis;
  AxisId vector_axis_ = kNoAxis;
  std::vector<Loop> loops_;
  std::vector<std::string> masks_;  ///< by block; empty strings: every lane is used
  std::vector<Reference> references_;
  std::unordered_set<NodeId> made_here_;
  std::vector<std::unordered_map<NodeId, std::string>> values_;  ///< by block
};

}  // namespace cellc
