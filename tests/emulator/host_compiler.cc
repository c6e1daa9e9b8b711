#include "tests/emulator/host_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>
#include <vector>

#include "runtime/cpu/engine.h"

extern char** environ;

namespace cellc::emulator {
namespace {

namespace fs = std::filesystem;

constexpr const char* kShimFiles[] = {"cuda_shim.h", "shim_interface.h", "shim_math.h", "shim_vectors.h", "cmath"};
// Raise with every change of add_entries().
constexpr const char* kFormat = "2";

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) throw DeviceError("emulator: cannot read " + path.string());
  return text.str();
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw DeviceError("emulator: cannot write " + path.string());
}

/// Two runs of FNV-1a from different starts. Objects are our own; nobody is to be kept out.
std::string hash_of(const std::string& text) {
  std::uint64_t a = 0xcbf29ce484222325u, b = 0x9ae16a3b2f90404fu;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    b = (b ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    b ^= b >> 29;
  }
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return digits;
}

/// Exit status; -1 where nothing could be run. Output and errors go to `log`.
int execute(std::vector<std::string> words, const fs::path& log) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string first_error(const std::string& log) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (line.find("error:") != std::string::npos) return line;
  return log.substr(0, log.find('\n'));
}

/// Options of NVRTC that mean something to a host compiler, as lines of the text: definitions. As options they would
/// have to agree with those that the shim was compiled with.
std::string definitions(const std::vector<std::string>& options) {
  std::string lines;
  for (const auto& option : options) {
    const auto of = [&](std::string_view prefix) { return option.starts_with(prefix); };
    const std::string rest = option.substr(of("-D") || of("-U") ? 2 : std::min(option.find('=') + 1, option.size()));
    if (of("-U") || of("--undefine-macro=")) lines += "#undef " + rest + '\n';
    if (!of("-D") && !of("--define-macro=")) continue;
    const std::size_t end = rest.find('=');
    lines += "#define " + rest.substr(0, end) + ' ' + (end == std::string::npos ? "1" : rest.substr(end + 1)) + '\n';
  }
  return lines;
}

const std::vector<std::string>& flags() {
  static const std::vector<std::string> words = [] {
    std::vector<std::string> list;
    std::istringstream text(CELLC_EMULATOR_FLAGS);
    for (std::string word; text >> word;) list.push_back(word);
    return list;
  }();
  return words;
}

/// Threads that want the same object wait for the one that makes it.
std::mutex& mutex_of(const std::string& key) {
  static std::mutex guard;
  static std::map<std::string, std::mutex> mutexes;
  const std::lock_guard lock(guard);
  return mutexes[key];
}

}  // namespace

