#pragma once
// What stands between the quotation marks of a #line directive.
#include <cstddef>
#include <string>

namespace cellc {

/// The path of a file, as compilers take it: no control characters, and UTF-8, since NVRTC refuses a text that is not.
inline std::string line_directive_path(const std::string& path) {
  std::string text;
  for (std::size_t at = 0; at < path.size();) {
    const auto first = static_cast<unsigned char>(path[at]);
    std::size_t length = first < 0x80                    ? 1
                         : first >= 0xc2 && first < 0xe0 ? 2
                         : first >= 0xe0 && first < 0xf0 ? 3
                         : first >= 0xf0 && first < 0xf5 ? 4
                                                         : 0;
    for (std::size_t i = 1; i < length; ++i)
      if (at + i >= path.size() || (static_cast<unsigned char>(path[at + i]) & 0xc0) != 0x80) length = 0;
    if (path[at] == '"' || path[at] == '\\') text += '\\';
    if (length == 0 || first < 0x20)
      text += '?';
    else
      text += path.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return text;
}

}  // namespace cellc
