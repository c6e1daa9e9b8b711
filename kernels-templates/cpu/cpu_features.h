/* What processors of x86 have that not all of them have, and where CPUID says it: all that LLVM makes of plain code.
 * FEATURE(LLVM's name, leaf, subleaf, register, bit, state): registers are EAX, EBX, ECX, EDX from 0 on; state: the
 * bits of XCR0 that the system has to set besides, as it keeps registers that wide. */
#ifndef CELLC_CPU_FEATURES_H
#define CELLC_CPU_FEATURES_H

#define CELLC_YMM 0x06
#define CELLC_ZMM 0xe6

#define CELLC_CPU_FEATURES(FEATURE)                    \
  FEATURE("sse3", 1, 0, 2, 0, 0)                       \
  FEATURE("ssse3", 1, 0, 2, 9, 0)                      \
  FEATURE("fma", 1, 0, 2, 12, CELLC_YMM)               \
  FEATURE("cx16", 1, 0, 2, 13, 0)                      \
  FEATURE("sse4.1", 1, 0, 2, 19, 0)                    \
  FEATURE("sse4.2", 1, 0, 2, 20, 0)                    \
  FEATURE("movbe", 1, 0, 2, 22, 0)                     \
  FEATURE("popcnt", 1, 0, 2, 23, 0)                    \
  FEATURE("avx", 1, 0, 2, 28, CELLC_YMM)               \
  FEATURE("f16c", 1, 0, 2, 29, CELLC_YMM)              \
  FEATURE("bmi", 7, 0, 1, 3, 0)                        \
  FEATURE("avx2", 7, 0, 1, 5, CELLC_YMM)               \
  FEATURE("bmi2", 7, 0, 1, 8, 0)                       \
  FEATURE("avx512f", 7, 0, 1, 16, CELLC_ZMM)           \
  FEATURE("avx512dq", 7, 0, 1, 17, CELLC_ZMM)          \
  FEATURE("avx512ifma", 7, 0, 1, 21, CELLC_ZMM)        \
  FEATURE("avx512cd", 7, 0, 1, 28, CELLC_ZMM)          \
  FEATURE("avx512bw", 7, 0, 1, 30, CELLC_ZMM)          \
  FEATURE("avx512vl", 7, 0, 1, 31, CELLC_ZMM)          \
  FEATURE("avx512vbmi", 7, 0, 2, 1, CELLC_ZMM)         \
  FEATURE("avx512vbmi2", 7, 0, 2, 6, CELLC_ZMM)        \
  FEATURE("gfni", 7, 0, 2, 8, 0)                       \
  FEATURE("avx512vnni", 7, 0, 2, 11, CELLC_ZMM)        \
  FEATURE("avx512bitalg", 7, 0, 2, 12, CELLC_ZMM)      \
  FEATURE("avx512vpopcntdq", 7, 0, 2, 14, CELLC_ZMM)   \
  FEATURE("avx512vp2intersect", 7, 0, 3, 8, CELLC_ZMM) \
  FEATURE("avx512fp16", 7, 0, 3, 23, CELLC_ZMM)        \
  FEATURE("avxvnni", 7, 1, 0, 4, CELLC_YMM)            \
  FEATURE("avx512bf16", 7, 1, 0, 5, CELLC_ZMM)         \
  FEATURE("avxifma", 7, 1, 0, 23, CELLC_YMM)           \
  FEATURE("avxvnniint8", 7, 1, 3, 4, CELLC_YMM)        \
  FEATURE("avxneconvert", 7, 1, 3, 5, CELLC_YMM)       \
  FEATURE("avxvnniint16", 7, 1, 3, 10, CELLC_YMM)      \
  FEATURE("sahf", 0x80000001u, 0, 2, 0, 0)             \
  FEATURE("lzcnt", 0x80000001u, 0, 2, 5, 0)            \
  FEATURE("sse4a", 0x80000001u, 0, 2, 6, 0)            \
  FEATURE("prfchw", 0x80000001u, 0, 2, 8, 0)           \
  FEATURE("xop", 0x80000001u, 0, 2, 11, CELLC_YMM)     \
  FEATURE("fma4", 0x80000001u, 0, 2, 16, CELLC_YMM)    \
  FEATURE("tbm", 0x80000001u, 0, 2, 21, 0)

#endif
