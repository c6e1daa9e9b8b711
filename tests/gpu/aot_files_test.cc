// What `cellc build` writes for GPUs, as its users' compilers see it: headers under a C99 compiler, the
// source under nvcc where there is one, the kernels under NVRTC; and, where there is a GPU, programs that are
// built against the files and have the bits of a run.
#include "tests/gpu/aot_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/parse.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/ship/build_cuda.h"
#include "runtime/cuda/ship/print_aot.h"
#include "runtime/data/errors.h"
#include "tests/engines/against_oracle.h"
#include "tests/gpu/aot_on_device.h"
#include "tests/gpu/fixtures.h"
#include "tests/gpu/needed_lengths.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

std::string cuda_directory() {
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* at = std::getenv(variable); at && fs::exists(fs::path(at) / "bin/nvcc")) return at;
  if (fs::exists("/usr/local/cuda/bin/nvcc")) return "/usr/local/cuda";
  return "";
}

class AotFiles : public testing::TestWithParam<std::string> {
 protected:
  /// A run in turns takes every `parts`-th cell of the file.
  template <typename Check>
  void each(const Check& check, std::uint64_t parts = 1) {
    const oracle::Example& file = oracle::example_named(GetParam());
    const turns::Part part = turns::Turn().part(parts);
    for (std::size_t i = part.number; i < file.tree.cells.size(); i += part.of) {
      const Cell& tree = file.tree.cells[i];
      SCOPED_TRACE(tree.name);
      check(LoweredCell(file.source, file.tree, tree));
    }
  }
  Scratch scratch;
};

TEST_P(AotFiles, HeadersAreCleanCAndCpp) {
  each([&](const LoweredCell& cell) {
    for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
      if (dtype == Dtype::BF16 && GetParam() != "06_sru") continue;
      expect_clean_headers(files_of(cell, dtype), scratch);
    }
  });
}

/// What stands in every file is called so.
TEST(AotNames, OfCellsLikeOurOwn) {
  for (const char* name : {"cellc", "cellc_run", "cellc_scan"}) {
    SCOPED_TRACE(name);
    const SourceText source("own.cell",
                            fmt::format("cell {}[d] {{\n  state h[d]\n  input x[d]\n  h' = tanh(h + x)\n}}\n", name));
    Diagnostics diagnostics;
    const File tree = parse(source, diagnostics);
    ASSERT_TRUE(diagnostics.empty());
    expect_clean_headers(files_of(LoweredCell(source, tree, tree.cells.at(0))), Scratch());
  }
}

TEST_P(AotFiles, SourceIsCleanUnderNvcc) {
  const std::string cuda = cuda_directory();
  if (cuda.empty()) GTEST_SKIP() << "no nvcc";
  // What is looked for are remarks, and those come before anything is optimised: half of the time.
  const std::string quick = "--Ofast-compile=max";
  const bool knows = shell(cuda + "/bin/nvcc --help").text.find("--Ofast-compile") != std::string::npos;
  const auto clean = [&](const LoweredCell& cell) {
    // Two lanes of 16 bits share a thread: other code, and one cell shows all of it.
    for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
      if (dtype == Dtype::BF16 && GetParam() != "01_para_gru") continue;
      save(scratch / "cell.cu", files_of(cell, dtype).source);
      const Outcome made =
          shell(fmt::format("{}/bin/nvcc {} -Xcompiler -Wall,-Wextra,-Werror -Werror all-warnings -arch=sm_80 "
                            "-std=c++17 -c {} -o {}",
                            cuda, knows ? quick : "", scratch / "cell.cu", scratch / "cell.o"));
      ASSERT_EQ(made.status, 0) << made.text.substr(0, 2000);
      EXPECT_EQ(made.text, "");
    }
  };
  // Files of twenty cells would take two minutes.
  each(clean, 1 + oracle::example_named(GetParam()).tree.cells.size() / 4);
}

class AotModules : public WithNvrtc, public testing::WithParamInterface<std::string> {};

