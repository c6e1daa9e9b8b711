// Pieces of sixteen bytes from block to block of a cluster, step after step: the letters of preamble.cuh, whose mailbox
// is used once, for mailboxes that are used again and again. Needs preamble.cuh.
//
// The n-th use of a mailbox (from 0) is a phase of an mbarrier: it ends when the block has said how many bytes it
// expects and all of them are there, in either order. So a mailbox may be written to for its next use only when nobody
// waits for this one.
#pragma once

namespace cellc {

struct Piece {
  unsigned at[4];
};

#ifdef CELLC_EMULATOR
/// `letters` counts the bytes of all uses.
CELLC_DEVICE void open_exchange(Mailbox* mailbox) { *mailbox = {0, 0}; }
CELLC_DEVICE void expect_pieces(Mailbox*, int) {}
CELLC_DEVICE void send_piece(Mailbox* mailbox, void* to, int rank, const Piece& piece) {
  *static_cast<Piece*>(cellc_emulator::services->of_block(to, static_cast<unsigned>(rank))) = piece;
  atomicAdd(&mailbox_of(mailbox, rank)->letters, static_cast<unsigned long long>(sizeof(Piece)));
}
CELLC_DEVICE void await_pieces(Mailbox* mailbox, long long use, int bytes) {
  while (cellc_emulator::load_volatile(&mailbox->letters) <
         static_cast<unsigned long long>(use + 1) * static_cast<unsigned long long>(bytes)) {
  }
}
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
/// By one thread, before the cluster's barrier.
CELLC_DEVICE void open_exchange(Mailbox* mailbox) {
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(mailbox)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// By one thread, once a use.
CELLC_DEVICE void expect_pieces(Mailbox* mailbox, int bytes) {
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(shared_address(mailbox)),
      "r"(bytes)
      : "memory");
}
/// To the place of `to` in the memory of the block with that rank.
CELLC_DEVICE void send_piece(Mailbox* mailbox, void* to, int rank, const Piece& piece) {
  SharedAddress at, theirs;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(shared_address(mailbox)), "r"(rank));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(at),
               "r"(piece.at[0]), "r"(piece.at[1]), "r"(piece.at[2]), "r"(piece.at[3]), "r"(theirs)
               : "memory");
}
/// What arrives is in the block's own memory: an order of the whole cluster would empty the first-level cache each
/// time.
CELLC_DEVICE void await_pieces(Mailbox* mailbox, long long use, int) {
  asm volatile(
      "{ .reg .pred there;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
      "@!there bra again; }" ::"r"(shared_address(mailbox)),
      "r"(static_cast<unsigned>(use & 1))
      : "memory");
}
#else
// Older cards have no clusters, and nothing that needs one is launched there.
CELLC_DEVICE void open_exchange(Mailbox*) {}
CELLC_DEVICE void expect_pieces(Mailbox*, int) { __trap(); }
CELLC_DEVICE void send_piece(Mailbox*, void*, int, const Piece&) { __trap(); }
CELLC_DEVICE void await_pieces(Mailbox*, long long, int) { __trap(); }
#endif

}  // namespace cellc
