#pragma once
// A cell from a text, arrays by name, and gradients of them as `run --cotangent` makes them.
#include <map>
#include <string>
#include <vector>

#include "runtime/cpu/solve.h"
#include "runtime/gradient/name_gradients.h"
#include "tests/engines/lowered_cell.h"
#include "tests/oracle/examples.h"

namespace cellc {

struct TextCell {
  explicit TextCell(const std::string& text)
      : source("test.cell", text), tree(oracle::parse_or_throw(source)), cell(source, tree, tree.cells.at(0)) {}
  SourceText source;
  File tree;
  LoweredCell cell;
};

/// Numbers and their shape.
GivenArray given(const std::vector<std::int64_t>& shape, const std::vector<double>& values, Dtype dtype = Dtype::F64);

/// By name: grad.x, and what the forward run wrote. The forward run is the solver's, as is the adjoint's.
std::map<std::string, Array> run_backward(const CellGraph& cell, const Structure& structure, const BindRequest& request,
                                          const std::map<std::string, GivenArray>& cotangents,
                                          const SolveOptions& backward = {});

}  // namespace cellc
