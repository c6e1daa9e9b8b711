#pragma once
// Programs beside a test: what a command prints, with errors, and how it ends.
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

struct Outcome {
  int status;  ///< 128 + n where signal n ended it
  std::string text;
};

inline Outcome shell(const std::string& command) {
  FILE* pipe = popen(("exec 2>&1; " + command).c_str(), "r");
  std::string text;
  char buffer[4096];
  for (std::size_t n; pipe && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text};
}

/// Why another program cannot load the library, null if it can: one with a sanitizer has to come behind that.
inline const char* not_to_be_loaded() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  if (!std::getenv("LD_PRELOAD"))
    return "a program without a sanitizer loads a library with one where LD_PRELOAD has it";
#endif
  return nullptr;
}
