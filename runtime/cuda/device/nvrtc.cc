#include "runtime/cuda/device/nvrtc.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "runtime/cuda/device/find_nvrtc.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

constexpr int kSuccess = 0;
constexpr const char* kRemedy =
    "install the CUDA toolkit (12.8 or newer) or Python's nvidia-cuda-nvrtc, or name the directory of "
    "libnvrtc.so in "
    "CELLC_NVRTC";

/// The line of the log that says what is wrong, without the warnings before it. The front end writes
/// "error:", the assembler "; error   :" and "fatal   :".
std::string first_error(const std::string& log, const std::string& otherwise) {
  for (const std::string_view marker : {"error:", "error  ", "fatal"}) {
    const std::size_t at = log.find(marker);
    if (at == std::string::npos) continue;
    const std::size_t before = log.rfind('\n', at), begin = before == std::string::npos ? 0 : before + 1;
    return log.substr(begin, log.find('\n', at) - begin);
  }
  return otherwise;
}

/// Keeps what a failed compile was given, for whoever looks into it. Where it is, in words.
std::string keep_failed(const GpuSource& source, const std::vector<std::string>& options, const std::string& log,
                        const std::string& compiler) {
  const char* base = std::getenv("TMPDIR");
  std::string directory = std::string(base && *base ? base : "/tmp") + "/cellc-nvrtc-XXXXXX";
  if (!mkdtemp(directory.data())) return "its source could not be kept in " + directory;
  const fs::path name = fs::path(source.name).filename();
  std::ofstream(directory + "/" + (name.empty() ? "source.cu" : name.string())) << source.text;
  std::ofstream(directory + "/options.txt") << fmt::format("{}\n{}\n", compiler, fmt::join(options, "\n"));
  std::ofstream(directory + "/log.txt") << log;
  return "source, options and log are in " + directory;
}

}  // namespace

std::string to_string(NvrtcVersion version) { return fmt::format("{}.{}", version.major, version.minor); }

bool Nvrtc::bind(std::string& reason) {
  const auto take = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library_.symbol(name));
    if (!function && reason.empty()) reason = fmt::format("{} has no {}: it is no NVRTC", path(), name);
  };
  reason.clear();
  take(get_version_, "nvrtcVersion");
  take(error_string_, "nvrtcGetErrorString");
  take(architecture_count_, "nvrtcGetNumSupportedArchs");
  take(architectures_, "nvrtcGetSupportedArchs");
  take(create_, "nvrtcCreateProgram");
  take(destroy_, "nvrtcDestroyProgram");
  take(compile_, "nvrtcCompileProgram");
  take(log_size_, "nvrtcGetProgramLogSize");
  take(log_, "nvrtcGetProgramLog");
  take(ptx_size_, "nvrtcGetPTXSize");
  take(ptx_, "nvrtcGetPTX");
  take(cubin_size_, "nvrtcGetCUBINSize");
  take(cubin_, "nvrtcGetCUBIN");
  return reason.empty();
}

std::string Nvrtc::load_builtins() const {
  // A compile loads them by their mere name, which may be on no path of the loader, and takes those that are loaded.
  const std::string name = "libnvrtc-builtins.so." + to_string(version_), directory = library_.directory();
  std::string problem, ignored;
  if (SharedLibrary::open(directory + "/" + name, problem) || SharedLibrary::open(name, ignored)) return {};
  const std::vector<std::string> there = nvrtc_builtins_in(directory);
  // Those that lie there and cannot be loaded: the loader says why.
  if (std::find(there.begin(), there.end(), name) == there.end())
    problem = name + " is missing beside it" + (there.empty() ? "" : fmt::format(" ({} is there)", there.front()));
  return fmt::format("NVRTC {} ({}) cannot compile: {}", to_string(version_), path(), problem);
}

std::shared_ptr<const Nvrtc> Nvrtc::load(const std::string& file, std::string& reason) {
  std::shared_ptr<Nvrtc> nvrtc(new Nvrtc);
  nvrtc->library_ = SharedLibrary::open(file, reason);
  if (!nvrtc->library_ || !nvrtc->bind(reason)) return nullptr;
  if (nvrtc->get_version_(&nvrtc->version_.major, &nvrtc->version_.minor) != kSuccess) {
    reason = nvrtc->path() + " does not tell its version";
    return nullptr;
  }
  if (nvrtc->version_ < kOldestNvrtc) {
    reason = fmt::format("NVRTC {} ({}) is too old: cellc needs {} or newer", to_string(nvrtc->version_), nvrtc->path(),
                         to_string(kOldestNvrtc));
    return nullptr;
  }
  reason = nvrtc->load_builtins();
  return reason.empty() ? nvrtc : nullptr;
}

