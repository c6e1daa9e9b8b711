#include "runtime/data/object_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "runtime/data/descriptor.h"
#include "runtime/data/sha256.h"

namespace cellc {
namespace {

// Raise with every change of the header below.
constexpr std::uint32_t kFormat = 2;
constexpr char kMagic[8] = {'c', 'e', 'l', 'l', 'c', 'o', 'b', 'j'};
constexpr std::string_view kSuffix = ".object";
constexpr std::size_t kKeyDigits = 2 * std::tuple_size_v<ObjectKey>;
// An entry's time is that of its last use, but written no more often than this.
constexpr std::time_t kTouchAfterSeconds = 3600;
// No process takes so long to write an entry: it was killed.
constexpr std::time_t kAbandonedAfterSeconds = 3600;
// Sweeping costs a look at each entry; this share of the stores pays for it. The bound may be
// passed by what the stores in between add.
constexpr int kStoresPerSweep = 8;

/// An entry is this and then the object. Byte order is the machine's: the key covers the platform.
struct Header {
  char magic[8];
  std::uint32_t format;
  std::uint32_t zero;
  std::uint64_t length;  ///< of the object
  ObjectKey key;
  ObjectKey checksum;  ///< of all above and the object
};
static_assert(sizeof(Header) == 88, "no padding: every byte of an entry is checked");

Header header_of(const ObjectKey& key, std::string_view object) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.format = kFormat;
  header.length = object.size();
  header.key = key;
  Sha256 hash;
  hash.add(&header, offsetof(Header, checksum));
  hash.add(object.data(), object.size());
  header.checksum = hash.finish();
  return header;
}

std::string digits_of(const ObjectKey& key) {
  std::string text;
  for (const std::uint8_t byte : key) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

bool are_digits(std::string_view text) {
  return text.size() == kKeyDigits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

/// A user may point the cache at a directory with other things in it: only these names are ours.
bool is_entry_name(std::string_view name) {
  return name.size() == kKeyDigits + kSuffix.size() && are_digits(name.substr(0, kKeyDigits)) &&
         name.substr(kKeyDigits) == kSuffix;
}
bool is_temporary_name(std::string_view name) {  // .KEY.XXXXXX
  return name.size() == kKeyDigits + 8 && name[0] == '.' && are_digits(name.substr(1, kKeyDigits)) &&
         name[kKeyDigits + 1] == '.';
}

/// What is found will be executed, so only files that this user or root alone can have written count.
bool is_trusted(const struct stat& status) {
  return S_ISREG(status.st_mode) && (status.st_uid == geteuid() || status.st_uid == 0) &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool read_exactly(int fd, void* to, std::size_t count) {
  char* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = read(fd, at, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_exactly(int fd, const void* from, std::size_t count) {
  const char* at = static_cast<const char*>(from);
  while (count > 0) {
    const ssize_t put = write(fd, at, count);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    at += put;
    count -= static_cast<std::size_t>(put);
  }
  return true;
}

/// Makes a directory and those above it, for this user only.
void make_directories(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno != ENOENT) return;
  const std::size_t slash = path.find_last_of('/', path.find_last_not_of('/'));
  if (slash == std::string::npos || slash == 0) return;
  make_directories(path.substr(0, slash));
  mkdir(path.c_str(), 0700);
}

}  // namespace

const char* to_string(CacheState state) {
  switch (state) {
    case CacheState::Off:
      return "off";
    case CacheState::Miss:
      return "miss";
    case CacheState::Hit:
      return "hit";
  }
  return "";
}

ObjectKey object_key(const ObjectIdentity& identity) {
  Sha256 hash;
  hash.add(&kFormat, sizeof kFormat);
  for (const std::string* part : {&identity.kind, &identity.text, &identity.platform, &identity.processor,
                                  &identity.features, &identity.options, &identity.compiler}) {
    // The length first: what moves from the end of one part to the start of the next must tell.
    const std::uint64_t length = part->size();
    hash.add(&length, sizeof length);
    hash.add(part->data(), part->size());
  }
  return hash.finish();
}

std::string ObjectCache::path_of(const ObjectKey& key) const {
  return directory_ + "/" + digits_of(key) + std::string(kSuffix);
}

std::optional<std::vector<char>> ObjectCache::find(const ObjectKey& key) const {
  if (directory_.empty()) return std::nullopt;
  // Not blocking: the name may be that of a pipe.
  const Descriptor file(open(path_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !is_trusted(status)) return std::nullopt;
  Header header;
  if (!read_exactly(file.get(), &header, sizeof header)) return std::nullopt;
  // Believe no length that the file has not, before memory is asked for.
  if (header.length != static_cast<std::uint64_t>(status.st_size) - sizeof header) return std::nullopt;
  std::vector<char> object(header.length);
  if (!read_exactly(file.get(), object.data(), object.size())) return std::nullopt;
  const Header expected = header_of(key, {object.data(), object.size()});
  if (std::memcmp(&header, &expected, sizeof header) != 0) return std::nullopt;
  if (std::time(nullptr) - status.st_mtime > kTouchAfterSeconds) futimens(file.get(), nullptr);
  return object;
}

bool ObjectCache::store(const ObjectKey& key, std::string_view object) const {
  if (directory_.empty() || sizeof(Header) + object.size() > limit_) return false;
  const Header header = header_of(key, object);
  std::string temporary = directory_ + "/." + digits_of(key) + ".XXXXXX";
  int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) {
    make_directories(directory_);
    temporary.replace(temporary.size() - 6, 6, "XXXXXX");
    fd = mkostemp(temporary.data(), O_CLOEXEC);
  }
  if (fd < 0) return false;
  Descriptor file(fd);
  // Nothing is synced: an entry that a crash of the machine spoils fails its checksum.
  bool kept = write_exactly(fd, &header, sizeof header) && write_exactly(fd, object.data(), object.size());
  kept = file.closes() && kept;
  if (!kept || rename(temporary.c_str(), path_of(key).c_str()) != 0) {
    unlink(temporary.c_str());
    return false;
  }
  if (key[0] % kStoresPerSweep == 0) sweep();  // keys are as good as random
  return true;
}

void ObjectCache::sweep() const {
  DIR* directory = directory_.empty() ? nullptr : opendir(directory_.c_str());
  if (!directory) return;
  struct Entry {
    struct timespec used;
    std::uint64_t size;
    std::string name;
  };
  std::vector<Entry> entries;
  std::uint64_t total = 0;
  const std::time_t now = std::time(nullptr);
  const int at = dirfd(directory);
  while (const struct dirent* found = readdir(directory)) {
    const std::string_view name = found->d_name;
    const bool temporary = is_temporary_name(name);
    if (!temporary && !is_entry_name(name)) continue;
    struct stat status {};
    if (fstatat(at, found->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    if (temporary) {
      if (now - status.st_mtime > kAbandonedAfterSeconds) unlinkat(at, found->d_name, 0);
      continue;
    }
    total += static_cast<std::uint64_t>(status.st_size);
    entries.push_back({status.st_mtim, static_cast<std::uint64_t>(status.st_size), found->d_name});
  }
  if (total > limit_) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
    });
    // Lower than the limit, so that the next store does not pass it again.
    for (const Entry& entry : entries) {
      if (total <= limit_ - limit_ / 4) break;
      if (unlinkat(at, entry.name.c_str(), 0) == 0) total -= entry.size;
    }
  }
  closedir(directory);
}

std::string default_cache_directory() {
  if (const char* own = std::getenv("CELLC_CACHE_DIR")) return own;
  // Relative paths are to be ignored, says the XDG base directory specification.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && cache[0] == '/') return std::string(cache) + "/cellc";
  if (const char* home = std::getenv("HOME"); home && home[0] == '/') return std::string(home) + "/.cache/cellc";
  return "";
}

}  // namespace cellc
