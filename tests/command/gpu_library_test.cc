// Libraries of `build --target gpu-shared`: found by programs that know no CUDA, without a driver and with the fake
// one, where they launch what the header for PTX and cubins launches. The image is not looked at there: no NVRTC is
// needed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "build_fixture.h"
#include "compiler/front_end.h"
#include "runtime/build/build_library.h"
#include "runtime/build/link_shared.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/ship/print_aot.h"

namespace cellc {
namespace {

const char* const kCells[] = {
    // Stages of three kinds, a start that is computed, a default, a lag; sums of new states.
    R"(cell part[d] {
  state c[d] = 2*s0, h[d]
  input x[d]
  param s0[d], a = 0.5
  c' = a*c + x
  h' = tanh(h + c' + lag(x, 2))
  out y = sum[d](h'*h')
}
)",
    // Whole steps.
    R"(cell part[d] {
  state h[d]
  input x[d]
  param U[d,d]
  h' = tanh(U@h + x)
  out y = sum[d](h')
}
)"};

/// Both headers: LIBRARY is that of a library, else one that calls the driver. Every array is somewhere on the device.
const char* const kProgram = R"(
#ifdef LIBRARY
#include "part.h"
#include <string.h>
#else
#include "module.h"
#endif
#include <stdint.h>
#include <stdio.h>
void fake_driver_own(uint64_t address);
void fake_driver_report(void);
int cuCtxPushCurrent_v2(void*);
int main(void) {
  part_module m;
  part_lengths lengths;
  part_arrays arrays;
  int64_t bytes = 0, at, *words = (int64_t*)&arrays;
  unsigned i;
  int result;
#ifdef LIBRARY
  const char* reason = "";
  if (part_supported(&reason) != 1 || reason) return 2;
  if (part_module_bytes() != (int64_t)sizeof m) return 3;
  result = part_load(&m, 0);
#else
  int context;
  cuCtxPushCurrent_v2(&context);
  result = part_load(&m, "an image");
#endif
  memset(&lengths, 0, sizeof lengths);
  memset(&arrays, 0, sizeof arrays);
  lengths.d = 96, lengths.sequences = 3, lengths.steps = 700;
  if (!result) result = part_workspace(&m, &lengths, 0, &bytes);
  printf("%d, %d bytes\n", result, (int)bytes);
  for (at = 1; at < 64; ++at) fake_driver_own((uint64_t)at << 20);
  for (i = 0; i < sizeof arrays / 8; ++i) words[i] = 0;
#define GIVE(name) memcpy(&arrays.name, &at, sizeof arrays.name), at += 1 << 20
  at = 1 << 20;
  GIVE(x), GIVE(h), GIVE(y), GIVE(h_final);
#ifdef PARTS
  GIVE(s0), GIVE(c);
#else
  GIVE(U);
#endif
#ifdef LIBRARY
  result = part_forward(&m, &lengths, &arrays, (void*)48, (void*)at, bytes, (int32_t*)(at + (32 << 20)));
#else
  result = part_forward(&m, &lengths, &arrays, (CUstream)48, (CUdeviceptr)at, bytes, (CUdeviceptr)(at + (32 << 20)));
#endif
  printf("%d %s\n", result, part_message(result));
  fake_driver_report();
#ifdef LIBRARY
  part_unload(&m);
  if (part_forward(&m, &lengths, &arrays, 0, (void*)at, bytes, 0) != CELLC_NOT_LOADED) return 4;
  fake_driver_report();
#endif
  return 0;
}
)";

