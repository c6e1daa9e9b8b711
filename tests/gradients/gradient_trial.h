#pragma once
// Gradients of a cell on drawn data, and what they have to be: differences of the oracle's loss, the sum of all that a
// run writes times drawn cotangents.
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/data/bind.h"
#include "runtime/gradient/adjoint_run.h"
#include "runtime/gradient/through_defaults.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/oracle.h"

namespace cellc {

using NamedArrays = std::vector<std::pair<std::string, Array>>;

/// A param's sum over steps in the plainest way: entry by entry, in f64.
void sum_plainly(const StepSum& sum);

class GradientTrial {
 public:
  struct Options {
    std::map<std::string, std::int64_t> sizes;
    std::vector<std::int64_t> lengths;  ///< of the sequences; equal unless packed. None: a batch of 0
    bool packed = false;
    bool reverse = false;
    bool starts_given = true;     ///< states and histories too, not only their defaults
    double without = 0;           ///< how often a result has no cotangent
    Dtype dtype = Dtype::F64;     ///< what arrays are rounded to
    bool defaults_given = false;  ///< params that have defaults are drawn too
  };
  GradientTrial(const CellGraph& graph, const oracle::Cell& cell, const oracle::Ranges& ranges, oracle::Random& random,
                const Options& options);

  /// One array of sequence `sequence` (a param: of all, sequence 0), in the order of the run, to be read or moved.
  enum class Kind : std::uint8_t { Input, Param, Start, History };
  struct Entries {
    Kind kind;
    std::string name;
    std::size_t sequence;
    std::string gradient() const;  ///< "grad.h.initial"
  };
  std::vector<Entries> arrays() const;
  std::vector<double>& values(const Entries& of);
  const oracle::Data& data(std::size_t sequence) const { return sequences_.at(sequence).data; }
  const std::map<std::string, std::vector<double>>& cotangents_of(std::size_t sequence) const {
    return sequences_.at(sequence).cotangents;
  }

  Binding bound(Dtype dtype, int threads = 1) const;
  GivenSymbols given(const Binding& binding) const;
  Cotangents cotangents(const Binding& binding) const;
  /// Replaces what was drawn; the shape of what a run writes.
  void set_cotangent(const std::string& name, std::size_t sequence, const std::vector<double>& values);

  /// The gradient of one array as a run found it, in the order of `values`.
  std::vector<double> found(const NamedArrays& gradients, const Entries& of) const;

  /// Σ cotangent * result, by the oracle: of one sequence, or of all.
  double loss(std::size_t sequence) const;

  /// What the gradients are held against: slopes of the loss along an entry or along a drawn direction.
  struct Slope {
    Entries of;
    std::vector<std::pair<std::size_t, double>> along;  ///< entry, weight
    double value = 0;
  };
  struct Slopes {
    std::vector<Slope> all;
    std::int64_t kinks = 0;  ///< left out: the loss bends there, or is no number
  };
  /// For each array of each sequence one direction and at most `entries` single entries.
  Slopes differences(std::size_t entries, oracle::Random& random);

  /// What is wrong with the first gradient that is off by more than `tolerance` of |slope| + the largest of its array;
  /// empty: none.
  std::string compare(const NamedArrays& gradients, const Slopes& slopes, double tolerance) const;

  /// The forward run by the evaluator, the adjoint by `run`, params' sums by `sum`.
  NamedArrays gradients(const AdjointRun& adjoint, const Binding& binding,
                        const std::function<RunOutput(const BoundRun&)>& run,
                        const std::function<void(const StepSum&)>& sum = sum_plainly) const;
  /// The same, the adjoint by the evaluator too.
  NamedArrays reference(const AdjointRun& adjoint) const;
  /// How far each gradient of `plain`, what reference() found, moves where every array that the adjoint reads and every
  /// value that it makes is moved, at random, by as much as a run of this dtype may be off: its tolerance. So of a sum
  /// that cancels, and of an entry for which a condition falls on the other side then, nothing more is asked than it
  /// can tell.
  NamedArrays spread(const AdjointRun& adjoint, const NamedArrays& plain, Dtype dtype) const;
  /// Without the adjoint: back over the evaluator's values, number by number.
  NamedArrays swept() const;

 private:
  struct Sequence {
    oracle::Data data;
    std::map<std::string, std::vector<double>> cotangents;  ///< "h", "h.final", "y"; missing: zeros
  };
  BindRequest request(Dtype dtype, int threads) const;
  NamedArrays gradients_after(const RunOutput& forward, const AdjointRun& adjoint, const Binding& binding,
                              const std::function<RunOutput(const BoundRun&)>& run,
                              const std::function<void(const StepSum&)>& sum) const;
  void draw_cotangents(Sequence& sequence, oracle::Random& random, const std::vector<bool>& left_out);
  double slope(const Entries& of, const std::vector<std::pair<std::size_t, double>>& along, double reach);

  const CellGraph& graph_;
  const oracle::Cell& cell_;
  Options options_;
  std::vector<Sequence> sequences_;
};

/// The largest |a - b| / (|b| + the largest |b| of its array). NaN where only one of the two is a number, or names or
/// shapes differ.
double largest_error(const NamedArrays& got, const NamedArrays& want);

/// The same over what is allowed: `tolerance` of that scale, and four times `spread`, what rounding did to each entry.
double times_allowed(const NamedArrays& got, const NamedArrays& want, double tolerance, const NamedArrays& spread);

}  // namespace cellc
