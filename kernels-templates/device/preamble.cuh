// What every generated translation unit starts with: number types, loads and stores, the few PTX
// instructions that C++ does not reach, and what the emulator of the tests puts in their place.
// Small on purpose: NVRTC compiles it each time, and <cuda/std> alone would take longer than a kernel.
//
// The unit defines one of CELLC_STORAGE_F32, _F64, _F16, _BF16 before. Arrays in memory hold `Stored`;
// arithmetic, carried states, starts, finals and params are `Real`.
#pragma once

#include "kernels-templates/abi/kernel_memory.h"

#define CELLC_DEVICE __device__ __forceinline__
#define CELLC_APART static __device__ __noinline__
#ifdef CELLC_EMULATOR
#define CELLC_UNROLL(n)
#else
#define CELLC_PRAGMA(text) _Pragma(#text)
#define CELLC_UNROLL(n) CELLC_PRAGMA(unroll n)
#endif
// Whole lines: asynchronous copies into places that are not aligned to 32 bytes take a quarter longer.
#ifndef CELLC_DYNAMIC_SHARED
#ifdef CELLC_EMULATOR  // what is shipped takes its macros back between one storage type and the next
#define CELLC_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(cellc_emulator::current->dynamic_shared)
#else
#define CELLC_DYNAMIC_SHARED(type, name) extern __shared__ __align__(128) type name[]
#endif
#endif

#if defined(CELLC_STORAGE_F64)
using Real = double;
using Stored = double;
#elif defined(CELLC_STORAGE_F16) || defined(CELLC_STORAGE_BF16)
#define CELLC_NARROW 1
using Real = float;
using Stored = unsigned short;
#else
using Real = float;
using Stored = float;
#endif

namespace cellc {

// What is seldom run is called: inlined everywhere, a division of 64 bits alone would double the time that
// a kernel takes to compile.
CELLC_APART long long wide_quotient(long long a, long long b) { return a / b; }
CELLC_DEVICE long long narrow_quotient(long long a, long long b) {
  return static_cast<unsigned>(a) / static_cast<unsigned>(b);
}
CELLC_DEVICE long long quotient(long long a, long long b) {
  return ((a | b) >> 32) == 0 ? narrow_quotient(a, b) : wide_quotient(a, b);
}

/// Calls visit(i) for this thread's share of `count`.
template <class Visit>
CELLC_DEVICE void each_of(long long count, Visit&& visit) {
  const long long all = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += all) visit(i);
}

#ifdef CELLC_NARROW
constexpr bool kNarrow = true;  ///< what is written is rounded; what is carried is not
#else
constexpr bool kNarrow = false;
#endif

// Numbers in memory ---------------------------------------------------------------------------------

