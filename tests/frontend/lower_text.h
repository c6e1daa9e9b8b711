#pragma once
// Text of the language -> graphs that were verified, and what is said of errors.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compiler/graph/lower.h"
#include "compiler/graph/verify.h"
#include "compiler/syntax/parse.h"

namespace cellc {

struct Lowered {
  std::vector<CellGraph> cells;
  std::string errors;
  std::size_t count = 0;
};

inline Lowered lower_text(const std::string& text, const std::string& path = "case.cell") {
  const SourceText source(path, text);
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  Lowered result;
  result.cells = lower_all(file, diagnostics);
  for (const CellGraph& cell : result.cells) verify(cell);
  result.errors = diagnostics.format(source);
  result.count = diagnostics.list().size();
  return result;
}

inline CellGraph good(const std::string& text) {
  Lowered result = lower_text(text);
  EXPECT_EQ(result.errors, "");
  if (result.cells.empty()) throw std::runtime_error("no cell");
  return std::move(result.cells.back());
}

}  // namespace cellc
