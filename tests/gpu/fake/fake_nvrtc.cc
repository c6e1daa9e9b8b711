// An NVRTC for tests: its version is that of its file's name, and what it makes of a source is the options, the source
// and a line with its version. What begins with #error does not compile.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

/// Its own: a function that is exported is that of the first copy that was loaded.
bool version_of_this_file(int* major, int* minor) {
  Dl_info info;
  if (!dladdr(reinterpret_cast<void*>(&version_of_this_file), &info)) return false;
  const char* suffix = std::strstr(info.dli_fname, ".so.");
  return suffix && std::sscanf(suffix, ".so.%d.%d", major, minor) == 2;
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) { return version_of_this_file(major, minor) ? 0 : 1; }
const char* nvrtcGetErrorString(int) { return "as the fake NVRTC was told"; }
int nvrtcGetNumSupportedArchs(int* count) { return *count = 3, 0; }
int nvrtcGetSupportedArchs(int* archs) { return archs[0] = 80, archs[1] = 90, archs[2] = 100, 0; }

struct FakeProgram {
  std::string text, options;
};
int nvrtcCreateProgram(FakeProgram** program, const char* text, const char*, int, const char* const*,
                       const char* const*) {
  return *program = new FakeProgram{text, {}}, 0;
}
int nvrtcDestroyProgram(FakeProgram** program) { return delete *program, *program = nullptr, 0; }
int nvrtcCompileProgram(FakeProgram* program, int count, const char* const* options) {
  for (int i = 0; i < count; ++i) program->options += std::string(options[i]) + " ";
  int major = 0, minor = 0;
  if (version_of_this_file(&major, &minor))
    program->text += "\n// fake NVRTC " + std::to_string(major) + "." + std::to_string(minor) + "\n";
  return program->text.starts_with("#error") ? 6 : 0;
}
int nvrtcGetProgramLogSize(FakeProgram*, std::size_t* size) { return *size = 1, 0; }
int nvrtcGetProgramLog(FakeProgram*, char* log) { return *log = 0, 0; }
int nvrtcGetCUBINSize(FakeProgram* program, std::size_t* size) {
  return *size = program->options.size() + program->text.size(), 0;
}
int nvrtcGetCUBIN(FakeProgram* program, char* code) {
  const std::string all = program->options + program->text;
  return std::memcpy(code, all.data(), all.size()), 0;
}
int nvrtcGetPTXSize(FakeProgram* program, std::size_t* size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(FakeProgram* program, char* code) { return nvrtcGetCUBIN(program, code); }

}  // extern "C"
