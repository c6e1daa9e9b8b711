#include "cli/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/fault.h"
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

File parse_source(const SourceText& source) {
  enter_stage("parse");
  Diagnostics diagnostics;
  File file = parse(source, diagnostics);
  if (!diagnostics.empty()) throw CellFileError(source, std::move(diagnostics));
  return file;
}

LoadedCell load_cell(const std::string& path, const std::string& cell_name) {
  try {
    return analyse_text(read_source(path), cell_name, enter_stage);
  } catch (const CellChoiceError& e) {
    if (e.names.empty()) throw RequestError(e.what());
    if (!cell_name.empty()) throw UsageError(fmt::format("--cell {}: {}", cell_name, e.what()));
    throw UsageError(fmt::format("{} holds {} cells: say which with --cell ({})", path, e.names.size(),
                                 fmt::join(e.names, ", ")));
  }
}

}  // namespace cellc
