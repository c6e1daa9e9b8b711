#pragma once
// Reproducible random numbers: the same seed and name give the same array on every machine, in
// every order of filling and for every dtype (up to its rounding).
#include <cstdint>
#include <string_view>

#include "runtime/data/array.h"

namespace cellc {

/// xoshiro256** (Blackman and Vigna), its state filled by splitmix64 from a seed and a name, so
/// that each array has a stream of its own and adding one changes no other.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name);
  std::uint64_t next();
  /// Uniform in the open interval (low, high): neither end, which a cell's declared range excludes.
  double uniform(double low, double high);

 private:
  std::uint64_t state_[4] = {};
};

void fill_uniform(Array& array, std::uint64_t seed, std::string_view name, double low, double high);

}  // namespace cellc
