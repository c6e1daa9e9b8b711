#pragma once
// A cell file on disk -> a cell with everything that is derived of it.
#include <string>

#include "compiler/front_end.h"
#include "compiler/syntax/parse.h"

namespace cellc {

using LoadedCell = AnalysedCell;

/// Throws RequestError (unreadable) or UsageError (which cell?).
SourceText read_source(const std::string& path);

/// The tree of a file without syntax errors; throws CellFileError.
File parse_source(const SourceText& source);

/// Throws CellFileError too; UsageError where it is not clear which cell is meant.
LoadedCell load_cell(const std::string& path, const std::string& cell_name);

/// What an option names to be written is not the cell's own file; throws UsageError.
void spare_cell_file(const std::string& option, const std::string& written, const std::string& cell_file);

}  // namespace cellc
