/* cellc from C: compile a cell at run time, look at what was derived of it, run it.
 *
 * No function prints, exits or lets an exception through. One that can fail returns a cellc_status, and the
 * thread's last error then says what was wrong and, for a cell's text, where. A call that is refused has written
 * nothing; one that fails later, for want of memory or through the device, may have written some of its rows.
 * Every function may be called from every thread; handles may be shared. One that is freed must not be in use.
 *
 * Structs that a program fills begin with their size, so that later versions can lengthen them: fill them with
 * the _init macros, then set what differs, or set them to zero and `size` to their size. A struct that is longer than
 * the library knows is refused. Those that describe are written whole, and stay as long as they are.
 *
 * The library's symbols are versioned: a program that needs more than a library has, or another API version, is not
 * loaded. One that looks symbols up itself asks cellc_api_require.
 */
#ifndef CELLC_H
#define CELLC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CELLC_API_VERSION 1 /* raised where a program has to be changed or compiled again */
#define CELLC_API_MINOR 1   /* raised where something was added */
#if defined(__GNUC__)
#define CELLC_API __attribute__((visibility("default")))
#else
#define CELLC_API
#endif

/* The same as the exit statuses of the command line. */
typedef enum {
  CELLC_OK = 0,
  CELLC_WRONG_INPUT = 1,    /* the cell or an array is wrong */
  CELLC_WRONG_USAGE = 2,    /* a request that cannot be meant, such as a null handle */
  CELLC_NOT_CONVERGED = 3,  /* and repair was switched off; results are written all the same */
  CELLC_DEVICE_FAILED = 4,  /* the device, the code generator, the file system or memory */
  CELLC_INTERNAL_FAULT = 5, /* a mistake in cellc */
  CELLC_CANCELLED = 6       /* by the caller; of no command line */
} cellc_status;

/* C++, too, may hand over a number that none of these has; it is refused. */
#ifdef __cplusplus
typedef enum : int
#else
typedef enum
#endif
{ CELLC_F32 = 0,
  CELLC_F64 = 1,
  CELLC_F16 = 2,
  CELLC_BF16 = 3 } cellc_dtype;

CELLC_API int cellc_api_version(void); /* of the library: CELLC_API_VERSION of its header */
CELLC_API const char* cellc_version(void);
/* Of the program that asks: whether it can use this library. (1, 0) is the first. */
CELLC_API cellc_status cellc_api_require(int version, int minor);

/* Of the calling thread; "" before the first. Valid until the thread's next failing call. */
CELLC_API const char* cellc_last_error(void);
/* Counted from 1; both 0 where the error is about no place of a text. Either pointer may be null. */
CELLC_API void cellc_last_error_position(int* line, int* column);

/* What kind of thing the thread's last error is about, for programs that go on differently. */
typedef int cellc_error;
enum {
  CELLC_ERROR_NONE = 0,
  CELLC_ERROR_CELL = 1,    /* the text is no cell, or has not the one that was asked for */
  CELLC_ERROR_ARRAY = 2,   /* an array of a call: its size, dtype, strides or memory; or a shape */
  CELLC_ERROR_REQUEST = 3, /* null handles, numbers that there are not, options */
  CELLC_ERROR_SOLVER = 4,  /* the cell does not admit the solver */
  CELLC_ERROR_NOT_CONVERGED = 5,
  CELLC_ERROR_NO_DEVICE = 6, /* no driver, no such GPU, or one that cannot be used */
  CELLC_ERROR_MEMORY = 7,    /* too little, on the host or on the device */
  CELLC_ERROR_DEVICE = 8,    /* the device, a code generator or the file system */
  CELLC_ERROR_INTERNAL = 9,
  CELLC_ERROR_CANCELLED = 10,
  CELLC_ERROR_NO_NVRTC = 11 /* since API 1.1: there is such a GPU, and no compiler for it */
};
CELLC_API cellc_error cellc_last_error_kind(void);

/* One of all that is wrong with a cell's text, in the order of the text. Pointers are valid as the last error's. */
typedef struct {
  size_t size; /* set by the caller: what is longer is not written */
  int line, column;
  size_t offset, length; /* bytes of the text */
  const char* message;
  const char* note; /* a remedy, or "" */
} cellc_diagnostic;
CELLC_API int cellc_last_error_diagnostics(void); /* 0 where the error is about no text */
/* Where this is refused, too, the last error stays what it is. */
CELLC_API cellc_status cellc_last_error_diagnostic(int number, cellc_diagnostic* diagnostic);

