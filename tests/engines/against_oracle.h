#pragma once
// Runs of the engine against the oracle: the same rounded data through both, every written number
// compared.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/cpu/engine.h"
#include "runtime/data/bind.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/oracle.h"

namespace cellc {

/// Several sequences of one cell with common params, rounded to what the arrays of `dtype` can
/// hold, and what the oracle makes of them. Shorter runs use prefixes.
class Trial {
 public:
  struct Options {
    Dtype dtype = Dtype::F32;
    std::map<std::string, std::int64_t> sizes;
    std::int64_t steps = 0;
    int sequences = 3;
    bool starts_given = false;  ///< states and histories too, not only their defaults
    bool reverse = false;
    bool step_by_step = false;       ///< the cell amplifies errors: compare each step from the one before it
    bool skip_jumps = false;         ///< step by step: leave out entries within rounding of a jump, where the
                                     ///< oracle itself moves if its data move by 1e-13
    double f64_tolerance = 1e-12;    ///< over 1 + |value|; a solver's own tolerance comes on top of rounding
    double narrow_tolerance = 1e-5;  ///< of 16-bit storage, before it rounds: its arithmetic is f32's
  };
  Trial(const CellGraph& graph, const oracle::Cell& cell, const oracle::Ranges& ranges, oracle::Random& random,
        const Options& options);

  /// Runs the first lengths.size() sequences, cut to these lengths (all equal unless packed), and
  /// returns what is wrong with the result, or an empty text.
  std::string run(const Program& program, const std::vector<std::int64_t>& lengths, bool packed, int threads) const {
    const Binding binding = bound(lengths, packed, threads);
    return verify(binding.run, program.run(binding.run), lengths);
  }

  /// The two halves of run(), for engines other than Program: the bound arrays, and what is wrong
  /// with the result.
  Binding bound(const std::vector<std::int64_t>& lengths, bool packed, int threads) const;
  std::string verify(const BoundRun& run, const RunOutput& output, const std::vector<std::int64_t>& lengths) const;

  /// Numbers compared so far, and those left out at jumps.
  std::int64_t compared() const { return compared_; }
  std::int64_t skipped() const { return skipped_; }

 private:
  struct Sequence {
    oracle::Data data;
    oracle::Trajectory truth;
  };

  BindRequest request(const std::vector<std::int64_t>& lengths, bool packed, int threads) const;
  GivenArray gather(const std::string& name, const std::vector<std::int64_t>& lengths, bool packed) const;
  /// State `update` after `step` of a sequence (-1: before the first), as the oracle has it.
  std::vector<double> state_at(const Sequence& sequence, int update, std::int64_t step) const;
  bool close(double got, double want, bool rounded) const;
  std::string compare(const BoundRun& run, const RunOutput& output, const std::vector<std::int64_t>& lengths) const;
  std::string compare_steps(const BoundRun& run, const RunOutput& output,
                            const std::vector<std::int64_t>& lengths) const;
  /// Whether the oracle's step from `data` jumps within 1e-13 of it, in a state or out.
  bool at_jump(const oracle::Data& data, const oracle::Trajectory& exact) const;
  std::string check(const std::string& what, std::size_t sequence, std::int64_t step, const Array& got,
                    std::int64_t row, const std::vector<double>& want, bool rounded) const;

  const CellGraph& graph_;
  const oracle::Cell& cell_;
  Options options_;
  std::vector<Sequence> sequences_;
  mutable std::int64_t compared_ = 0, skipped_ = 0;
};

}  // namespace cellc
