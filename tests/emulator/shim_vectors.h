// CUDA's vector types, with CUDA's alignments: a misaligned access traps here as it does on a card.
#pragma once

#define CELLC_EMULATOR_VECTORS(type, base, align2, align4)                    \
  struct type##1 {                                                            \
    base x;                                                                   \
  };                                                                          \
  struct __align__(align2) type##2 {                                          \
    base x, y;                                                                \
  };                                                                          \
  struct type##3 {                                                            \
    base x, y, z;                                                             \
  };                                                                          \
  struct __align__(align4) type##4 {                                          \
    base x, y, z, w;                                                          \
  };                                                                          \
  inline type##1 make_##type##1(base x) { return {x}; }                       \
  inline type##2 make_##type##2(base x, base y) { return {x, y}; }            \
  inline type##3 make_##type##3(base x, base y, base z) { return {x, y, z}; } \
  inline type##4 make_##type##4(base x, base y, base z, base w) { return {x, y, z, w}; }

CELLC_EMULATOR_VECTORS(char, signed char, 2, 4)
CELLC_EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
CELLC_EMULATOR_VECTORS(short, short, 4, 8)
CELLC_EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
CELLC_EMULATOR_VECTORS(int, int, 8, 16)
CELLC_EMULATOR_VECTORS(uint, unsigned, 8, 16)
CELLC_EMULATOR_VECTORS(longlong, long long, 16, 16)
CELLC_EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
CELLC_EMULATOR_VECTORS(float, float, 8, 16)
CELLC_EMULATOR_VECTORS(double, double, 16, 16)
#undef CELLC_EMULATOR_VECTORS

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