/* Devices -------------------------------------------------------------------------------------- */

typedef struct {
  size_t size;         /* set by the caller: what is longer is not written */
  char name[128];      /* "NVIDIA H200"; of the CPU, what LLVM calls it */
  int major, minor;    /* compute capability; of the CPU 0 */
  int multiprocessors; /* of the CPU: threads that run at once */
  int64_t memory_bytes;
} cellc_device_info;

/* "cpu", "cuda", "cuda:1": CELLC_OK where kernels can be compiled for it, otherwise the last error says why not. Opens
 * the device. To list GPUs, count up from "cuda:0" until CELLC_ERROR_NO_DEVICE. */
CELLC_API cellc_status cellc_device_describe(const char* device, cellc_device_info* info);

/* Compiling ------------------------------------------------------------------------------------ */

typedef struct cellc_kernel cellc_kernel; /* a cell, derived and compiled */

typedef struct {
  size_t size;
  const char* cell;      /* which, where the text has several; null: the only one */
  cellc_dtype dtype;     /* storage; arithmetic is f64 for f64, else f32 */
  const char* device;    /* "cpu", or null for it; "cuda", the first GPU; "cuda:1" */
  const char* cpu;       /* null: this machine's. A name, such as "x86-64-v3", fixes the bits of results */
  const char* solver;    /* null: "auto"; else "sequential" or another that `cellc run --help` lists */
  int threads;           /* of a CPU; 0: all cores */
  const char* cache_dir; /* where compiled code is kept, and what was measured: runs on a CPU then follow the plans that
                            `cellc tune` found, and costs that the first of them measures; null: nowhere */
  double tolerance;   /* 0 or less: the dtype's default, but see has_tolerance; infinity and NaN are refused. On a GPU
                         scans of gradients take sixteen of the default, and one that is named as it stands */
  int max_iterations; /* 0: the default. Of forward calls, as are solver, plan and no_repair */
  int no_repair;      /* what a solver leaves is reported, with CELLC_NOT_CONVERGED, and not made again */
  int trust_scans; /* calls on arrays of a GPU, of derivatives too: scans do not look at what composed maps were rounded
                      by, which may be several tolerances, nor are later stages kept from it
                      (docs/notes/device-scan.md has what looking costs) */
  /* Since API 1.1. */
  const char* plan; /* null: the planner's choice; else as cellc_report or `cellc run --json` has it */
  /* Memory for arrays on the host: null, or both. `allocate` gives null where there is none. They are called from any
   * thread that works for a call, until the kernel and its prepared calls are freed. Code and what describes a cell
   * lie elsewhere. */
  void* (*allocate)(void* allocator, size_t bytes, size_t alignment);
  void (*release)(void* allocator, void* memory, size_t bytes);
  void* allocator;
  /* The same of a kernel of a GPU for all that its calls hold there: workspaces, tables, copies of arrays. The address
   * is one of the GPU. They are called on threads that make calls, trim or free, also while a graph is captured where
   * the call is the first of its kind. Kernels that are under way may still use what is released, so that, like
   * cuMemFree, the function waits for the device before anybody else has that memory. */
  void* (*allocate_on_device)(void* allocator, size_t bytes, size_t alignment);
  void (*release_on_device)(void* allocator, void* memory, size_t bytes);
  /* What a GPU multiplies in where rows meet a matrix of params, as `cellc run --products` has it: "3xtf32", or null
   * for it (errors like those of f32), "f32", "tf32", "bf16", "storage" (as rows are stored, where that has 16 bits;
   * gradients then by the same, those of f16 scaled into its range, and tangents of f16 by tf32). f64 and CPUs keep
   * their arithmetic. */
  const char* products;
  /* Not 0: on a GPU a forward call that is made again gives the same bits, whatever else runs there. Plans then follow
   * from shapes alone, and calls where channels are few or states remember for long take longer
   * (docs/notes/cuda-strategies.md has what is promised, and what it costs). Calls of a CPU, gradients and tangents
   * repeat theirs without it. */
  int deterministic;
  /* Not 0: `tolerance` is meant as it stands, 0 or more. 0: the bits that the solver "sequential" gives, whichever is
   * named. */
  int has_tolerance;
  /* What is tolerated of a state besides `tolerance`, in its own units, as `cellc run --absolute-tolerance` has it:
   * "X", of every state, or "NAME=X", several with commas; null: nothing. Gradients and tangents keep to `tolerance`.
   */
  const char* absolute_tolerance;
} cellc_options;

