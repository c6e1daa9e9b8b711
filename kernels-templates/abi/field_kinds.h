/* The kinds of arrays of a call, and all that follows from the kind alone. Enumerators for the compiler (FieldKind of
 * compiler/plan/call_layout.h), and for calls of shipped cells in C (cell_outline.h). */
#ifndef CELLC_ABI_FIELD_KINDS
#define CELLC_ABI_FIELD_KINDS

/* KIND(enumerator, C name, owner, layout, stored, written, absent, suffix, file):
 *   owner    Input, Param, State or Out: there is one array for each
 *   layout   Once       [a…]
 *            Rows       steps of sequences, with two strides behind the address; others lie row-major without gaps
 *            Sequences  [sequences, a…]
 *            History    [sequences, n, a…], newest first; only where the cell reads the owner at a lag
 *   stored   entries of the storage type; others have arithmetic precision: f32, or f64 for f64 storage
 *   written  by the call
 *   absent   what an array that is not given stands for. Nothing: it must be given. Declared: the value that the cell
 *            declares; if it declares none, nothing for a param and zeros for a start. Zeros. Start: the state's start.
 *            Unwanted: it is not written
 *   suffix   behind the owner's name, for calls; and `file`, for files and the command line
 * The rows stand in the order of a call's arrays; neighbours of one owner alternate, symbol by symbol. */
#define CELLC_FIELD_KINDS(KIND)                                                                      \
  KIND(Input, INPUT, Input, Rows, 1, 0, Nothing, "", "")                                             \
  KIND(Param, PARAM, Param, Once, 0, 0, Declared, "", "")                                            \
  KIND(State, STATE, State, Rows, 1, 1, Unwanted, "", "")                                            \
  KIND(Out, OUT, Out, Rows, 1, 1, Unwanted, "", "")                                                  \
  KIND(Start, START, State, Sequences, 0, 0, Declared, "_start", "")                                 \
  KIND(StateHistory, STATE_HISTORY, State, History, 0, 0, Start, "_lag", ".lag")                     \
  KIND(InputHistory, INPUT_HISTORY, Input, History, 1, 0, Zeros, "_lag", ".lag")                     \
  KIND(Final, FINAL, State, Sequences, 0, 1, Unwanted, "_final", ".final")                           \
  KIND(FinalStateHistory, FINAL_STATE_HISTORY, State, History, 0, 1, Unwanted, "_lag_final", ".lag") \
  KIND(FinalInputHistory, FINAL_INPUT_HISTORY, Input, History, 1, 1, Unwanted, "_lag_final", ".lag")

#define CELLC_FIELD_NUMBER(Name, NAME, ...) CELLC_FIELD_##NAME,
enum { CELLC_FIELD_KINDS(CELLC_FIELD_NUMBER) CELLC_FIELD_COUNT };
#undef CELLC_FIELD_NUMBER

#endif
