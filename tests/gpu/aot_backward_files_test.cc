// Files for GPUs that have gradients, as compilers see them: their headers under a C99 and a C++ compiler.
#include <gtest/gtest.h>

#include "tests/gpu/aot_files.h"
#include "tests/oracle/examples.h"

namespace cellc {
namespace {

TEST(AotBackwardFiles, HaveCleanHeaders) {
  for (const char* name : {"01_para_gru", "04_lstm", "34_narx3", "x16_biquad1"}) {
    SCOPED_TRACE(name);
    const oracle::Example& file = oracle::example_named(name);
    const LoweredCell cell(file.source, file.tree, file.tree.cells.at(0));
    expect_clean_headers(files_of(cell, Dtype::F32, "cell.cubin", true), Scratch(), true);
  }
}

}  // namespace
}  // namespace cellc
