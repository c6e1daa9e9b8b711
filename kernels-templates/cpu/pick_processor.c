/* What a cell's file asks before it runs code for one of several processors: runtime/build/dispatch.cc links it into
 * the cell's module, beside what each of them needs. Compiled for the oldest processor that there is. */
#include "kernels-templates/cpu/pick_processor.h"

/* Of the cell's module. */
extern const uint64_t cellc_needs[];
extern const int cellc_need_count;

#ifdef __x86_64__
static void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]) {
  __asm__ volatile("cpuid"
                   : "=a"(registers[0]), "=b"(registers[1]), "=c"(registers[2]), "=d"(registers[3])
                   : "a"(leaf), "c"(subleaf));
}

static uint64_t xcr0(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

static int ask(void) {
  const cellc_machine machine = {cpuid, xcr0};
  return cellc_best(&machine, cellc_needs, cellc_need_count);
}
#else
static int ask(void) { return cellc_need_count; }
#endif

/* Which, from 1; 0: none. Threads that ask for the first time together find the same. */
int cellc_pick(void) {
  static int answer; /* and 1; 0: nobody has asked */
  int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
  if (!known) {
    known = ask() + 1;
    __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
  }
  return known - 1;
}