CELLC_API void cellc_options_init_sized(cellc_options* options, size_t size);
CELLC_API void cellc_options_init(cellc_options* options); /* the struct of the first version, as the next ones */
#define cellc_options_init(options) cellc_options_init_sized(options, sizeof(cellc_options))

/* `length` bytes of text; options may be null. */
CELLC_API cellc_status cellc_compile_text(const char* text, size_t length, const cellc_options* options,
                                          cellc_kernel** kernel);
CELLC_API cellc_status cellc_compile_file(const char* path, const cellc_options* options, cellc_kernel** kernel);
/* The name of cell `number` of a text, from 0 on; null with CELLC_OK: there are fewer. Valid until the thread's next
 * such call. */
CELLC_API cellc_status cellc_text_cell(const char* text, size_t length, int number, const char** name);

typedef struct {
  size_t size; /* set by the caller: what is longer is not written */
  const char* cell;
  cellc_dtype dtype, arithmetic;
  const char* device; /* as the options named it */
  const char* text;   /* of the whole file */
  const char* hash;   /* since API 1.1: SHA-256 of the text, in 64 digits */
} cellc_kernel_info;
CELLC_API cellc_status cellc_kernel_describe(cellc_kernel* kernel, cellc_kernel_info* info);
/* Those that it was compiled with; `size` is set by the caller, and what is longer is not written. What they point at
 * is valid as long as the kernel. */
CELLC_API cellc_status cellc_kernel_options(cellc_kernel* kernel, cellc_options* options);

CELLC_API void cellc_kernel_free(cellc_kernel* kernel); /* null is nothing to free */
/* Frees memory that a kernel keeps for its next calls and no call uses now. The next ones allocate, and may compile. */
CELLC_API cellc_status cellc_kernel_trim(cellc_kernel* kernel);

/* What was derived: structure, Jacobian, reasons. Valid as long as the kernel; null after an error. */
CELLC_API const char* cellc_inspect_text(cellc_kernel* kernel);
CELLC_API const char* cellc_inspect_json(cellc_kernel* kernel);

/* What a call needs ---------------------------------------------------------------------------- */

typedef struct {
  size_t size;
  const char* name;
  int64_t length; /* -1 where the cell leaves it open */
} cellc_axis;

typedef enum {
  CELLC_CONTIGUOUS, /* one row a step: [sequences, steps, axes], or [all steps, axes] with offsets */
  CELLC_SEQUENCES,  /* [sequences, axes] */
  CELLC_HISTORY,    /* [sequences, n, axes], the newest step first */
  CELLC_ONCE        /* [axes] */
} cellc_layout;

/* An input, param, state or out, or a start, final or history of one: "x", "W", "h", "y", "h_start",
 * "h_final", "x_lag", "x_lag_final". Params, starts and finals have arithmetic precision. */
typedef struct {
  size_t size;
  const char* name;
  cellc_layout layout;
  cellc_dtype dtype;
  int written;
  int required; /* others may be null: they have a default, or are not wanted */
  int axis_count;
  const int* axes; /* numbers of axes */
} cellc_array_info;

CELLC_API int cellc_axis_count(const cellc_kernel* kernel); /* -1 for null */
CELLC_API int cellc_array_count(const cellc_kernel* kernel);
CELLC_API cellc_status cellc_axis_describe(const cellc_kernel* kernel, int number, cellc_axis* axis);
CELLC_API cellc_status cellc_array_describe(const cellc_kernel* kernel, int number, cellc_array_info* info);
CELLC_API int cellc_axis_find(const cellc_kernel* kernel, const char* name); /* -1: there is none */
CELLC_API int cellc_array_find(const cellc_kernel* kernel, const char* name);

