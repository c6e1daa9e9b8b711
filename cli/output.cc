#include "cli/output.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "cli/command.h"

namespace cellc {
namespace {

/// The other end of the pipe that standard output is.
bool reader_left() {
  pollfd output{STDOUT_FILENO, 0, 0};
  return poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

/// Why standard output took no more, as it was found first; 0: not known.
std::optional<int> failure;

void flush() {
  if (failure) return;
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return;
  failure = errno;  // 0: what failed while more was to come is not known any more
  if (*failure == 0 && reader_left()) failure = EPIPE;
}

}  // namespace

bool print_out(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  flush();
  return !failure || *failure == EPIPE;
}

int flushed(int status) {
  flush();
  if (!failure || *failure == EPIPE) return status;
  std::fputs(fmt::format("cellc: error: cannot write to standard output{}\n",
                         *failure ? fmt::format(": {}", std::strerror(*failure)) : "")
                 .c_str(),
             stderr);
  return status == kDone ? kDeviceFailed : status;
}

}  // namespace cellc
