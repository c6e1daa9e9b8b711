#pragma once
// The input and the output of a run, on every device; and the options of compilation.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/derive/derive_hooks.h"
#include "compiler/graph/graph.h"
#include "runtime/data/array.h"

namespace cellc {

struct CompileOptions {
  Dtype dtype = Dtype::F32;    ///< storage; arithmetic is f32, or f64 for f64
  std::string cpu = "native";  ///< "native", or a name such as "x86-64-v3"
  int vector_bits = 0;         ///< 0: the host's widest
  /// Products stay in the step, in code of our own. A BLAS adds in an order that depends on the machine,
  /// so only then do the bits of a result follow from `cpu` alone.
  bool own_products = false;
  std::string cache_directory{};  ///< keeps compiled code between processes; empty: nothing is kept
  DeriveHooks derive = {};        ///< told of what is derived of the cell; the code does not depend on it
};

/// Which results of a run are wanted. One that is not is an array without a shape in its output, and is not made where
/// it need not be. Positions beyond the end of a list are wanted.
struct Wanted {
  std::vector<bool> states, finals, outs;  ///< as in RunOutput
  std::vector<int> unwanted_histories;     ///< lagged inputs and delay lines whose last steps are not wanted
  std::vector<bool> kept{};  ///< states that are wanted because a delay line reads them, not to be written

  static bool has(const std::vector<bool>& list, std::size_t at) { return at >= list.size() || list[at]; }
  bool state(std::size_t update) const { return has(states, update); }
  bool writes_state(std::size_t update) const { return state(update) && !(update < kept.size() && kept[update]); }
  bool final(std::size_t update) const { return has(finals, update); }
  bool out(std::size_t number) const { return has(outs, number); }
  bool input_history(int symbol) const {
    return std::find(unwanted_histories.begin(), unwanted_histories.end(), symbol) == unwanted_histories.end();
  }
};

/// Arrays of one run, all bound: shapes agree, defaults are filled in. Built by bind.h.
/// Layout, for every array, row-major:
///   input x[a…] : [rows, a…]; state start h[a…] : [N, a…]; history : [N, n, a…]; param : [a…]
/// where rows = B*T for a plain batch (sequence b owns rows b*T … b*T+T-1) and N = B, or the total
/// of packed steps and N sequences.
/// Inputs, params and histories of inputs have the storage dtype; starts of states (companions
/// included) have arithmetic precision: f64 for f64 storage, f32 for every other, so that a 16-bit
/// run resumed from its f32 `h.final` equals the whole.
struct BoundRun {
  std::map<AxisId, std::int64_t> sizes;  ///< by header axis
  std::vector<Array> symbols;            ///< by symbol: input, param or state start; nothing for a delay line
  std::vector<Array> histories;          ///< by symbol, for lagged inputs and delay lines: [N, max_lag, a…],
                                         ///< entry j is the value j+1 steps before the start
  std::vector<std::int64_t> offsets;     ///< N+1 row offsets of the sequences
  bool reverse = false;
  Wanted wanted = {};
  int threads = 0;                ///< 0: all cores
  std::int64_t product_rows = 0;  ///< 0: kProductRows; others: cells without states only
};

/// What a run wrote. Companion states are written like the others. Results that were not wanted have no shape.
struct RunOutput {
  std::vector<Array> states;  ///< by position in updates: [rows, a…], storage dtype
  std::vector<Array> finals;  ///< by position in updates: [N, a…], storage dtype, or f32 for 16 bits
  std::vector<Array> outs;    ///< by out: [rows, a…]
  double run_ms = 0;
};

/// What a run of this shape writes, allocated and touched: a run that reuses it meets no fresh pages.
RunOutput prepare_output(const CellGraph& cell, const BoundRun& run, Dtype dtype);

}  // namespace cellc
