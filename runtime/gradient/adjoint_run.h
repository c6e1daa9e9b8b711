#pragma once
// From a forward run to the run of its adjoint, and from that to gradients. Knows no device: whoever runs the adjoint
// cell and sums over steps does it between the two (backward_on_cpu.h, backward_on_gpu.h).
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/derive/adjoint_cell.h"
#include "compiler/graph/delay_lines.h"
#include "runtime/data/run.h"

namespace cellc {

/// ∂L/∂ of what a run writes, in any floating-point dtype; an Array without a shape: there is none.
struct Cotangents {
  std::vector<Array> states;  ///< by position in updates: [rows, a…]
  std::vector<Array> finals;  ///< by position in updates: [N, a…]
  std::vector<Array> outs;    ///< by out: [rows, a…]
};

/// A result that may have a cotangent, and where that stands.
struct CotangentOf {
  std::string name;  ///< "h", "h.final", "y"
  std::vector<Array> Cotangents::*kind;
  std::size_t id;  ///< position in updates, or out
  const std::vector<AxisId>& axes;
  bool per_step;  ///< a row a step; else one a sequence
  bool copy;      ///< of a copy that lags, which no user knows
  /// The shape that it must have in Cotangents.
  std::vector<std::int64_t> shape(const CellGraph& cell, const BoundRun& run) const;
};
/// In the order in which results are written. They refer to `cell`.
std::vector<CotangentOf> cotangents_of(const CellGraph& cell);

/// ∂L/∂ of what a run reads, in arithmetic precision: f64 for f64 storage, else f32.
struct Gradients {
  std::vector<Array> symbols;    ///< by symbol, shaped as in BoundRun: inputs, params and starts of states
  std::vector<Array> histories;  ///< by symbol: [N, n, a…] of lagged inputs; of lagged states their companions' starts
};

/// Sums over steps as params' gradients need them. `into`, over the param's index, has zeros or an earlier product.
struct StepSum {
  const CellGraph& adjoint;  ///< whose axes the indices are
  const std::map<AxisId, std::int64_t>& sizes;
  const StepProduct& product;
  const Array& left;
  const Array* right;                 ///< null: there is one factor
  const std::vector<AxisId>& result;  ///< axes of the param
  Array& into;
  int threads = 0;
};

using SumOverSteps = std::function<void(const StepSum&)>;

/// What an adjoint's run read and wrote.
struct AdjointArrays {
  const BoundRun& bound;
  const RunOutput& output;
};

class AdjointRun {
 public:
  /// The adjoint of `cell` for cotangents of these results.
  AdjointRun(const CellGraph& cell, const AdjointOf& of, const DeriveHooks& hooks = {});

  const CellGraph& cell() const { return adjoint_.adjoint.cell; }
  const Structure& structure() const { return structure_; }
  const AdjointCell& adjoint() const { return adjoint_; }

  /// The arrays of the adjoint's run, after a forward run of `forward` that wrote `output`. Memory is shared where
  /// arrays are read as they lie; those of `reuse`, an earlier result, are written again where nobody else holds them.
  /// Cotangents have the shapes of the results. Throws RequestError where one has not. Every array is linear in those
  /// given: of tangents in their place it makes the tangents of the adjoint's arrays.
  BoundRun bind(const BoundRun& forward, const RunOutput& output, const Cotangents& cotangents, Dtype arithmetic,
                BoundRun reuse = {}) const;

  /// Throws RequestError where a run of which only this is wanted does not keep a state that the adjoint reads. bind()
  /// does, too.
  void check_kept(const Wanted& wanted) const;

  /// Throws RequestError where a cotangent has not the shape of its result.
  void check(const BoundRun& forward, const Cotangents& cotangents) const;

  /// What the adjoint's run found. `sum` is called for every product of a param's gradient.
  Gradients gather(const BoundRun& forward, const BoundRun& bound, const RunOutput& output,
                   const SumOverSteps& sum) const;

  /// The tangents of gather's results, from those of what it reads. A product has two.
  Gradients gather_tangent(const BoundRun& forward, const AdjointArrays& at, const AdjointArrays& tangent,
                           const SumOverSteps& sum) const;

  /// Makes copies that lag, and delay lines, a history of their state's.
  void move_to_histories(Gradients& gradients) const;

 private:
  struct FactorArrays {
    const BoundRun& bound;
    const RunOutput& output;
    const Array& of(const StepFactor& f) const {
      return f.is_out ? output.outs[static_cast<std::size_t>(f.id)] : bound.symbols[static_cast<std::size_t>(f.id)];
    }
  };
  std::optional<std::int64_t> along(const BoundRun& forward, const ArrayRead& read) const;
  void line_to_history(Gradients& gradients, const DelayLine& line) const;
  Gradients rows(const BoundRun& forward, const RunOutput& output) const;
  /// `single`: also what has one factor.
  void add_products(const BoundRun& forward, const FactorArrays& left, const FactorArrays& right, bool single,
                    const SumOverSteps& sum, Gradients& gradients) const;

  const CellGraph& whole_;
  AdjointCell adjoint_;
  Structure structure_;
};

/// The results that have a cotangent. `on_gpu`: for BackwardOnGpu, whose lanes add params' gradients up.
AdjointOf results_with(const Cotangents& cotangents, bool on_gpu = false);
/// And of all states that have a delay line.
AdjointOf with_lines(const CellGraph& cell, AdjointOf of);

}  // namespace cellc
