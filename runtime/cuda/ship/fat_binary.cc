#include "runtime/cuda/ship/fat_binary.h"

#include <cstdint>

namespace cellc {

namespace {

/// Little-endian, as every host of a CUDA card is.
template <typename T>
void put(std::string& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> (8 * i) & 0xff);
}

}  // namespace

// The layout is that of `fatbinary` without compression: a head of 16 bytes, and for each code a head of 64
// and its bytes up to a multiple of 8. NVIDIA's nvFatbin writes the same; it is one more library to find, for
// 80 bytes.
std::string fat_binary(const std::vector<CardCode>& codes) {
  if (codes.size() == 1) return codes[0].elf;
  constexpr std::uint16_t kElf = 2, kVersion = 0x0101;
  constexpr std::uint32_t kHead = 64;
  constexpr std::uint64_t k64Bits = 0x1, kLinux = 0x10;
  std::string body;
  for (const CardCode& code : codes) {
    std::string bytes = code.elf;
    bytes.resize((bytes.size() + 7) / 8 * 8, '\0');
    put<std::uint16_t>(body, kElf);
    put<std::uint16_t>(body, kVersion);
    put<std::uint32_t>(body, kHead);
    put<std::uint64_t>(body, bytes.size());
    put<std::uint32_t>(body, 0);  // not compressed
    put<std::uint32_t>(body, 0);  // no options
    put<std::uint16_t>(body,
                       static_cast<unsigned char>(code.elf.size() > 8 ? code.elf[8] : 0));  // version of the ELF's ABI
    put<std::uint16_t>(body, 1);
    put<std::uint32_t>(body, static_cast<std::uint32_t>(code.architecture));
    put<std::uint32_t>(body, 0);  // no name
    put<std::uint32_t>(body, 0);
    put<std::uint64_t>(body, k64Bits | kLinux);
    put<std::uint64_t>(body, 0);
    put<std::uint64_t>(body, 0);
    body += bytes;
  }
  std::string result;
  put<std::uint32_t>(result, 0xba55ed50u);
  put<std::uint16_t>(result, 1);
  put<std::uint16_t>(result, 16);
  put<std::uint64_t>(result, body.size());
  return result + body;
}

}  // namespace cellc