#if defined(CELLC_STORAGE_BF16)
CELLC_DEVICE Real widen(Stored bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
/// To nearest even; NaN stays NaN.
#ifdef CELLC_EMULATOR
CELLC_DEVICE Stored narrow(Real value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<Stored>((value != value ? bits | 0x400000u : rounded) >> 16);
}
#else
CELLC_DEVICE Stored narrow(Real value) {
  Stored bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
/// Both in one instruction: where two lanes share a thread, rounding by hand took as long as a gate.
CELLC_DEVICE unsigned narrow_two(Real low, Real high) {
  unsigned bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
#endif
#elif defined(CELLC_STORAGE_F16)
#ifdef CELLC_EMULATOR
CELLC_DEVICE Real widen(Stored bits) { return cellc_emulator::from_half(bits); }
CELLC_DEVICE Stored narrow(Real value) { return cellc_emulator::to_half(value); }
#else
CELLC_DEVICE Real widen(Stored bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
CELLC_DEVICE Stored narrow(Real value) {
  Stored bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
CELLC_DEVICE unsigned narrow_two(Real low, Real high) {
  unsigned bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
#endif
#else
CELLC_DEVICE Real widen(Stored value) { return value; }
CELLC_DEVICE Stored narrow(Real value) { return value; }
#endif

#ifdef CELLC_NARROW
/// Of a word, the number at the lower address first. The upper bf16 is one instruction, and two as a number of its own.
CELLC_DEVICE void widen_two(unsigned both, Real& low, Real& high) {
  low = widen(static_cast<Stored>(both & 0xffffu));
#ifdef CELLC_STORAGE_BF16
  high = __uint_as_float(both & 0xffff0000u);
#else
  high = widen(static_cast<Stored>(both >> 16));
#endif
}
#endif
#if defined(CELLC_NARROW) && defined(CELLC_EMULATOR)
CELLC_DEVICE unsigned narrow_two(Real low, Real high) {
  return narrow(low) | static_cast<unsigned>(narrow(high)) << 16;
}
#endif

CELLC_DEVICE Real load(const Stored* at) { return widen(*at); }
CELLC_DEVICE void store(Stored* at, Real value) { *at = narrow(value); }
#ifdef CELLC_NARROW
// Of rows that keep the precision of arithmetic.
CELLC_DEVICE Real load(const Real* at) { return *at; }
CELLC_DEVICE void store(Real* at, Real value) { *at = value; }
#endif

// The C library's functions are part of an instruction that compares or adds, which a choice between two numbers is
// not.
#ifdef CELLC_STORAGE_F64
CELLC_DEVICE Real magnitude(Real value) { return ::fabs(value); }
CELLC_DEVICE bool is_finite(Real value) { return magnitude(value) <= 1.7976931348623157e308; }
#else
CELLC_DEVICE Real magnitude(Real value) { return ::fabsf(value); }
CELLC_DEVICE bool is_finite(Real value) { return magnitude(value) <= 3.402823466e38f; }
#endif

// Copies from memory to shared memory that run beside the arithmetic (sm_80) ------------------------------

#ifdef CELLC_EMULATOR
template <int kBytes, bool kReadAgain = (kBytes < 16)>
CELLC_DEVICE void copy_async(void* to, const void* from) {
  cellc_emulator::cp_async(to, from, kBytes);
}
CELLC_DEVICE void copy_commit() { cellc_emulator::cp_async_commit(); }
template <int kPending>
CELLC_DEVICE void copy_wait() {
  cellc_emulator::cp_async_wait(kPending);
}
using SharedAddress = char*;
CELLC_DEVICE SharedAddress shared_address(void* at) { return static_cast<char*>(at); }
template <int kBytes, int kOffset>
CELLC_DEVICE void copy_async_at(SharedAddress to, const void* from) {
  copy_async<kBytes>(to + kOffset, from);
}
template <int kBytes>
CELLC_DEVICE void copy_async_if(bool yes, SharedAddress to, const void* from) {
  if (yes) copy_async<kBytes>(to, from);
}
CELLC_DEVICE void store_at(SharedAddress to, unsigned short value) { *reinterpret_cast<unsigned short*>(to) = value; }
using CachePolicy = unsigned long long;
CELLC_DEVICE CachePolicy stays_last() { return 0; }
CELLC_DEVICE CachePolicy goes_first() { return 0; }
CELLC_DEVICE CachePolicy goes_in_turn() { return 0; }
template <int kBytes, int kOffset>
CELLC_DEVICE void copy_async_at(SharedAddress to, const void* from, CachePolicy) {
  copy_async<kBytes>(to + kOffset, from);
}
#else
/// 4, 8 or 16 bytes, each side aligned to as many. Sixteen bypass the first-level cache, unless other warps read them
/// as well.
template <int kBytes, bool kReadAgain = (kBytes < 16)>
CELLC_DEVICE void copy_async(void* to, const void* from) {
  static_assert(kReadAgain || kBytes == 16);
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (!kReadAgain) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(kBytes) : "memory");
  }
}
CELLC_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Places in shared memory as the instructions take them: one register for all copies of a stage, each with
/// its own constant.
using SharedAddress = unsigned;
CELLC_DEVICE SharedAddress shared_address(void* at) { return static_cast<unsigned>(__cvta_generic_to_shared(at)); }
template <int kBytes, int kOffset>
CELLC_DEVICE void copy_async_at(SharedAddress to, const void* from) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0 + %2], [%1], 16;" ::"r"(to), "l"(from), "n"(kOffset) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0 + %3], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes), "n"(kOffset)
                 : "memory");
  }
}
/// Through the first-level cache, for other warps read it as well. Without a branch: those that a compiler makes take
/// longer than the copy.
template <int kBytes>
CELLC_DEVICE void copy_async_if(bool yes, SharedAddress to, const void* from) {
  asm volatile(
      "{\n .reg .pred yes;\n setp.ne.u32 yes, %3, 0;\n @yes cp.async.ca.shared.global [%0], [%1], %2;\n}" ::"r"(to),
      "l"(from), "n"(kBytes), "r"(static_cast<unsigned>(yes))
      : "memory");
}
CELLC_DEVICE void store_at(SharedAddress to, unsigned short value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(value) : "memory");
}
/// When what was copied is to leave the second-level cache.
using CachePolicy = unsigned long long;
CELLC_DEVICE CachePolicy stays_last() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
CELLC_DEVICE CachePolicy goes_first() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
CELLC_DEVICE CachePolicy goes_in_turn() {
  CachePolicy policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
template <int kBytes, int kOffset>
CELLC_DEVICE void copy_async_at(SharedAddress to, const void* from, CachePolicy policy) {
  static_assert(kBytes == 16);
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0 + %2], [%1], 16, %3;" ::"r"(to), "l"(from), "n"(kOffset),
               "l"(policy)
               : "memory");
}
/// Until at most kPending groups of this thread are under way.
template <int kPending>
CELLC_DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
#endif

