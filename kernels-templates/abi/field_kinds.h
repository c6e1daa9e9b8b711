/* The kinds of arrays of a call, in the order of their numbers: enumerators for the compiler (FieldKind of
 * compiler/plan/call_layout.h), and for calls of shipped cells in C (cell_outline.h). */
#ifndef CELLC_ABI_FIELD_KINDS
#define CELLC_ABI_FIELD_KINDS

/* KIND(enumerator, C name, rows, written, storage, history):
 *   rows     steps of sequences, with two strides behind the address; others lie row-major without gaps
 *   written  by the call
 *   storage  entries of the storage type; others have arithmetic precision
 *   history  [sequences, n, a...], newest first
 * Without rows and history: [a...] of a param, else [sequences, a...]. */
#define CELLC_FIELD_KINDS(KIND)                            \
  KIND(Param, PARAM, 0, 0, 0, 0)                           \
  KIND(Input, INPUT, 1, 0, 1, 0)                           \
  KIND(InputHistory, INPUT_HISTORY, 0, 0, 1, 1)            \
  KIND(Start, START, 0, 0, 0, 0)                           \
  KIND(StateHistory, STATE_HISTORY, 0, 0, 0, 1)            \
  KIND(State, STATE, 1, 1, 1, 0)                           \
  KIND(Out, OUT, 1, 1, 1, 0)                               \
  KIND(Final, FINAL, 0, 1, 0, 0)                           \
  KIND(FinalStateHistory, FINAL_STATE_HISTORY, 0, 1, 0, 1) \
  KIND(FinalInputHistory, FINAL_INPUT_HISTORY, 0, 1, 1, 1)

#define CELLC_FIELD_NUMBER(Name, NAME, rows, written, storage, history) CELLC_FIELD_##NAME,
enum { CELLC_FIELD_KINDS(CELLC_FIELD_NUMBER) CELLC_FIELD_COUNT };
#undef CELLC_FIELD_NUMBER

#endif
