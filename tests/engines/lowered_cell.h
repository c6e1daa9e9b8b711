#pragma once
// One cell of a file with all that is derived of it, ready to be run by whatever engine.
#include <functional>
#include <string>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "compiler/syntax/source.h"
#include "compiler/syntax/tree.h"
#include "tests/oracle/oracle.h"

namespace cellc {

/// Throws where the cell is no valid one.
CellGraph graph_of(const SourceText& source, const File& tree, const Cell& cell);

/// The graph and what is proved of it; throws where the cell is no valid one.
struct LoweredCell {
  LoweredCell(const SourceText& source, const File& tree, const Cell& cell);
  LoweredCell(const LoweredCell&) = delete;
  int stages() const { return static_cast<int>(structure.stages.size()); }

  CellGraph graph;
  Structure structure;
  oracle::Cell oracle;
};

/// What `attempt` says is wrong with the first cell of a random text: nothing, or "segmented: …". "invalid: …" of a
/// text that is no valid cell, "oracle: …" and "exception: …" of what was thrown.
std::string try_cell(const std::string& text,
                     const std::function<std::string(const SourceText& source, const LoweredCell& cell)>& attempt);

/// A comparison looks at a state: a residual within the tolerance tips it now and then, and then what is
/// promised is each step, not the run.
bool has_jumps(const CellGraph& cell);

}  // namespace cellc
