#include "cli/load.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/fault.h"
#include "runtime/data/bind.h"
#include "runtime/data/read_text.h"

namespace cellc {

SourceText read_source(const std::string& path) {
  enter_stage("read");
  SourceText source = read_text(path);
  remember_source(source.text());
  return source;
}

File parse_source(const SourceText& source) {
  enter_stage("parse");
  Diagnostics diagnostics;
  File file = parse(source, diagnostics);
  if (!diagnostics.empty()) throw CellFileError(source, std::move(diagnostics));
  return file;
}

void spare_cell_file(const std::string& option, const std::string& written, const std::string& cell_file) {
  std::error_code missing;  // neither is, then
  if (std::filesystem::equivalent(written, cell_file, missing))
    throw UsageError(fmt::format("{}: {} is the cell file itself", option, written));
}

LoadedCell load_cell(const std::string& path, const std::string& cell_name) {
  try {
    return analyse_text(read_source(path), cell_name, enter_stage);
  } catch (const CellChoiceError& e) {
    if (e.names.empty()) throw RequestError(e.what());
    if (!cell_name.empty()) throw UsageError(fmt::format("--cell {}: {}", cell_name, e.what()));
    throw UsageError(
        fmt::format("{} holds {} cells: say which with --cell ({})", path, e.names.size(), fmt::join(e.names, ", ")));
  }
}

}  // namespace cellc
