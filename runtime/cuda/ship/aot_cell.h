#pragma once
// A cell as code that is shipped for GPUs: its kernels as one text, and the tables by which a call is made
// (kernels-templates/host/host_call.h). The tables work in memory as they do when printed, so that tests
// can run them on any Gpu.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/derive/derive_hooks.h"
#include "compiler/plan/call_layout.h"
#include "kernels-templates/host/host_backward.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/launch/nest_tables.h"
#include "runtime/cuda/launch/stage_tables.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

struct ShipRequest {
  Dtype dtype = Dtype::F32;
  std::map<AxisId, std::int64_t> lengths;  ///< of header axes, the same in every call
  std::optional<std::int64_t> steps;       ///< of every sequence, if they are
  Strategy solver = Strategy::Auto;
  ProductFactors factors = ProductFactors::Tf32x3;
  GpuFacts card;       ///< shared memory is no more than its
  std::string prefix;  ///< of every name
  DeriveHooks derive = {};
  bool with_sums = false;  ///< the cell is an adjoint: kernels that bring its inputs and sum over steps, too
  bool with_past = false;  ///< and those for gradients of what is read at a lag
  /// Calls have the same bits each time (SolveOptions::repeat_bits); those of adjoints do in any case.
  bool repeat_bits = false;
};

/// Row kernels of a cell, or of a part that has no states.
struct AotNests {
  NestTables tables;
  std::vector<cellc_source> sources;
  std::vector<cellc_dims> outs;
  cellc_derived derived{};
};

/// Lanes of a stage in one of their forms: as they are, or making sums or outs. Without variants: there is no such
/// form.
struct AotLanes {
  StageTables tables;
  AotNests once, before;
  std::vector<cellc_source> sources;
  std::vector<cellc_dims> sums;
  std::vector<cellc_variant> variants;
  int first_kernel = 0;
};

struct AotRemade {
  AotNests made;
  std::vector<int> copies;
};

struct AotStage {
  cellc_stage_facts facts{};
  std::vector<int> states;
  AotLanes plain, summing, making_outs;
  bool stands_alone = false;
  std::deque<AotRemade> remade;
  std::vector<cellc_remade> remade_table;
  std::vector<int> remade_states;
};

/// The outs that are left where lanes have made sums in so many parts, or outs (CELLC_MAKES_OUTS), by stage.
struct AotReduced {
  std::vector<int> parts;
  AotNests after;
};

class AotCell {
 public:
  /// Throws UsageError where the cell cannot be shipped as asked, and why.
  AotCell(const CellGraph& cell, const Structure& structure, const ShipRequest& request);
  AotCell(const AotCell&) = delete;
  AotCell& operator=(const AotCell&) = delete;

  const cellc_cell& table() const { return cell_table_; }
  const CellGraph& cell() const { return cell_; }
  const CallLayout& layout() const { return layout_; }

  std::string text;                           ///< CUDA C++ of all kernels
  std::vector<std::string> kernels;           ///< by number: extern "C" names
  std::vector<std::string> places;            ///< by number: the namespaces that they stand in, "a::b::"
  std::vector<std::string> plan;              ///< lines for people: what runs, and in which order
  cellc_gradient_kernels gradient_kernels{};  ///< of ShipRequest::with_sums

  // What the table points to.
  std::vector<std::int64_t> fixed, least;
  std::vector<int> axis_word, axes, updates;
  std::vector<cellc_field> fields;
  std::vector<cellc_symbol> symbols;
  std::vector<cellc_dims> outs;
  std::deque<AotStage> stages;
  std::vector<cellc_stage_part> parts;
  std::deque<AotReduced> reduced;
  std::vector<cellc_reduced> reduced_table;
  AotNests whole, after, defaults, starts;

 private:
  friend class AotBuilder;
  friend class AotOutline;
  CellGraph cell_;
  CallLayout layout_;
  cellc_cell cell_table_{};
};

/// Room that one call needs for what it keeps on the host, in places of each kind.
struct CallRoom {
  int symbols, inputs, states, outs, stages, sums, part, addresses, before, once, views, starts, argument_words;
};
CallRoom call_room(const cellc_cell& cell);

}  // namespace cellc
