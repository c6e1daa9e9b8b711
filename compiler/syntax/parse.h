#pragma once
// Text -> tree. The first stage; precedes lower. After an error it continues at the next line, so
// that all of a file's syntax errors are reported at once.
#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/tree.h"

namespace cellc {

/// Limits that keep hostile input from overflowing the stack or running for ever.
inline constexpr std::size_t kMaxFileBytes = 1 << 20;
inline constexpr int kMaxNesting = 200;            ///< nested parentheses, calls and prefix operators
inline constexpr std::size_t kMaxNodes = 100'000;  ///< graph nodes after functions are inlined

File parse(const SourceText& source, Diagnostics& diagnostics);

/// The tree as text, one construct a line, indented: `inspect --stage tree`.
std::string print_tree(const File& file);

}  // namespace cellc