TEST_P(AotModules, CompileUnderNvrtc) {
  const oracle::Example& file = oracle::example_named(GetParam());
  // As above: a scan of eight coupled entries alone is optimised for minutes.
  for (const Cell& tree : file.tree.cells) {
    const LoweredCell cell(file.source, file.tree, tree);
    const CompiledKernels ptx = compile_cuda(quick({"cell.cu", files_of(cell).module, {}}), "sm_80", CompiledKind::Ptx);
    EXPECT_TRUE(has(ptx.code, fmt::format(".entry {}_copy", c_prefix(cell.graph.name))));
    EXPECT_EQ(ptx.log, "");
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, AotFiles, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Examples, AotModules, testing::ValuesIn(oracle::names_of(oracle::all_cells())),
                         [](const auto& info) { return info.param; });
CELLC_ONE_IN(12, "Examples/AotFiles");
CELLC_ONE_IN(6, "Examples/AotModules");

/// The head of a file says what it is.
TEST(AotFile, SaysWhatItCameFrom) {
  const oracle::Example& file = oracle::example_named("01_para_gru");
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  CudaBuildRequest request;
  request.dims = {{"d", 64}};
  const BuiltCuda built = build_cuda(cell.graph, cell.structure, request);
  const std::string head =
      "/* cell para_gru, f32, for sm_80, by cellc 0.1.0. Generated: change the cell, not this file.\n"
      " * structure: {h} diagonal\n"
      " * solver: auto\n"
      " * plan:\n"
      " *   the stage {h}, a lane a thread: step by step, segments\n"
      " *\n"
      " * A call queues its work on a stream and returns: it neither waits for the device nor allocates. "
      "Every written\n";
  EXPECT_EQ(built.bytes.substr(0, head.size()), head);
  EXPECT_EQ(built.header.substr(0, head.size()), head);
  EXPECT_EQ(built.kernels.size(), 9u) << "two walks, two in lockstep, two by segments, three of calls";
}

/// A driver that knows no code for its card: what `_load` asks of it, by hand, since no card of another
/// architecture is at hand. Whatever else is called would end the program.
TEST(AotModule, SaysWhereThereIsNoCodeForTheDevice) {
  const Scratch scratch;
  const oracle::Example& file = oracle::example_named("01_para_gru");
  save(scratch / "module.h", files_of(LoweredCell(file.source, file.tree, file.tree.cells.at(0))).module_header);
  save(scratch / "use.c", R"(#include "module.h"
#include <stdio.h>
#include <stdlib.h>
static int loaded;
CUresult cuCtxGetCurrent(CUcontext* c) { *c = (CUcontext)&loaded; return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule* m, const void* image) { (void)m; ++loaded; return image ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_SUCCESS; }
CUresult cuModuleUnload(CUmodule m) { (void)m; exit(20); }
CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* n) { (void)f; (void)m; (void)n; exit(21); }
CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction f) { (void)f; (void)a; (void)v; exit(27); }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { (void)f; (void)a; (void)v; exit(22); }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* b, CUfunction f, int t, size_t s) { (void)b; (void)f; (void)t; (void)s; exit(23); }
CUresult cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s, CUstream q, void** p, void** x) {
  (void)f; (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)s; (void)q; (void)p; (void)x; exit(24); }
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** p, void** x) { (void)c; (void)f; (void)p; (void)x; exit(28); }
CUresult cuDriverGetVersion(int* v) { *v = 12080; return CUDA_SUCCESS; }
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s, CUstream q, void** p) {
  (void)f; (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)s; (void)q; (void)p; exit(25); }
CUresult cuMemsetD8Async(CUdeviceptr a, unsigned char v, size_t n, CUstream q) { (void)a; (void)v; (void)n; (void)q; exit(26); }
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* a, void** v, CUdeviceptr p) { (void)n; (void)a; (void)v; (void)p; return CUDA_ERROR_INVALID_CONTEXT; }
CUresult cuCtxGetDevice(CUdevice* d) { *d = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice d) { (void)a; (void)d; *v = 132; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult e, const char** t) { (void)e; *t = "as this driver says"; return CUDA_SUCCESS; }
int main(void) {
  para_gru_module m;
  const int result = para_gru_load(&m, "of another card");
  puts(para_gru_message(result));
  return loaded == 1 && result == CELLC_NO_CODE ? 0 : 1;
}
)");
  const Outcome ran =
      shell(fmt::format("{0} -x c -std=c99 -Wall -Wextra -Werror -I{1} -I{2} {3} -o {4} && {4}", CELLC_HOST_COMPILER,
                        scratch.path(), CELLC_SOURCE_DIR "/tests/gpu/fake", scratch / "use.c", scratch / "use"));
  EXPECT_EQ(ran.status, 0) << ran.text;
  EXPECT_NE(ran.text.find("no code for this device"), std::string::npos) << ran.text;
}

