/* A cell whose sequences run on a CPU by itself, as tables: compiler/codegen_llvm/emit_llvm_driver.cc writes them
 * beside the cell's kernels, and cpu_call.c runs calls by them. Rows of tables are ints alone, so that they are printed
 * and read as arrays of ints. */
#ifndef CELLC_CPU_CELL
#define CELLC_CPU_CELL

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels-templates/abi/cell_outline.h"
#include "kernels-templates/abi/side_by_side.h"

/* Steps that run between two visits of the call where rows go to the workspace, and fewer where so many rows were
 * larger than CELLC_BLOCK_BYTES: half and half again, down to two. Even: which of a pair of carried buffers holds the
 * state is then the same at the start of every block. */
enum { CELLC_BLOCK_STEPS = 32, CELLC_BLOCK_BYTES = 1 << 20 };

/* Numbers and addresses of a call, 8 bytes each, in sections; a kernel's slots are picked from them. */
enum {
  CELLC_LENGTHS,    /* by axis */
  CELLC_AREAS,      /* by area: address; before that its offset */
  CELLC_PARAMS,     /* by param: address */
  CELLC_ROWS,       /* by rows: the row of the block's first step */
  CELLC_STRIDES,    /* by rows: bytes from step to step in the order of the run */
  CELLC_HISTORIES,  /* by history: address, of the sequence */
  CELLC_OLDS,       /* by state: address of the state before the block's first step */
  CELLC_TIME,       /* one: steps of the sequence before the block */
  CELLC_ZERO,       /* one */
  CELLC_LANES,      /* one: sequences that lie side by side; 0: they run one after another */
  CELLC_LANE_STEPS, /* by lane rows: bytes from step to step */
  /* What no kernel asks for. */
  CELLC_ENTRIES, /* by shape */
  CELLC_GIVEN,   /* by rows: the caller's array; 0: the area takes its place */
  CELLC_APART,   /* by rows: bytes from sequence to sequence */
  CELLC_FIRST,   /* by rows: the row of the sequence's first step in the order of the run */
  CELLC_STARTS,  /* by state: address, of the sequence */
  CELLC_KEPT,    /* by rows: those of the sequence that the area holds before the block */
  CELLC_SECTIONS
};

/* A part of the workspace: entries of a shape, of one step, of a block of steps or of a history. */
typedef struct cellc_area {
  int shape, bytes, of_block;
  int back;           /* of a block: so many steps before it are read through a delay line; 0: none */
  cellc_dims reaches; /* count 0: no history */
  int beside;         /* CELLC_OF_EVERY_CALL, … */
} cellc_area;
/* Of every call; of those whose sequences lie side by side: once, or for every lane. */
enum { CELLC_OF_EVERY_CALL, CELLC_BESIDE_ONCE, CELLC_BY_LANE };

typedef struct cellc_param {
  int field, area; /* area: of its default; -1: it has none */
} cellc_param;

/* Rows that kernels read or write. */
typedef struct cellc_rows {
  int field, area, shape,
      reads; /* field -1: the workspace's; area -1: an input has no other place, else it has zeros */
  int bytes; /* of an entry */
  /* Of a backward call: the state before each step. Every step reads the row of the step that the call runs after it;
   * the last one reads a start: a field, and zeros that take its place. Area -1: no such rows. */
  int start, start_area;
} cellc_rows;

typedef struct cellc_history {
  int field, final, area, rows, shape; /* of an input: fields, its default, the input's own rows */
  /* Of a delay line: fields of its state, whose start and copies that lag come first; the area has it all. */
  int state, copies; /* state -1: of an input */
} cellc_history;

typedef struct cellc_state {
  int shape, rows, carried, spare; /* areas; spare: of narrow storage */
  int start, area;                 /* field, and the area of its default; of a lagged copy its parent's */
  int is_computed;                 /* that default; else zeros */
  int history, final;              /* fields; history -1: no lagged copy. final: of a copy among the parent's history */
  int lag;
  cellc_dims reaches; /* of the parent's history */
} cellc_state;

/* Backward calls. A param's gradient: an area of f64, summed up over all steps of all sequences; then it is written. */
typedef struct cellc_gradient {
  int field, area, shape;
  int lane_area; /* of sequences side by side: the sums of each lane; -1: they never lie so */
} cellc_gradient;
/* What is added to it at every step: Σ left·right over the loops that the gradient has no axis of. Of the gradient,
 * left and right (rows; right -1: there is none) the loops that their axes are, in their order. */
typedef struct cellc_step_product {
  int gradient, left, right;
  cellc_dims loops; /* header axes whose lengths they have */
  cellc_dims of_gradient, of_left, of_right;
  int lane_left, lane_right; /* of `lane_rows` */
} cellc_step_product;

/* Backward calls. Rows of the workspace that hold, at each step of a block, what rows of the caller's had some steps
 * before, in the numbers that are computed in. Steps are those of the forward run. */
