#include "runtime/cuda/device/shared_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>

namespace cellc {
namespace {

struct BuildSearch {
  std::uintptr_t base;
  std::string found;
};

/// Called for each loaded object; stops at the one that lies at `base`.
int look_for_build(struct dl_phdr_info* object, std::size_t, void* data) {
  auto& search = *static_cast<BuildSearch*>(data);
  if (object->dlpi_addr != search.base) return 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);
    const char* end = at + segment.p_memsz;
    while (end - at >= static_cast<std::ptrdiff_t>(sizeof(ElfW(Nhdr)))) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* name = at + sizeof note;
      const auto* bytes = reinterpret_cast<const unsigned char*>(name + ((note.n_namesz + 3) & ~3u));
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        for (unsigned b = 0; b < note.n_descsz; ++b) {
          search.found += "0123456789abcdef"[bytes[b] >> 4];
          search.found += "0123456789abcdef"[bytes[b] & 15];
        }
        return 1;
      }
      at = reinterpret_cast<const char*>(bytes) + ((note.n_descsz + 3) & ~3u);
    }
  }
  return 1;
}

const struct link_map* map_of(void* handle) {
  struct link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map : nullptr;
}

}  // namespace

SharedLibrary SharedLibrary::open(const std::string& name, std::string& reason) {
  SharedLibrary library;
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle_) {
    const char* problem = dlerror();
    reason = problem ? problem : name + ": cannot be loaded";
  }
  return library;
}

SharedLibrary SharedLibrary::loaded(const std::string& name) {
  SharedLibrary library;
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  return library;
}

void* SharedLibrary::symbol(const char* name) const { return handle_ ? dlsym(handle_, name) : nullptr; }

std::string SharedLibrary::path() const {
  const struct link_map* map = handle_ ? map_of(handle_) : nullptr;
  return map && map->l_name ? map->l_name : "";
}

std::string SharedLibrary::directory() const { return std::filesystem::path(path()).parent_path().string(); }

std::string SharedLibrary::build() const {
  const struct link_map* map = handle_ ? map_of(handle_) : nullptr;
  BuildSearch search{map ? map->l_addr : 0, {}};
  if (map) dl_iterate_phdr(look_for_build, &search);
  if (!search.found.empty()) return search.found;
  std::error_code unreadable;
  return std::to_string(std::filesystem::file_size(path(), unreadable));
}

void SharedLibrary::close() {
  if (handle_) dlclose(handle_);
  handle_ = nullptr;
}

}  // namespace cellc