/// A driver that takes launches by what they ask for and remembers where zeros go; nothing runs.
const char* const kListeningDriver = R"(#include "module.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { kOwn = 1152, kMost = 227 * 1024 };
static int allowed[64], launches, refused;
static int driver_version = 12080, architecture = 90, early, has_early_launch = 1;
static CUdeviceptr zeroed[8];
static int zeros;
CUresult cuCtxGetCurrent(CUcontext* c) { *c = (CUcontext)&launches; return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule* m, const void* image) { *m = (CUmodule)image; return CUDA_SUCCESS; }
CUresult cuModuleUnload(CUmodule m) { (void)m; return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* n) { static int number; (void)m; (void)n; *f = (CUfunction)(size_t)++number; return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction f) { (void)f; *v = a == CU_FUNC_ATTRIBUTE_PTX_VERSION ? architecture : kOwn; return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* v) { *v = driver_version; return CUDA_SUCCESS; }
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute a, int v) { (void)a; allowed[(size_t)f] = v; return kOwn + v > kMost ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* b, CUfunction f, int t, size_t s) { (void)f; (void)t; (void)s; *b = 2; return CUDA_SUCCESS; }
static int is_copy(CUfunction f);
static void note_zeros(CUdeviceptr at) { if (zeros < 8) zeroed[zeros++] = at; }
static CUresult launch(CUfunction f, unsigned shared, void** p) {
  ++launches;
  if (is_copy(f)) {
    /* Starts that are not given are filled with numbers of f32. */
    const OWN(copy)* copy = (const OWN(copy)*)p[0];
    if (copy->from == 0 && copy->to_type == OWN_F64) note_zeros(copy->to);
  }
  if (kOwn + shared <= 48 * 1024 || (int)shared <= allowed[(size_t)f]) return CUDA_SUCCESS;
  ++refused;
  return CUDA_ERROR_INVALID_CONTEXT;
}
CUresult cuLaunchKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s, CUstream q, void** p, void** x) {
  (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)q; (void)x; return launch(f, s, p); }
CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** p, void** x) {
  (void)x;
  if (!has_early_launch) return CUDA_ERROR_NOT_SUPPORTED;
  early += c->numAttrs == 1 && c->attrs->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION && c->attrs->value.programmaticStreamSerializationAllowed;
  return launch(f, c->sharedMemBytes, p);
}
CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned s, CUstream q, void** p) {
  (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)q; return launch(f, s, p); }
CUresult cuMemsetD8Async(CUdeviceptr a, unsigned char v, size_t n, CUstream q) { (void)v; (void)n; (void)q; note_zeros(a); return CUDA_SUCCESS; }
CUresult cuPointerGetAttributes(unsigned n, CUpointer_attribute* a, void** v, CUdeviceptr p) {
  unsigned i;
  for (i = 0; i < n; ++i) {
    if (a[i] == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) *(CUdeviceptr*)v[i] = p;
    else *(int*)v[i] = a[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ? CU_MEMORYTYPE_DEVICE : 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* d) { *d = 0; return CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice d) { (void)d; *v = a == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN ? kMost : 132; return CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult e, const char** t) { (void)e; *t = "as this driver says"; return CUDA_SUCCESS; }
)";

/// A module that is loaded and called once, with all arrays or without those that `leave_out` takes away.
const char* const kOneCall = R"(
/* Functions are numbered as they are loaded. */
static int is_copy(CUfunction f) { return ((int)(size_t)f - 1) % slstm_diag_cell.kernel_count == slstm_diag_cell.copy_kernel; }
static int call(void (*leave_out)(slstm_diag_arrays*)) {
  slstm_diag_module m;
  slstm_diag_lengths lengths;
  slstm_diag_arrays arrays;
  int64_t bytes = 0;
  int result = slstm_diag_load(&m, "");
  memset(&lengths, 0, sizeof lengths);
  memset(&arrays, 0x10, sizeof arrays);
  lengths.d = 1024, lengths.sequences = 1, lengths.steps = 8192;
  if (leave_out) leave_out(&arrays);
  launches = early = 0;
  if (!result) result = slstm_diag_workspace(&m, &lengths, &arrays, &bytes);
  if (!result) result = slstm_diag_forward(&m, &lengths, &arrays, 0, 0x100000, bytes, 0);
  if (result) puts(slstm_diag_message(result));
  return result;
}
)";

