#pragma once
// What `cellc build` writes for GPUs, of a cell of the tests, and a host compiler's look at its headers.
#include <string>

#include "runtime/data/array.h"
#include "tests/engines/lowered_cell.h"
#include "tests/gpu/fixtures.h"

namespace cellc {

struct Outcome {
  int status;
  std::string text;
};
Outcome shell(const std::string& command);
void save(const std::string& file, const std::string& text);

/// A cell of an example, built as far as text goes.
struct Files {
  std::string source, source_header, module, module_header, prefix;
};
Files files_of(const LoweredCell& cell, Dtype dtype = Dtype::F32, const std::string& file = "cell.cubin",
               bool gradients = false);

/// Both headers, in C99 and in C++, with a program that calls everything. cuda.h is a stand-in where there is
/// no other.
void expect_clean_headers(const Files& files, const Scratch& scratch, bool gradients = false);

}  // namespace cellc
