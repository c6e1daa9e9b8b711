/* cellc from C: compile a cell at run time, look at what was derived of it, run it.
 *
 * No function prints, exits or lets an exception through. One that can fail returns a cellc_status, and the
 * thread's last error then says what was wrong and, for a cell's text, where. A call that is refused has written
 * nothing; one that fails later, for want of memory or through the device, may have written some of its rows.
 * Every function may be called from every thread; handles may be shared. One that is freed must not be in use.
 *
 * Structs that a program fills begin with their size, so that later versions can lengthen them: fill them with
 * the _init functions, then set what differs. Those that describe are written whole, and stay as long as they are.
 */
#ifndef CELLC_H
#define CELLC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CELLC_API_VERSION 1 /* raised where a program has to be changed or compiled again */
#if defined(__GNUC__)
#define CELLC_API __attribute__((visibility("default")))
#else
#define CELLC_API
#endif

/* The same as the exit statuses of the command line. */
typedef enum {
  CELLC_OK = 0,
  CELLC_WRONG_INPUT = 1,   /* the cell or an array is wrong */
  CELLC_WRONG_USAGE = 2,   /* a request that cannot be meant, such as a null handle */
  CELLC_NOT_CONVERGED = 3, /* and repair was switched off; results are written all the same */
  CELLC_DEVICE_FAILED = 4, /* the device, the code generator, the file system or memory */
  CELLC_INTERNAL_FAULT = 5 /* a mistake in cellc */
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

/* Of the calling thread; "" before the first. Valid until the thread's next failing call. */
CELLC_API const char* cellc_last_error(void);
/* Counted from 1; both 0 where the error is about no place of a text. Either pointer may be null. */
CELLC_API void cellc_last_error_position(int* line, int* column);

/* Compiling ------------------------------------------------------------------------------------ */

typedef struct cellc_kernel cellc_kernel; /* a cell, derived and compiled */

typedef struct {
  size_t size;
  const char* cell;      /* which, where the text has several; null: the only one */
  cellc_dtype dtype;     /* storage; arithmetic is f64 for f64, else f32 */
  const char* device;    /* "cpu", or null for it; "cuda", the first GPU; "cuda:1" */
  const char* cpu;       /* null: this machine's. A name, such as "x86-64-v3", fixes the bits of results */
  const char* solver;    /* null: "auto"; else "sequential" or another that `cellc run --help` lists */
  int threads;           /* 0: all cores */
  const char* cache_dir; /* where compiled code is kept, and what was measured: runs on a CPU then follow the plans that
                            `cellc tune` found, and costs that the first of them measures; null: nowhere */
  double tolerance;      /* 0 or less: the dtype's default; infinity and NaN are refused */
  int max_iterations;    /* 0: the default */
  int no_repair;
  int trust_scans; /* calls on arrays of a GPU: scans do not look at what composed maps were rounded by, which may be
                      several tolerances (docs/notes/device-scan.md has what looking costs) */
} cellc_options;

CELLC_API void cellc_options_init(cellc_options* options);

/* `length` bytes of text; options may be null. */
CELLC_API cellc_status cellc_compile_text(const char* text, size_t length, const cellc_options* options,
                                          cellc_kernel** kernel);
CELLC_API cellc_status cellc_compile_file(const char* path, const cellc_options* options, cellc_kernel** kernel);
CELLC_API void cellc_kernel_free(cellc_kernel* kernel); /* null is nothing to free */

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

CELLC_API void cellc_shape_init(cellc_shape* shape);
/* Entries of array `number` without gaps. */
CELLC_API cellc_status cellc_array_entries(const cellc_kernel* kernel, const cellc_shape* shape, int number,
                                           int64_t* entries);

/* Running -------------------------------------------------------------------------------------- */

/* Memory of the caller: on the host, or on its GPU for a kernel of a GPU. A row is contiguous; strides, in entries, are
 * for rows only: 0 stands for rows one after another. What is written may overlap nothing, but a final may be the
 * memory of its start. */
typedef struct {
  void* data;      /* null: the default, or not wanted */
  int64_t entries; /* from data on; more than are needed are left alone */
  cellc_dtype dtype;
  int64_t sequence_stride, step_stride;
} cellc_array;

typedef struct {
  size_t size;
  int32_t* status; /* in: null, or [sequences], written: 0 converged, 1 not */
  int converged;
  double max_residual; /* after repair; over |value| + the largest of its lane so far, on a GPU over 1 + |value| */
  double error_estimate;
  int64_t repaired;
  int64_t unconverged; /* sequences */
  int iterations;      /* largest of all stages */
  double compile_ms, run_ms;
} cellc_report;

CELLC_API void cellc_report_init(cellc_report* report);

/* Whole sequences by the solver and the threads of the options. arrays[i] is array number i, `count` is
 * cellc_array_count. The report may be null. Any number of threads may do so at once. */
CELLC_API cellc_status cellc_forward(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays,
                                     int count, cellc_report* report);

/* The same for one shape, many times, at the least cost of a call: step by step, on the calling thread,
 * without allocating. Any number of threads may run one prepared call at once. For decoding: one step, with
 * h_start and h_final the same memory. */
typedef struct cellc_call cellc_call;

CELLC_API cellc_status cellc_prepare(cellc_kernel* kernel, const cellc_shape* shape, cellc_call** call);
CELLC_API cellc_status cellc_run(cellc_call* call, const cellc_array* arrays, int count);
CELLC_API void cellc_call_free(cellc_call* call);

/* On a GPU ------------------------------------------------------------------------------------- */

/* A kernel of a GPU takes arrays in that GPU's memory, wherever they were allocated; lengths, offsets and reports
 * stay on the host. Work is queued on a stream, a CUstream or cudaStream_t of the device's primary context (the one
 * of the CUDA runtime and of PyTorch), and nobody waits for it unless a report is asked for. cellc_forward and
 * cellc_run queue it on the legacy default stream, which is null here.
 *
 * `status`: null, or [sequences] on the GPU, written there: 0 converged, 1 not.
 *
 * A repeated call on arrays of the same shape, strides and alignment allocates nothing and only queues kernels. The
 * first call of a kind compiles and allocates what it needs; a prepared call has done so for arrays without gaps,
 * aligned to 16 bytes. Both functions may be called while a CUDA graph is captured on the stream, without a report.
 * The graph then keeps memory of the call, or of the kernel, which must be freed after it. A graph must not run
 * twice at the same time.
 *
 * After a fault of the device, such as a wild address in some kernel of the process, calls give CELLC_DEVICE_FAILED;
 * kernels of the CPU go on. */
CELLC_API cellc_status cellc_forward_on(cellc_kernel* kernel, const cellc_shape* shape, const cellc_array* arrays,
                                        int count, void* stream, int32_t* status, cellc_report* report);
CELLC_API cellc_status cellc_run_on(cellc_call* call, const cellc_array* arrays, int count, void* stream,
                                    int32_t* status, cellc_report* report);

#ifdef __cplusplus
}
#endif
#endif
