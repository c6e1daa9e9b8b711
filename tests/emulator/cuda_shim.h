// CUDA C++ for the host: read before every source that the emulator compiles. Keywords, built-in
// variables, barriers, warp intrinsics and atomics; shim_math.h has the functions, shim_vectors.h the
// vector types. What is missing here is missing on purpose until a kernel needs it.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <type_traits>
#include <utility>

#include "shim_interface.h"

// C's own <math.h>: that of libstdc++ is much to compile. Its overloads are in
// shim_math.h.
#define _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include <math.h>
#undef _GLIBCXX_INCLUDE_NEXT_C_HEADERS
#include "cmath"  // here, for kernels may include it inside of a namespace

// The emulator looks for these two words in the text (host_compiler.cc): a kernel gets an entry that unpacks its
// arguments. What is shared lies in the object's thread-local segment, which is what the emulator exchanges between
// blocks. That works inside templates too, where a section would not.
#define __global__ __attribute__((visibility("default")))
#define __shared__ static thread_local
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
// Not by force: without optimisation a kernel would be compiled twice as long, and with it the compiler knows better.
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(condition) ((void)0)
// In CUDA: extern __shared__ __align__(16) type name[];
#define CELLC_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::cellc_emulator::current->dynamic_shared)

namespace cellc_emulator {

// One name in every object; set on loading, before any kernel runs.
static const Services* services;
static const Thread* current;
static thread_local char shared_anchor;  // so that there is a thread-local segment to find

extern "C" __attribute__((visibility("default"))) const Thread** cellc_emulator_attach(const Services* given) {
  services = given;
  return &current;
}
extern "C" __attribute__((visibility("default"))) void* cellc_emulator_shared() {
  *const_cast<volatile char*>(&shared_anchor) = 0;
  return &shared_anchor;
}

template <class... A, size_t... I>
inline void call_unpacked(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<std::remove_cv_t<A>*>(arguments[I])...);
}
template <class... A>
inline void call(void (*kernel)(A...), void** arguments) {
  call_unpacked(kernel, arguments, std::index_sequence_for<A...>());
}

// ---- what wrappers of PTX call ----

/// In a loop that waits for others.
inline void yield(const char* what = "a loop") { services->yield(what); }

template <class T>
inline T load_volatile(const T* from) {
  services->yield("a load that may wait");
  return *const_cast<const volatile T*>(from);
}
template <class T>
inline T load_acquire(const T* from) {
  return load_volatile(from);
}
template <class T>
inline void store_volatile(T* to, std::type_identity_t<T> value) {
  services->preempt();
  *const_cast<volatile T*>(to) = value;
  services->progress();
}
template <class T>
inline void store_release(T* to, std::type_identity_t<T> value) {
  store_volatile(to, value);
}

/// cp.async: the bytes arrive at the wait for their group, not before; until then the target holds NaN.
/// Fewer `source_bytes` than bytes: the rest is zero. 4, 8 or 16 bytes, aligned, to shared memory.
inline void cp_async(void* to, const void* from, unsigned bytes, unsigned source_bytes) {
  services->copy_begin(to, from, bytes, source_bytes);
}
inline void cp_async(void* to, const void* from, unsigned bytes) { cp_async(to, from, bytes, bytes); }
inline void cp_async_commit() { services->copy_commit(); }
inline void cp_async_wait(unsigned groups_left) { services->copy_wait(groups_left); }
inline void cp_async_wait_all() { services->copy_wait_all(); }

/// bar.sync id, threads
inline void named_barrier(int id, int threads) { services->barrier(id, threads, BarrierKind::Plain, 0); }

inline void fail(const char* message) { services->fail(message); }

template <class To, class From>
inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

template <class T, class Change>
inline T atomic(T* at, Change change) {
  services->preempt();
  const T old = *const_cast<volatile T*>(at);
  const T next = change(old);
  if (__builtin_memcmp(&old, &next, sizeof old) == 0) {
    services->yield("an atomic that changes nothing");  // perhaps one of a loop that waits
  } else {
    *const_cast<volatile T*>(at) = next;
    services->progress();
  }
  return old;
}

template <class T>
inline T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
  unsigned long long word = 0;
  __builtin_memcpy(&word, &value, sizeof value);
  word = services->warp(WarpKind::Shuffle, mask, word, source);
  __builtin_memcpy(&value, &word, sizeof value);
  return value;
}
inline unsigned segment_of_lane(int width) { return current->lane & ~unsigned(width - 1); }

}  // namespace cellc_emulator

#include "shim_math.h"
#include "shim_vectors.h"

#define threadIdx (::cellc_emulator::current->thread)
#define blockIdx (::cellc_emulator::current->block)
#define blockDim (::cellc_emulator::current->block_dim)
#define gridDim (::cellc_emulator::current->grid_dim)
#define warpSize 32

