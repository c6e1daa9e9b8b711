#include "demo/signal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

#include "runtime/cpu/engine.h"

namespace cellc {
namespace {

std::uint32_t little_endian(const std::string& bytes, std::size_t at, int count) {
  std::uint32_t value = 0;
  for (int i = 0; i < count; ++i) value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

Signal read_wave(const std::string& path, const std::string& bytes) {
  std::size_t channels = 0, bits = 0, data = 0, data_size = 0;
  Signal signal;
  // Chunks: a four-letter name, a length, and content padded to an even length.
  for (std::size_t at = 12; at + 8 <= bytes.size();) {
    const std::size_t size = std::min<std::size_t>(little_endian(bytes, at + 4, 4), bytes.size() - at - 8);
    if (bytes.compare(at, 4, "fmt ") == 0 && size >= 16) {
      if (little_endian(bytes, at + 8, 2) != 1)
        throw RequestError(fmt::format("{}: is compressed; plain PCM is read", path));
      channels = little_endian(bytes, at + 10, 2);
      signal.rate = little_endian(bytes, at + 12, 4);
      bits = little_endian(bytes, at + 22, 2);
    } else if (bytes.compare(at, 4, "data") == 0) {
      data = at + 8;
      data_size = size;
    }
    at += 8 + size + size % 2;
  }
  if (channels == 0 || data == 0) throw RequestError(fmt::format("{}: the sound file has no samples", path));
  if (bits != 16) throw RequestError(fmt::format("{}: has {}-bit samples; 16-bit ones are read", path, bits));
  for (std::size_t frame = 0; (frame + 1) * channels * 2 <= data_size; ++frame) {
    float sum = 0;
    for (std::size_t c = 0; c < channels; ++c)
      sum += static_cast<float>(static_cast<std::int16_t>(little_endian(bytes, data + (frame * channels + c) * 2, 2)));
    signal.samples.push_back(sum / (32768.0f * static_cast<float>(channels)));
  }
  signal.description = fmt::format("{} samples of sound at {} Hz, {:.2f} s", signal.samples.size(), signal.rate,
                                   static_cast<double>(signal.samples.size()) / signal.rate);
  return signal;
}

}  // namespace

Signal read_signal(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RequestError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (bytes.empty()) throw RequestError(fmt::format("{}: is empty", path));
  if (bytes.size() >= 12 && bytes.compare(0, 4, "RIFF") == 0 && bytes.compare(8, 4, "WAVE") == 0)
    return read_wave(path, bytes);
  Signal signal;
  for (const char c : bytes)
    signal.samples.push_back(static_cast<float>(static_cast<unsigned char>(c)) / 128.0f - 1.0f);
  signal.description = fmt::format("the {} bytes of the file", bytes.size());
  return signal;
}

}  // namespace cellc
