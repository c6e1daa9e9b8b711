/* Numbers as arrays of 16 bits hold them. A part of cpu_call.c. */

/* A number rounded so that a second rounding, to 16 bits, gives what a single one would have given: where it is
 * inexact, the neighbour whose last bit is set. */
INLINE float rounded_to_odd(double wide, float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if ((double)value == wide || wide != wide || __builtin_fabsf(value) == __builtin_inff()) return value;
  bits = (bits - (__builtin_fabs((double)value) > __builtin_fabs(wide))) | 1;
  memcpy(&value, &bits, 4);
  return value;
}

/* An f32 that the type of 16 bits can hold; to nearest, ties to even. */
INLINE float narrowed(int storage, float value) {
  uint32_t bits;
  if (storage == CELLC_F16) return (float)(_Float16)value;
  if (value != value) return value;
  memcpy(&bits, &value, 4); /* in whole numbers: not every processor has bfloat */
  bits = (bits + 32767 + ((bits >> 16) & 1)) & 0xffff0000u;
  memcpy(&value, &bits, 4);
  return value;
}

/* Numbers in arithmetic precision as rows hold them, and back. */
INLINE void to_storage(const cellc_cpu_cell* cell, uint64_t to, uint64_t from, int64_t count) {
  int64_t i;
  if (!is_narrow(cell)) {
    move(to, from, count * real_bytes(cell));
    return;
  }
  for (i = 0; i < count; ++i) {
    const float value = narrowed(cell->numbers.storage, ((const float*)from)[i]);
    uint32_t bits;
    if (cell->numbers.storage == CELLC_F16) {
      ((_Float16*)to)[i] = (_Float16)value;
    } else {
      memcpy(&bits, &value, 4);
      ((uint16_t*)to)[i] = (uint16_t)(bits >> 16 | (value != value ? 64 : 0));
    }
  }
}
INLINE void from_storage(const cellc_cpu_cell* cell, uint64_t to, uint64_t from, int64_t count) {
  int64_t i;
  if (!is_narrow(cell)) {
    move(to, from, count * real_bytes(cell));
    return;
  }
  for (i = 0; i < count; ++i) {
    if (cell->numbers.storage == CELLC_F16) {
      ((float*)to)[i] = (float)((const _Float16*)from)[i];
    } else {
      const uint32_t bits = (uint32_t)((const uint16_t*)from)[i] << 16;
      memcpy((float*)to + i, &bits, 4);
    }
  }
}
