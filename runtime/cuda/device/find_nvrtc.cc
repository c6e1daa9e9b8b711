#include "runtime/cuda/device/find_nvrtc.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "runtime/cuda/device/shared_library.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// Entries of a directory whose names start so, in order of name, the last first: cuda-13.0 before cuda-12.8.
std::vector<std::string> entries(const std::string& directory, std::string_view prefix) {
  std::vector<std::string> found;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path().string());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

void append(std::vector<std::string>& to, const std::vector<std::string>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

/// The directory of this program, and of the library that this code is part of.
std::vector<std::string> own_directories() {
  std::vector<std::string> found;
  std::error_code error;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", error); !error)
    found.push_back(program.parent_path().string());
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_directories), &info) && info.dli_fname) {
    const fs::path library = fs::canonical(info.dli_fname, error);
    if (!error && library.parent_path() != fs::path(found.empty() ? "" : found[0]))
      found.push_back(library.parent_path().string());
  }
  return found;
}

/// Files of the NVRTCs that this process has loaded, such as that of PyTorch. One of them is what the program's own
/// kernels are compiled by, and it takes no second copy of 100 MB.
std::vector<std::string> loaded_files() {
  std::vector<std::string> found;
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) {
    SharedLibrary library = SharedLibrary::loaded(name);
    if (library) found.push_back(library.path());
    library.close();
  }
  return found;
}

std::vector<std::string> python_directories() {
  std::vector<std::string> found;
  const std::string home = variable("HOME"), user = home.empty() ? "" : home + "/.local";
  for (const std::string& prefix :
       {variable("VIRTUAL_ENV"), variable("CONDA_PREFIX"), user, std::string("/usr/local"), std::string("/usr")}) {
    if (prefix.empty()) continue;
    for (const std::string& python : entries(prefix + "/lib", "python3")) {
      found.push_back(python + "/site-packages");
      found.push_back(python + "/dist-packages");
    }
  }
  return found;
}

/// NVIDIA's wheels in site-packages: nvidia/cu13/lib since 13.0, nvidia/cuda_nvrtc/lib before.
std::vector<std::string> nvrtc_wheels_in(const std::string& packages) {
  std::vector<std::string> found = nvrtc_files_in(packages + "/nvidia/cuda_nvrtc/lib");
  for (const std::string& package : entries(packages + "/nvidia", "cu1"))
    append(found, nvrtc_files_in(package + "/lib"));
  return found;
}

}  // namespace

std::optional<std::vector<int>> nvrtc_file_version(const std::string& name) {
  constexpr std::string_view kStem = "libnvrtc.so";
  if (!name.starts_with(kStem)) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(kStem.size());
  std::vector<int> version;
  while (!rest.empty()) {
    if (rest[0] != '.' || rest.size() < 2 || rest[1] < '0' || rest[1] > '9') return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(rest.data() + 1, rest.data() + rest.size(), number);
    if (error != std::errc()) return std::nullopt;
    version.push_back(number);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  return version;
}

std::vector<std::string> nvrtc_files_in(const std::string& directory) {
  struct Found {
    std::vector<int> version;
    std::string path, real;
  };
  std::vector<Found> found;
  for (const std::string& path : entries(directory, "libnvrtc.so")) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    const auto version = nvrtc_file_version(fs::path(path).filename().string());
    if (version && !error) found.push_back({*version, path, real.string()});
  }
  // The bare name, of no version, comes last.
  std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) { return a.version > b.version; });
  std::vector<std::string> paths, seen;
  for (const Found& f : found) {
    if (std::find(seen.begin(), seen.end(), f.real) != seen.end()) continue;
    seen.push_back(f.real);
    paths.push_back(f.path);
  }
  return paths;
}

std::vector<std::string> nvrtc_files_below(const std::string& root) {
  std::vector<std::string> found;
  for (const char* folder : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"}) {
    append(found, nvrtc_files_in(root + "/" + folder));
  }
  append(found, nvrtc_wheels_in(root));
  return found;
}

std::vector<std::string> nvrtc_files_beside(const std::string& directory) {
  std::vector<std::string> found = nvrtc_files_below(directory + "/nvrtc");
  append(found, nvrtc_wheels_in(fs::path(directory).parent_path().string()));
  return found;
}

std::vector<std::string> nvrtc_builtins_in(const std::string& directory) {
  std::vector<std::string> found;
  for (const std::string& path : entries(directory, "libnvrtc-builtins.so."))
    found.push_back(fs::path(path).filename().string());
  return found;
}

std::vector<std::string> nvrtc_candidates() {
  std::vector<std::string> all = loaded_files();
  for (const std::string& directory : own_directories()) append(all, nvrtc_files_beside(directory));
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const std::string root = variable(name); !root.empty()) append(all, nvrtc_files_below(root));
  }
  append(all, {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
  append(all, nvrtc_files_below("/usr/local/cuda"));
  for (const std::string& root : entries("/usr/local", "cuda-")) append(all, nvrtc_files_below(root));
  for (const std::string& packages : python_directories()) append(all, nvrtc_files_below(packages));
  return all;
}

}  // namespace cellc