std::shared_ptr<const Nvrtc> Nvrtc::find(int latest_major, std::string& reason) {
  std::vector<std::string> candidates;
  const char* named = std::getenv("CELLC_NVRTC");
  const bool only = named && *named;
  if (only) {
    std::error_code error;
    if (fs::is_directory(named, error)) {
      candidates = nvrtc_files_in(named);
      for (const std::string& file : nvrtc_files_below(named)) candidates.push_back(file);
    } else {
      candidates = {named};
    }
  } else {
    candidates = nvrtc_candidates();
  }
  std::string unfit;  // why the first that was there does not serve
  for (const std::string& file : candidates) {
    std::string problem;
    if (auto nvrtc = load(file, problem)) {
      if (latest_major == 0 || nvrtc->version().major <= latest_major) return nvrtc;
      problem = fmt::format("NVRTC {} ({}) is of a later major version than the driver, CUDA {}",
                            to_string(nvrtc->version()), nvrtc->path(), latest_major);
    }
    // What the loader does not find under a mere name is not there: no reason.
    if (unfit.empty() && (only || file.find('/') != std::string::npos || problem.starts_with("NVRTC"))) unfit = problem;
  }
  if (only) {
    reason = unfit.empty() ? fmt::format("CELLC_NVRTC={}: no libnvrtc.so lies there", named)
                           : fmt::format("CELLC_NVRTC={}: {}", named, unfit);
  } else {
    reason = fmt::format("{}; {}", unfit.empty() ? "no NVRTC was found" : unfit, kRemedy);
  }
  return nullptr;
}

std::string Nvrtc::identity() const { return fmt::format("NVRTC {} {}", to_string(version_), library_.build()); }

std::vector<int> Nvrtc::architectures() const {
  int count = 0;
  if (architecture_count_(&count) != kSuccess || count <= 0) return {};
  std::vector<int> all(static_cast<std::size_t>(count));
  if (architectures_(all.data()) != kSuccess) return {};
  return all;
}

std::vector<std::string> Nvrtc::options(const GpuSource& source, const std::string& architecture,
                                        CompiledKind kind) const {
  // PTX is of a virtual architecture; naming the real one would have NVRTC compile it to the end.
  const bool virtual_one = kind == CompiledKind::Ptx && architecture.starts_with("sm_");
  // Contraction is said, not left to the default: results depend on it. Functions without __device__ are device
  // functions, so that the templates need not name it.
  std::vector<std::string> all = {"--std=c++17", "--fmad=true", "-default-device"};
  // What asks for instructions of one card alone names that itself (sm_90a).
  if (std::none_of(source.options.begin(), source.options.end(),
                   [](const std::string& own) { return own.starts_with("-arch="); }))
    all.insert(all.begin() + 1, "-arch=" + (virtual_one ? "compute_" + architecture.substr(3) : architecture));
  all.insert(all.end(), source.options.begin(), source.options.end());
  return all;
}

CompiledKernels Nvrtc::compile(const GpuSource& source, const std::string& architecture, CompiledKind kind) const {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<std::string> all = options(source, architecture, kind);
  std::vector<const char*> words;
  for (const std::string& option : all) words.push_back(option.c_str());

  struct Owned {
    const Nvrtc& nvrtc;
    Program program = nullptr;
    ~Owned() {
      if (program) nvrtc.destroy_(&program);
    }
  } owned{*this};
  const auto checked = [&](int result, const char* call) {
    if (result != kSuccess) throw DeviceError(fmt::format("{}: {}: {}", source.name, call, error_string_(result)));
  };
  checked(create_(&owned.program, source.text.c_str(), source.name.c_str(), 0, nullptr, nullptr), "nvrtcCreateProgram");
  const int result = compile_(owned.program, static_cast<int>(words.size()), words.data());

  CompiledKernels compiled;
  std::size_t size = 0;
  if (log_size_(owned.program, &size) == kSuccess && size > 1) {
    compiled.log.resize(size);
    if (log_(owned.program, compiled.log.data()) != kSuccess) compiled.log.clear();
    while (!compiled.log.empty() && compiled.log.back() == '\0') compiled.log.pop_back();  // C's end of text
  }
  if (result != kSuccess) {
    throw DeviceError(fmt::format("NVRTC {} does not compile {} for {}: {}; {}", to_string(version_), source.name,
                                  architecture, first_error(compiled.log, error_string_(result)),
                                  keep_failed(source, all, compiled.log, identity())));
  }
  if (kind == CompiledKind::Cubin) {
    checked(cubin_size_(owned.program, &size), "nvrtcGetCUBINSize");
    compiled.code.resize(size);
    checked(cubin_(owned.program, compiled.code.data()), "nvrtcGetCUBIN");
  } else {
    checked(ptx_size_(owned.program, &size), "nvrtcGetPTXSize");
    compiled.code.resize(size);
    checked(ptx_(owned.program, compiled.code.data()), "nvrtcGetPTX");
    while (!compiled.code.empty() && compiled.code.back() == '\0') compiled.code.pop_back();
  }
  if (compiled.code.empty())
    throw DeviceError(fmt::format("{}: '{}' names no real architecture, such as sm_90", source.name, architecture));
  compiled.compile_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return compiled;
}

CompiledKernels compile_cuda(const GpuSource& source, const std::string& architecture, CompiledKind kind) {
  std::string reason;
  const auto nvrtc = Nvrtc::find(0, reason);
  if (!nvrtc) throw DeviceError(reason);
  return nvrtc->compile(source, architecture, kind);
}

std::string nvrtc_version(std::string& reason) {
  const auto nvrtc = Nvrtc::find(0, reason);
  return nvrtc ? to_string(nvrtc->version()) : "";
}

}  // namespace cellc
