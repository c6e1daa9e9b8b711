#include "compiler/codegen_cuda/without_names.h"

#include <map>

namespace cellc {

namespace {

bool in_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

}  // namespace

std::string without_names(const std::string& text) {
  std::string result;
  std::map<std::string, std::size_t> values;
  for (std::size_t at = 0; at < text.size();) {
    const bool begins_line = at == 0 || text[at - 1] == '\n';
    if ((begins_line && text[at] == '#') || text.compare(at, 2, "//") == 0) {
      // A directive goes with its line's end, a comment does not.
      const std::size_t end = text.find('\n', at);
      at = end == std::string::npos ? text.size() : begins_line && text[at] == '#' ? end + 1 : end;
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && in_word(text[end])) ++end;
    if (end == at) {
      result += text[at++];
      continue;
    }
    // Values of a step are the words that end so (emit_cuda_lane); numbers do not.
    const std::string word = text.substr(at, end - at);
    result +=
        word.back() == '_' ? "v" + std::to_string(values.try_emplace(word, values.size()).first->second) + "_" : word;
    at = end;
  }
  return result;
}

}  // namespace cellc
