#pragma once
// Machine code kept on disk between processes; the key is a hash of what it was made from. See
// docs/notes/cache.md.
//
// No failure here is an error: what cannot be read is compiled, what cannot be written is not kept.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cellc {

/// What the cache did for a program.
enum class CacheState {
  Off,   ///< nothing was found and nothing is kept: no directory, or one that cannot be written
  Miss,  ///< compiled, and kept for the next time
  Hit,   ///< found; nothing was compiled
};
const char* to_string(CacheState state);

/// Everything that machine code depends on. Two identities that differ anywhere have different keys.
struct ObjectIdentity {
  std::string kind;       ///< of code: "object" of LLVM, "cubin", "ptx"
  std::string text;       ///< what is compiled: a module's text, CUDA source
  std::string platform;   ///< LLVM's name of it; "cuda"
  std::string processor;  ///< LLVM's name of it; "sm_90"
  std::string features;   ///< of the processor, in a fixed order
  std::string options;    ///< passes and settings of the code generator; options of NVRTC
  std::string compiler;   ///< its name and version
};

using ObjectKey = std::array<std::uint8_t, 32>;

/// A strong hash of the identity and of the format of the entries.
ObjectKey object_key(const ObjectIdentity& identity);

/// One directory of entries. Processes may share it without locks: an entry appears whole, by rename.
class ObjectCache {
 public:
  static constexpr std::uint64_t kDefaultLimit = std::uint64_t{256} << 20;

  /// `limit`: bytes that the entries may take. An empty directory name means no cache.
  explicit ObjectCache(std::string directory, std::uint64_t limit = kDefaultLimit)
      : directory_(std::move(directory)), limit_(limit) {}

  /// The object of `key`, whole and as it was stored; nothing if there is none, it is damaged, or
  /// somebody else may have written it.
  std::optional<std::vector<char>> find(const ObjectKey& key) const;
  /// Keeps an object, in place of what had its key. Makes the directory. False: it is not kept.
  /// Sweeps at every eighth new key or so.
  bool store(const ObjectKey& key, std::string_view object) const;
  /// Removes the entries that were used least recently until three quarters of the limit are left,
  /// if it is passed, and what killed processes left half written. No other file is touched.
  void sweep() const;

  /// File of an entry.
  std::string path_of(const ObjectKey& key) const;

 private:
  std::string directory_;
  std::uint64_t limit_;
};

/// $CELLC_CACHE_DIR, or cellc in $XDG_CACHE_HOME or in $HOME/.cache; empty if none of them is set.
std::string default_cache_directory();

}  // namespace cellc
