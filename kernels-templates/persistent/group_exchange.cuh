// Pieces of twelve bytes from block to block of a group, through memory of the device that the second-level cache
// holds, step after step: for groups that are larger than a cluster. Needs preamble.cuh and exchange.cuh.
//
// A piece and the number of its step are one word of sixteen bytes, written and read whole: PTX has had scalars of 128
// bits (.b128) since version 8.3, and relaxed loads and stores of a scalar are single accesses of it. (A vector of four
// words would be four accesses in any order, by the memory model.) So whoever sees the number sees the data, and
// nothing else needs an order: no fence, no second trip for a flag. Counters that say that all blocks have written
// theirs, and then a read of all of it, took 0.1 to 0.2 us more a step of 2 to 6 KB, and less from 12 KB on
// (docs/notes/persistent.md).
//
// There are two copies, used in turn, as between blocks of a cluster: who tells a value of step t+1 has read all of
// step t, and so has everybody whose value of step t+1 it has. What the launch finds is zeros, and no step's number is
// zero; of one copy it tells a step's value from that of the step before the last. That a copy is not written to before
// all have read it stands on this: a block tells when it has what it waited for in registers (it has looked at the
// step's numbers, and passed a barrier), and who writes next has waited for what it told. A store that depends on a
// load is not made before the load has its value, so no fence is needed there, either.
//
// Blocks wait for each other, so all of them must be resident: the launch is cooperative, which a card without the room
// refuses.
#pragma once

namespace cellc {

/// What stands beside the n-th value.
CELLC_DEVICE unsigned tag_of(long long n) { return static_cast<unsigned>(n >> 1) | 0x80000000u; }

#ifdef CELLC_EMULATOR
CELLC_DEVICE void put_piece(Piece* to, const Piece& piece) {
  cellc_emulator::services->preempt();
  *to = piece;
  cellc_emulator::services->progress();
}
CELLC_DEVICE void get_piece(Piece& piece, const Piece* from) { piece = *from; }
CELLC_DEVICE void let_others_tell() { cellc_emulator::services->yield("what a block of its group tells"); }
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1203
CELLC_DEVICE void put_piece(Piece* to, const Piece& piece) {
  asm volatile(
      "{ .reg .b64 low, high;\n .reg .b128 all;\n"
      "mov.b64 low, {%1, %2};\n mov.b64 high, {%3, %4};\n mov.b128 all, {low, high};\n"
      "st.relaxed.gpu.global.b128 [%0], all; }" ::"l"(to),
      "r"(piece.at[0]), "r"(piece.at[1]), "r"(piece.at[2]), "r"(piece.at[3])
      : "memory");
}
CELLC_DEVICE void get_piece(Piece& piece, const Piece* from) {
  asm volatile(
      "{ .reg .b64 low, high;\n .reg .b128 all;\n"
      "ld.relaxed.gpu.global.b128 all, [%4];\n"
      "mov.b128 {low, high}, all;\n mov.b64 {%0, %1}, low;\n mov.b64 {%2, %3}, high; }"
      : "=r"(piece.at[0]), "=r"(piece.at[1]), "=r"(piece.at[2]), "=r"(piece.at[3])
      : "l"(from)
      : "memory");
}
#else
// Compilers before CUDA 12.3 know no such scalars. Cards move an aligned vector of sixteen bytes as one all the same.
CELLC_DEVICE void put_piece(Piece* to, const Piece& piece) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(piece.at[0]), "r"(piece.at[1]),
               "r"(piece.at[2]), "r"(piece.at[3])
               : "memory");
}
CELLC_DEVICE void get_piece(Piece& piece, const Piece* from) {
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.at[0]), "=r"(piece.at[1]), "=r"(piece.at[2]), "=r"(piece.at[3])
               : "l"(from)
               : "memory");
}
#endif
CELLC_DEVICE void let_others_tell() {}
#else
CELLC_DEVICE void put_piece(Piece*, const Piece&) { __trap(); }
CELLC_DEVICE void get_piece(Piece&, const Piece*) { __trap(); }
CELLC_DEVICE void let_others_tell() {}
#endif

/// The beginning of a group's memory.
struct GroupHeader {
  unsigned long long begun;  ///< blocks that have read where states start
};
/// Starts have been read. All threads call it.
CELLC_DEVICE void group_arrive(GroupHeader* group) {
  __syncthreads();
  if (threadIdx.x == 0) add_release(&group->begun, 1);
}
/// Until all blocks have: then finals may be written where starts lay.
CELLC_DEVICE void group_wait(const GroupHeader* group) {
  if (threadIdx.x == 0) {
    while (load_acquire(&group->begun) != static_cast<unsigned long long>(Persistent::kBlocks)) {
    }
  }
  __syncthreads();
}

}  // namespace cellc
