/* The arguments and forms of kernels of whole steps, in the order of their numbers: enumerators for the compiler
 * (compiler/codegen_cuda/emit_cuda_nests.h), and for the host in C (host_nest_kernels.h). */
#ifndef CELLC_ABI_NEST_SLOTS
#define CELLC_ABI_NEST_SLOTS

/* KIND(enumerator, C name): what `id` of the slot means, and what its 8 bytes hold.
 *   Length        header axis
 *   Param         symbol; arithmetic precision
 *   Once          Plan::once
 *   Input         symbol; row 0 of the run
 *   InputStride   symbol; entries from row to row
 *   History       symbol; [sequences, depth, a...]
 *   HistoryDepth  symbol
 *   Start         position; [sequences, a...], arithmetic precision. Null: zeros
 *   Final         position; likewise, written; also what carries a state from window to window
 *   StateRow      position; written row 0 of the run
 *   Out           out; row 0 of the run
 *   Chunk         Plan::chunks; arithmetic precision
 * A block's own memory, in entries: at this place of shared memory, or -1 - place of its scratch. Flat kernels: an
 * address.
 *   LocalTemp     Plan::temps
 *   LocalState    position; old and new, one after the other
 *   LocalScalars  values without axes; id: how many */
#define CELLC_SLOT_KINDS(KIND)      \
  KIND(Length, LENGTH)              \
  KIND(Param, PARAM)                \
  KIND(Once, ONCE)                  \
  KIND(Input, INPUT)                \
  KIND(InputStride, INPUT_STRIDE)   \
  KIND(History, HISTORY)            \
  KIND(HistoryDepth, HISTORY_DEPTH) \
  KIND(Start, START)                \
  KIND(Final, FINAL)                \
  KIND(StateRow, STATE_ROW)         \
  KIND(Out, OUT)                    \
  KIND(Chunk, CHUNK)                \
  KIND(LocalTemp, LOCAL_TEMP)       \
  KIND(LocalState, LOCAL_STATE)     \
  KIND(LocalScalars, LOCAL_SCALARS)

#define CELLC_NEST_FORMS(KIND) \
  KIND(Steps, STEPS)           \
  KIND(Tile, TILE)             \
  KIND(Flat, FLAT)             \
  KIND(Persistent, PERSISTENT)

#define CELLC_NEST_NUMBER(Name, NAME) CELLC_##NAME,
enum { CELLC_SLOT_KINDS(CELLC_NEST_NUMBER) CELLC_SLOT_COUNT };
enum { CELLC_NEST_FORMS(CELLC_NEST_NUMBER) CELLC_FORM_COUNT };
#undef CELLC_NEST_NUMBER

#endif
