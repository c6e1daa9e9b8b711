/* What a call of a cell that was compiled ahead of time returns, and what that means: for calls in C (host_cell.h) and
 * for those on a CPU (kernels-templates/cpu), in one wording. New results go to the
 * end. */
#ifndef CELLC_ABI_CALL_RESULTS
#define CELLC_ABI_CALL_RESULTS

#define CELLC_RESULTS(RESULT)                                                                                \
  RESULT(CELLC_DONE, "done")                                                                                 \
  RESULT(CELLC_NO_LENGTHS, "the struct of lengths is a null pointer")                                        \
  RESULT(CELLC_NO_BYTES, "the pointer to the workspace's size is null")                                      \
  RESULT(CELLC_NO_ARRAYS, "the struct of arrays is a null pointer")                                          \
  RESULT(CELLC_SHORT_AXIS, "the length of an axis is less than the cell needs")                              \
  RESULT(CELLC_NEGATIVE_SEQUENCES, "the number of sequences is negative")                                    \
  RESULT(CELLC_NEGATIVE_STEPS, "the number of steps is negative")                                            \
  RESULT(CELLC_OTHER_STEPS, "the number of steps is not the one that this was built for")                    \
  RESULT(CELLC_NO_PACKING, "offsets are given, but this was built for one number of steps")                  \
  RESULT(CELLC_BAD_OFFSETS, "the first of the offsets is not 0")                                             \
  RESULT(CELLC_NO_DEVICE_OFFSETS, "offsets are given, but not on the device")                                \
  RESULT(CELLC_TOO_LARGE, "the lengths are too large for any memory")                                        \
  RESULT(CELLC_NO_WORKSPACE, "the workspace is a null pointer")                                              \
  RESULT(CELLC_SMALL_WORKSPACE, "the workspace is smaller than was said")                                    \
  RESULT(CELLC_FOREIGN_WORKSPACE, "the workspace is not memory of the current device")                       \
  RESULT(CELLC_FOREIGN_STATUS, "the status array is not memory of the current device")                       \
  RESULT(CELLC_FOREIGN_OFFSETS, "device_offsets is not memory of the current device")                        \
  RESULT(CELLC_SMALL_CARD, "the device has less shared memory than this was built for")                      \
  RESULT(CELLC_NO_KERNEL,                                                                                    \
         "no kernel was built for arrays of this layout: more than four channel axes that cannot be merged") \
  RESULT(CELLC_NO_CODE, "there is no code for this device: build for its architecture")                      \
  RESULT(CELLC_NOT_LOADED, "no module is loaded")                                                            \
  RESULT(CELLC_TOO_WIDE,                                                                                     \
         "the entries of a channel lie more than 2^31 numbers apart, which these kernels do not reach")      \
  RESULT(CELLC_UNALIGNED_STATUS, "the status array is not aligned to its entries of 4 bytes")                \
  RESULT(CELLC_UNALIGNED_OFFSETS, "device_offsets is not aligned to its entries of 8 bytes")                 \
  RESULT(CELLC_DECREASING_OFFSETS, "the offsets decrease")                                                   \
  RESULT(CELLC_OTHER_LAYOUT, "the program was compiled with the header of another build of this cell")       \
  RESULT(CELLC_NO_PROCESSOR, "this machine's processor runs none of the code that this was built with")      \
  RESULT(CELLC_NO_DRIVER, "there is no CUDA driver: libcuda.so.1 is not found, or is older than CUDA 11")

/* Results that say which: the first of them, and what is added to it. */
#define CELLC_NUMBERED_RESULTS(RESULT)                                  \
  RESULT(CELLC_MISSING_FIELD, 100, "the number of a null pointer")      \
  RESULT(CELLC_FOREIGN_FIELD, 500, "that of what is not on the device") \
  RESULT(CELLC_DEVICE_ERROR, 1000, "the device's error, below 1000")    \
  RESULT(CELLC_UNALIGNED_FIELD, 2000, "that of what is not aligned")    \
  RESULT(CELLC_SHORT_AXES, 3000, "the number of an axis that is too short")

#define CELLC_RESULT_NUMBER(NAME, text) NAME,
#define CELLC_NUMBERED_RESULT(NAME, first, text) NAME = first,
enum {
  CELLC_RESULTS(CELLC_RESULT_NUMBER) CELLC_RESULT_COUNT,
  CELLC_NUMBERED_RESULTS(CELLC_NUMBERED_RESULT) CELLC_RESULT_END
};
#undef CELLC_RESULT_NUMBER
#undef CELLC_NUMBERED_RESULT

/* What a result means, where it is not about one array and not the device's own error. */
#define CELLC_RESULT_TEXT(NAME, text) \
  case NAME:                          \
    return text;
static inline const char* cellc_message(int result) {
  switch (result) {
    CELLC_RESULTS(CELLC_RESULT_TEXT)
    default:
      return "no such result";
  }
}
#undef CELLC_RESULT_TEXT

#endif
