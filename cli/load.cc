#include "cli/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/fault.h"
#include "compiler/lower.h"
#include "runtime/bind.h"

namespace cellc {

SourceText read_source(const std::string& path) {
  enter_stage("read");
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw RequestError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  // One byte more than is allowed tells that there is more, without reading all of it.
  std::string text(kMaxFileBytes + 1, '\0');
  std::size_t have = 0;
  int error = 0;
  while (have < text.size()) {
    const ssize_t got = read(fd, text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    have += static_cast<std::size_t>(got);
  }
  close(fd);
  if (error != 0) throw RequestError(fmt::format("{}: cannot read: {}", path, std::strerror(error)));
  if (have > kMaxFileBytes)
    throw RequestError(
        fmt::format("{}: is larger than {} bytes, the most that a cell file may have", path, kMaxFileBytes));
  text.resize(have);
  remember_source(text);
  return SourceText(path, text);
}

namespace {

void fail_on_errors(const SourceText& source, const Diagnostics& diagnostics) {
  if (!diagnostics.empty()) throw CellFileError{diagnostics.format(source), source, diagnostics};
}

}  // namespace

File parse_source(const SourceText& source) {
  enter_stage("parse");
  Diagnostics diagnostics;
  File file = parse(source, diagnostics);
  fail_on_errors(source, diagnostics);
  return file;
}

LoadedCell load_cell(const std::string& path, const std::string& cell_name) {
  LoadedCell loaded;
  loaded.source = read_source(path);

  // A syntax error must not hide the semantic errors of the cells that did parse.
  enter_stage("parse");
  Diagnostics diagnostics;
  const File file = parse(loaded.source, diagnostics);
  enter_stage("lower");
  std::vector<CellGraph> cells = lower_all(file, diagnostics);
  fail_on_errors(loaded.source, diagnostics);
  if (cells.empty()) throw RequestError(fmt::format("{}: holds no cell", path));

  std::vector<std::string> names;
  for (const CellGraph& cell : cells) names.push_back(cell.name);
  std::size_t chosen = cells.size();
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (names[i] == cell_name) chosen = i;
  if (cell_name.empty()) {
    if (cells.size() > 1)
      throw UsageError(fmt::format("{} holds {} cells: say which with --cell ({})", path, cells.size(),
                                   fmt::join(names, ", ")));
    chosen = 0;
  }
  if (chosen == cells.size()) {
    const std::string near = closest_name(cell_name, names);
    throw UsageError(fmt::format("--cell {}: {} has no cell of that name{}", cell_name, path,
                                 near.empty() ? fmt::format("; it has {}", fmt::join(names, ", "))
                                              : fmt::format("; did you mean '{}'?", near)));
  }
  loaded.cell = std::move(cells[chosen]);
  enter_stage("differentiate");
  loaded.jacobian = differentiate(loaded.cell);
  enter_stage("structure");
  loaded.structure = analyse(loaded.cell, loaded.jacobian);
  return loaded;
}

}  // namespace cellc
