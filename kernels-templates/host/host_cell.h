/* What is known of a shipped cell before any call: its axes, arrays, parts and kernels, as tables that the
 * build prints (runtime/cuda/ship/print_aot.cc); and what calls answer. */
#ifndef CELLC_HOST_CELL
#define CELLC_HOST_CELL

#include "kernels-templates/host/host_nests.h"
#include "kernels-templates/host/host_plan.h"

enum { CELLC_MOST_AXES = 32 };

enum {
  CELLC_FIELD_PARAM,
  CELLC_FIELD_INPUT,
  CELLC_FIELD_INPUT_HISTORY,
  CELLC_FIELD_START,
  CELLC_FIELD_STATE_HISTORY,
  CELLC_FIELD_STATE,
  CELLC_FIELD_OUT,
  CELLC_FIELD_FINAL,
  CELLC_FIELD_FINAL_STATE_HISTORY,
  CELLC_FIELD_FINAL_INPUT_HISTORY
};

/* An array of the caller's: its word in the struct of arrays. Rows have two strides behind the address. */
typedef struct cellc_field {
  int kind, id, word, required;
} cellc_field;

enum { CELLC_SYMBOL_INPUT, CELLC_SYMBOL_PARAM, CELLC_SYMBOL_STATE };
enum { CELLC_DEFAULT_NONE, CELLC_DEFAULT_NUMBER, CELLC_DEFAULT_COMPUTED };

typedef struct cellc_symbol {
  int kind;
  cellc_dims axes;
  int lag_of, lag;    /* a lagged copy of a state; -1: none */
  cellc_dims reaches; /* pairs in cellc_cell::axes, lag and axis (-1: none), that say how deep a history is */
  int default_kind, default_out;
  uint64_t number;   /* bits of an f64 */
  int read_by_nests; /* row kernels read it, or what it is written to */
} cellc_symbol;

enum { CELLC_FROM_SYMBOL, CELLC_FROM_TRAJECTORY, CELLC_FROM_BEFORE, CELLC_FROM_ONCE };

typedef struct cellc_source {
  int kind, id;
} cellc_source;

/* A cell without states: outs from arrays. */
typedef struct cellc_derived {
  const cellc_nests* rows;     /* null: there is none */
  const cellc_source* sources; /* by symbol */
  int source_count, out_count;
  const cellc_dims* outs; /* axes are those of cellc_cell::axes */
} cellc_derived;

typedef struct cellc_stage_part {
  const cellc_stage* stage;
  cellc_stage_facts facts;
  cellc_derived once, before;
  const cellc_source* sources;   /* by symbol of the lane cell */
  const int* states;             /* by state: position */
  const cellc_variant* variants; /* kernels that it has */
  int variant_count, first_kernel;
} cellc_stage_part;

enum { CELLC_F32, CELLC_F64, CELLC_F16, CELLC_BF16 };

enum { CELLC_MUST_AUTO = -1, CELLC_SOLVER_SEQUENTIAL = -2, CELLC_SCAN_ASKED = -3 }; /* else CELLC_ASK_* */

typedef struct cellc_cell {
  int axis_count;
  const int64_t* fixed; /* by axis: its length, or -1 */
  const int64_t* least; /* by axis */
  const int* axis_word; /* by axis: in the struct of lengths, or -1 */
  int first_word;       /* of sequences, steps, offsets, device_offsets, reverse, keep */
  int64_t fixed_steps;  /* or -1 */
  const int* axes;
  const cellc_field* fields;
  const cellc_symbol* symbols;
  const int* updates; /* by position: symbol */
  const cellc_dims* outs;
  int field_count, symbol_count, update_count, out_count, stage_count;
  int storage, running, real; /* types: of the caller's rows, of rows on the way, of arithmetic */
  const cellc_stage_part* stages;
  cellc_derived whole; /* all of the cell as row kernels; then there are no stages */
  cellc_derived after, defaults, starts;
  int solver;
  double tolerance;
  int64_t control_bytes;
  int copy_kernel, offsets_kernel, history_kernel, kernel_count;
  int64_t shared_per_block, shared_per_multiprocessor; /* of the least card that kernels are built for */
} cellc_cell;

