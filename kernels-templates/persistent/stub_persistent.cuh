// What a unit with persistent kernels says of them, by hand: for persistent/persistent.cuh on its own.
#pragma once

namespace cellc {

struct Persistent {
  static constexpr int kBlocks = 2;     ///< of a cluster: 1, 2, 4, 8, 16
  static constexpr int kSlots = 3;      ///< sequences that a cluster runs side by side
  static constexpr int kThreads = 256;  ///< of a block: whole warps
};

}  // namespace cellc
