#include "harness.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/data/npy.h"

namespace cellc {

namespace fs = std::filesystem;

void CommandTest::SetUp() {
  std::string pattern = testing::TempDir() + "/cellc_command_XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  directory_ = pattern;
}

void CommandTest::TearDown() {
  std::error_code ignored;
  fs::remove_all(directory_, ignored);
}

Outcome CommandTest::cellc(const std::vector<std::string>& arguments, const ProcessOptions& options) const {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    if (options.stdout_path.empty())
      dup2(out[1], 1);
    else
      dup2(open(options.stdout_path.c_str(), O_WRONLY), 1);
    dup2(err[1], 2);
    if (options.file_size_limit >= 0) {
      const struct rlimit limit {
        static_cast<rlim_t>(options.file_size_limit), static_cast<rlim_t>(options.file_size_limit)
      };
      setrlimit(RLIMIT_FSIZE, &limit);
    }
    if (options.memory_limit >= 0) {
      const struct rlimit limit {
        static_cast<rlim_t>(options.memory_limit), static_cast<rlim_t>(options.memory_limit)
      };
      setrlimit(RLIMIT_AS, &limit);
    }
    if (options.ignores_children) signal(SIGCHLD, SIG_IGN);
    setenv("CELLC_CACHE_DIR", path("cache").c_str(), 1);  // never the user's own
    for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
    if (chdir(directory_.c_str()) != 0) _exit(126);
    std::vector<char*> argv;
    std::string program = options.program;
    argv.push_back(program.data());
    std::vector<std::string> copies = arguments;
    for (std::string& a : copies) argv.push_back(a.data());
    argv.push_back(nullptr);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  Outcome outcome;
  struct pollfd streams[2] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
  bool signalled = options.signal_after_ms < 0;
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    const int ready = poll(streams, 2, signalled ? -1 : options.signal_after_ms);
    if (ready == 0 && !signalled) {
      kill(child, options.signal);
      signalled = true;
    }
    for (int i = 0; i < 2; ++i) {
      if (streams[i].fd < 0 || streams[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t got = read(streams[i].fd, buffer, sizeof buffer);
      if (got > 0)
        (i == 0 ? outcome.out : outcome.err).append(buffer, static_cast<std::size_t>(got));
      else
        streams[i].fd = -1;
    }
  }
  close(out[0]);
  close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string CommandTest::write(const std::string& name, const std::string& text) const {
  std::ofstream(path(name), std::ios::binary) << text;
  return path(name);
}

std::string CommandTest::save(const std::string& name, const Array& array) const {
  return write(name, npy_header(array) + std::string(static_cast<const char*>(array.data()),
                                                     static_cast<std::size_t>(array.count()) * size_of(array.dtype())));
}

std::string CommandTest::array(const std::string& name, const std::vector<std::int64_t>& shape,
                               double (*value)(std::int64_t), Dtype dtype) const {
  Array array(dtype, shape);
  for (std::int64_t i = 0; i < array.count(); ++i) {
    if (dtype == Dtype::I64)
      static_cast<std::int64_t*>(array.data())[i] = static_cast<std::int64_t>(value(i));
    else
      array.set(i, value(i));
  }
  return save(name, array);
}

Array CommandTest::load(const std::string& name) const { return read_npy(path(name)); }

std::vector<std::string> CommandTest::listing(const std::string& name) const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path(name), error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cellc