/// The same of a backward call.
const char* const kBackProgram = R"(
#ifdef LIBRARY
#include "part.h"
#include <string.h>
#define MODULE
#else
#include "module.h"
#endif
#include <stdint.h>
#include <stdio.h>
void fake_driver_own(uint64_t address);
void fake_driver_report(void);
int cuCtxPushCurrent_v2(void*);
int main(void) {
  part_module m;
  part_lengths lengths;
  part_backward_arrays arrays;
  int64_t bytes = 0, at, *words = (int64_t*)&arrays;
  unsigned i;
  int result;
#ifdef LIBRARY
  if (part_module_bytes() != (int64_t)sizeof m) return 3;
  result = part_load(&m, 0);
#else
  int context;
  cuCtxPushCurrent_v2(&context);
  result = part_load(&m, "an image");
#endif
  memset(&lengths, 0, sizeof lengths);
  lengths.d = 96, lengths.sequences = 3, lengths.steps = 700;
  if (!result) result = part_backward_workspace(&m, &lengths, 0, &bytes);
  printf("%d, %d bytes\n", result, (int)bytes);
  for (at = 1; at < 64; ++at) fake_driver_own((uint64_t)at << 20);
  for (i = 0; i < sizeof arrays / 8; ++i) words[i] = 0;
#define GIVE(name) memcpy(&arrays.name, &at, sizeof arrays.name), at += 1 << 20
  at = 1 << 20;
  GIVE(x), GIVE(h), GIVE(U), GIVE(y_cotangent), GIVE(x_gradient), GIVE(U_gradient), GIVE(h_start_gradient);
#ifdef LIBRARY
#define MEMORY void*
#else
#define MEMORY CUdeviceptr
#endif
  result = part_backward(&m, &lengths, &arrays, 0, (MEMORY)at, bytes, 0);
  printf("%d %s\n", result, part_backward_message(result));
  fake_driver_report();
  arrays.U = 0;
  puts(part_backward_message(part_backward(&m, &lengths, &arrays, 0, (MEMORY)at, bytes, 0)));
  return 0;
}
)";

/// The library's call of kProgram in Rust, behind structs that are written by what `build --json` says.
const char* const kRust = R"(
#[link(name = "part")]
extern "C" {
    fn part_supported(reason: *mut *const c_char) -> c_int;
    fn part_module_bytes() -> i64;
    fn part_load(module: *mut c_void, device: c_int) -> c_int;
    fn part_unload(module: *mut c_void);
    fn part_workspace(module: *mut c_void, lengths: *const Lengths, arrays: *const Arrays, bytes: *mut i64) -> c_int;
    fn part_forward(module: *mut c_void, lengths: *const Lengths, arrays: *const Arrays, stream: *mut c_void,
                    workspace: *mut c_void, bytes: i64, status: *mut i32) -> c_int;
    fn part_message(result: c_int) -> *const c_char;
}
extern "C" {
    fn fake_driver_own(address: u64);
    fn fake_driver_report();
    fn fflush(file: *mut c_void) -> c_int;
}

fn main() {
    unsafe {
        let mut reason: *const c_char = null();
        assert!(part_supported(&mut reason) == 1 && reason.is_null());
        let mut words = vec![0u64; part_module_bytes() as usize / 8];
        let module = words.as_mut_ptr() as *mut c_void;
        let mut result = part_load(module, 0);
        let mut lengths: Lengths = zeroed();
        lengths.d = 96;
        lengths.sequences = 3;
        lengths.steps = 700;
        let mut bytes = 0;
        if result == 0 {
            result = part_workspace(module, &lengths, null(), &mut bytes);
        }
        println!("{}, {} bytes", result, bytes);
        for at in 1..64 {
            fake_driver_own(at << 20);
        }
        let mut arrays: Arrays = zeroed();
        arrays.x = (1 << 20) as _;
        arrays.h = (2 << 20) as _;
        arrays.y = (3 << 20) as _;
        arrays.h_final = (4 << 20) as _;
        arrays.U = (5 << 20) as _;
        result = part_forward(module, &lengths, &arrays, 48 as _, (6 << 20) as _, bytes, (38 << 20) as _);
        println!("{} {}", result, CStr::from_ptr(part_message(result)).to_str().unwrap());
        fake_driver_report();
        fflush(null_mut()); // C's lines among those of Rust
        part_unload(module);
        let gone = part_forward(module, &lengths, &arrays, null_mut(), (6 << 20) as _, bytes, null_mut());
        assert_eq!(gone, NOT_LOADED);
        fake_driver_report();
    }
}
)";

class GpuLibrary : public CommandBuild {
 protected:
  /// Writes libpart.so with its header, and module.h.
  void make(const char* text, bool gradients = false) {
    const AnalysedCell front = analyse_text(SourceText("part.cell", text));
    ShipRequest request;
    request.card = facts_of_architecture("sm_80");
    request.prefix = "part";
    const AotCell cell(front.cell, front.structure, request);
    const ShipOrigin origin{"cell part", " * a test\n"};
    std::optional<AotBackward> backward;
    if (gradients) backward.emplace(front.cell, cell, request);
    const AotBackward* const of = backward ? &*backward : nullptr;
    LibraryParts parts = library_parts(cell, request, origin, of);
    parts.image = "an image";
    std::ofstream(path("libpart.so"), std::ios::binary) << link_shared(compile_library(parts), "libpart.so");
    write("part.h", print_library_header(cell, request, origin, "libpart.so", of));
    write("module.h", print_module_header(cell, request, origin, "part.cubin", of));
    std::filesystem::create_directories(path("driver"));
    std::filesystem::copy_file(CELLC_FAKE_DRIVER, path("driver/libcuda.so.1"),
                               std::filesystem::copy_options::overwrite_existing);
  }
};

