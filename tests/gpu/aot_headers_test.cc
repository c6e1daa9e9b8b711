// Headers of several cells and builds in one unit, beside cellc.h; and a module that another build made.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "compiler/codegen_llvm/emit_llvm_driver.h"
#include "compiler/codegen_llvm/print_header.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/ship/aot_backward.h"
#include "runtime/cuda/ship/print_aot.h"
#include "tests/engines/against_oracle.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gpu/fixtures.h"

namespace cellc {
namespace {

void save(const std::string& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

/// What a compiler says.
std::string compile(const Scratch& scratch, const std::string& how, const std::string& file) {
  const std::string log = scratch / "log";
  const std::string command = fmt::format("{} {} -I{} -I{} -I{} {} > {} 2>&1", CELLC_HOST_COMPILER, how, scratch.path(),
                                          CELLC_SOURCE_DIR "/capi", CELLC_SOURCE_DIR "/tests/gpu/fake", file, log);
  const int status = std::system(command.c_str());
  std::ifstream said(log);
  std::string text((std::istreambuf_iterator<char>(said)), {});
  return status == 0 ? text : text + "failed\n";
}

struct Headers {
  std::string cpu, source, module;
};
Headers headers_of(const LoweredCell& cell, Dtype dtype, const std::string& name) {
  ShipRequest request;
  request.dtype = dtype;
  request.card = facts_of_architecture("sm_80");
  request.prefix = name + "_on_gpu";
  const AotCell shipped(cell.graph, cell.structure, request);
  const ShipOrigin origin{"cell " + name, " * a test\n"};
  DriverOptions options;
  options.storage = dtype == Dtype::F64 ? Storage::F64 : Storage::F32;
  options.prefix = name;
  Headers headers;
  headers.cpu = print_header(emit_driver(cell.graph, cell.structure, options), options, "cell " + name + "\n");
  headers.module = print_module_header(shipped, request, origin, name + ".cubin");
  request.prefix = name + "_of_source";
  headers.source = print_source_header(AotCell(cell.graph, cell.structure, request), request, origin);
  return headers;
}

TEST(AotHeaders, StandBesideEachOtherAndCellcH) {
  const Scratch scratch;
  std::string unit;
  for (const char* example : {"01_para_gru", "08_gilr"})
    for (const Dtype dtype : {Dtype::F32, Dtype::F64}) {
      const oracle::Example& file = oracle::example_named(example);
      const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
      const std::string name = fmt::format("{}_{}", c_prefix(cell.graph.name), to_string(dtype));
      const Headers headers = headers_of(cell, dtype, name);
      for (const auto& [kind, text] :
           {std::pair{"cpu", headers.cpu}, {"source", headers.source}, {"module", headers.module}}) {
        save(scratch / fmt::format("{}_{}.h", name, kind), text);
        unit += fmt::format("#include \"{}_{}.h\"\n", name, kind);
      }
      // Host code of another version.
      std::string older = headers_of(cell, dtype, name + "_older").module;
      const std::string number = older.substr(older.find("typedef struct cellc_") + 21, 8);
      for (std::size_t at; (at = older.find(number)) != std::string::npos;) older.replace(at, 8, "0ld0ld00");
      save(scratch / fmt::format("{}_older.h", name), older);
      unit += fmt::format("#include \"{}_older.h\"\n", name);
    }
  const std::string use =
      "cellc_call* call; enum { once = CELLC_ONCE, type = CELLC_F32, none = CELLC_NOT_LOADED };\n"
      "int use(para_gru_f32_lengths* a, para_gru_f64_on_gpu_lengths* b);\n"
      "int use(para_gru_f32_lengths* a, para_gru_f64_on_gpu_lengths* b) { return a->d == b->d; }\n";
  for (const auto& [file, text] : {std::pair{"first.c", "#include \"cellc.h\"\n" + unit + use},
                                   std::pair{"last.c", unit + "#include \"cellc.h\"\n" + use}}) {
    save(scratch / file, text);
    for (const char* how : {"-x c -std=c99 -pedantic", "-x c++ -std=c++11"})
      EXPECT_EQ(compile(scratch, std::string(how) + " -Wall -Wextra -Werror -fsyntax-only", scratch / file), "");
  }
}

// A header finds its kernels by names that no other build has.
TEST(AotHeaders, KnowTheirModules) {
  const oracle::Example &one = oracle::example_named("01_para_gru"), &other = oracle::example_named("08_gilr");
  const auto copy_of = [](const oracle::Example& file, Dtype dtype) {
    const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
    ShipRequest request;
    request.dtype = dtype;
    request.card = facts_of_architecture("sm_80");
    request.prefix = "mine";
    const AotCell shipped(cell.graph, cell.structure, request);
    const std::string name = shipped.kernels.at(static_cast<std::size_t>(shipped.table().copy_kernel));
    EXPECT_NE(shipped.text.find(" " + name + "("), std::string::npos) << name;
    EXPECT_EQ(shipped.text.find("mine_copy("), std::string::npos);
    return name;
  };
  EXPECT_EQ(copy_of(one, Dtype::F32), copy_of(one, Dtype::F32));
  EXPECT_NE(copy_of(one, Dtype::F32), copy_of(one, Dtype::F64));
  EXPECT_NE(copy_of(one, Dtype::F32), copy_of(other, Dtype::F32));
}

// What launches kernels is another whole where there are gradients: two of them in one unit are told apart.
TEST(AotHeaders, WithAndWithoutGradientsHaveGuardsOfTheirOwn) {
  const oracle::Example& file = oracle::example_named("01_para_gru");
  const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
  ShipRequest request;
  request.card = facts_of_architecture("sm_80");
  request.prefix = "mine";
  const AotCell shipped(cell.graph, cell.structure, request);
  const AotBackward backward(cell.graph, shipped, request);
  const ShipOrigin origin{"cell mine", " * a test\n"};
  const auto guard_of = [](const std::string& header) {
    const std::size_t at = header.find("#ifndef ");
    return header.substr(at, header.find('\n', at) - at);
  };
  EXPECT_NE(guard_of(print_module_header(shipped, request, origin, "a", nullptr)),
            guard_of(print_module_header(shipped, request, origin, "a", &backward)));
  EXPECT_NE(guard_of(print_library_header(shipped, request, origin, "a", nullptr)),
            guard_of(print_library_header(shipped, request, origin, "a", &backward)));
}

TEST(AotHeaders, AModuleOfAnotherBuildIsRefused) {
  const Scratch scratch;
  const oracle::Example& file = oracle::example_named("01_para_gru");
  save(scratch / "module.h",
       headers_of(LoweredCell(file.source, file.tree, file.tree.cells.at(0)), Dtype::F32, "mine").module);
  save(scratch / "use.c", R"(#include "module.h"
#include <stdlib.h>
static int unloaded;
CUresult cuCtxGetCurrent(CUcontext* c) { *c = (CUcontext)&unloaded; return CUDA_SUCCESS; }
CUresult cuModuleLoadData(CUmodule* m, const void* image) { *m = (CUmodule)image; return CUDA_SUCCESS; }
CUresult cuModuleUnload(CUmodule m) { (void)m; ++unloaded; return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction* f, CUmodule m, const char* n) {
  (void)m;
  *f = (CUfunction)&unloaded;
  return strncmp(n, "mine_on_gpu_copy_", 17) == 0 ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult e, const char** t) { (void)e; *t = "not found"; return CUDA_SUCCESS; }
int main(void) {
  mine_on_gpu_module m;
  const int result = mine_on_gpu_load(&m, "of another build");
  return result == CELLC_OTHER_LAYOUT && unloaded == 1 && !m.module ? 0 : 1;
}
)");
  // What is never called needs no driver.
  const std::string program = scratch / "use";
  EXPECT_EQ(
      compile(scratch, "-x c -std=c99 -O1 -ffunction-sections -Wl,--gc-sections -o " + program, scratch / "use.c"), "");
  EXPECT_EQ(std::system(program.c_str()), 0);
}

}  // namespace
}  // namespace cellc