// Within a warp --------------------------------------------------------------------------------------------

CELLC_DEVICE unsigned warp_sum(unsigned value) { return __reduce_add_sync(0xffffffffu, value); }
CELLC_DEVICE unsigned warp_max(unsigned value) { return __reduce_max_sync(0xffffffffu, value); }

// Between blocks -----------------------------------------------------------------------------------------

#ifdef CELLC_EMULATOR
CELLC_DEVICE unsigned long long load_acquire(const unsigned long long* at) { return cellc_emulator::load_volatile(at); }
CELLC_DEVICE void add_release(unsigned long long* at, unsigned long long value) { atomicAdd(at, value); }
CELLC_DEVICE unsigned long long load_relaxed(const unsigned long long* at) { return cellc_emulator::load_volatile(at); }
CELLC_DEVICE void store_relaxed(unsigned long long* at, unsigned long long value) {
  cellc_emulator::store_volatile(at, value);
}
#else
CELLC_DEVICE unsigned long long load_acquire(const unsigned long long* at) {
  unsigned long long value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
CELLC_DEVICE void add_release(unsigned long long* at, unsigned long long value) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
/// Whole words that other blocks see sooner or later, in no order.
CELLC_DEVICE unsigned long long load_relaxed(const unsigned long long* at) {
  unsigned long long value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at));
  return value;
}
CELLC_DEVICE void store_relaxed(unsigned long long* at, unsigned long long value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
#endif

#ifdef CELLC_EMULATOR
CELLC_DEVICE unsigned long long nanoseconds() { return 0; }
#else
CELLC_DEVICE unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
#endif

/// All of it, sixteen bytes at once: where neighbours lie far apart, every load fetches lines of its own.
template <class T>
CELLC_DEVICE T load_whole(const T* from) {
  T result;
#ifdef CELLC_EMULATOR
  result = *from;
#else
  constexpr int kWords = sizeof(T) / 4;
  static_assert(sizeof(T) % 16 == 0, "sixteen bytes at once");
  unsigned words[kWords];
  CELLC_UNROLL()
  for (int i = 0; i < kWords; i += 4)
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[i]), "=r"(words[i + 1]), "=r"(words[i + 2]), "=r"(words[i + 3])
                 : "l"(reinterpret_cast<const char*>(from) + 4 * i)
                 : "memory");
  CELLC_UNROLL()
  for (int i = 0; i < kWords; ++i) reinterpret_cast<unsigned*>(&result)[i] = words[i];
#endif
  return result;
}

