#pragma once
// What a shared library that launches a cell's code on a GPU is made of: runtime/cuda/ship writes it, which knows no
// LLVM, and runtime/build compiles it, which knows no GPU.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cellc {

struct LibraryParts {
  std::string prefix, about;
  std::string tables;  ///< constants in C of the types of kernels-templates/host: P_cell, P_backward_tables
  std::vector<std::string> kernels;                      ///< their names
  std::vector<std::string> missing, foreign, unaligned;  ///< by array: words for results about it
  std::vector<int> room;    ///< the members of cellc_room of kernels-templates/host/gpu_library.c
  std::int64_t layout = 0;  ///< layout_number of the structs
  std::string image;        ///< of the kernels, as the driver loads it
  struct Backward {
    std::vector<std::string> missing, foreign, unaligned;
    std::vector<int> room;
    std::int64_t layout = 0;
  };
  std::optional<Backward> backward;
};

}  // namespace cellc
