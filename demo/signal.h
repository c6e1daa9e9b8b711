#pragma once
// A real signal from a file: PCM sound, or, of any other file, its bytes.
#include <string>
#include <vector>

namespace cellc {

struct Signal {
  std::vector<float> samples;  ///< in [-1, 1]
  double rate = 0;             ///< samples a second; 0 for bytes
  std::string description;
};

/// Throws RequestError, which names the file.
Signal read_signal(const std::string& path);

}  // namespace cellc
