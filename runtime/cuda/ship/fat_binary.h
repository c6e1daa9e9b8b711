#pragma once
// Machine code for several architectures in one file: the container that cuModuleLoadData reads. The driver
// takes the code of its card.
#include <string>
#include <vector>

namespace cellc {

struct CardCode {
  int architecture = 0;  ///< 90 of sm_90
  std::string elf;
};

/// Of one architecture: that code alone, a plain ELF file.
std::string fat_binary(const std::vector<CardCode>& codes);

}  // namespace cellc