/// What every kernel starts with. One that was launched so may begin while what is ahead of it on its stream has not
/// ended (programmatic dependent launch, sm_90): up to here it may touch nothing that another kernel has to do with.
CELLC_DEVICE void await_stream() {
#if !defined(CELLC_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// A number that the front of the compiler works out here, and not where it is needed. (Its back may still move it.)
CELLC_DEVICE void make_now(long long& value) {
#if !defined(CELLC_EMULATOR) && defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(value));
#endif
}

/// From here on the kernel behind this one on its stream may begin, if it was launched so: up to its own
/// await_stream().
CELLC_DEVICE void let_next_begin() {
#if !defined(CELLC_EMULATOR) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Between the blocks of a cluster: they are resident together, and write to each other's shared memory (sm_90). A
// letter is a number, and a mailbox tells when all bytes that its block waits for have arrived. It is opened before the
// cluster's barrier, and written to after it. A block that has all its letters may end; whoever wrote them, too. Its
// bell is rung once at most.
struct Mailbox {
  unsigned long long letters, bell;
};
#ifdef CELLC_EMULATOR
CELLC_DEVICE unsigned cluster_rank() { return cellc_emulator::current->cluster_rank; }
CELLC_DEVICE void cluster_arrive_relaxed() { cellc_emulator::services->cluster_arrive(); }
CELLC_DEVICE void cluster_arrive() { cellc_emulator::services->cluster_arrive(); }
CELLC_DEVICE void cluster_wait() { cellc_emulator::services->cluster_wait(); }
CELLC_DEVICE void open_mailbox(Mailbox* mailbox, int bytes) { *mailbox = {static_cast<unsigned>(bytes), 0}; }
CELLC_DEVICE Mailbox* mailbox_of(Mailbox* mailbox, int rank) {
  return static_cast<Mailbox*>(cellc_emulator::services->of_block(mailbox, static_cast<unsigned>(rank)));
}
CELLC_DEVICE void send_letter(Mailbox* mailbox, Real* to, int rank, Real value) {
  *static_cast<Real*>(cellc_emulator::services->of_block(to, static_cast<unsigned>(rank))) = value;
  atomicAdd(&mailbox_of(mailbox, rank)->letters, 0ull - sizeof(Real));
}
CELLC_DEVICE void await_letters(Mailbox* mailbox) {
  while (cellc_emulator::load_volatile(&mailbox->letters) != 0) {
  }
}
CELLC_DEVICE void ring(Mailbox* mailbox, int rank) { atomicAdd(&mailbox_of(mailbox, rank)->bell, 1ull); }
CELLC_DEVICE bool has_rung(Mailbox* mailbox) { return cellc_emulator::load_volatile(&mailbox->bell) != 0; }
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
CELLC_DEVICE unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// Orders nothing but what was opened: otherwise it would wait for all of the thread's memory.
CELLC_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
/// Who waits sees all that this thread has written. Threads that have ended count as arrived: who has nothing to wait
/// for may end.
CELLC_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
CELLC_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
/// By one thread.
CELLC_DEVICE void open_mailbox(Mailbox* mailbox, int bytes) {
  const SharedAddress at = shared_address(mailbox);
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
  asm volatile("mbarrier.init.shared.b64 [%0+8], 1;" ::"r"(at) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(at), "r"(bytes)
               : "memory");
}
/// To the place of `to` in the memory of the block with that rank.
CELLC_DEVICE void send_letter(Mailbox* mailbox, Real* to, int rank, Real value) {
  SharedAddress at, theirs;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(shared_address(to)), "r"(rank));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(shared_address(mailbox)), "r"(rank));
#ifdef CELLC_STORAGE_F64
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(at),
               "l"(__double_as_longlong(value)), "r"(theirs)
               : "memory");
#else
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at),
               "r"(__float_as_uint(value)), "r"(theirs)
               : "memory");