enum {
  CELLC_DONE,
  CELLC_NO_LENGTHS,
  CELLC_NO_BYTES,
  CELLC_NO_ARRAYS,
  CELLC_SHORT_AXIS,
  CELLC_NEGATIVE_SEQUENCES,
  CELLC_NEGATIVE_STEPS,
  CELLC_OTHER_STEPS,
  CELLC_NO_PACKING,
  CELLC_BAD_OFFSETS,
  CELLC_NO_DEVICE_OFFSETS,
  CELLC_TOO_LARGE,
  CELLC_NO_WORKSPACE,
  CELLC_SMALL_WORKSPACE,
  CELLC_FOREIGN_WORKSPACE,
  CELLC_FOREIGN_STATUS,
  CELLC_FOREIGN_OFFSETS,
  CELLC_SMALL_CARD,
  CELLC_NO_KERNEL,
  CELLC_NO_CODE,
  CELLC_NOT_LOADED,
  CELLC_TOO_WIDE,
  CELLC_UNALIGNED_STATUS,
  CELLC_UNALIGNED_OFFSETS,
  CELLC_MISSING_FIELD = 100, /* and the field's number */
  CELLC_FOREIGN_FIELD = 500,
  CELLC_DEVICE_ERROR = 1000, /* and the error's number, which is below 1000 */
  CELLC_UNALIGNED_FIELD = 2000
};

/* What a result means, where it is not about one array and not the device's own error. */
static inline const char* cellc_message(int result) {
  switch (result) {
    case CELLC_DONE:
      return "done";
    case CELLC_NO_LENGTHS:
      return "the struct of lengths is a null pointer";
    case CELLC_NO_BYTES:
      return "the pointer to the workspace's size is null";
    case CELLC_NO_ARRAYS:
      return "the struct of arrays is a null pointer";
    case CELLC_SHORT_AXIS:
      return "the length of an axis is less than the cell needs";
    case CELLC_NEGATIVE_SEQUENCES:
      return "the number of sequences is negative";
    case CELLC_NEGATIVE_STEPS:
      return "the number of steps is negative";
    case CELLC_OTHER_STEPS:
      return "the number of steps is not the one that this was built for";
    case CELLC_NO_PACKING:
      return "offsets are given, but this was built for one number of steps";
    case CELLC_BAD_OFFSETS:
      return "the offsets do not begin with 0, or decrease";
    case CELLC_NO_DEVICE_OFFSETS:
      return "offsets are given, but not on the device";
    case CELLC_TOO_LARGE:
      return "the lengths are too large for any memory";
    case CELLC_NO_WORKSPACE:
      return "the workspace is a null pointer";
    case CELLC_SMALL_WORKSPACE:
      return "the workspace is smaller than was said";
    case CELLC_FOREIGN_WORKSPACE:
      return "the workspace is not memory of the current device";
    case CELLC_FOREIGN_STATUS:
      return "the status array is not memory of the current device";
    case CELLC_FOREIGN_OFFSETS:
      return "device_offsets is not memory of the current device";
    case CELLC_SMALL_CARD:
      return "the device has less shared memory than this was built for";
    case CELLC_NO_KERNEL:
      return "no kernel was built for arrays of this layout: more than four channel axes that cannot be "
             "merged";
    case CELLC_NO_CODE:
      return "there is no code for this device: build for its architecture";
    case CELLC_TOO_WIDE:
      return "the entries of a channel lie more than 2^31 numbers apart, which these kernels do not reach";
    case CELLC_UNALIGNED_STATUS:
      return "the status array is not aligned to its entries of 4 bytes";
    case CELLC_UNALIGNED_OFFSETS:
      return "device_offsets is not aligned to its entries of 8 bytes";
    case CELLC_NOT_LOADED:
      return "no module is loaded";
    default:
      return "no such result";
  }
}

#endif
