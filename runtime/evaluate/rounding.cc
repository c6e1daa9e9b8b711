#include "runtime/evaluate/rounding.h"

#include <bit>

namespace cellc {

std::function<double(double)> rounding_of(Dtype dtype, double relative, std::uint64_t seed) {
  return [=](double v) {
    if (static_cast<double>(static_cast<float>(v)) == v) return v;
    // By the value and the seed alone: threads share it.
    std::uint64_t bits = std::bit_cast<std::uint64_t>(v) ^ (seed * 0x9e3779b97f4a7c15u);
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    const double unit = static_cast<double>(bits >> 11) * 0x1p-52 - 1;
    const double moved = seed == 0 ? v : v * (1 + relative * unit);
    return dtype == Dtype::F64 ? moved : static_cast<double>(static_cast<float>(moved));
  };
}

}  // namespace cellc
