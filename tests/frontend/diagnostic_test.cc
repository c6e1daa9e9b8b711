// Positions in a text, and how errors are shown.
#include "compiler/syntax/diagnostic.h"

#include <gtest/gtest.h>

#include <string>

namespace cellc {
namespace {

TEST(SourceText, Positions) {
  const SourceText source("p", "ab\ncd\r\n\nx");
  const auto at = [&](std::uint32_t offset) {
    const Position p = source.position(offset);
    return std::to_string(p.line) + ":" + std::to_string(p.column);
  };
  EXPECT_EQ(at(0), "1:1");
  EXPECT_EQ(at(2), "1:3");
  EXPECT_EQ(at(3), "2:1");
  EXPECT_EQ(at(7), "3:1");
  EXPECT_EQ(at(8), "4:1");
  EXPECT_EQ(at(9), "4:2");
  EXPECT_EQ(at(900), "4:2");
  EXPECT_EQ(source.line(1), "ab");
  EXPECT_EQ(source.line(2), "cd");
  EXPECT_EQ(source.line(3), "");
  EXPECT_EQ(source.line(4), "x");
  EXPECT_EQ(source.line(0), "");
  EXPECT_EQ(source.line(5), "");
  EXPECT_EQ(source.slice({3, 2}), "cd");
  EXPECT_EQ(source.slice({900, 2}), "");
  EXPECT_EQ(SourceText().position(3).line, 1u);
}

TEST(Format, LineCaretAndNote) {
  const SourceText source("a/b.cell", "x = 1\n  y = foo + 2\n");
  Diagnostics d;
  d.error({12, 3}, "unknown name 'foo'", "did you mean 'fox'?");
  EXPECT_EQ(d.format(source),
            "a/b.cell:2:7: error: unknown name 'foo'\n"
            "    y = foo + 2\n"
            "        ^~~\n"
            "note: did you mean 'fox'?\n");
}

TEST(Format, SortedAndWithoutRepeats) {
  const SourceText source("f", "abc\n");
  Diagnostics d;
  d.error({2, 1}, "second");
  d.error({0, 1}, "first");
  d.error({2, 1}, "second");
  EXPECT_EQ(d.format(source), "f:1:1: error: first\n  abc\n  ^\nf:1:3: error: second\n  abc\n    ^\n");
}

TEST(Format, TabsAndLettersCountOneCell) {
  const SourceText source("f", "\t\xC3\xA9 x\n");
  Diagnostics d;
  d.error({4, 1}, "m");
  EXPECT_EQ(d.format(source), "f:1:5: error: m\n   \xC3\xA9 x\n     ^\n");
}

TEST(Format, SpanEndsWithItsLine) {
  const SourceText source("f", "ab\ncd\n");
  Diagnostics d;
  d.error({1, 4}, "m");
  d.error({6, 5}, "past the end");
  EXPECT_EQ(d.format(source), "f:1:2: error: m\n  ab\n   ^\nf:3:1: error: past the end\n  \n  ^\n");
}

TEST(Format, LongLinesAreCut) {
  const SourceText source("f", std::string(5000, 'a') + "b" + std::string(5000, 'c'));
  Diagnostics d;
  d.error({5000, 1}, "m");
  const std::string text = d.format(source);
  EXPECT_LT(text.size(), 500u);
  const std::size_t line = text.find("\n  ") + 1;
  const std::size_t marks = text.find("\n  ", line) + 1;
  EXPECT_EQ(text[line + (text.find('^') - marks)], 'b');
}

TEST(Format, FiftyAtMost) {
  const SourceText source("f", std::string(2000, 'a'));
  Diagnostics d;
  for (std::uint32_t i = 0; i < 51; ++i) d.error({i, 1}, "m");
  EXPECT_NE(d.format(source).find("note: 1 more error not shown\n"), std::string::npos);
  for (std::uint32_t i = 51; i < 1999; ++i) d.error({i, 1}, "m");
  EXPECT_LE(d.list().size(), 1000u);
  EXPECT_NE(d.format(source).find("note: at least 950 more errors not shown\n"), std::string::npos);
}

TEST(ClosestName, FindsSlips) {
  const std::vector<std::string> known = {"tanh", "sigmoid", "softplus", "xz", "xr", "h", "Wi", "state"};
  EXPECT_EQ(closest_name("tahn", known), "tanh");
  EXPECT_EQ(closest_name("tanhh", known), "tanh");
  EXPECT_EQ(closest_name("Tanh", known), "tanh");
  EXPECT_EQ(closest_name("sigmid", known), "sigmoid");
  EXPECT_EQ(closest_name("sig", known), "sigmoid");
  EXPECT_EQ(closest_name("soft_plus", known), "softplus");
  EXPECT_EQ(closest_name("XZ", known), "xz");
  EXPECT_EQ(closest_name("wi", known), "Wi");
  EXPECT_EQ(closest_name("states", known), "state");
}

TEST(ClosestName, IsSilentWhereNothingIsNear) {
  EXPECT_EQ(closest_name("xq", {"xz", "xr"}), "");
  EXPECT_EQ(closest_name("q", {"h", "c"}), "");
  EXPECT_EQ(closest_name("banana", {"tanh", "exp"}), "");
  EXPECT_EQ(closest_name("tanh", {"tanh"}), "");
  EXPECT_EQ(closest_name("abc", {}), "");
  EXPECT_EQ(closest_name(std::string(100000, 'a'), {"tanh"}), "");
}

}  // namespace
}  // namespace cellc
