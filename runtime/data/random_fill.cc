#include "runtime/data/random_fill.h"

#include <algorithm>
#include <cmath>

namespace cellc {
namespace {

std::uint64_t rotate_left(std::uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

std::uint64_t splitmix64(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

RandomStream::RandomStream(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a of the name
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  // The seed goes through splitmix64 before it meets the hash: neighbouring seeds and similar
  // names must not give related streams.
  std::uint64_t mixed = splitmix64(seed) ^ hash;
  for (auto& word : state_) word = splitmix64(mixed);
}

std::uint64_t RandomStream::next() {
  const std::uint64_t result = rotate_left(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = rotate_left(state_[3], 45);
  return result;
}

double RandomStream::uniform(double low, double high) {
  const double unit = (static_cast<double>(next() >> 12) + 0.5) * 0x1p-52;
  const double width = high - low;
  // A range may be wider than the largest number.
  return std::isfinite(width) ? low + width * unit : low * (1 - unit) + high * unit;
}

void fill_uniform(Array& array, std::uint64_t seed, std::string_view name, double low, double high) {
  RandomStream stream(seed, name);
  // Of a range that leaves the numbers of the dtype, those that the dtype has.
  const double largest = largest_number(array.dtype());
  low = std::clamp(low, -largest, largest);
  high = std::clamp(high, -largest, largest);
  const std::int64_t count = array.count();
  for (std::int64_t i = 0; i < count; ++i) array.set(i, stream.uniform(low, high));
}

}  // namespace cellc
