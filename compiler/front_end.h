#pragma once
// One call from text to all that is derived of a cell: parse, lower, differentiate, analyse. Precedes
// plan. Code that needs one stage alone (a dump, a check of messages) calls the stages.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "compiler/analysis/jacobian.h"
#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "compiler/syntax/diagnostic.h"

namespace cellc {

/// The text is no cell: the diagnostics, formatted for people and apart.
struct CellFileError : std::runtime_error {
  CellFileError(const SourceText& source, Diagnostics diagnostics);
  std::string text;
  SourceText source;
  Diagnostics diagnostics;
};

/// The text is right, but which of its cells was meant cannot be told.
struct CellChoiceError : std::runtime_error {
  CellChoiceError(const SourceText& source, const std::string& asked, std::vector<std::string> names);
  std::vector<std::string> names;  ///< of the cells that there are
};

struct AnalysedCell {
  SourceText source;
  CellGraph cell;
  Jacobian jacobian;
  Structure structure;
};

/// The cell `name` of a text; the only one where `name` is empty. `entering` is told the name of each
/// stage before it runs. Throws CellFileError, CellChoiceError.
AnalysedCell analyse_text(SourceText source, const std::string& name = "",
                          const std::function<void(const char*)>& entering = {});

}  // namespace cellc
