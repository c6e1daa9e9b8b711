// Any bytes into the parser. What it accepts must print as text that reads back to the same tree.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "compiler/syntax/parse.h"

namespace {

[[noreturn]] void die(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s\n%s\n", what, text.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cellc;
  const SourceText source("fuzz.cell", std::string(reinterpret_cast<const char*>(data), size));
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  const std::string printed = print_tree(file);
  if (!diagnostics.empty()) {
    if (diagnostics.format(source).empty()) die("an error without a text", source.text());
    return 0;
  }
  const SourceText again("printed.cell", printed);
  Diagnostics repeated;
  const File reread = parse(again, repeated);
  if (!repeated.empty()) die("what was printed does not parse", repeated.format(again));
  if (print_tree(reread) != printed) die("what was printed reads as another tree", printed);
  return 0;
}
