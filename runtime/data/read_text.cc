#include "runtime/data/read_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "compiler/syntax/parse.h"
#include "runtime/data/errors.h"
#include "runtime/data/run.h"

namespace cellc {

SourceText read_text(const std::string& path) {
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
  return SourceText(path, text);
}

}  // namespace cellc