/// `main` of a program with that driver and that call; what it prints, and its status.
Outcome listen(const std::string& main) {
  const Scratch scratch;
  const oracle::Example& file = oracle::example_named("16_slstm_diag");
  const std::string header = files_of(LoweredCell(file.source, file.tree, file.tree.cells.at(0))).module_header;
  save(scratch / "module.h", header);
  // The host code's names have a number of their own.
  const std::string number = header.substr(header.find("typedef struct cellc_") + 21, 8);
  save(scratch / "use.c", fmt::format("#define OWN(name) cellc_{0}_##name\n#define OWN_F64 CELLC_{0}_F64\n", number) +
                              kListeningDriver + kOneCall + main);
  return shell(fmt::format("{0} -x c -std=c99 -Wall -Wextra -Werror -I{1} -I{2} {3} -o {4} && {4}", CELLC_HOST_COMPILER,
                           scratch.path(), CELLC_SOURCE_DIR "/tests/gpu/fake", scratch / "use.c", scratch / "use"));
}

// Four inputs of f32 in three stages of eight steps are 48 KiB: without what the kernel has of its own they would need
// no leave.
TEST(AotModule, AsksForSharedMemoryBesidesItsOwn) {
  const Outcome ran = listen(R"(
int main(void) {
  const int result = call(0);
  printf("%d launches, %d refused\n", launches, refused);
  return result || refused || !launches;
}
)");
  EXPECT_EQ(ran.status, 0) << ran.text;
}

// Code for cards before sm_90 does not wait for what is ahead of it, and an older driver would lose that in a graph.
TEST(AotModule, LaunchesEarlyWhatWaits) {
  const Outcome ran = listen(R"(
int main(void) {
  int wrong = call(0) || !launches || early != launches;
  architecture = 80;
  wrong |= (call(0) || !launches || early) << 1;
  architecture = 90, driver_version = 12020;
  wrong |= (call(0) || !launches || early) << 2;
  driver_version = 12080, has_early_launch = 0;
  wrong |= (call(0) || !launches || early) << 3;
  printf("%x\n", wrong);
  return wrong;
}
)");
  EXPECT_EQ(ran.status, 0) << ran.text;
}

// What a workspace keeps lies at one place, whatever arrays calls of the same lengths are given.
TEST(AotModule, KeepsItsControlInPlace) {
  const Outcome ran = listen(R"(
static void a_start(slstm_diag_arrays* arrays) { arrays->c_start = 0; }
static void rows_and_final(slstm_diag_arrays* arrays) { arrays->c = 0, arrays->c_final = 0; }
int main(void) {
  const int result = call(0) || call(a_start) || call(rows_and_final);
  printf("zeros at %llx, %llx, %llx\n", zeroed[0], zeroed[1], zeroed[2]);
  return result || zeros != 3 || zeroed[0] != zeroed[1] || zeroed[0] != zeroed[2];
}
)");
  EXPECT_EQ(ran.status, 0) << ran.text;
}

// One kernel does all of it where arrays are as it reads and writes them; a start that is not given is another's work.
TEST(AotModule, LaunchesOnlyWhatIsNeeded) {
  const Outcome ran = listen(R"(
static void finals(slstm_diag_arrays* arrays) { arrays->c_final = arrays->n_final = arrays->m_final = arrays->h_final = 0; }
static void a_start_too(slstm_diag_arrays* arrays) { finals(arrays), arrays->c_start = 0; }
int main(void) {
  int wrong = call(finals) || launches != 1;
  wrong |= (call(a_start_too) || launches != 2) << 1;
  printf("%x, %d launches\n", wrong, launches);
  return wrong;
}
)");
  EXPECT_EQ(ran.status, 0) << ran.text;
}

