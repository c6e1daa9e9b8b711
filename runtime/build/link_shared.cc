#include "runtime/build/link_shared.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "runtime/data/errors.h"
#include "runtime/data/run.h"

extern char** environ;

namespace cellc {
namespace {

/// A directory for the linker's files, gone with this object.
class Folder {
 public:
  Folder() {
    const char* base = std::getenv("TMPDIR");
    path_ = std::string(base && *base ? base : "/tmp") + "/cellc-link-XXXXXX";
    if (!mkdtemp(path_.data())) throw DeviceError(fmt::format("{}: cannot create: {}", path_, std::strerror(errno)));
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// False where there is no such program. Throws DeviceError where it failed, with what it said.
bool run(std::vector<std::string> arguments, const std::string& log) {
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int error = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == ENOENT) return false;
  if (error != 0) throw DeviceError(fmt::format("{}: cannot be run: {}", arguments[0], std::strerror(error)));
  int status = 0;
  pid_t ended;
  while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {
  }
  // Where SIGCHLD is ignored the system keeps no status for anybody.
  if (ended < 0)
    throw DeviceError(fmt::format("{}: there is no telling how it ended: {}; SIGCHLD must not be ignored", arguments[0],
                                  std::strerror(errno)));
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && read_all(log).empty()) return false;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw DeviceError(fmt::format("{} could not link the library: {}", arguments[0], read_all(log)));
  return true;
}

}  // namespace

std::string link_shared(const std::string& object, const std::string& name) {
  const Folder folder;
  const std::string in = folder.file("cell.o"), out = folder.file("cell.so"), log = folder.file("log");
  {
    std::ofstream file(in, std::ios::binary);
    file.write(object.data(), static_cast<std::streamsize>(object.size()));
    if (!file.flush()) throw DeviceError(fmt::format("{}: cannot write: {}", in, std::strerror(errno)));
  }
  // Without start files and libraries: what little is called, memcpy and its like, every program has. Without
  // names of files and a build's number: equal input gives equal bytes. A name is part of a word: one of its own that
  // begins with @ is a file that linkers read options from.
  const std::vector<std::string> linkers[] = {
      {"ld", "-shared", "-s", "--build-id=none", "-z", "noexecstack", "-z", "relro", "--soname=" + name, "-o", out, in},
      {"ld.lld", "-shared", "-s", "--build-id=none", "-z", "noexecstack", "-z", "relro", "--soname=" + name, "-o", out,
       in},
      {"cc", "-shared", "-nostdlib", "-s", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-Wl,-z,relro", "-Xlinker",
       "--soname=" + name, "-o", out, in},
  };
  for (const std::vector<std::string>& linker : linkers)
    if (run(linker, log)) {
      std::string library = read_all(out);
      if (library.empty()) throw DeviceError(fmt::format("{} left no library: {}", linker[0], read_all(log)));
      return library;
    }
  throw DeviceError(
      "there is no linker: neither ld, ld.lld nor cc was found; install binutils, or build with --target "
      "cpu-object and "
      "link where there is one");
}

}  // namespace cellc