typedef struct {
  size_t size;
  const int64_t* lengths; /* of every axis, by number; null where the cell fixes them all */
  int64_t sequences;
  int64_t steps;          /* of each sequence; not read with offsets */
  const int64_t* offsets; /* [sequences + 1], from 0 on: packed sequences; or null */
  int reverse;            /* from the last step to the first */
} cellc_shape;

CELLC_API void cellc_shape_init_sized(cellc_shape* shape, size_t size);
CELLC_API void cellc_shape_init(cellc_shape* shape);
#define cellc_shape_init(shape) cellc_shape_init_sized(shape, sizeof(cellc_shape))
/* Entries of array `number` without gaps. */
CELLC_API cellc_status cellc_array_entries(const cellc_kernel* kernel, const cellc_shape* shape, int number,
                                           int64_t* entries);

/* Running -------------------------------------------------------------------------------------- */

/* Memory of the caller: on the host, or on its GPU for a kernel of a GPU. A row is contiguous; strides, in entries, are
 * for rows only: 0 stands for rows one after another. What is written may overlap nothing, but a final may be the
 * memory of its start. cellc_view, below, has strides for every axis. */
typedef struct {
  void* data;      /* null: the default; of a result: not wanted */
  int64_t entries; /* from data on; more than are needed are left alone */
  cellc_dtype dtype;
  int64_t sequence_stride, step_stride;
} cellc_array;

typedef int cellc_cache;
enum {
  CELLC_CACHE_OFF = 0,  /* nothing was found and nothing is kept: no cache_dir, or one that cannot be written */
  CELLC_CACHE_MISS = 1, /* some of the code was compiled, and is kept there */
  CELLC_CACHE_HIT = 2   /* all of it was there */
};

typedef struct {
  size_t size;
  int32_t* status; /* in: null, or [sequences], written: 0 converged, 1 not */
  int converged;
  double max_residual; /* after repair; over |value| + the largest of its lane so far, or a smaller one */
  double error_estimate;
  int64_t repaired;
  int64_t unconverged; /* sequences */
  int iterations;      /* largest of all stages */
  double compile_ms, run_ms;
  const char* plan; /* since API 1.1: how each stage was run, and why, as JSON; valid until the thread's next report */
  /* Since API 1.1. With `verify` of a call's options: the largest difference of what was written from a sequential run
   * in f64, over |value| + the largest of its lane; infinite where only one of the two is a number. Else -1. */
  double verified;
  int stages; /* since API 1.1, as what follows: of cellc_report_stage */
  cellc_cache cache;
  /* in: null, or [sequences], written: a sequence's first step that has not converged; -1: all have */
  int64_t* first_bad;
  /* in: null, or [sequences], written: a sequence's first step at which a row that was written, of a state, an out, a
   * gradient or a tangent, has an entry that is not finite; -1: none has. Looking takes about as long as a copy of what
   * was written, on a GPU to the host. First is the step that was made first: of a backward call the last. */
  int64_t* first_non_finite;
} cellc_report;

CELLC_API void cellc_report_init_sized(cellc_report* report, size_t size);
CELLC_API void cellc_report_init(cellc_report* report);
#define cellc_report_init(report) cellc_report_init_sized(report, sizeof(cellc_report))

/* One of the stages of a step, which are solved one after another (cellc_inspect_json). Since API 1.1. */
typedef struct {
  size_t size;              /* set by the caller */
  const char* solver;       /* as options name it */
  const char* reason;       /* why it was chosen */
  int64_t segment, burn_in; /* steps of a segment, 0: the whole sequence; and how many earlier it starts */
  int iterations;
  double max_residual, error_estimate; /* as in cellc_report */
  int64_t repaired;
} cellc_stage;
/* Of the run that the thread's last report is of: stage `number`, from 0 on. Valid until the thread's next report. */
CELLC_API cellc_status cellc_report_stage(int number, cellc_stage* stage);

/* Whole sequences by the solver and the threads of the options. arrays[i] is array number i, `count` is
 * cellc_array_count. The report may be null. Any number of threads may do so at once.
 *
 * A result that is null is not written, nor made where it need not be: of a state that is null, here and in all calls
 * below, only a few steps are in memory at a time where the cell runs step by step. Results that are written have the
 * bits that they have in a full call. Derivatives read states at every step: who wants them later gives an array. */
CELLC_API cellc_status cellc_forward(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays,
                                     int count, cellc_report* report);

