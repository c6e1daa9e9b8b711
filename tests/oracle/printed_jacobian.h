#pragma once
// The Jacobian as the program prints it, given back to the oracle: the text of every block becomes
// an `out` of the cell, which is parsed anew and evaluated. What is tested is thus what a user
// copies, not what the compiler thinks it means.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "tests/oracle/difference.h"
#include "tests/oracle/oracle.h"

namespace cellc::oracle {

/// The state, or its lagged copy, behind an update of the graph.
Source source_of(const CellGraph& cell, int update);

/// Depth of the history that the cell keeps of each state and input that it lags.
std::map<std::string, int> history_depths(const CellGraph& cell);

class PrintedJacobian {
 public:
  /// `source` is the text of the file that holds the cell.
  PrintedJacobian(CellGraph& cell, const SourceText& source);

  /// Values of all blocks at a point: [entries of the row state, entries of the column state].
  /// Blocks that were not printed are missing.
  std::map<std::pair<Source, Source>, Difference> evaluate(const Data& point) const;

  /// The cell with the outs added.
  const std::string& text() const { return text_; }

 private:
  struct Block {
    int row, column;
    std::string out;
    bool straight;  ///< only the entries on the diagonal of the shared axes are printed
  };
  const CellGraph& cell_;
  std::string text_;
  std::vector<Block> blocks_;
};

}  // namespace cellc::oracle
