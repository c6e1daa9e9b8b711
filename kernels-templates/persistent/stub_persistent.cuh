// What a unit with persistent kernels says of them, by hand: for persistent/persistent.cuh on its own.
#pragma once

namespace cellc {

struct Persistent {
  static constexpr int kBlocks = 2;        ///< of a cluster: 1, 2, 4, 8, 16; of a group: 2 and more
  static constexpr int kSlots = 3;         ///< sequences that a cluster or group runs side by side
  static constexpr int kThreads = 256;     ///< of a block: whole warps
  static constexpr bool kGrouped = false;  ///< blocks exchange through memory (group_exchange.cuh)
};

}  // namespace cellc
