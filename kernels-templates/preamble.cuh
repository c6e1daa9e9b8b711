// What every generated translation unit starts with: number types, loads and stores, the few PTX
// instructions that C++ does not reach, and what the emulator of the tests puts in their place.
// Small on purpose: NVRTC compiles it each time, and <cuda/std> alone would take longer than a kernel.
//
// The unit defines one of CELLC_STORAGE_F32, _F64, _F16, _BF16 before. Arrays in memory hold `Stored`;
// arithmetic, carried states, starts, finals and params are `Real`.
#pragma once

#define CELLC_DEVICE __device__ __forceinline__
#define CELLC_APART static __device__ __noinline__
#ifdef CELLC_EMULATOR
#define CELLC_UNROLL(n)
#else
#define CELLC_PRAGMA(text) _Pragma(#text)
#define CELLC_UNROLL(n) CELLC_PRAGMA(unroll n)
#endif
#ifndef CELLC_DYNAMIC_SHARED
#define CELLC_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
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

#ifdef CELLC_NARROW
constexpr bool kNarrow = true;   ///< what is written is rounded; what is carried is not
#else
constexpr bool kNarrow = false;
#endif

// Numbers in memory ---------------------------------------------------------------------------------

#if defined(CELLC_STORAGE_BF16)
CELLC_DEVICE Real widen(Stored bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }
/// To nearest even; NaN stays NaN.
CELLC_DEVICE Stored narrow(Real value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<Stored>((value != value ? bits | 0x400000u : rounded) >> 16);
}
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
#endif
#else
CELLC_DEVICE Real widen(Stored value) { return value; }
CELLC_DEVICE Stored narrow(Real value) { return value; }
#endif

CELLC_DEVICE Real load(const Stored* at) { return widen(*at); }
CELLC_DEVICE void store(Stored* at, Real value) { *at = narrow(value); }

CELLC_DEVICE bool is_finite(Real value) { return value - value == Real(0); }
CELLC_DEVICE Real magnitude(Real value) { return value < Real(0) ? -value : value; }

// Copies from memory to shared memory that run beside the arithmetic (sm_80) ------------------------------

#ifdef CELLC_EMULATOR
template <int kBytes>
CELLC_DEVICE void copy_async(void* to, const void* from) { cellc_emulator::cp_async(to, from, kBytes); }
CELLC_DEVICE void copy_commit() { cellc_emulator::cp_async_commit(); }
template <int kPending>
CELLC_DEVICE void copy_wait() { cellc_emulator::cp_async_wait(kPending); }
#else
/// 4, 8 or 16 bytes, each side aligned to as many. Sixteen bypass the first-level cache.
template <int kBytes>
CELLC_DEVICE void copy_async(void* to, const void* from) {
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(to));
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared), "l"(from), "n"(kBytes) : "memory");
  }
}
CELLC_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Until at most kPending groups of this thread are under way.
template <int kPending>
CELLC_DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory"); }
#endif

// Within a warp --------------------------------------------------------------------------------------------

CELLC_DEVICE unsigned warp_sum(unsigned value) {
  for (int reach = 16; reach; reach /= 2) value += __shfl_xor_sync(0xffffffffu, value, reach);
  return value;
}
CELLC_DEVICE unsigned warp_max(unsigned value) {
  for (int reach = 16; reach; reach /= 2) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, value, reach);
    value = other > value ? other : value;
  }
  return value;
}

// Between blocks -----------------------------------------------------------------------------------------

#ifdef CELLC_EMULATOR
CELLC_DEVICE unsigned load_acquire(const unsigned* at) { cellc_emulator::yield(); return *at; }
CELLC_DEVICE void store_release(unsigned* at, unsigned value) { *at = value; }
CELLC_DEVICE unsigned add_release(unsigned* at, unsigned value) { return atomicAdd(at, value); }
CELLC_DEVICE unsigned long long load_relaxed(const unsigned long long* at) { return cellc_emulator::load_volatile(at); }
CELLC_DEVICE void store_relaxed(unsigned long long* at, unsigned long long value) { cellc_emulator::store_volatile(at, value); }
#else
CELLC_DEVICE unsigned load_acquire(const unsigned* at) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
CELLC_DEVICE void store_release(unsigned* at, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
CELLC_DEVICE unsigned add_release(unsigned* at, unsigned value) {
  unsigned before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(value) : "memory");
  return before;
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

/// A barrier of all blocks of a grid that are resident at once. What was written before it is seen after
/// it. `state` starts as zeros and is as before once all have passed, so a kernel may use it again.
struct GridBarrier {
  unsigned arrived;
  unsigned generation;
};
CELLC_DEVICE void wait_for_grid(GridBarrier* barrier) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned generation = load_acquire(&barrier->generation);
    if (add_release(&barrier->arrived, 1u) == gridDim.x - 1) {
      barrier->arrived = 0;
      store_release(&barrier->generation, generation + 1);
    } else {
      while (load_acquire(&barrier->generation) == generation) {
      }
    }
  }
  __syncthreads();
}

}  // namespace cellc