TEST_F(GpuLibrary, GoesBackAsTheHeaderForModulesDoes) {
  write("use.c", kBackProgram);
  make(kCells[1], true);
  const std::string fake = " driver/libcuda.so.1 -Wl,-rpath,$PWD/driver -o ";
  shell("cc -std=c99 -DLIBRARY use.c -L. -lpart -Wl,-rpath,." + fake + "library");
  shell("cc -std=c99 -I" CELLC_SOURCE_DIR "/tests/gpu/fake use.c" + fake + "module");
  const std::string of_library = shell("LD_LIBRARY_PATH=driver ./library"), of_module = shell("./module");
  EXPECT_HAS(of_library, "\n0 done\n");
  EXPECT_HAS(of_library, "U is a null pointer\n");
  const auto launches = [](const std::string& said) {
    std::string kept;
    std::istringstream lines(said);
    for (std::string line; std::getline(lines, line);)
      if (line.find("contexts") == std::string::npos) kept += line + "\n";
    return kept;
  };
  EXPECT_EQ(launches(of_library), launches(of_module));
  EXPECT_HAS(of_library, "32 x 256, shared 8704");  // the sum of U's gradient, in parts
  EXPECT_EQ(shell("nm -D --defined-only libpart.so | grep -c part_backward"), "6\n");
  // Without gradients there are no such functions.
  make(kCells[1]);
  EXPECT_EQ(shell("nm -D --defined-only libpart.so | grep -c part_backward || true"), "0\n");
}

TEST_F(GpuLibrary, LaunchesWhatTheHeaderForModulesDoes) {
  write("use.c", kProgram);
  for (const char* text : kCells) {
    make(text);
    const std::string parts = text == kCells[0] ? "-DPARTS " : "";
    const std::string fake = " driver/libcuda.so.1 -Wl,-rpath,$PWD/driver -o ";
    shell(kCc + parts + "-DLIBRARY use.c -L. -lpart -Wl,-rpath,." + fake + "library");
    // A compiler may suspect the header of what it cannot do.
    shell("cc -std=c99 " + parts + "-I" CELLC_SOURCE_DIR "/tests/gpu/fake use.c" + fake + "module");
    std::string of_library = shell("LD_LIBRARY_PATH=driver ./library"), of_module = shell("./module");
    // Three lines, the launches, and of the library a line more.
    EXPECT_HAS(of_library, "\n0 done\ncontexts 1, modules 1, image an image, current 0\n");
    EXPECT_HAS(of_module, "\n0 done\ncontexts 0, modules 1, image an image, current 1\n");
    EXPECT_HAS(of_library, "contexts 0, modules 0, image an image, current 0\n");
    const auto launches = [](const std::string& said) {
      std::string kept;
      std::istringstream lines(said.substr(0, said.find("contexts 0, modules 0")));
      for (std::string line; std::getline(lines, line);)
        if (line.find("contexts") == std::string::npos) kept += line + "\n";
      return kept;
    };
    EXPECT_EQ(launches(of_library), launches(of_module));
    EXPECT_HAS(launches(of_library), "stream 48");
  }
}

TEST_F(GpuLibrary, RustCallsItByWhatJsonSays) {
  if (!has_rust()) GTEST_SKIP() << kNoRust;
  write("use.c", kProgram);
  make(kCells[1]);
  shell(kCc + "-DLIBRARY use.c -L. -lpart -Wl,-rpath,. driver/libcuda.so.1 -Wl,-rpath,$PWD/driver -o library");
  write("part.cell", kCells[1]);
  // Whose arrays are those of the library, and which needs no NVRTC.
  const nlohmann::json of = build({"part.cell", "--target", "cuda-source", "--name", "part", "-o", "source.cu"});
  write("use.rs",
        rust_structs(of) + "const NOT_LOADED: c_int = " + of["results"]["CELLC_NOT_LOADED"].dump() + ";\n" + kRust);
  shell(kRustc + "use.rs -L . -C link-arg=driver/libcuda.so.1 -C link-arg=-Wl,-rpath,.:$PWD/driver -o rust");
  const std::string of_rust = shell("LD_LIBRARY_PATH=driver ./rust");
  EXPECT_HAS(of_rust, "\n0 done\n");
  EXPECT_EQ(of_rust, shell("LD_LIBRARY_PATH=driver ./library"));
}

