#pragma once
// SHA-256 (FIPS 180-4): names and checks the entries of the cache. It is our own, so that code that
// needs no LLVM links none.
#include <array>
#include <cstddef>
#include <cstdint>

namespace cellc {

class Sha256 {
 public:
  void add(const void* bytes, std::size_t count);
  /// Of all that was added. Nothing may be added afterwards.
  std::array<std::uint8_t, 32> finish();

 private:
  void take_block(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> pending_{};  ///< the last, partial block
  std::uint64_t count_ = 0;                 ///< bytes so far
};

}  // namespace cellc
