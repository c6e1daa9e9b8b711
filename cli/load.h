#pragma once
// A cell file on disk -> a cell with everything that is derived of it.
#include <string>

#include "compiler/diagnostic.h"
#include "compiler/graph.h"
#include "compiler/jacobian.h"
#include "compiler/parse.h"
#include "compiler/structure.h"

namespace cellc {

/// The cell file is wrong: the diagnostics, formatted for people and apart.
struct CellFileError {
  std::string text;
  SourceText source;
  Diagnostics diagnostics;
};

struct LoadedCell {
  SourceText source;
  CellGraph cell;
  Jacobian jacobian;
  Structure structure;
};

/// Throws RequestError (unreadable) or UsageError (which cell?).
SourceText read_source(const std::string& path);

/// The tree of a file without syntax errors; throws CellFileError.
File parse_source(const SourceText& source);

/// Throws CellFileError too.
LoadedCell load_cell(const std::string& path, const std::string& cell_name);

}  // namespace cellc
