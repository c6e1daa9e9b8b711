#pragma once
// A shared library that is loaded at run time: the driver, NVRTC. It stays loaded to the end of the
// process, because both start threads and keep state that does not survive unloading.
#include <string>

namespace cellc {

class SharedLibrary {
 public:
  /// By a name that the loader looks for, or by path. An empty one, and the loader's line in `reason`,
  /// where that fails. Its symbols serve nobody else.
  static SharedLibrary open(const std::string& name, std::string& reason);
  /// What this process has loaded by that name, which may be the library's own (its soname); else an empty one.
  static SharedLibrary loaded(const std::string& name);

  explicit operator bool() const { return handle_ != nullptr; }
  void* symbol(const char* name) const;  ///< null where there is none
  /// The file, as the loader found it.
  std::string path() const;
  std::string directory() const;
  /// The linker's build identity in hexadecimal digits, else the file's size: two builds of one version
  /// differ.
  std::string build() const;
  /// For a library that turns out to be of no use, before anything of it was called.
  void close();

 private:
  void* handle_ = nullptr;
};

}  // namespace cellc
