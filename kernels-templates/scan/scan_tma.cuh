// Rows that follow each other without gaps, copied by the engine of sm_90 in both directions (cp.async.bulk), which
// asks for nothing of the threads: as many requests by threads would hold up whatever else they have to read. (Where
// threads write rows it is 2 % slower.)
//
// A gate is an mbarrier in shared memory: it opens, turn by turn, when all bytes that were expected have arrived. On
// other cards nothing of it is used (kBulk).
//
// Needs scan_tile.cuh.
#pragma once

namespace cellc {

#if !defined(CELLC_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool kBulk = !kSwizzled;
CELLC_DEVICE void bulk_init(unsigned long long* gate) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(gate)) : "memory");
}
/// What threads read and wrote comes before what the engine copies later.
CELLC_DEVICE void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
CELLC_DEVICE void bulk_expect(unsigned long long* gate, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(gate)), "r"(bytes)
               : "memory");
}
/// Nobody reads them again: what leaves the second-level cache first is no loss (1 %).
CELLC_DEVICE void bulk_copy(void* to, const void* from, int bytes, unsigned long long* gate) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(gate)), "l"(goes_first())
      : "memory");
}
CELLC_DEVICE void bulk_store(void* to, void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
CELLC_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Until what this thread stores has been read; until it is written.
CELLC_DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
CELLC_DEVICE void bulk_wait_written() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
CELLC_DEVICE void bulk_wait(unsigned long long* gate, unsigned parity) {
  asm volatile(
      "{\n.reg .pred there;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n@!there bra "
      "again;\n}" ::"r"(shared_address(gate)),
      "r"(parity)
      : "memory");
}
#else
constexpr bool kBulk = false;
CELLC_DEVICE void bulk_init(unsigned long long*) {}
CELLC_DEVICE void bulk_fence() {}
CELLC_DEVICE void bulk_expect(unsigned long long*, int) {}
CELLC_DEVICE void bulk_copy(void*, const void*, int, unsigned long long*) {}
CELLC_DEVICE void bulk_wait(unsigned long long*, unsigned) {}
CELLC_DEVICE void bulk_store(void*, void*, int) {}
CELLC_DEVICE void bulk_commit() {}
CELLC_DEVICE void bulk_wait_read() {}
CELLC_DEVICE void bulk_wait_written() {}
#endif

// One copy for all of a warp's rows, or, where parts lie apart, one for each.
constexpr int kBulkCopies = kPartPad == 0 ? 1 : kScanParts;
constexpr int kBulkEntries = kPartPad == 0 ? kSlotPitch : kScanSteps * kScanChannels;

}  // namespace cellc
