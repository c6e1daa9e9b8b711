#pragma once
// Writes the text of one kernel of whole steps. Private to emit_cuda_nests*.cc.
#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "compiler/codegen_cuda/emit_cuda_nests.h"

namespace cellc {

/// Names as C++ may have them, each once.
class CudaNames {
 public:
  CudaNames();
  std::string unique(const std::string& wanted);

 private:
  std::set<std::string> taken_;
};

class NestEmitter {
 public:
  /// `nest` >= 0: that nest alone, as a Flat kernel.
  NestEmitter(const Plan& plan, const CudaNestsOptions& options, NestForm form, int kernel, int nest,
              const std::string& function);
  std::string emit();
  const NestKernel& kernel() const { return out_; }

 private:
  struct Loop {
    std::vector<AxisId> axes;
    std::string position;        ///< of the whole axes
    std::string local_position;  ///< in memory of the block, which has the lanes of its part only
  };
  struct Text {
    std::string text;
    bool compound = false;  ///< needs parentheses as an operand
  };

  /// Places that a thread has under way: several are several loads at once, as long as they fit the registers.
  static int places_together(std::size_t values) { return values <= 16 ? 4 : values <= 48 ? 2 : 1; }

  const Node& node(NodeId id) const { return plan_.cell.graph[id]; }
  AxisId extent(AxisId axis) const { return plan_.cell.graph.axis(axis).extent_of; }
  /// Of kernels whose threads share the steps of a sequence.
  bool runs_steps() const { return out_.form == NestForm::Steps || out_.form == NestForm::Persistent; }
  bool is_split(AxisId axis) const { return runs_steps() && plan_.split_axis != kNoAxis && axis == plan_.split_axis; }
  bool is_spread(AxisId axis) const { return persistent_ && axis == persistent_->kernel.spread; }

