// docs/language.md: every block tagged `cell` is a file without errors, every block tagged `wrong`
// has exactly the errors that its lines claim in `# error: …`, and the tables name every function.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "compiler/graph/lower.h"
#include "compiler/syntax/parse.h"

namespace cellc {
namespace {

struct Block {
  std::string tag;
  std::uint32_t line;  // of its first line, in the document
  std::string text;
};

std::string document() {
  std::ifstream file(std::string(CELLC_SOURCE_DIR) + "/docs/language.md");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<Block> blocks(const std::string& tag) {
  std::vector<Block> found;
  std::istringstream text(document());
  std::string line;
  bool inside = false;
  for (std::uint32_t number = 1; std::getline(text, line); ++number) {
    if (line.rfind("```", 0) != 0) {
      if (inside) found.back().text += line + "\n";
      continue;
    }
    inside = !inside;
    if (inside) found.push_back({line.substr(3), number + 1, ""});
  }
  std::erase_if(found, [&](const Block& b) { return b.tag != tag; });
  return found;
}

void compile(const SourceText& source, Diagnostics& diagnostics) {
  const File file = parse(source, diagnostics);
  lower_all(file, diagnostics);
}

TEST(LanguageReference, ExamplesCompile) {
  const std::vector<Block> examples = blocks("cell");
  EXPECT_GE(examples.size(), 10u);
  for (const Block& block : examples) {
    const SourceText source(fmt::format("docs/language.md from line {}", block.line), block.text);
    Diagnostics diagnostics;
    compile(source, diagnostics);
    EXPECT_TRUE(diagnostics.empty()) << diagnostics.format(source);
  }
}

TEST(LanguageReference, MistakesAreFoundWhereTheyAreShown) {
  const std::vector<Block> examples = blocks("wrong");
  EXPECT_GE(examples.size(), 5u);
  for (const Block& block : examples) {
    const SourceText source(fmt::format("docs/language.md from line {}", block.line), block.text);
    Diagnostics diagnostics;
    compile(source, diagnostics);
    std::set<std::uint32_t> claimed;
    for (std::uint32_t number = 1; !source.line(number).empty(); ++number) {
      const std::string line(source.line(number));
      const std::size_t at = line.find("# error: ");
      if (at == std::string::npos) continue;
      claimed.insert(number);
      const std::string message = line.substr(at + 9);
      bool found = false;
      for (const Diagnostic& d : diagnostics.list()) {
        found = found || (source.position(d.span.offset).line == number && d.message.rfind(message, 0) == 0);
      }
      EXPECT_TRUE(found) << "not reported: " << line << "\n" << diagnostics.format(source);
    }
    for (const Diagnostic& d : diagnostics.list()) {
      EXPECT_TRUE(claimed.contains(source.position(d.span.offset).line)) << diagnostics.format(source);
    }
  }
}

TEST(LanguageReference, NamesEveryFunction) {
  const std::string text = document();
  const std::size_t begin = text.find("## Table of functions");
  const std::string table = text.substr(begin, text.find("\n## ", begin + 1) - begin);
  const struct {
    const char* text;
    bool call;
    const char* slope;
  } rows[] = {
#define CELLC_OP(Name, text, arity, slope, ...) {text, false, #slope},
#define CELLC_CALL(Name, text, arity, slope, ...) {#text, true, #slope},
#include "compiler/graph/ops.def"
  };
  for (const auto& row : rows) {
    if (!row.call && std::string(row.slope) != "Step") continue;  // + - * / are among the operators
    const std::string wanted = fmt::format("`{}{}", row.text, row.call ? "(" : "`");
    EXPECT_NE(table.find(wanted), std::string::npos) << wanted;
  }
}

}  // namespace
}  // namespace cellc