/* The same for one shape, many times, at the least cost of a call: step by step, on the calling thread,
 * without allocating. Any number of threads may run one prepared call at once. For decoding: one step, with
 * h_start and h_final the same memory. */
typedef struct cellc_call cellc_call;

CELLC_API cellc_status cellc_prepare(cellc_kernel* kernel, const cellc_shape* shape, cellc_call** call);
CELLC_API cellc_status cellc_run(cellc_call* call, const cellc_array* arrays, int count);
CELLC_API void cellc_call_free(cellc_call* call);
/* What a run needs besides its arrays. On a CPU a call keeps that much for every run that was under way at a time, and
 * cellc_call_trim frees it; cellc_run_in is cellc_run in memory of the caller, aligned to 64 bytes. On a GPU it is what
 * the call holds there now for all its runs, with copies of views that were taken: tables that one run leaves for the
 * next, so cellc_run_in is refused, and the caller's memory is that of allocate_on_device. */
CELLC_API cellc_status cellc_call_workspace(cellc_call* call, int64_t* bytes);
CELLC_API cellc_status cellc_run_in(cellc_call* call, const cellc_array* arrays, int count, void* workspace,
                                    int64_t bytes);
CELLC_API cellc_status cellc_call_trim(cellc_call* call);

/* Derivatives ---------------------------------------------------------------------------------- */

/* A kernel runs in three directions, each with arrays of its own; those of CELLC_FORWARD are the arrays above, by the
 * same numbers. For a loss L of what a run writes:
 *
 * CELLC_BACKWARD reads what the forward run read, the states that it wrote, and cotangents of its results, dL/dstate
 * and so on; it writes gradients, dL/dinput and so on. Null for a cotangent: zeros, at no cost. Null for a gradient:
 * not wanted.
 *
 * CELLC_TANGENT reads the same values, and tangents of what the run reads, which together are one direction; it writes
 * how the results move. Null for a tangent that is read: that does not move.
 *
 * A caller keeps from the forward run the arrays of these directions that are values and `required`, and no others:
 * gates and the like are computed again. Arrays that were null then, for their defaults, are null again: derivatives
 * flow through the defaults to what they are computed from. */
typedef int cellc_direction; /* like the next three a number, for bindings of other languages */
enum { CELLC_FORWARD = 0, CELLC_BACKWARD = 1, CELLC_TANGENT = 2 };

typedef int cellc_quantity;
enum { CELLC_IS_VALUE = 0, CELLC_IS_COTANGENT = 1, CELLC_IS_GRADIENT = 2, CELLC_IS_TANGENT = 3 };

typedef int cellc_role;
enum {
  CELLC_ROLE_INPUT = 0,
  CELLC_ROLE_PARAM = 1,
  CELLC_ROLE_STATE = 2, /* of every step */
  CELLC_ROLE_OUT = 3,
  CELLC_ROLE_START = 4, /* of a state */
  CELLC_ROLE_FINAL = 5,
  CELLC_ROLE_HISTORY = 6, /* of an input or a state, before the first step */
  CELLC_ROLE_FINAL_HISTORY = 7
};

typedef int cellc_null; /* what a null pointer stands for */
enum {
  CELLC_NULL_IS_REFUSED = 0, /* but of rows where there are none */
  CELLC_NULL_IS_DECLARED = 1,
  CELLC_NULL_IS_ZERO = 2,
  CELLC_NULL_IS_START = 3, /* of a history: all steps before the first were the start */
  CELLC_NULL_IS_UNWANTED = 4
};

typedef struct {
  size_t size;       /* set by the caller: what is longer is not written */
  const char* name;  /* no two of a direction have one: "x", "h.start", "h.final", "x.lag", "gradient.h.start" */
  const char* owner; /* the input, param, state or out: "h" */
  cellc_role role;
  cellc_quantity quantity;
  cellc_layout layout;
  /* Of values as in cellc_array_info. A cotangent or tangent of a 16-bit array has its 16 bits, all others and every
   * gradient have arithmetic precision. */
  cellc_dtype dtype;
  int written;
  cellc_null null;
  int required; /* null is refused; of a value of the other directions: where all cotangents or tangents are given */
  int axis_count;
  const int* axes;      /* numbers of axes */
  double low, high;     /* the range that the cell states; else infinities */
  const char* declared; /* the default as an expression, "2*a"; null: none is declared */
} cellc_call_array_info;