  // Frame (emit_cuda_nest_frame.cc)
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(2 * depth_, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  template <typename... Args>
  void open(fmt::format_string<Args...> format, Args&&... args) {
    line(format, std::forward<Args>(args)...);
    ++depth_;
  }
  void close(fmt::format_string<> with = "}}") {
    --depth_;
    line(with);
  }
  void source_line(NodeId id);
  void own_line();
  std::string slot(NestSlotKind kind, int id);
  std::string length(AxisId axis);
  std::string length_of(const std::vector<AxisId>& axes, bool local = false);
  std::string base_name(NestSlotKind kind, int id) const;
  bool is_wide(NestSlotKind kind, int id) const;
  std::string element(NestSlotKind kind, int id) const;
  std::string local(NestSlotKind kind, int id);
  bool has_split() const { return out_.form == NestForm::Steps && plan_.split_axis != kNoAxis; }
  std::string entries_of_local(NestSlotKind kind, int id);
  std::string state_half(int position, bool next);
  std::string row_pointer(NestSlotKind kind, int id);
  bool may_be_absent(NestSlotKind kind, int id) const;
  std::string step_number(const char* which);
  std::string step_back(int id);
  void begin_row_scope();
  void end_row_scope();
  void emit_steps();
  void emit_tile();
  void emit_flat();
  void copy_state(int position, bool in);
  void find_scalars();

  // Persistent kernels (emit_cuda_persistent.cc)
  void emit_persistent();
  void emit_persistent_setup();
  void emit_products();
  void persistent_nest(std::size_t n);
  void persistent_product(std::size_t n);
  void persistent_map(std::size_t n);
  void fetch_ahead(std::size_t n, bool first);
  void persistent_sums(const Nest& nest);
  void open_places(const Nest& nest, bool first_row);
  void enter_persistent_places(const std::vector<AxisId>& axes, const std::string& flat, bool whole);
  std::int64_t places_of(const std::vector<AxisId>& axes) const;
  std::int64_t known_length(AxisId axis) const;
  bool is_ahead(const Nest& nest, const Access& access) const;
  bool is_kept(const Nest& nest, const Access& access) const;
  std::string register_of(std::size_t nest, std::size_t load) const { return fmt::format("ahead_{}_{}", nest, load); }
  bool holds_slots(const Nest& nest) const;
  void ask_for_row(const Access& access);
  void note_rows_ahead(const Nest& nest, bool registers);
  void keep_told_row(const Home& home, const std::string& value);
  void tell(int told, const std::string& number);
  void barrier();
  int told_by(const Access& access) const;
  std::string told_place(const Access& access);
  void copy_persistent_state(int position, bool in);

  // Nests (emit_cuda_nest.cc)
  void nest_at(std::size_t n);
  void nest(const Nest& nest, const Nest* next = nullptr);
  void map_nest(const Nest& nest);
  void begin_nest(const Nest& nest, const Nest* next);
  void enter_places(const std::vector<std::vector<AxisId>>& loops, const std::string& flat);
  void emit_loads(const Nest& nest, bool inside);
  void emit_scalar_loads(const Nest& nest);
  void emit_values(const std::vector<NodeId>& nodes, const Nest& nest);
  void emit_stores(const Nest& nest);
  void barrier_before(const Nest& nest, const Nest& by);
  void note_stores(const Nest& nest, const Nest& by);
  bool needs_bound(const Access& access, const Nest& nest) const;
  static bool has_lags(const Nest& nest);
  std::string place_in(const Home& home, const std::vector<Index>& index);
  std::string stride(const Home& home, std::size_t place, bool local);
  bool is_local(const Home& home) const;
  bool is_constant(const Home& home) const;
  bool is_made_here(const Home& home) const;
  std::string pointer(const Home& home);
  std::string load(const Access& access);
  std::string position_of(AxisId axis) const;
  std::string name_of(NodeId id) const;
  std::string declare(NodeId id, const std::string& stem);
  void store(const Home& home, const std::string& value);
  std::string element_of(const Home& home) const;
  std::string count_of(const std::vector<std::vector<AxisId>>& loops, bool part);
  void emit_scalar_stores(const Nest& nest);

  // Sums (emit_cuda_nest_sum.cc)
  void reduction_nest(const Nest& nest, const Nest* next);
  void sums_of_step(const Nest& nest, const std::vector<std::vector<AxisId>>& bound);
  void sums_of_rows(const Nest& nest, const std::vector<std::vector<AxisId>>& bound, const Nest* next);
  std::vector<std::string> declare_sums(const Nest& nest);
  void add_terms(const Nest& nest, const std::vector<std::string>& sums);
  void join_sums(const Nest& nest, const std::vector<std::string>& sums);
  void emit_terms(const Nest& nest, const std::vector<std::vector<AxisId>>& bound);
  void emit_sums(const Nest& nest, const std::vector<std::string>& sums, const std::vector<std::string>& terms);
  void emit_joins(const Nest& nest, const std::vector<std::string>& sums);
  std::int64_t known_terms(const Nest& nest) const;
  std::int64_t neighbours_read(const Access& access) const;
  std::string plain_where(const Nest& nest);
  void keep_places(const Nest& nest);
  bool is_read_later(const Home& home, const Nest& next) const;
  std::string neutral(NodeId reduction) const;

  // Values (emit_cuda_nest_value.cc)
  Text value(NodeId id);
  std::string operand(NodeId id);
  Text expression(const Node& n);
  std::string call(const Node& n);
  std::string position_value(const Node& n);
  std::string literal(double value) const;

  const Plan& plan_;
  const CudaNestsOptions& options_;
  const Kernel& kernel_;
  const int kernel_index_;
  const bool f64_, narrow_;
  NestKernel out_;

  CudaNames fields_;  ///< of the argument struct
  CudaNames names_;   ///< inside the kernel
  std::string struct_, text_, setup_;
  int depth_ = 1;
  std::map<std::pair<NestSlotKind, int>, std::string> slot_names_, locals_, row_pointers_;
  std::map<std::pair<int, bool>, std::string> halves_;  ///< old and new state
  std::string row_lines_;
  std::size_t row_scope_ = 0;  ///< where in the text they go
  int row_depth_ = 0;
  std::set<std::string> row_numbers_;
  bool keeps_rows_ = false;                                ///< many loads from each (cellc::kept)
  std::map<int, std::string> lengths_here_;                ///< names of lengths in the row's scope
  std::vector<NodeId> scalars_;                            ///< values without axes that other nests read
  std::unordered_map<NodeId, std::string> written_names_;  ///< names that the cell gives
  std::uint32_t source_line_ = 0;                          ///< last #line, 0: the file itself

  const PersistentCode* persistent_ = nullptr;
  const Nest* here_ = nullptr;                         ///< the nest that is written
  bool synchronized_ = false;                          ///< a barrier since the step began
  std::vector<bool> awaited_;                          ///< by told value, in this step
  std::set<std::pair<NestSlotKind, int>> rows_ahead_;  ///< whose pointers are to the row after this one

  // Written since the last barrier, and the nest whose threads wrote it.
  struct Written {
    Place place;
    int id;
    const Nest* nest;
  };
  std::vector<Written> written_;
  std::vector<std::pair<NodeId, const Nest*>> written_scalars_;

  // The current nest
  CudaNames nest_names_;
  /// Whose quotient() it is: "divide." in what is called for places, whose numbers are as wide as they must be.
  std::string numbers_ = "cellc::";
  std::vector<Loop> loops_;
  std::string how_;  ///< inside of terms that are told it: cellc::Plain or cellc::General
  std::unordered_map<NodeId, std::string> kept_places_;  ///< of terms that lag: pointers to their places in this row
  AxisId all_terms_ = kNoAxis;  ///< the axis whose positions are the terms of a thread, known here
  std::unordered_map<NodeId, Text> values_;
  std::unordered_map<NodeId, int> uses_;
};

}  // namespace cellc
