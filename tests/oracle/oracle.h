#pragma once
// The oracle: what a cell means, computed in f64 by walking the tree that the parser made, one
// step after another. It follows docs/language.md rule by rule and shares nothing with the
// compiler but the parser: no graph, no table of operators, no lowering. Slow and obvious; it is
// never shipped.
//
// Values are tensors whose axes have names. A name means its defining expression, evaluated when
// it is needed and at the time at which it is needed: lag(e, n) is e evaluated n steps earlier,
// from the stored past of states and inputs.
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "compiler/syntax/tree.h"

namespace cellc::oracle {

/// The cell cannot be evaluated: it breaks a rule, or the data do not fit it.
struct OracleError : std::runtime_error {
  using runtime_error::runtime_error;
};

/// Row-major; the last axis is the fastest. An axis repeats only in a tensor declared so (W[d,d]).
struct Tensor {
  std::vector<std::string> axes;
  std::vector<std::int64_t> shape;
  std::vector<double> data;
};

/// Arrays of one sequence, flat and row-major.
struct Data {
  std::map<std::string, std::int64_t> sizes;  ///< by header axis
  std::int64_t steps = 0;
  std::map<std::string, std::vector<double>> inputs;     ///< x: [steps, a…]
  std::map<std::string, std::vector<double>> params;     ///< p: [a…]; a missing one takes its default
  std::map<std::string, std::vector<double>> starts;     ///< h: [a…]; a missing one takes its start
  std::map<std::string, std::vector<double>> histories;  ///< of a state or input: [n, a…], entry j is
                                                         ///< the value j+1 steps before the start
};

/// What a run writes: every state after each step and every out, [steps, a…].
struct Trajectory {
  std::map<std::string, std::vector<double>> states;
  std::map<std::string, std::vector<double>> outs;
  std::map<std::string, std::vector<std::int64_t>> out_shapes;  ///< [a…]
};

/// A view of one cell of a parsed file, which must live longer.
class Cell {
 public:
  Cell(const File& file, const std::string& name);

  const File& file() const { return *file_; }
  const cellc::Cell& tree() const { return *cell_; }
  const Declaration* find(const std::string& name) const;
  /// Length of each place of a declaration.
  std::vector<std::int64_t> shape(const Declaration& declaration, const Data& data) const;
  std::int64_t count(const Declaration& declaration, const Data& data) const;
  std::int64_t length(const std::string& axis, const Data& data) const;

 private:
  const File* file_;
  const cellc::Cell* cell_;
};

Trajectory run(const Cell& cell, const Data& data);

/// The states after one step from `data.starts` with the inputs of step 0.
std::map<std::string, std::vector<double>> step(const Cell& cell, const Data& data);

/// Start of a state, or default of a param, as `data` gives it or as it is declared.
std::vector<double> initial_value(const Cell& cell, const Data& data, const std::string& name);

}  // namespace cellc::oracle
