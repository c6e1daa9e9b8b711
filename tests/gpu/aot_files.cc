#include "tests/gpu/aot_files.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>

#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/ship/print_aot.h"
#include "runtime/data/bind.h"
#include "tests/gpu/needed_lengths.h"
#include "tests/oracle/examples.h"

namespace cellc {

Outcome shell(const std::string& command) {
  Outcome outcome{};
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  char buffer[4096];
  for (std::size_t n; pipe && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) outcome.text.append(buffer, n);
  outcome.status = pipe ? pclose(pipe) : -1;
  return outcome;
}

void save(const std::string& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

Files files_of(const LoweredCell& cell, Dtype dtype, const std::string& file, bool gradients) {
  ShipRequest request;
  request.dtype = dtype;
  request.lengths = needed_lengths(cell, oracle::axis_lengths(cell.oracle, {4, 2, 3, 2}), false);
  request.card = facts_of_architecture("sm_80");
  request.prefix = c_prefix(cell.graph.name);
  std::unique_ptr<AotCell> made;
  try {
    made = std::make_unique<AotCell>(cell.graph, cell.structure, request);
  } catch (const UsageError&) {
    // A step that mentions the length of its channels is compiled for it.
    request.lengths = needed_lengths(cell, oracle::axis_lengths(cell.oracle, {4, 2, 3, 2}), true);
    made = std::make_unique<AotCell>(cell.graph, cell.structure, request);
  }
  const AotCell& shipped = *made;
  const ShipOrigin origin{"cell " + cell.graph.name, " * a test\n"};
  std::optional<AotBackward> backward;
  if (gradients) backward.emplace(cell.graph, shipped, request);
  const AotBackward* const of = backward ? &*backward : nullptr;
  return {print_cuda_source(shipped, request, origin, of), print_source_header(shipped, request, origin, of),
          print_module_source(shipped, origin, of), print_module_header(shipped, request, origin, file, of),
          request.prefix};
}

void expect_clean_headers(const Files& files, const Scratch& scratch, bool gradients) {
  save(scratch / "source.h", files.source_header);
  save(scratch / "module.h", files.module_header);
  const std::string& p = files.prefix;
  save(scratch / "a.c", fmt::format("#include \"source.h\"\nint main(void) {{ {0}_lengths l; {0}_arrays a; int64_t n; "
                                    "return {0}_workspace(&l, &a, &n) + {0}_forward(&l, &a, 0, 0, n, 0) + "
                                    "{0}_message(0)[0] + {0}_about()[0]; }}\n",
                                    p));
  save(scratch / "b.c", fmt::format("#include \"module.h\"\nint main(void) {{ {0}_module m; {0}_lengths "
                                    "l; {0}_arrays a; int64_t n = 0;\n"
                                    "memset(&l, 0, sizeof l); memset(&a, 0, sizeof a);\n"
                                    "return {0}_load(&m, \"\") + {0}_workspace(&m, &l, &a, &n) + "
                                    "{0}_forward(&m, &l, &a, 0, 0, n, 0) + "
                                    "{0}_message(0)[0] + {0}_about()[0] + ({0}_unload(&m), 0); }}\n",
                                    p));
  if (gradients)
    for (const bool module : {false, true}) {
      const std::string head = fmt::format("int back({1}{0}_lengths* l, {0}_backward_arrays* a, int64_t* n)", p,
                                           module ? p + "_module* m, " : "");
      std::ofstream(scratch / (module ? "b.c" : "a.c"), std::ios::app)
          << head << ";\n"
          << head
          << fmt::format(
                 " {{ return {0}_backward_workspace({1}l, a, n) + {0}_backward({1}l, a, 0, 0, *n, 0) + "
                 "{0}_backward_message(0)[0] + {0}_backward_about()[0]; }}\n",
                 p, module ? "m, " : "");
    }
  for (const char* name : {"a.c", "b.c"})
    for (const char* how : {"-x c -std=c99 -pedantic", "-x c++ -std=c++11"}) {
      const Outcome made =
          shell(fmt::format("{} {} -Wall -Wextra -Werror -fsyntax-only -I{} -I{} {}", CELLC_HOST_COMPILER, how,
                            scratch.path(), CELLC_SOURCE_DIR "/tests/gpu/fake", scratch / name));
      ASSERT_EQ(made.status, 0) << made.text.substr(0, 2000);
    }
}

}  // namespace cellc