TEST_F(GpuLibrary, WithoutADriverItSaysSo) {
  make(kCells[0]);
  EXPECT_EQ(
      shell("nm -D --undefined-only libpart.so | awk '{print $2}' | grep -v -E '^mem(cpy|move|set)$' | tr '\\n' ' '"),
      "bcmp dlopen dlsym ");
  EXPECT_EQ(
      shell("nm -D --defined-only libpart.so | awk '{print $3}' | sort | tr '\\n' ' '"),
      "part_about part_forward part_forward_as part_load part_message part_module_bytes part_supported part_unload "
      "part_workspace part_workspace_as ");
  write("use.py", R"(import ctypes
part = ctypes.CDLL("./libpart.so")
part.part_message.restype = ctypes.c_char_p
reason = ctypes.c_char_p()
devices = part.part_supported(ctypes.byref(reason))
module = (ctypes.c_char * part.part_module_bytes())()
loaded = part.part_load(module, 0)
part.part_unload(module)
print(devices, reason.value and reason.value.decode(), "|", part.part_message(loaded).decode())
print(part.part_message(part.part_workspace(module, None, None, ctypes.byref(ctypes.c_int64()))).decode())
)");
  // A library of that name that is no driver stands before one that this machine may have.
  std::filesystem::create_directories(path("none"));
  write("empty.c", "int empty;\n");
  shell("cc -shared empty.c -o none/libcuda.so.1");
  EXPECT_EQ(shell("LD_LIBRARY_PATH=none python3 use.py"),
            "0 there is no CUDA driver: libcuda.so.1 is not found, or is older than CUDA 11 | there is no CUDA driver: "
            "libcuda.so.1 is not found, or is older than CUDA 11\nno module is loaded\n");
  EXPECT_HAS(shell("LD_LIBRARY_PATH=driver python3 use.py"), "1 None | done\n");
}

TEST_F(GpuLibrary, TheCommandNeedsNvrtc) {
  write("part.cell", "cell part[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n");
  // As little as there is to compile.
  const Outcome made =
      cellc({"build", "part.cell", "--target", "gpu-shared", "--backward", "--arch", "sm_90", "--solver", "sequential",
             "--dim", "d=4", "--name", "part", "-o", "libpart.so", "--json"});
  std::string reason;
  if (!Nvrtc::find(0, reason)) {
    EXPECT_EQ(made.status, 4);
    EXPECT_HAS(made.err, "--target cuda-source needs none");
    GTEST_SKIP() << reason;
  }
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_HAS(shell("python3 -c \"import ctypes; print(ctypes.CDLL('./libpart.so').part_module_bytes())\""), "\n");
  const nlohmann::json report = nlohmann::json::parse(made.out);
  EXPECT_HAS(report["functions"].dump(), "part_backward_workspace");
  EXPECT_EQ(report["arrays"]["backward"].back(),
            nlohmann::json::parse(R"({"name": "h_start_gradient", "type": "float", "shape": ["sequences", "d=4"],
                                      "strides": false, "written": true, "required": false})"));
  // An object file for CPUs would take its header away.
  EXPECT_EQ(cellc({"build", "part.cell", "--target", "cpu-object", "--name", "part", "-o", "part.o"}).status, 0);
  write("late.cell", "cell late[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + lag(x, 1)\n}\n");
  const Outcome late =
      cellc({"build", "late.cell", "--target", "gpu-shared", "--backward", "--arch", "sm_90", "--solver", "sequential",
             "--dim", "d=4", "--name", "late", "-o", "liblate.so", "--json"});
  ASSERT_EQ(late.status, 0) << late.err;
  const std::string arrays = nlohmann::json::parse(late.out)["arrays"]["backward"].dump();
  EXPECT_HAS(arrays, "x_lag_gradient");
  EXPECT_HAS(shell("python3 -c \"import ctypes; print(ctypes.CDLL('./liblate.so').late_module_bytes())\""), "\n");
}

}  // namespace
}  // namespace cellc
