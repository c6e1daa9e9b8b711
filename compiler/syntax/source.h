#pragma once
// A cell file's text and positions in it. All later stages refer to it by Span.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cellc {

/// A range of bytes of one source text.
struct Span {
  std::uint32_t offset = 0;
  std::uint32_t length = 0;
  bool operator==(const Span&) const = default;
};

/// Line and column of a position, both counted from 1; the column counts bytes.
struct Position {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

class SourceText {
 public:
  SourceText() = default;
  SourceText(std::string path, std::string text);

  const std::string& path() const { return path_; }
  const std::string& text() const { return text_; }
  std::string_view slice(Span span) const;
  Position position(std::uint32_t offset) const;
  /// Line `number` (from 1) without its line end; empty past the last line.
  std::string_view line(std::uint32_t number) const;

 private:
  std::string path_;
  std::string text_;
  std::vector<std::uint32_t> line_starts_;
};

}  // namespace cellc
