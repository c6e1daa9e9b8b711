#pragma once
// Writes a driver, function by function. Private to emit_llvm_driver*.cc.
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen_llvm/driver_text.h"
#include "compiler/codegen_llvm/emit_llvm_driver.h"
#include "compiler/derive/pipeline.h"
#include "kernels-templates/abi/call_results.h"

namespace cellc {

/// Steps that run between two visits of the driver where rows go to the workspace. Even: which of a pair
/// of carried buffers holds the state is then the same at the start of every block.
inline constexpr int kBlockSteps = 32;

/// A plan, its code, and where its buffers lie in the workspace.
struct PlannedKernels {
  Plan plan;
  std::vector<KernelCode> kernels;
  bool f64 = false;                                    ///< computes in f64, whatever the cell's arithmetic
  std::vector<ArraySource> sources;                    ///< by symbol; empty: the cell's own
  std::vector<std::string> once, temps, params, outs;  ///< the last two of f64 kernels only
};

class DriverEmitter {
 public:
  DriverEmitter(const CellGraph& cell, const Structure& structure, const DriverOptions& options);

  DriverModule run();

 private:
  void fix(Graph& graph) const;

  void check_fixed() const;

  void add(PlannedKernels& to, const CellGraph& cell, const Structure& structure, Storage storage, const char* name);

  // Numbers of a call ----------------------------------------------------------------------------

  int code(const std::string& message);
  int code(int result);  ///< of CELLC_RESULTS

  const CellGraph& cell() const { return result_.cell; }
  const CallLayout& layout() const { return result_.layout; }

  std::string length(AxisId axis);

  /// Sizes are multiplied and added up to a bound far below what an address can hold, and never wrap.
  std::string times(const std::string& a, const std::string& b);
  std::string plus(const std::string& a, const std::string& b);
  std::string bounded_arithmetic() const;

  /// First asked for outside of branches, so that the number is known wherever it is asked for again.
  std::string entries(const std::vector<AxisId>& axes);
  std::string bytes(const std::vector<AxisId>& axes, bool storage);
  const std::vector<AxisId>& axes_of(int symbol) const { return cell().symbols[symbol].axes; }

  std::string depth(int symbol);

  /// Reads the struct of lengths, once it is known to be right.
  void begin(DriverText& text);

  // The workspace --------------------------------------------------------------------------------

  struct State {
    int update, symbol, parent, lag;
    const CallField* rows;  ///< null: a lagged copy
    std::string area, carried[2], start;
  };

  /// Gives every buffer its offset; the size of all.
  std::string lay_out();

  std::string check_function();

  void check_lengths(DriverText& text);

  std::string workspace_function();

  // The call -------------------------------------------------------------------------------------

  struct Rows {
    std::string data, absent, sequence, step;  ///< strides in bytes
    std::string first;                         ///< row of the sequence's first step in the run's order
  };

  std::string forward_function();

  std::string total_rows();

  /// Offsets become addresses.
  void settle_workspace();

  const std::string& address(FieldKind kind, int id) const;

  /// Fills the slots of a kernel and calls it. `value` gives what is not the same for all.
  void call(const PlannedKernels& kernels, int kernel, const std::string& steps,
            const std::function<std::string(const Slot&)>& value);
  void store_address(const std::string& to, const std::string& p);

  std::string entry(const std::string& type, const std::string& array, const std::string& i);

  /// To f64.
  void widen(const std::string& to, const std::string& from, const std::string& count);

  /// From f64, rounded once: to arithmetic precision, or to what an array of the storage type can hold.
  void round(const std::string& to, const std::string& from, const std::string& count, bool to_storage);

  /// `value` rounded so that a second rounding, to 16 bits, gives what a single one would have given: where
  /// it is inexact, the neighbour whose last bit is set.
  std::string rounded_to_odd(const std::string& wide, const std::string& value);

  /// An f32 that the storage type can hold; to nearest, ties to even.
  std::string narrowed(const std::string& value);
  std::string arithmetic_type() const { return arithmetic_bytes_ == 8 ? "double" : "float"; }

  /// Runs a cell of starts or defaults: its outs go to `areas`, rounded to what an array of the
  /// storage type holds if that is asked for.
  void compute_defaults(const PlannedKernels& kernels, const std::vector<int>& symbols,
                        const std::vector<std::string>& areas, bool to_storage);

  void fill_params();

  void run_once();

  void fill_starts();

  // One sequence ---------------------------------------------------------------------------------

  void sequence(const std::string& s);

  std::string start_of(const State& state, const std::string& s);

  std::string signed_step(const Rows& rows);
  std::string row_at(const Rows& rows, const std::string& t);

  std::string slot_value(const Slot& slot, const std::string& s, const std::string& t,
                         const std::vector<std::string>& starts);

  /// Rows of the workspace are written again by the next block.
  void keep(const State& state, const std::string& steps);

  void write_final(const State& state, const std::string& s, const std::string& n, const std::string& start);

  /// What the last steps read, the newest first; before the sequence's first step, what was given. From the
  /// oldest on, so that it may be written where it was read.
  void write_final_history(const CallField& field, const std::string& s, const std::string& n);

  // Words ----------------------------------------------------------------------------------------

  std::string texts();

  static constexpr const char* kMostBytes = "1152921504606846976";  // 2^60

  const DriverOptions& options_;
  const std::vector<int> defaults_, starts_;  ///< params and states with a declared value, by number of an out
  bool narrow_ = false;
  int storage_bytes_ = 4, arithmetic_bytes_ = 4;
  DriverModule result_;
  PlannedKernels step_, fill_, begin_;
  std::set<llvm_math::Request> functions_;
  std::string kernels_ir_;

  // Of the function that is being written.
  DriverText* text_ = nullptr;
  int next_label_ = 0;
  std::map<AxisId, std::string> lengths_;
  std::map<std::vector<AxisId>, std::string> entries_;
  std::string sequences_, steps_, offsets_, packed_, reversed_;
  std::map<int, std::string> filled_, histories_, params_;
  std::vector<State> states_;
  std::vector<std::string> outs_, addresses_;
  std::map<int, Rows> rows_;  ///< by the field's first word
};

}  // namespace cellc