#endif
}
CELLC_DEVICE void await_letters(Mailbox* mailbox) {
  asm volatile(
      "{ .reg .pred there;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%0], 0;\n"
      "@!there bra again; }" ::"r"(shared_address(mailbox))
      : "memory");
}
/// By one thread of the cluster. Who sees it sees what that thread has written.
CELLC_DEVICE void ring(Mailbox* mailbox, int rank) {
  SharedAddress theirs;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(theirs) : "r"(shared_address(mailbox)), "r"(rank));
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0+8];" ::"r"(theirs) : "memory");
}
CELLC_DEVICE bool has_rung(Mailbox* mailbox) {
  unsigned rung;
  asm volatile(
      "{ .reg .pred there;\n"
      "mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64 there, [%1+8], 0;\n"
      "selp.u32 %0, 1, 0, there; }"
      : "=r"(rung)
      : "r"(shared_address(mailbox))
      : "memory");
  return rung != 0;
}
#else
// Older cards have no clusters, and nothing that needs one is launched there.
CELLC_DEVICE unsigned cluster_rank() { return 0; }
CELLC_DEVICE void cluster_arrive_relaxed() { __trap(); }
CELLC_DEVICE void cluster_arrive() { __trap(); }
CELLC_DEVICE void cluster_wait() { __trap(); }
CELLC_DEVICE void open_mailbox(Mailbox*, int) { __trap(); }
CELLC_DEVICE void send_letter(Mailbox*, Real*, int, Real) { __trap(); }
CELLC_DEVICE void await_letters(Mailbox*) { __trap(); }
CELLC_DEVICE void ring(Mailbox*, int) { __trap(); }
CELLC_DEVICE bool has_rung(Mailbox*) { return false; }
#endif

// A number from every thread of a grid, and with it a barrier: a word holds who has arrived in its lower half and the
// sum in its upper, so that the answer comes with the arrival.
//
// The launch is an ordinary one: a cooperative launch, which would answer for all blocks being resident together,
// begins only when everything ahead of it has ended, 1.2 us later on an H200. Mostly all of them are resident anyway.
// Where they are not, since other kernels hold a part of the card, none may wait for a block that may be waiting for
// its place: a block that has waited for long and sees that some have not even started leaves. Then the one that
// arrives last goes on alone.
constexpr int kMostWarps = 4;  ///< of a block that takes part
/// The blocks that go on after the first barrier of a call: all, one, or none of which this block is.
struct ActiveBlocks {
  unsigned rank, size;
};
CELLC_DEVICE void tell_started(GridSum* grid) {
  if (threadIdx.x == 0) atomicAdd(&grid->started, 1u);
}
/// Of someone who waits for other blocks: after every so many looks it is asked whether all of them run.
struct SpinLimit {
  unsigned looks = 0;
  CELLC_DEVICE bool is_over(const GridSum* grid) {
    return ++looks % 256 == 0 && *static_cast<const volatile unsigned*>(&grid->started) != gridDim.x;
  }
};

/// Of a block, in its first thread.
CELLC_DEVICE unsigned long long block_sum(unsigned* sums, unsigned own) {
  const unsigned of_warp = warp_sum(own);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = of_warp;
  __syncthreads();
  unsigned long long sum = 0;
  CELLC_UNROLL(1)
  for (unsigned w = 0; w < blockDim.x / 32; ++w) sum += sums[w];
  return sum;
}