HostCompilation compile_for_host(const GpuSource& source, int optimisation, const std::string& cache_directory) {
  const std::string level = "-O" + std::to_string(optimisation);
  const auto start = std::chrono::steady_clock::now();
  const fs::path directory = cache_directory.empty() ? fs::path(CELLC_EMULATOR_CACHE) : fs::path(cache_directory);
  const fs::path shim = CELLC_EMULATOR_SHIM;
  const std::string options = definitions(source.options);

  std::string identity = std::string(kFormat) + '\0' + CELLC_EMULATOR_COMPILER + '\0' +
                         CELLC_EMULATOR_COMPILER_VERSION + '\0' + CELLC_EMULATOR_FLAGS + '\0' + source.name + '\0';
  identity += level + '\0' + options + '\0';
  for (const char* file : kShimFiles) identity += read_file(shim / file) + '\0';
  const std::string key = hash_of(identity + source.text);

  const std::lock_guard lock(mutex_of(key));
  HostCompilation result;
  result.file = (directory / (key + ".so")).string();
  if (fs::exists(result.file)) {
    result.was_cached = true;
    return result;
  }
  std::error_code ignored;
  fs::create_directories(directory, ignored);
  // Other processes may make the same object: each under its own name, and the last rename wins.
  const std::string own = (directory / (key + "." + std::to_string(getpid()))).string();
  const auto run = [&](const char* what, std::vector<std::string> words) {
    const std::string program = words.front();
    const int status = execute(std::move(words), own + ".log");
    if (status == 0) return;
    const std::string log = status < 0 ? "" : read_file(own + ".log");
    const std::string kept = (directory / (key + ".failed")).string();
    fs::rename(own + ".cu", kept + ".cu", ignored);
    fs::rename(own + ".log", kept + ".log", ignored);
    for (const char* suffix : {".o", ".so"}) fs::remove(own + suffix, ignored);
    throw DeviceError(status < 0 ? "emulator: cannot run " + program
                                 : "emulator: " + std::string(what) + " of " + source.name +
                                       " failed: " + first_error(log) + " (all of it: " + kept + ".log)");
  };
  write_file(own + ".cu", options + "#line 1 \"" + source.name + "\"\n" + add_entries(source.text));
  std::vector<std::string> compile = {CELLC_EMULATOR_COMPILER, "-x", "c++", level};
  compile.insert(compile.end(), flags().begin(), flags().end());
  compile.insert(compile.end(), {"-include", CELLC_EMULATOR_PRECOMPILED + level + ".h", "-I", shim.string(), "-c",
                                 own + ".cu", "-o", own + ".o"});
  run("compilation", std::move(compile));
  // By the linker itself: a compiler that is to link starts itself once more to compile. What is of the C library is
  // found in this process.
  run("linking", {CELLC_EMULATOR_LINKER, "-shared", own + ".o", "-o", own + ".so"});
  fs::rename(own + ".so", result.file, ignored);
  if (ignored) throw DeviceError("emulator: cannot write " + result.file);
  for (const char* suffix : {".cu", ".o", ".log"}) fs::remove(own + suffix, ignored);
  result.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

// ---- entries ----

namespace {

constexpr std::string_view kKernelMark = "__global__";
constexpr std::string_view kSharedMark = "__shared__";

bool is_word(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

/// The text with blanks for comments, literals and lines of the preprocessor: each place keeps its number.
std::string only_code(const std::string& text) {
  std::string code = text;
  std::size_t at = 0;
  const auto blank_to = [&](std::size_t end) {
    for (end = std::min(end, code.size()); at < end; ++at)
      if (code[at] != '\n') code[at] = ' ';
  };
  const auto after = [&](const char* what) {
    const std::size_t found = text.find(what, at + 1);
    return found == std::string::npos ? found : found + std::strlen(what);
  };
  for (bool line_begins = true; at < code.size();) {
    const char c = text[at];
    if (text.compare(at, 2, "//") == 0) {
      blank_to(text.find('\n', at));
    } else if (text.compare(at, 2, "/*") == 0) {
      blank_to(after("*/"));
    } else if (c == '#' && line_begins) {
      std::size_t end = text.find('\n', at);
      while (end != std::string::npos && text[end - 1] == '\\') end = text.find('\n', end + 1);
      blank_to(end);
    } else if (c == '"' || (c == '\'' && (at == 0 || !is_word(text[at - 1])))) {  // 1'000 is a number
      std::size_t end = at + 1;
      while (end < text.size() && text[end] != c && text[end] != '\n') end += text[end] == '\\' ? 2 : 1;
      blank_to(end + 1);
      line_begins = false;
    } else {
      line_begins = c == '\n' || (line_begins && c == ' ');
      ++at;
    }
  }
  return code;
}

std::size_t skip_space(const std::string& code, std::size_t at) {
  return std::min(code.find_first_not_of(" \t\n\r", at), code.size());
}

/// One past the bracket that closes the one at `at`; npos if none does.
std::size_t past_bracket(const std::string& code, std::size_t at) {
  int depth = 0;
  for (; at < code.size(); ++at) {
    if (code[at] == '(') ++depth;
    if (code[at] == ')' && --depth == 0) return at + 1;
  }
  return std::string::npos;
}

/// Where the definition of a kernel whose mark ends at `at` has its name, parameters and body.
struct KernelHead {
  std::string name, parameters;
  std::size_t body;
};
std::optional<KernelHead> kernel_head(const std::string& code, std::size_t at) {
  std::string word;
  while (at < code.size()) {
    at = skip_space(code, at);
    if (at < code.size() && is_word(code[at])) {
      const std::size_t begin = at;
      while (at < code.size() && is_word(code[at])) ++at;
      word = code.substr(begin, at - begin);
    } else if (at < code.size() && code[at] == '(') {
      const std::size_t end = past_bracket(code, at);
      if (end == std::string::npos) return std::nullopt;
      if (word == "__launch_bounds__" || word == "__attribute__") {
        at = end;
        continue;
      }
      const std::size_t body = skip_space(code, end);
      if (body >= code.size() || code[body] != '{') return std::nullopt;  // a declaration
      std::string parameters = code.substr(at, end - at);
      std::replace(parameters.begin(), parameters.end(), '\n', ' ');
      return KernelHead{word, parameters, body};
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

/// The declaration that the mark at `at` is part of is a template's: nobody can launch it by name.
bool is_template(const std::string& code, std::size_t at) {
  const std::size_t before = at == 0 ? std::string::npos : code.find_last_of(";{}", at - 1);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return code.substr(begin, at - begin).find("template") != std::string::npos;
}

}  // namespace

// Between head and body of `extern "C" … void f(P) {` comes: `; extern "C" void cellc_entry_f(void** a) {…}
// void f(P)`. In the same place, so that the kernel may stand in any namespace; on the same line, so that
// lines keep their numbers.
std::string add_entries(const std::string& text) {
  const std::string code = only_code(text);
  std::string out;
  std::size_t done = 0;
  const auto copy_to = [&](std::size_t end) {
    out.append(text, done, end - done);
    done = end;
  };
  for (std::size_t at = 0;;) {
    const std::size_t kernel = code.find(kKernelMark, at), shared = code.find(kSharedMark, at);
    if (kernel == std::string::npos && shared == std::string::npos) break;
    if (shared < kernel) {
      copy_to(shared);
      at = shared + kSharedMark.size();
      // `__shared__ alignas(16) float x[4]` is CUDA; C++ wants alignas in front.
      const std::size_t next = skip_space(code, at);
      if (code.compare(next, 7, "alignas") == 0)
        if (const std::size_t end = past_bracket(code, next); end != std::string::npos) {
          out += code.substr(next, end - next) + ' ' + std::string(kSharedMark);
          at = done = end;
        }
      continue;
    }
    at = kernel + kKernelMark.size();
    const auto head = kernel_head(code, at);
    if (!head || is_template(code, kernel)) continue;
    copy_to(head->body);
    at = done;
    out += "; extern \"C\" __attribute__((visibility(\"default\"))) void cellc_entry_" + head->name +
           "(void** arguments) { ::cellc_emulator::call(&" + head->name + ", arguments); } void " + head->name +
           head->parameters;
  }
  copy_to(text.size());
  return out;
}

// ---- loading ----

namespace {

struct SegmentSearch {
  ElfW(Addr) base;
  std::size_t bytes = 0;
};
int find_thread_segment(dl_phdr_info* info, std::size_t, void* data) {
  auto* search = static_cast<SegmentSearch*>(data);
  if (info->dlpi_addr != search->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_TLS) search->bytes = info->dlpi_phdr[i].p_memsz;
  return 1;
}

}  // namespace

LoadedObject::LoadedObject(const std::string& file, const cellc_emulator::Services* services) : file_(file) {
  // The loader knows a file by its inode and would give the same object twice.
  static std::atomic<unsigned> number{0};
  const std::string copy = file + "." + std::to_string(getpid()) + "." + std::to_string(number++);
  std::error_code failed;
  std::filesystem::copy_file(file, copy, failed);
  if (!failed) handle_ = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char* const why = failed ? nullptr : dlerror();
  const std::string reason = why ? why : failed.message();
  fs::remove(copy, failed);
  if (!handle_) {
    fs::remove(file, failed);  // the next load makes it anew
    throw DeviceError("emulator: cannot load a compiled object: " + reason);
  }
  const auto attach = reinterpret_cast<const cellc_emulator::Thread** (*)(const cellc_emulator::Services*)>(
      dlsym(handle_, "cellc_emulator_attach"));
  link_map* map = nullptr;
  if (!attach || dlinfo(handle_, RTLD_DI_LINKMAP, &map) != 0)
    throw DeviceError("emulator: a compiled object lacks its hooks");
  current_ = attach(services);
  base_ = map->l_addr;
  SegmentSearch search{map->l_addr};
  dl_iterate_phdr(&find_thread_segment, &search);
  shared_bytes_ = search.bytes;
}

LoadedObject::~LoadedObject() {
  if (handle_) dlclose(handle_);
}

LoadedObject::Entry LoadedObject::entry(const std::string& kernel) const {
  // Only a kernel with C linkage has its own name in the object.
  if (!dlsym(handle_, kernel.c_str())) return nullptr;
  return reinterpret_cast<Entry>(dlsym(handle_, ("cellc_entry_" + kernel).c_str()));
}

char* LoadedObject::shared() const {
  const auto touch = reinterpret_cast<void* (*)()>(dlsym(handle_, "cellc_emulator_shared"));
  touch();  // the segment of a thread is made at its first use
  void* segment = nullptr;
  dlinfo(handle_, RTLD_DI_TLS_DATA, &segment);
  return static_cast<char*>(segment);
}

std::string LoadedObject::lines_of(const void* site) const {
  constexpr int kFrames = 4;
  char offset[32];
  std::snprintf(offset, sizeof offset, "0x%zx", reinterpret_cast<std::uintptr_t>(site) - base_ - 1);
  static std::atomic<unsigned> number{0};
  const std::string log = file_ + "." + std::to_string(getpid()) + ".lines" + std::to_string(number++);
  const int status = execute({"addr2line", "-i", "-e", file_, offset}, log);
  std::string text;
  int frames = 0;
  std::ifstream lines(log);
  for (std::string line; status == 0 && frames < kFrames && std::getline(lines, line);) {
    line = line.substr(0, line.find(' '));      // without a discriminator
    line.erase(0, line.find_last_of('/') + 1);  // names are those of #line, in no directory
    const auto of = [&](const char* file) { return line.starts_with(std::string(file) + ':'); };
    if (line.starts_with('?') || std::any_of(std::begin(kShimFiles), std::end(kShimFiles), of)) continue;
    text += (frames++ ? ", from " : ", at ") + line;
  }
  std::error_code ignored;
  fs::remove(log, ignored);
  return text;
}

}  // namespace cellc::emulator