CELLC_API void cellc_call_array_info_init_sized(cellc_call_array_info* info, size_t size);
CELLC_API void cellc_call_array_info_init(cellc_call_array_info* info);
#define cellc_call_array_info_init(info) cellc_call_array_info_init_sized(info, sizeof(cellc_call_array_info))
CELLC_API int cellc_call_array_count(cellc_kernel* kernel, cellc_direction direction); /* -1: no such thing */
CELLC_API cellc_status cellc_call_array_describe(cellc_kernel* kernel, cellc_direction direction, int number,
                                                 cellc_call_array_info* info);
/* -1: there is none. */
CELLC_API int cellc_call_array_find(cellc_kernel* kernel, cellc_direction direction, cellc_quantity quantity,
                                    cellc_role role, const char* owner);
/* Lengths of array `number` without gaps, of rows [sequences, steps, axes], or [all steps, axes] with offsets. `rank`
 * says how many there are; those beyond `most` are not written. */
CELLC_API cellc_status cellc_call_array_shape(cellc_kernel* kernel, cellc_direction direction, const cellc_shape* shape,
                                              int number, int64_t* lengths, int most, int* rank);

/* arrays[i] is array i of the direction, `count` its cellc_call_array_count. `forward_status`: null, or [sequences] as
 * the forward run wrote it: derivatives about a trajectory that has not converged mean nothing, so where one sequence
 * has not, the call is refused with CELLC_NOT_CONVERGED and has written nothing. Gradients overlap nothing; cotangents
 * and values may overlap each other. The first call for a set of cotangents compiles its adjoint, which the kernel
 * keeps. Any number of threads may call at once. The report may be null; it is that of the adjoint's run, and its
 * `status` that of the adjoint too. */
CELLC_API cellc_status cellc_backward(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays,
                                      int count, const int32_t* forward_status, cellc_report* report);
CELLC_API cellc_status cellc_tangent(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays,
                                     int count, const int32_t* forward_status, cellc_report* report);

/* A backward call for one shape, as cellc_prepare is a forward one: step by step, by cellc_run on the arrays of
 * CELLC_BACKWARD. Everything that has a default is given. The gradients of params are added up in f64, in one order.
 * On the CPU. */
CELLC_API cellc_status cellc_prepare_backward(cellc_kernel* kernel, const cellc_shape* shape, cellc_call** call);

/* How the gradients of a backward call move in the direction of a tangent call of the same run, cotangents staying as
 * they are: the Hessian of sum(cotangents * results), times that direction. `backward` and `tangent` are the arrays of
 * those calls; into the gradients go their tangents, into the tangents of results what cellc_tangent writes. Gradients
 * of gradients are these two. Every call derives anew; on the CPU it compiles anew, too, or takes code from the cache.
 *
 * On a GPU all arrays, and `forward_status`, are memory of that GPU. Recurrences run there; arrays pass through the
 * host, which also adds up over steps. The call begins after what is queued on the legacy default stream, waits, and
 * cannot be captured: work on a stream that does not block is to be waited for before. */
CELLC_API cellc_status cellc_curvature(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* backward,
                                       int backward_count, const cellc_array* tangent, int tangent_count,
                                       const int32_t* forward_status);

/* On a GPU ------------------------------------------------------------------------------------- */

/* A kernel of a GPU takes arrays in that GPU's memory, wherever they were allocated; lengths, offsets and reports
 * stay on the host. (A request may say that its arrays are of the host: cellc_apply.) Work is queued on a stream, a
 * CUstream or cudaStream_t of the device's primary context (the one of the CUDA runtime and of PyTorch), and nobody
 * waits for it unless a report is asked for. cellc_forward and cellc_run queue it on the legacy default stream, which
 * is null here.
 *
 * `status`: null, or [sequences] on the GPU, written there: 0 converged, 1 not.
 *
 * A repeated call on arrays of the same shape, strides and alignment allocates nothing and only queues kernels. The
 * first call of a kind compiles and allocates what it needs; a prepared call has done so for arrays without gaps,
 * aligned to 16 bytes. Both functions may be called while a CUDA graph is captured on the stream, without a report.
 * The graph then keeps memory of the call, or of the kernel, which must be freed after it. A graph must not run
 * twice at the same time.
 *
 * A kernel of the CPU takes these calls as well, with a null stream, arrays and statuses of the host, and makes them at
 * once: a program may be the same for both.
 *
 * After a fault of the device, such as a wild address in some kernel of the process, calls give CELLC_DEVICE_FAILED;
 * kernels of the CPU go on. */