struct Gathered {
  unsigned sum, passed;
  ActiveBlocks active_blocks;
};
/// The first barrier of a call. `barrier` counts on from one to the next, alike in all threads that go on. kOrders:
/// what was written before is seen after. Otherwise nothing but the sum is passed on, which takes half as long. Bits 16
/// to 31 of the word count who has left, and change only while somebody is still to come: whoever has seen all arrive
/// knows how many.
template <bool kOrders>
CELLC_DEVICE Gathered gather(GridSum* grid, unsigned barrier, unsigned own) {
  __shared__ unsigned sums[kMostWarps];
  __shared__ unsigned told[3];
  const unsigned long long sum = block_sum(sums, own);
  if (threadIdx.x == 0) {
    constexpr unsigned kArrived = 0xffffu, kLeft = 0x10000u;
    unsigned long long* const slot = grid->slot + barrier % 3;
    if (kOrders) __threadfence();
    unsigned long long now = atomicAdd(slot, sum << 32 | 1u) + (sum << 32 | 1u);
    const bool is_last = (static_cast<unsigned>(now) & kArrived) == gridDim.x;
    bool leaves = false;
    SpinLimit patience;
    while (!leaves && (static_cast<unsigned>(now) & kArrived) != gridDim.x) {
      now = load_relaxed(slot);
      if (!patience.is_over(grid)) continue;
      __threadfence();
      leaves = (static_cast<unsigned>(now) & kArrived) != gridDim.x && atomicCAS(slot, now, now + kLeft) == now;
    }
    const unsigned left = static_cast<unsigned>(now) / kLeft;
    told[0] = static_cast<unsigned>(now >> 32);
    told[1] = is_last && left ? 0 : blockIdx.x;
    told[2] = leaves ? 0 : !left ? gridDim.x : is_last ? 1 : 0;
    // Those who have stayed in vain tell the last one that their rows are there.
    unsigned long long* const after = grid->slot + (barrier + 1) % 3;
    if (left && !leaves) {
      if (is_last) {
        while (load_relaxed(after) != gridDim.x - left - 1) {
        }
      } else {
        __threadfence();
        atomicAdd(after, 1ull);
      }
    }
    if (kOrders || left) __threadfence();
    // All have left the barrier before this one, and its word is next used in the barrier after the next.
    if (told[1] == 0 && told[2]) store_relaxed(grid->slot + (barrier + 2) % 3, 0);
    if (left && is_last) store_relaxed(slot, 0);
  }
  __syncthreads();
  return {told[0], barrier + (told[2] == gridDim.x ? 1u : 2u), {told[1], told[2]}};
}

/// One copy for all barriers but that of most calls: each would take a ninth as long to compile as a walk.
CELLC_APART Gathered gather_in_order(GridSum* grid, unsigned barrier, unsigned own) {
  return gather<true>(grid, barrier, own);
}
/// Any barrier after the first, of the active blocks alone.
CELLC_APART unsigned sum_in_order(GridSum* grid, unsigned passed, unsigned own, ActiveBlocks active_blocks) {
  __shared__ unsigned sums[kMostWarps + 1];
  const unsigned long long sum = block_sum(sums, own);
  if (threadIdx.x == 0) {
    unsigned long long* const slot = grid->slot + passed % 3;
    unsigned long long now;
    add_release(slot, sum << 32 | 1u);
    do now = load_acquire(slot);
    while (static_cast<unsigned>(now) != active_blocks.size);
    if (active_blocks.rank == 0) store_relaxed(grid->slot + (passed + 2) % 3, 0);
    sums[kMostWarps] = static_cast<unsigned>(now >> 32);
  }
  __syncthreads();
  return sums[kMostWarps];
}

// Values that carry the number of the call that wrote them: they need no order, and zeros are of no call.

/// The number of a call by that of the last one. Never zero, though it wraps (calls of 10 us come there in half a day);
/// and odd after even, even after odd, since what is kept by turns goes by that.
CELLC_DEVICE unsigned call_after(unsigned last) { return last == 0xffffffffu ? 2 : last + 1; }
constexpr int kHalves = sizeof(Real) / 4;  ///< words of a number
/// `apart`: from one half to the next.
CELLC_DEVICE void publish(unsigned long long* at, long long apart, unsigned call, Real value) {
  const unsigned long long mark = static_cast<unsigned long long>(call) << 32;
#ifdef CELLC_STORAGE_F64
  const unsigned long long bits = static_cast<unsigned long long>(__double_as_longlong(value));
  store_relaxed(at, mark | (bits & 0xffffffffu));
  store_relaxed(at + apart, mark | bits >> 32);
#else
  store_relaxed(at, mark | __float_as_uint(value));
#endif
}
/// Whether this call has published it.
CELLC_DEVICE bool look_at(const unsigned long long* at, long long apart, unsigned call, Real& value) {
  const unsigned long long low = load_relaxed(at);
#ifdef CELLC_STORAGE_F64
  const unsigned long long high = load_relaxed(at + apart);
  value = __hiloint2double(static_cast<int>(high), static_cast<int>(low));
  return low >> 32 == call && high >> 32 == call;
#else
  value = __uint_as_float(static_cast<unsigned>(low));
  return low >> 32 == call;
#endif
}

}  // namespace cellc