typedef struct cellc_earlier {
  int rows, source;   /* of `rows` */
  int lane_rows;      /* of sequences side by side; -1 */
  int back, along;    /* steps; axis: as many of them as it is long, one step further back each; -1: one */
  int is_state;       /* one step before the first it has its start, and then its history */
  int in_line;        /* the forward run read all of that through a delay line, which is of rows' numbers */
  int start, history; /* fields: where the rows end; -1: zeros, or that history is of starts */
  cellc_dims reaches; /* of the history */
} cellc_earlier;
/* The transpose: rows of the workspace that are added to what the steps read some steps back. */
typedef struct cellc_later {
  int rows, target; /* of `rows` */
  int lane_rows;    /* of sequences side by side; -1 */
  int back, along;
  int history; /* field */
  cellc_dims reaches;
} cellc_later;
/* The gradient of a history; `adds`: it is a sum, and so begins with zeros. */
typedef struct cellc_past {
  int field, shape, adds;
  cellc_dims reaches;
} cellc_past;
/* What a state of the adjoint leaves for what was before the first step: a copy that lags, for the start where no
 * history is given; what is still under way in a delay line, for the start and the history. */
typedef struct cellc_onward {
  int state, lag, is_line;
  int start, history, given; /* fields: gradients; -1: it has its own already. And the history */
  cellc_dims reaches;        /* of that */
} cellc_onward;

/* Sequences side by side: `rows` as lanes have them; of an input, what it was some steps back. Of rows of the workspace
 * that are made for one sequence after another (`earlier`, `later`): through them, a lane's block of steps at a time.
 */
typedef struct cellc_lane_rows {
  int rows, area;
  int places; /* area: by lane, the address of its next row */
  int back, history;
} cellc_lane_rows;
/* By state: areas of what it is before the next step, and of narrow storage of what it is after an odd one. */
typedef struct cellc_lane_state {
  int lane_rows, held, carried;
} cellc_lane_state;

typedef struct cellc_cell_kernel {
  int first_slot, slots; /* of cellc_cpu_cell::slots: places among the values */
  int split;             /* axis, all of which it is to do; -1: none; -2: all lanes */
} cellc_cell_kernel;

/* Defaults that the cell computes: in f64, whatever its arithmetic. */
typedef struct cellc_fill {
  int first_wide, wide_count;   /* of `wide`: params that they are computed from */
  int first_round, round_count; /* of `round`: what becomes of results */
  int first_kernel, kernels;
} cellc_fill;
typedef struct cellc_wide {
  int param, area, shape;
} cellc_wide;
typedef struct cellc_round {
  int from, to, shape; /* areas */
} cellc_round;

typedef void (*cellc_code)(const uint64_t* slots, int64_t steps, int64_t begin, int64_t end);

typedef struct cellc_words {
  int result;
  const char* text;
} cellc_words;

/* TABLE(type of a row, name) */
#define CELLC_CPU_TABLES(TABLE)                                         \
  TABLE(int, places) /* by section: where it begins among the values */ \
  TABLE(cellc_dims, shapes)                                             \
  TABLE(cellc_area, areas)                                              \
  TABLE(cellc_param, params)                                            \
  TABLE(cellc_rows, rows)                                               \
  TABLE(cellc_history, histories)                                       \
  TABLE(cellc_state, states)                                            \
  TABLE(cellc_cell_kernel, kernels) /* the steps', then others */       \
  TABLE(int, slots)                                                     \
  TABLE(cellc_gradient, gradients)                                      \
  TABLE(cellc_step_product, products)                                   \
  TABLE(int, zeros)   /* areas that are cleared once a call */          \
  TABLE(int, cleared) /* rows that no kernel writes: zeros at first */  \
  TABLE(cellc_earlier, earlier)                                         \
  TABLE(cellc_later, later)                                             \
  TABLE(cellc_past, past)                                               \
  TABLE(cellc_onward, onward)                                           \
  TABLE(cellc_lane_rows, lane_rows)                                     \
  TABLE(cellc_lane_state, lane_states)                                  \
  TABLE(cellc_wide, wide)                                               \
  TABLE(cellc_round, round)

typedef struct cellc_numbers {
#define CELLC_COUNT(Row, name) int name;
  struct {
    CELLC_CPU_TABLES(CELLC_COUNT)
    int words;
  } count;
#undef CELLC_COUNT
  int most_slots;                /* of a kernel */
  int step_kernels, once_kernel; /* once_kernel: values of params; -1: none */
  int storage;                   /* CELLC_F32, …: of rows of the workspace */
  int rows_storage;              /* of the caller's; gradients are as the workspace's */
  int is_backward;               /* time runs against the order that is asked for */
  /* Sequences side by side. Lanes of a vector, 0: never; whether cellc_lie_side_by_side may ask for many of them. */
  int lane_vector, in_registers;
  int first_lane_kernel, lane_kernels, lane_once; /* lane_once: -1: none */
  cellc_fill defaults, starts;
} cellc_numbers;

typedef struct cellc_cpu_cell {
  cellc_outline outline;
#define CELLC_TABLE(Row, name) const Row* name;
  CELLC_CPU_TABLES(CELLC_TABLE)
#undef CELLC_TABLE
  const cellc_code* codes;  /* by kernel */
  const cellc_words* words; /* the last: of no such result */
  const char* about;
  int64_t layout; /* of the structs of a call: what a header of the same build passes */
  cellc_numbers numbers;
} cellc_cpu_cell;

#endif
