#pragma once
// Programs beside a test: what a command prints, with errors, and how it ends.
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

struct Outcome {
  int status;  ///< 128 + n where signal n ended it
  std::string text;
};

/// Without what a linker says of a sanitizer's own library.
inline std::string without_sanitizers_warnings(std::string text) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size() - 1) + 1;
    if (const std::size_t at = text.find("san.so"); at < end && at >= from && text.find("warning: the use of") < end)
      text.erase(from, end - from);
    else
      from = end;
  }
#endif
  return text;
}

inline Outcome shell(const std::string& command) {
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  std::string text;
  char buffer[4096];
  for (std::size_t n; pipe && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), without_sanitizers_warnings(text)};
}

/// Why another program cannot load the library, null if it can: one with a sanitizer has to come behind that.
inline const char* not_to_be_loaded() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (!std::getenv("LD_PRELOAD"))
    return "a program without a sanitizer loads a library with one where LD_PRELOAD has it";
#endif
  return nullptr;
}