CELLC_API cellc_status cellc_forward_on(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays,
                                        int count, void* stream, int32_t* status, cellc_report* report);
CELLC_API cellc_status cellc_run_on(cellc_call* call, const cellc_array* arrays, int count, void* stream,
                                    int32_t* status, cellc_report* report);

/* The same on arrays of the GPU, queued on a stream; `forward_status` is memory of the GPU, and is looked at only where
 * a report is asked for, as nobody waits for it otherwise. The first call for a shape, set of cotangents, strides and
 * alignment compiles and allocates; others like it allocate nothing, and may be captured. */
CELLC_API cellc_status cellc_backward_on(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays,
                                         int count, void* stream, const int32_t* forward_status, cellc_report* report);
CELLC_API cellc_status cellc_tangent_on(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays,
                                        int count, void* stream, const int32_t* forward_status, cellc_report* report);

/* Any strides ---------------------------------------------------------------------------------- */

/* An array of a call in any direction, on the host or on the kernel's GPU: every axis has a stride, as in NumPy and
 * DLPack but in entries. Rows are [sequences, steps, axes], or [all steps, axes] with offsets, as
 * cellc_call_array_shape has them. What is only read may overlap itself; what is written may not.
 *
 * A param may be of 16 bits, whatever the kernel's dtype, and is widened. In cellc_apply and cellc_apply_prepared a
 * param, its tangent and its gradient may have sequences as one more axis, the first: then each sequence runs with its
 * own, one after another, on a GPU as a call of its own on the stream, and all gradients of params are such. Where
 * there are no sequences nothing runs: a report then says that all have converged, in no stages.
 *
 * Where the strides are those of a cellc_array, or of no gaps, the call works on this memory; otherwise on a copy. On
 * the host it is made on the calling thread. On a GPU it is queued on the stream, in graphs too, and lies in memory
 * that the call keeps for its shape; entries there are aligned to their size, and axes that are longer than 1 are 16 at
 * most. */
typedef struct {
  void* data; /* of the entry whose indices are all 0; null: as in cellc_array */
  cellc_dtype dtype;
  int rank;               /* not read where the next two are null */
  const int64_t* lengths; /* [rank], which must be those of the call; null: they are */
  const int64_t* strides; /* [rank], 0 and negative ones too; null: no gaps */
} cellc_view;

/* How one call goes, in the place of what the kernel was compiled with. All zeros but `size`: as the kernel. On a GPU
 * `threads` and `run_tasks` are refused, as no thread of the host works for a call, and `verify` copies all arrays to
 * the host. There the first call of a kind compiles and allocates, and a kernel keeps workspaces of the last few shapes
 * and options. */
typedef struct {
  size_t size;
  int threads; /* 0: as the kernel */
  int has_tolerance;
  double tolerance; /* with has_tolerance: 0 or more. 0: the bits that the solver "sequential" gives */
  /* The next five are of forward calls. */
  const char* solver;   /* null: as the kernel */
  const char* plan;     /* null: the kernel's, where solver is null too */
  int max_iterations;   /* 0: as the kernel */
  int fixed_iterations; /* more than 0: so many and no more, nothing is repaired, and the report says what is left */
  int verify;           /* report->verified; the reference takes as long as a run on one thread without any of this */
  /* The call is asked between pieces of work, some 4096 steps of a sequence long, on any of its threads: whether
   * *cancel is not 0, which any thread may set; and, on the thread that called, whether go_on(host, rows) is 0. rows
   * are the steps that were walked so far, of all sequences and of every iteration. Then it ends with CELLC_CANCELLED:
   * its results hold any numbers, all else is as before. Null: nobody asks.
   *
   * On a GPU both are asked on the thread that called, before each kernel is queued, and rows are the kernels that were
   * queued before. With a report those have ended, as the call then waits for each of them. Without one nobody waits:
   * a call that is cancelled queues nothing more, and what it has queued runs to its end, on the stream or in the
   * graph that is captured, which is then of no use. */
  const volatile int* cancel;
  int (*go_on)(void* host, int64_t rows);
  void* host;
  /* Threads of the host in the place of the library's; null: the library starts its own. Calls task(data, 0) …
   * task(data, tasks - 1), on any threads, one after another too, and returns when all of them are done. There are no
   * more tasks than `threads`. */
  void (*run_tasks)(void* pool, void (*task)(void* data, int number), void* data, int tasks);
  void* pool;
  int deterministic; /* not 0: as in cellc_options, of this call; 0: as the kernel */
} cellc_call_options;

