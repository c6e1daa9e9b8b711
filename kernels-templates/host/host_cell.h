/* What is known of a shipped cell before any call: its axes, arrays, parts and kernels, as tables that the
 * build prints (runtime/cuda/ship/print_aot.cc); and what calls answer. */
#ifndef CELLC_HOST_CELL
#define CELLC_HOST_CELL

#include "kernels-templates/host/host_nests.h"
#include "kernels-templates/host/host_plan.h"

enum { CELLC_MOST_AXES = 32 };

enum { CELLC_SYMBOL_INPUT, CELLC_SYMBOL_PARAM, CELLC_SYMBOL_STATE };
enum { CELLC_DEFAULT_NONE, CELLC_DEFAULT_NUMBER, CELLC_DEFAULT_COMPUTED };

typedef struct cellc_symbol {
  int kind;
  cellc_dims axes;
  int lag_of, lag;    /* a lagged copy of a state; -1: none */
  int line_of;        /* the delay line of a state, which kernels read as an input; -1: none */
  cellc_dims reaches; /* how deep a history is: cellc_depth_of */
  int default_kind, default_out;
  uint64_t number;   /* bits of an f64 */
  int read_by_nests; /* row kernels read it, or what it is written to; 2: only where new values are made again */
} cellc_symbol;

enum {
  CELLC_FROM_SYMBOL,
  CELLC_FROM_TRAJECTORY,
  CELLC_FROM_BEFORE,
  CELLC_FROM_ONCE,
  CELLC_FROM_SUM,
  CELLC_FROM_OUT,   /* where lanes write it */
  CELLC_FROM_REMADE /* the trajectory where new values were not made again */
};

typedef struct cellc_source {
  int kind, id; /* of a sum: its number in the stage; after the stages the part's number among all */
} cellc_source;

/* A cell without states: outs from arrays. */
typedef struct cellc_derived {
  const cellc_nests* rows;     /* null: there is none */
  const cellc_source* sources; /* by symbol */
  int source_count, out_count;
  const cellc_dims* outs; /* axes are those of cellc_outline::axes */
} cellc_derived;

/* Lanes of a stage in one of three forms: as they are, or making sums or outs of what they have just computed. */
typedef struct cellc_lanes {
  const cellc_stage* stage; /* null: there is no such form */
  cellc_derived once, before;
  const cellc_source* sources;   /* by symbol of the lane cell */
  const cellc_dims* sums;        /* axes of what is left of each */
  const cellc_variant* variants; /* kernels that it has */
  int variant_count, first_kernel;
} cellc_lanes;

/* What is made before a stage's lanes go over single steps: copies that lag, by out their positions; the last one makes
 * the states before each step, of all of the stage, and has none. */
typedef struct cellc_remade {
  cellc_derived made;
  const int* copies;
} cellc_remade;

typedef struct cellc_stage_part {
  cellc_stage_facts facts;
  const int* states; /* by state: position; then -1 */
  cellc_lanes plain, summing, making_outs;
  int stands_alone;           /* making_outs makes all outs of the cell, whose rows have 16 bits for that */
  const cellc_remade* remade; /* one after the other, where later stages read new values that are made again */
  const int* remade_states;   /* those, but for copies: positions; then -1 */
  int remade_count;
} cellc_stage_part;

/* The outs that are left, where lanes have made sums or some of them. */
enum { CELLC_MAKES_OUTS = -1 };
typedef struct cellc_reduced {
  const int* parts; /* by stage: of each of its sums, or CELLC_MAKES_OUTS; 0: it makes none */
  cellc_derived after;
} cellc_reduced;

enum { CELLC_MUST_AUTO = -1, CELLC_SOLVER_SEQUENTIAL = -2, CELLC_SCAN_ASKED = -3 }; /* else CELLC_ASK_* */

typedef struct cellc_cell {
  cellc_outline outline; /* in the struct of lengths: sequences, steps, offsets, device_offsets, reverse, keep */
  const cellc_symbol* symbols;
  const int* updates; /* by position: symbol */
  const cellc_dims* outs;
  int symbol_count, update_count, out_count, stage_count;
  int storage, running, real; /* types: of the caller's rows, of rows on the way, of arithmetic */
  const cellc_stage_part* stages;
  cellc_derived whole; /* all of the cell as row kernels; then there are no stages */
  cellc_derived after, defaults, starts;
  const cellc_reduced* reduced; /* in place of `after`, one for each way of making sums that there is code for */
  int reduced_count;
  int solver;
  double tolerance;
  int64_t control_bytes;
  int copy_kernel, offsets_kernel, history_kernel, kernel_count;
  int64_t shared_per_block, shared_per_multiprocessor; /* of the least card that kernels are built for */
} cellc_cell;

/* Whether anything but the kernel that has a state reads its rows. Where nothing does, there need be none: the address
 * may be 0. */
static inline int cellc_reads_state_rows(const cellc_nests* rows, int state) {
  int k, i, p, others = 0;
  for (k = 0; k < rows->kernel_count; ++k)
    for (i = 0; i < rows->kernels[k].slots; ++i) {
      const cellc_slot slot = rows->slots[rows->kernels[k].first_slot + i];
      /* Who has the state holds it in memory of its own; a persistent kernel's is planned elsewhere. */
      const int own = rows->kernels[k].form == CELLC_PERSISTENT ? CELLC_FINAL : CELLC_LOCAL_STATE;
      if (slot.id == state) others += (slot.kind == CELLC_STATE_ROW) - (slot.kind == own);
    }
  for (p = 0; p < rows->phase_count; ++p)
    if (rows->phases[p].is_product) {
      const cellc_product* product = rows->products + rows->phases[p].index;
      others += product->operand == CELLC_OF_STATE && product->operand_id == state;
    }
  return others > 0;
}

#endif