#undef assert
#define CELLC_EMULATOR_TEXT2(x) #x
#define CELLC_EMULATOR_TEXT(x) CELLC_EMULATOR_TEXT2(x)
#define assert(condition) \
  ((condition) ? (void)0  \
               : ::cellc_emulator::fail(__FILE__ ":" CELLC_EMULATOR_TEXT(__LINE__) ": assertion failed: " #condition))
inline void __trap() { ::cellc_emulator::fail("__trap()"); }

// ---- barriers and fences ----

inline void __syncthreads() { cellc_emulator::services->barrier(0, 0, cellc_emulator::BarrierKind::Plain, 0); }
inline int __syncthreads_or(int predicate) {
  return cellc_emulator::services->barrier(0, 0, cellc_emulator::BarrierKind::Or, predicate);
}
inline int __syncthreads_and(int predicate) {
  return cellc_emulator::services->barrier(0, 0, cellc_emulator::BarrierKind::And, predicate);
}
inline int __syncthreads_count(int predicate) {
  return cellc_emulator::services->barrier(0, 0, cellc_emulator::BarrierKind::Count, predicate);
}
inline void __threadfence() { cellc_emulator::services->preempt(); }
inline void __threadfence_block() { cellc_emulator::services->preempt(); }
inline void __threadfence_system() { cellc_emulator::services->preempt(); }
inline void __nanosleep(unsigned) { cellc_emulator::services->yield("__nanosleep"); }
inline long long clock64() { return cellc_emulator::services->clock(); }
inline int clock() { return int(cellc_emulator::services->clock()); }

// ---- warps ----

inline void __syncwarp(unsigned mask = 0xffffffffu) {
  cellc_emulator::services->warp(cellc_emulator::WarpKind::Sync, mask, 0, 0);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return unsigned(cellc_emulator::services->warp(cellc_emulator::WarpKind::Ballot, mask, predicate != 0, 0));
}
inline unsigned __reduce_add_sync(unsigned mask, unsigned value) {
  return unsigned(cellc_emulator::services->warp(cellc_emulator::WarpKind::Sum, mask, value, 0));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value) {
  return unsigned(cellc_emulator::services->warp(cellc_emulator::WarpKind::Max, mask, value, 0));
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }
inline unsigned __activemask() { return cellc_emulator::services->active_lanes(); }

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return cellc_emulator::shuffle(mask, value,
                                 cellc_emulator::segment_of_lane(width) + (unsigned(source) & unsigned(width - 1)));
}
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  unsigned same = 0;
  for (int lane = 0; lane < 32; ++lane) {
    const bool there = mask >> lane & 1;
    if (there && __shfl_sync(mask, value, lane) == value) same |= 1u << lane;
  }
  return same;
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = cellc_emulator::current->lane;
  const bool inside = (lane & unsigned(width - 1)) >= delta;
  return cellc_emulator::shuffle(mask, value, inside ? lane - delta : lane);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned lane = cellc_emulator::current->lane;
  const bool inside = (lane & unsigned(width - 1)) + delta < unsigned(width);
  return cellc_emulator::shuffle(mask, value, inside ? lane + delta : lane);
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
  const unsigned lane = cellc_emulator::current->lane, other = lane ^ unsigned(lanes);
  // As the card has it: a lane of an earlier segment may be read, one of a later segment may not.
  const bool inside = other < cellc_emulator::segment_of_lane(width) + unsigned(width);
  return cellc_emulator::shuffle(mask, value, inside ? other : lane);
}

// ---- atomics: threads of the emulator never run at the same time ----

template <class T>
inline T atomicAdd(T* at, std::type_identity_t<T> value) {
  return cellc_emulator::atomic(at, [&](T old) { return T(old + value); });
}
template <class T>
inline T atomicSub(T* at, std::type_identity_t<T> value) {
  return cellc_emulator::atomic(at, [&](T old) { return T(old - value); });
}
template <class T>
inline T atomicMax(T* at, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicMax for integers only");
  return cellc_emulator::atomic(at, [&](T old) { return old < value ? value : old; });
}
template <class T>
inline T atomicMin(T* at, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicMin for integers only");
  return cellc_emulator::atomic(at, [&](T old) { return value < old ? value : old; });
}
template <class T>
inline T atomicExch(T* at, std::type_identity_t<T> value) {
  return cellc_emulator::atomic(at, [&](T) { return value; });
}
template <class T>
inline T atomicCAS(T* at, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicCAS for integers only");
  return cellc_emulator::atomic(at, [&](T old) { return old == expected ? value : old; });
}
template <class T>
inline T atomicOr(T* at, std::type_identity_t<T> value) {
  return cellc_emulator::atomic(at, [&](T old) { return T(old | value); });
}
template <class T>
inline T atomicAnd(T* at, std::type_identity_t<T> value) {
  return cellc_emulator::atomic(at, [&](T old) { return T(old & value); });
}
template <class T>
inline T atomicXor(T* at, std::type_identity_t<T> value) {
  return cellc_emulator::atomic(at, [&](T old) { return T(old ^ value); });
}
inline unsigned atomicInc(unsigned* at, unsigned limit) {
  return cellc_emulator::atomic(at, [&](unsigned old) { return old >= limit ? 0u : old + 1; });
}

// ---- loads and stores that only hint at caches ----

template <class T>
inline T __ldg(const T* from) {
  return *from;
}
template <class T>
inline T __ldca(const T* from) {
  return *from;
}
template <class T>
inline T __ldcs(const T* from) {
  return *from;
}
template <class T>
inline T __ldlu(const T* from) {
  return *from;
}
// Past the first-level cache: what loops wait with.
template <class T>
inline T __ldcg(const T* from) {
  cellc_emulator::services->preempt();
  return *from;
}
template <class T>
inline T __ldcv(const T* from) {
  cellc_emulator::services->yield("__ldcv");
  return *from;
}
template <class T>
inline void __stcs(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <class T>
inline void __stcg(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <class T>
inline void __stwb(T* to, std::type_identity_t<T> value) {
  *to = value;
}
template <class T>
inline void __stwt(T* to, std::type_identity_t<T> value) {
  *to = value;
}