class AotCubins : public WithNvrtc {};
CELLC_ONE_IN(3, "AotCubins");

TEST_F(AotCubins, AreTheSameEveryTime) {
  const oracle::Example& file = oracle::example_named("01_para_gru");
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  CudaBuildRequest request;
  request.target = CudaTarget::Cubin;
  request.architectures = {"sm_90", "sm_80"};
  const BuiltCuda one = build_cuda(cell.graph, cell.structure, request),
                  two = build_cuda(cell.graph, cell.structure, request);
  EXPECT_TRUE(one.bytes == two.bytes);
  EXPECT_EQ(one.header, two.header);
  EXPECT_EQ(one.architectures, (std::vector<std::string>{"sm_80", "sm_90"}));
  request.architectures = {"sm_90", "sm_81"};
  EXPECT_THROW(build_cuda(cell.graph, cell.structure, request), UsageError);
}

// Programs on a card ----------------------------------------------------------------------------------------

/// Reads NAME.bin of every input and param, writes NAME.out of every state, out and final.
std::string program(const CellGraph& cell, const std::string& p, bool module) {
  const CallLayout layout = call_layout(cell);
  std::string text = module ? "#include \"cell.h\"\n" : "#include <cuda_runtime_api.h>\n#include \"cell.h\"\n";
  text += "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n";
  text += module ? "#define PUT(to, from, n) cuMemcpyHtoD((CUdeviceptr)(uintptr_t)(to), from, n)\n#define "
                   "GET(to, from, n) cuMemcpyDtoH(to, (CUdeviceptr)(uintptr_t)(from), n)\n"
                 : "#define PUT(to, from, n) cudaMemcpy(to, from, n, cudaMemcpyHostToDevice)\n#define "
                   "GET(to, from, n) cudaMemcpy(to, from, n, cudaMemcpyDeviceToHost)\n";
  text += module ? "static void* room(size_t n) { CUdeviceptr at = 0; if (cuMemAlloc(&at, n ? n : 1)) "
                   "exit(9); return (void*)(uintptr_t)at; }\n"
                 : "static void* room(size_t n) { void* at = 0; if (cudaMalloc(&at, n ? n : 1)) exit(9); "
                   "return at; }\n";
  text +=
      "static void* bytes_of(const char* name, size_t* n, size_t extra) {\n  FILE* f = fopen(name, \"rb\"); "
      "void* b;\n  if (!f) { *n = 0; return 0; }\n"
      "  fseek(f, 0, SEEK_END); *n = (size_t)ftell(f); rewind(f); b = calloc(1, *n + extra);\n  if (fread(b, "
      "1, *n, f) != *n) exit(8);\n  fclose(f); return b;\n}\n"
      "static void* load(const char* name) { size_t n; void* b = bytes_of(name, &n, 0), *at; if (!b) return "
      "0; at = room(n); PUT(at, b, n); free(b); return at; }\n"
      "static void keep(const char* name, const void* from, size_t n) { FILE* f = fopen(name, \"wb\"); void* "
      "b = malloc(n + 1); GET(b, from, n); fwrite(b, 1, n, f); fclose(f); free(b); }\n";
  text += fmt::format(
      "int main(int count, char** words) {{\n  {0}_lengths lengths; {0}_arrays arrays; int64_t bytes = 0; "
      "int result; int32_t* status; int32_t told[64]; size_t n; int i;\n",
      p);
  if (module)
    text += fmt::format(
        "  {0}_module m; CUdevice device; CUcontext context; void* image;\n"
        "  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || "
        "cuCtxSetCurrent(context)) return 7;\n"
        "  image = bytes_of(words[1], &n, 1);\n  if ((result = {0}_load(&m, image))) {{ "
        "puts({0}_message(result)); return 6; }}\n",
        p);
  text +=
      "  (void)count; (void)words;\n  memset(&lengths, 0, sizeof lengths);\n  memset(&arrays, 0, sizeof "
      "arrays);\n";
  text += "  { FILE* f = fopen(\"lengths.txt\", \"r\"); long long v;\n";
  for (const AxisId a : layout.lengths)
    text += fmt::format("    if (fscanf(f, \"%lld\", &v) != 1) return 5; lengths.{} = v;\n",
                        c_name(cell.graph.axis(a).name));
  text +=
      "    if (fscanf(f, \"%lld\", &v) != 1) return 5; lengths.sequences = v;\n    if (fscanf(f, \"%lld\", "
      "&v) != 1) return 5; lengths.steps = v;\n    fclose(f);\n  }\n";
  for (const CallField& f : layout.fields) {
    if (!f.is_written())
      text += fmt::format("  arrays.{0} = load(\"{0}.bin\");\n", f.member);
    else
      text += fmt::format(
          "  {{ FILE* f = fopen(\"{0}.size\", \"r\"); unsigned long long v = 0; if (f && fscanf(f, \"%llu\", "
          "&v) == 1) {{ arrays.{0} = room(v); fclose(f); }} }}\n",
          f.member);
  }
  const std::string m = module ? "&m, " : "";
  text += fmt::format(
      "  result = {0}_workspace({1}&lengths, &arrays, &bytes);\n  if (result) {{ puts({0}_message(result)); "
      "return 4; }}\n",
      p, m);
  text += "  status = (int32_t*)room(4 * 64);\n";
  // What is refused writes nothing, and the next call works.
  text += module ? fmt::format(
                       "  if ({0}_forward(&m, &lengths, &arrays, 0, (CUdeviceptr)(uintptr_t)&bytes, bytes, "
                       "0) != CELLC_FOREIGN_WORKSPACE) return 3;\n",
                       p)
                 : fmt::format("  if (!{0}_forward(&lengths, &arrays, 0, &bytes, bytes, 0)) return 3;\n", p);
  text += module
              ? fmt::format(
                    "  result = {0}_forward(&m, &lengths, &arrays, 0, "
                    "(CUdeviceptr)(uintptr_t)room((size_t)bytes), bytes, (CUdeviceptr)(uintptr_t)status);\n",
                    p)
              : fmt::format("  result = {0}_forward(&lengths, &arrays, 0, room((size_t)bytes), bytes, status);\n", p);
  text += fmt::format(
      "  if (result) {{ puts({0}_message(result)); return 2; }}\n  GET(told, status, 4 * 64);\n  for (i = 0; "
      "i < lengths.sequences; ++i) if (told[i]) return 1;\n",
      p);
  for (const CallField& f : layout.fields)
    if (f.is_written())
      text += fmt::format(
          "  {{ FILE* f = fopen(\"{0}.size\", \"r\"); unsigned long long v = 0; if (f && fscanf(f, \"%llu\", "
          "&v) == 1) keep(\"{0}.out\", arrays.{0}, v); }}\n",
          f.member);
  text += fmt::format("  (void)n;\n  puts({0}_about());\n  return 0;\n}}\n", p);
  return text;
}