CELLC_API void cellc_call_options_init_sized(cellc_call_options* options, size_t size);
CELLC_API void cellc_call_options_init(cellc_call_options* options);
#define cellc_call_options_init(options) cellc_call_options_init_sized(options, sizeof(cellc_call_options))

/* A call, as a struct that later versions can lengthen. */
typedef struct {
  size_t size;
  cellc_direction direction;
  const cellc_shape* shape;
  const cellc_view* arrays; /* by the numbers of the direction */
  int count;
  const int32_t* forward_status; /* of a backward or tangent call: as in cellc_backward */
  cellc_report* report;          /* or null */
  int on_stream;                 /* as cellc_forward_on has it, with what follows */
  void* stream;
  int32_t* status;                   /* of a forward call on a stream */
  const cellc_call_options* options; /* null: as the kernel */
  /* Not 0: arrays and both statuses are memory of the host, of a kernel of a GPU, too. What is read is copied to the
   * card before the call, and what is written back after it, on the stream; the call waits, and cannot be captured.
   * `status` is then written without on_stream as well. Memory of the card for such arrays stays with the kernel
   * (cellc_kernel_trim). Of a kernel of the CPU they are anyway: a program may be the same for both. */
  int on_host;
} cellc_request;

CELLC_API void cellc_request_init_sized(cellc_request* request, size_t size);
CELLC_API void cellc_request_init(cellc_request* request);
#define cellc_request_init(request) cellc_request_init_sized(request, sizeof(cellc_request))
CELLC_API cellc_status cellc_apply(cellc_kernel* kernel, const cellc_request* request);
/* Compiles what a forward call may need, so that none compiles: of a kernel of the CPU for all lengths of axes that
 * `shape` has, whatever the steps and the data, and with `prepared` not 0 also what cellc_prepare needs; of a kernel of
 * a GPU for this shape, without gaps. Takes as long as the compilations. */
CELLC_API cellc_status cellc_compile_ahead(cellc_kernel* kernel, const cellc_shape* shape, int prepared);
/* The same for calls like this one: of its direction and options, and with the same arrays null. No array is read or
 * written, and its report and status are not looked at. Of a kernel of the CPU arrays need no memory, only a pointer
 * that is not null; what is compiled serves all steps and strides. On a GPU it serves this shape, these strides and
 * this alignment, and also allocates, so that such a call only queues kernels, as a graph wants it. */
CELLC_API cellc_status cellc_compile_request(cellc_kernel* kernel, const cellc_request* request);
/* cellc_run on such arrays. */
CELLC_API cellc_status cellc_run_views(cellc_call* call, const cellc_view* arrays, int count);
/* cellc_run of a request, with a report and options where it has them: `direction` and `shape` are not read, as the
 * call has them. On a GPU the stream is that of the request, the legacy default stream where on_stream is 0, and a run
 * with options, params by sequence or on_host is one of cellc_apply, in workspaces of the kernel. What is wrong gives
 * the statuses of cellc_apply; `verify` without a report is CELLC_WRONG_USAGE.
 *
 * Options are of this run alone. On a CPU it goes step by step on the calling thread where they say nothing else: a
 * tolerance changes nothing then, and `verify` compares what was written. With a solver or a plan, more threads,
 * `cancel`, `go_on` or `run_tasks` it goes as in cellc_apply, for the call's shape, step by step where no solver and no
 * plan is named, on one thread where no more are; so do params by sequence. Such runs allocate, and the first of a kind
 * compiles (cellc_compile_ahead). */
CELLC_API cellc_status cellc_apply_prepared(cellc_call* call, const cellc_request* request);

#ifdef __cplusplus
}
#endif
#endif
