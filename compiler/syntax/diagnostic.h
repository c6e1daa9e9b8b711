#pragma once
// What a user did wrong, in words that help to correct it. Stages collect diagnostics instead of
// stopping at the first, so that one run reports every error of a file. Only this file formats them.
#include <optional>
#include <string>
#include <vector>

#include "compiler/syntax/source.h"

namespace cellc {

struct Diagnostic {
  Span span;
  std::string message;                         ///< what is wrong: names the thing, what was expected and what was found
  std::string note;                            ///< the remedy, or empty
  std::optional<Span> related = std::nullopt;  ///< a second place, of which the note speaks
};

class Diagnostics {
 public:
  void error(Span span, std::string message, std::string note = {}, std::optional<Span> related = {});
  bool empty() const { return list_.empty(); }
  const std::vector<Diagnostic>& list() const { return list_; }

  /// `path:line:col: error: message`, the line, a caret under the span, and the note; sorted by
  /// position, repeats dropped.
  std::string format(const SourceText& source) const;

 private:
  std::vector<Diagnostic> list_;
};

/// The member of `known` nearest to `name` by edit distance, or empty if none is near enough to
/// be what was meant.
std::string closest_name(const std::string& name, const std::vector<std::string>& known);

}  // namespace cellc