class AotPrograms : public WithGpu, public testing::WithParamInterface<const char*> {};

TEST_P(AotPrograms, HaveTheBitsOfARun) {
  const std::string cuda = cuda_directory();
  const oracle::Example& file = oracle::example_named(GetParam());
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  const std::string p = c_prefix(cell.graph.name);
  for (const Dtype dtype : {Dtype::F32, Dtype::BF16}) {
    if (dtype == Dtype::BF16 && std::string(GetParam()) != "01_para_gru") continue;
    oracle::Random random(11);
    const std::map<std::string, std::int64_t> sizes = oracle::axis_lengths(cell.oracle, {128, 16, 3, 2});
    const std::int64_t steps = 1000;
    const Trial trial(cell.graph, cell.oracle, file.ranges, random,
                      {.dtype = dtype, .sizes = sizes, .steps = steps, .starts_given = true});
    const Binding binding = trial.bound({steps, steps, steps}, false, 1);
    SolveReport report;
    WithoutClusters alike(*gpu);
    CudaSolver solver(alike, cell.graph, cell.structure, dtype);
    const auto want = written_arrays(cell.graph, binding, solver.run(binding.run, {}, report));
    CudaBuildRequest request;
    request.dtype = dtype;
    request.architectures = {gpu->facts().architecture()};
    for (const auto& [axis, n] : needed_lengths(cell, sizes, false)) request.dims[cell.graph.graph.axis(axis).name] = n;
    CellGraph fixed = cell.graph;
    for (const auto& [axis, n] : needed_lengths(cell, sizes, false)) fixed.graph.fix_length(axis, n);
    for (const CudaTarget target : {CudaTarget::Cubin, CudaTarget::Ptx, CudaTarget::Source}) {
      if (target == CudaTarget::Source && cuda.empty()) continue;
      SCOPED_TRACE(fmt::format("{} as {}", to_string(dtype),
                               target == CudaTarget::Source ? "source"
                               : target == CudaTarget::Ptx  ? "PTX"
                                                            : "cubin"));
      const Scratch scratch;
      request.target = target;
      // Two architectures, so that the driver has to choose.
      if (target == CudaTarget::Cubin && gpu->facts().architecture() == "sm_90")
        request.architectures = {"sm_90", "sm_100"};
      request.file = target == CudaTarget::Ptx ? "cell.ptx" : "cell.cubin";
      request.name = p;
      const BuiltCuda built = build_cuda(cell.graph, cell.structure, request);
      request.architectures = {gpu->facts().architecture()};
      save(scratch / (target == CudaTarget::Source ? "cell.cu" : "image"), built.bytes);
      save(scratch / "cell.h", built.header);
      save(scratch / "use.c", program(fixed, p, target != CudaTarget::Source));
      std::string lengths;
      for (const AxisId a : call_layout(fixed).lengths)
        lengths += fmt::format("{} ", sizes.at(fixed.graph.axis(a).name));
      save(scratch / "lengths.txt", lengths + fmt::format("3 {}\n", steps));
      std::map<std::string, std::string> name_of;
      for (const CallField& f : call_layout(fixed).fields) {
        if (f.kind == FieldKind::Input || f.kind == FieldKind::Param || f.kind == FieldKind::Start) {
          const Array a = convert(binding.run.symbols[f.id], f.is_storage() ? dtype : arithmetic_of(dtype));
          save(scratch / (f.member + ".bin"), std::string(static_cast<const char*>(a.data()),
                                                          static_cast<std::size_t>(a.count()) * size_of(a.dtype())));
        }
        if (f.kind == FieldKind::State || f.kind == FieldKind::Out || f.kind == FieldKind::Final) {
          const std::string written = f.kind == FieldKind::Final ? cell.graph.symbols[f.id].name + ".final" : f.name;
          name_of[written] = f.member;
          const auto found = std::find_if(want.begin(), want.end(), [&](const auto& w) { return w.first == written; });
          ASSERT_NE(found, want.end()) << written;
          save(scratch / (f.member + ".size"),
               std::to_string(static_cast<std::size_t>(found->second.count()) * size_of(found->second.dtype())));
        }
      }
      const std::string in = "cd " + scratch.path() + " && ";
      const Outcome made =
          target == CudaTarget::Source
              ? shell(in + fmt::format("{0}/bin/nvcc -arch={1} -std=c++17 -c cell.cu -o cell.o && {2} -x c++ "
                                       "-fpermissive -w -I{0}/include "
                                       "use.c -x none cell.o -L{0}/lib64 -lcudart_static -lpthread -ldl -lrt -o use",
                                       cuda, gpu->facts().architecture(), CELLC_HOST_COMPILER))
              : shell(in + fmt::format("{0} -x c++ -fpermissive -w -I{1}/include use.c -L{1}/lib64/stubs -lcuda -o use",
                                       CELLC_HOST_COMPILER, cuda));
      ASSERT_EQ(made.status, 0) << made.text.substr(0, 3000);
      const Outcome ran = shell(in + "./use image && ldd use");
      ASSERT_EQ(ran.status, 0) << ran.text;
      EXPECT_EQ(ran.text.find("cellc."), std::string::npos) << ran.text;
      for (const auto& [of_run, name] : name_of) {
        const std::string& written = of_run;  // a binding that clang 14 captures
        const auto found = std::find_if(want.begin(), want.end(), [&](const auto& w) { return w.first == written; });
        const std::string got = text_of(scratch / (name + ".out"));
        const std::size_t bytes = static_cast<std::size_t>(found->second.count()) * size_of(found->second.dtype());
        ASSERT_EQ(got.size(), bytes);
        EXPECT_EQ(std::memcmp(got.data(), found->second.data(), bytes), 0) << name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Examples, AotPrograms, testing::Values("01_para_gru", "08_gilr", "03_gru"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace cellc
