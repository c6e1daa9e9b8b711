/* Which of the processors that code is for this machine can stand in for. */
#ifndef CELLC_PICK_PROCESSOR_H
#define CELLC_PICK_PROCESSOR_H

#include <stdint.h>

#include "kernels-templates/cpu/cpu_features.h"

/* What a machine says of itself: the four registers of CPUID, and XCR0. */
typedef struct cellc_machine {
  void (*cpuid)(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]);
  uint64_t (*xcr0)(void); /* called where CPUID says that it may be */
} cellc_machine;

/* The features of a machine, one bit each in the order of the table. */
static uint64_t cellc_features(const cellc_machine* machine) {
  static const struct {
    uint32_t leaf, subleaf, place, bit, state;
  } table[] = {
#define CELLC_FEATURE(name, leaf, subleaf, place, bit, state) {leaf, subleaf, place, bit, state},
      CELLC_CPU_FEATURES(CELLC_FEATURE)
#undef CELLC_FEATURE
  };
  enum { COUNT = sizeof table / sizeof *table, OS_HAS_XSAVE = 27 };
  uint32_t said[4] = {0, 0, 0, 0};
  uint64_t features = 0, kept = 0;
  uint32_t most[2], subleaves = 0;
  machine->cpuid(0, 0, said);
  most[0] = said[0];
  machine->cpuid(0x80000000u, 0, said);
  most[1] = said[0];
  machine->cpuid(1, 0, said);
  if (said[2] >> OS_HAS_XSAVE & 1) kept = machine->xcr0();
  if (most[0] >= 7) {
    machine->cpuid(7, 0, said);
    subleaves = said[0];
  }
  for (int f = 0; f < (int)COUNT; ++f) {
    /* A leaf that there is not answers with numbers of another. */
    if (table[f].leaf > most[table[f].leaf >> 31] || table[f].subleaf > subleaves) continue;
    machine->cpuid(table[f].leaf, table[f].subleaf, said);
    if ((said[table[f].place] >> table[f].bit & 1) && (kept & table[f].state) == table[f].state)
      features |= (uint64_t)1 << f;
  }
  return features;
}

/* The last of the processors that needs nothing else, counted from 1; 0: none. */
static int cellc_best(const cellc_machine* machine, const uint64_t* needs, int count) {
  const uint64_t features = cellc_features(machine);
  while (count > 0 && (needs[count - 1] & ~features)) --count;
  return count;
}

#endif
