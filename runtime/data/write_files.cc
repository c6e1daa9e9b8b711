#include "runtime/data/write_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "runtime/data/errors.h"
#include "runtime/data/npy.h"

namespace cellc {
namespace {

// What a signal handler must remove. A handler may call unlink and rmdir but not take locks or
// allocate, hence a fixed table of pointers; a slot is published by its count and retired by a
// null. Strings outlive their slots.
constexpr int kSlots = 4096;
std::atomic<const char*> pending[kSlots];
std::atomic<int> pending_count{0};
// Directories that were made for them, the outermost first.
constexpr int kMostDirectories = 2048;  // as many as a path can name
std::atomic<const char*> pending_directories[kMostDirectories];
std::atomic<int> pending_directory_count{0};

// Who may touch the files: so many threads that hold interrupts back, or, at -1, the handler, which ends the process.
// An interrupt goes to any thread of the process, so that masking it in one does not keep it away.
std::atomic<int> holders{0};
std::atomic<int> waiting_signal{0};

void die_unless_held() {
  int none = 0;
  if (!holders.compare_exchange_strong(none, -1)) return;  // the last holder does it
  remove_temporaries();
  const int signal_number = waiting_signal;
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

extern "C" void remove_pending_and_die(int signal_number) {
  waiting_signal = signal_number;
  die_unless_held();
}

DeviceError write_error(const std::string& path, int error) {
  return DeviceError(fmt::format("{}: cannot write: {}", path, std::strerror(error)));
}

void write_exactly(int fd, const char* from, std::size_t count, const std::string& path) {
  while (count > 0) {
    const ssize_t put = write(fd, from, std::min(count, std::size_t{1} << 30));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw write_error(path, errno);
    from += put;
    count -= static_cast<std::size_t>(put);
  }
}

/// Interrupts wait while this lives.
class HoldSignals {
 public:
  HoldSignals() {
    for (int now = holders.load();;) {
      if (now < 0)
        pause();  // another thread is about to end the process
      else if (holders.compare_exchange_weak(now, now + 1))
        return;
      now = holders.load();
    }
  }
  ~HoldSignals() {
    if (holders.fetch_sub(1) == 1 && waiting_signal != 0) die_unless_held();
  }
  HoldSignals(const HoldSignals&) = delete;
  HoldSignals& operator=(const HoldSignals&) = delete;
};

/// One run's files on their way: what is not renamed by `publish` is removed.
class Pending {
 public:
  Pending(const std::string& directory, std::size_t count) : directory_(directory) {
    if (count > kSlots) throw DeviceError(fmt::format("{}: too many files in one run", directory));
    files_.reserve(count);  // pointers into files_ are handed to the signal handler
    make_directory();
  }
  ~Pending() {
    HoldSignals hold;
    pending_count = 0;
    for (int i = 0; i < static_cast<int>(files_.size()); ++i) {
      pending[i] = nullptr;
      if (!files_[i].published) unlink(files_[i].temporary.c_str());
    }
    pending_directory_count = 0;
    if (!done_) {
      std::error_code ignored;
      for (auto d = created_.rbegin(); d != created_.rend(); ++d) std::filesystem::remove(*d, ignored);
    }
  }
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;

  void write(const std::string& name, const std::vector<std::string_view>& parts) {
    const std::string target = directory_ + "/" + name;
    struct stat status {};
    if (lstat(target.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode) &&
        !S_ISDIR(status.st_mode))
      throw DeviceError(fmt::format("{}: cannot write: it is a device or a pipe, which no file can replace", target));
    int fd = -1;
    {
      HoldSignals hold;  // no moment at which a file exists that the handler does not know
      files_.push_back({target, fmt::format("{}/.{}.{}.tmp", directory_, name, getpid()), {}, false});
      const char* path = files_.back().temporary.c_str();
      unlink(path);  // left by a killed process that had this number
      fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd < 0) throw write_error(target, errno);
      pending[files_.size() - 1] = path;
      pending_count = static_cast<int>(files_.size());
    }
    try {
      for (const std::string_view part : parts) write_exactly(fd, part.data(), part.size(), target);
      // A full disk may be noticed no earlier than here (delayed allocation, NFS). EINVAL: a file
      // system that cannot sync has nothing to report.
      if (fsync(fd) != 0 && errno != EINVAL) throw write_error(target, errno);
    } catch (...) {
      close(fd);
      throw;
    }
    if (close(fd) != 0) throw write_error(target, errno);
  }

  void publish(const Keep& keep) {
    HoldSignals hold;
    std::size_t at = 0;
    const auto undo = [&] {
      while (at-- > 0) {
        File& file = files_[at];
        unlink(file.target.c_str());
        if (!file.backup.empty()) rename(file.backup.c_str(), file.target.c_str());
      }
    };
    try {
      for (; at < files_.size(); ++at) {
        File& file = files_[at];
        struct stat status {};
        if (lstat(file.target.c_str(), &status) == 0) {
          if (S_ISDIR(status.st_mode)) throw write_error(file.target, EISDIR);
          file.backup = file.temporary + ".old";
          if (rename(file.target.c_str(), file.backup.c_str()) != 0) {
            file.backup.clear();
            throw write_error(file.target, errno);
          }
        }
        if (rename(file.temporary.c_str(), file.target.c_str()) != 0) {
          const int error = errno;
          if (!file.backup.empty()) rename(file.backup.c_str(), file.target.c_str());
          throw write_error(file.target, error);
        }
        file.published = true;
      }
      if (keep && !keep()) return undo();
    } catch (...) {
      undo();
      throw;
    }
    for (const File& file : files_)
      if (!file.backup.empty()) unlink(file.backup.c_str());
    if (const int fd = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
      fsync(fd);
      close(fd);
    }
    done_ = true;
  }

 private:
  struct File {
    std::string target, temporary, backup;
    bool published;
  };

  void make_directory() {
    namespace fs = std::filesystem;
    std::error_code error;
    std::vector<fs::path> missing;
    for (fs::path p = fs::absolute(directory_, error); !p.empty() && !fs::exists(p, error); p = p.parent_path())
      missing.push_back(p);
    created_.reserve(missing.size());  // pointers into it are handed to the signal handler
    for (auto p = missing.rbegin(); p != missing.rend(); ++p) {
      if (p->filename().empty()) continue;  // "out/" has an empty last part
      HoldSignals hold;
      if (mkdir(p->c_str(), 0777) == 0) {
        created_.push_back(p->string());
        const auto count = static_cast<int>(created_.size());
        if (count > kMostDirectories) continue;
        pending_directories[count - 1] = created_.back().c_str();
        pending_directory_count = count;
      } else if (errno != EEXIST) {
        throw DeviceError(fmt::format("{}: cannot create the directory: {}", p->string(), std::strerror(errno)));
      }
    }
    if (!fs::is_directory(directory_, error)) throw DeviceError(fmt::format("{}: is not a directory", directory_));
  }

  std::string directory_;
  std::vector<File> files_;
  std::vector<std::string> created_;
  bool done_ = false;
};

}  // namespace

void write_arrays(const std::string& directory, const std::vector<std::pair<std::string, Array>>& arrays,
                  const Keep& keep) {
  Pending files(directory, arrays.size());
  for (const auto& [name, array] : arrays)
    files.write(name + ".npy", {npy_header(array),
                                {static_cast<const char*>(array.data()),
                                 static_cast<std::size_t>(array.count()) * size_of(array.dtype())}});
  files.publish(keep);
}

void write_files(const std::string& directory, const std::vector<std::pair<std::string, std::string>>& files,
                 const Keep& keep) {
  Pending pending(directory, files.size());
  for (const auto& [name, bytes] : files) pending.write(name, {bytes});
  pending.publish(keep);
}

void remove_temporaries() {
  const int count = pending_count.load();
  for (int i = 0; i < count; ++i)
    if (const char* path = pending[i].load()) unlink(path);
  for (int i = pending_directory_count.load(); i-- > 0;)
    if (const char* directory = pending_directories[i].load()) rmdir(directory);  // only if it is empty
}

void remove_temporaries_on_signals() {
  struct sigaction action {};
  action.sa_handler = remove_pending_and_die;
  sigemptyset(&action.sa_mask);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // A signal that the parent had ignored (nohup) stays ignored.
    if (sigaction(s, nullptr, &before) == 0 && before.sa_handler == SIG_IGN) continue;
    sigaction(s, &action, nullptr);
  }
}

}  // namespace cellc
