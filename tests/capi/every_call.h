/* Calls of every kind on one small kernel, for programs in C and C++ that fork, or load and unload the library.
 * CELLC_CALL(name) is the function of that name: of a library that is linked, unless it was defined before. */
#ifndef EVERY_CALL_H
#define EVERY_CALL_H
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cellc.h"

#ifndef CELLC_CALL
#define CELLC_CALL(name) name
#endif

enum { kEverySteps = 400, kEveryChannels = 16, kEveryArrays = 24 };
static const int64_t kEveryLengths[] = {kEveryChannels};

typedef struct {
  cellc_kernel* kernel;
  cellc_call *forward, *backward;
} every_handle;

/* The arrays of a call, without gaps; `last_first`: in views whose rows lie last to first. */
typedef struct {
  cellc_view views[kEveryArrays];
  cellc_array arrays[kEveryArrays];
  float* memory[kEveryArrays];
  int64_t lengths[kEveryArrays][4], strides[kEveryArrays][4];
  int count;
  cellc_shape shape;
} every_array;

static cellc_shape every_shape(void) {
  cellc_shape shape;
  memset(&shape, 0, sizeof shape);
  shape.size = sizeof shape;
  shape.lengths = kEveryLengths;
  shape.sequences = 2;
  shape.steps = kEverySteps;
  return shape;
}

static int every_arrays(cellc_kernel* kernel, cellc_direction direction, every_array* of, int last_first) {
  const cellc_shape shape = every_shape();
  int i, k, rank;
  memset(of, 0, sizeof *of);
  of->count = CELLC_CALL(cellc_call_array_count)(kernel, direction);
  if (of->count < 1 || of->count > kEveryArrays) return 1;
  for (i = 0; i < of->count; ++i) {
    int64_t entries = 1, at;
    if (CELLC_CALL(cellc_call_array_shape)(kernel, direction, &shape, i, of->lengths[i], 4, &rank)) return 1;
    for (k = rank; k-- > 0;) of->strides[i][k] = entries, entries *= of->lengths[i][k];
    of->memory[i] = (float*)malloc((size_t)entries * sizeof(float));
    if (!of->memory[i]) return 1;
    for (at = 0; at < entries; ++at) of->memory[i][at] = 0.25f + 0.001f * (float)(at % kEveryChannels);
    of->arrays[i].data = of->memory[i];
    of->arrays[i].entries = entries;
    of->arrays[i].dtype = CELLC_F32;
    of->views[i].data = of->memory[i];
    of->views[i].dtype = CELLC_F32;
    if (!last_first || rank != 3) continue;
    of->views[i].rank = rank;
    of->views[i].lengths = of->lengths[i];
    of->views[i].strides = of->strides[i];
    of->views[i].data = of->memory[i] + of->strides[i][1] * (of->lengths[i][1] - 1);
    of->strides[i][1] = -of->strides[i][1];
  }
  return 0;
}
static void every_free(every_array* of) {
  int i;
  for (i = 0; i < of->count; ++i) free(of->memory[i]);
}

/* A kernel and what is prepared of it. Each function gives 0, or the line where it went wrong. */
static int every_open(every_handle* h, int threads) {
  /* B@x is made for all steps at once, by a BLAS. */
  static const char text[] =
      "cell every[d] {\n  state h[d]\n  input x[d]\n  param a[d], B[d,d]\n  h' = tanh(a*h) + x + B@x\n}\n";
  const cellc_shape shape = every_shape();
  cellc_options options;
  memset(&options, 0, sizeof options);
  memset(h, 0, sizeof *h);
  options.size = sizeof options;
  options.threads = threads;
  if (CELLC_CALL(cellc_compile_text)("cell", 4, &options, &h->kernel) != CELLC_WRONG_INPUT) return __LINE__;
  if (CELLC_CALL(cellc_compile_text)(text, sizeof text - 1, &options, &h->kernel)) return __LINE__;
  if (CELLC_CALL(cellc_prepare)(h->kernel, &shape, &h->forward)) return __LINE__;
  if (CELLC_CALL(cellc_prepare_backward)(h->kernel, &shape, &h->backward)) return __LINE__;
  return 0;
}
static void every_close(every_handle* h) {
  CELLC_CALL(cellc_call_free)(h->forward);
  CELLC_CALL(cellc_call_free)(h->backward);
  CELLC_CALL(cellc_kernel_free)(h->kernel);
}

static cellc_request every_request(cellc_direction direction, every_array* of) {
  cellc_request request;
  of->shape = every_shape();
  memset(&request, 0, sizeof request);
  request.size = sizeof request;
  request.direction = direction;
  request.shape = &of->shape;
  request.arrays = of->views;
  request.count = of->count;
  return request;
}

static int every_stop(void* host, int64_t rows) {
  (void)host;
  (void)rows;
  return 0;
}

static int every_forward(every_handle* h, const float* want) {
  every_array of;
  cellc_call_options options;
  cellc_report report;
  cellc_stage stage;
  cellc_request request;
  const int from = CELLC_CALL(cellc_array_find)(h->kernel, "h");
  int t, line = 0;
  if (from < 0 || every_arrays(h->kernel, CELLC_FORWARD, &of, 1)) return __LINE__;
  request = every_request(CELLC_FORWARD, &of);
  memset(&options, 0, sizeof options);
  memset(&report, 0, sizeof report);
  options.size = sizeof options;
  report.size = sizeof report;
  stage.size = sizeof stage;
  options.threads = 2;
  options.solver = "segmented";
  options.verify = 1;
  request.options = &options;
  request.report = &report;
  for (t = 0; t < 2 && !line; ++t) {
    const cellc_status status =
        t ? CELLC_CALL(cellc_apply_prepared)(h->forward, &request) : CELLC_CALL(cellc_apply)(h->kernel, &request);
    if (status || !(report.verified >= 0 && report.verified < 1e-4)) line = __LINE__;
    if (CELLC_CALL(cellc_report_stage)(0, &stage) || strcmp(stage.solver, "segmented") != 0) line = __LINE__;
    /* Rows lie last to first, sequence after sequence. */
    if (fabsf(of.memory[from][kEveryChannels * (kEverySteps - 3) + 3] - want[2]) > 1e-4f) line = __LINE__;
  }
  options.verify = 0;
  options.go_on = every_stop;
  if (CELLC_CALL(cellc_apply)(h->kernel, &request) != CELLC_CANCELLED) line = __LINE__;
  options.go_on = NULL;
  if (CELLC_CALL(cellc_compile_request)(h->kernel, &request)) line = __LINE__;
  request.count = 1;
  if (CELLC_CALL(cellc_apply_prepared)(h->forward, &request) != CELLC_WRONG_USAGE) line = __LINE__;
  if (CELLC_CALL(cellc_apply_prepared)(h->forward, NULL) != CELLC_WRONG_USAGE) line = __LINE__;
  if (CELLC_CALL(cellc_compile_request)(h->kernel, NULL) != CELLC_WRONG_USAGE) line = __LINE__;
  every_free(&of);
  return line;
}

/* Of the kernel and of a prepared call, the same numbers; `back`: backward, else tangent calls. */
static int every_derivative(every_handle* h, int back) {
  const cellc_direction direction = back ? CELLC_BACKWARD : CELLC_TANGENT;
  const int of_x = CELLC_CALL(cellc_call_array_find)(h->kernel, direction, back ? CELLC_IS_GRADIENT : CELLC_IS_TANGENT,
                                                     CELLC_ROLE_INPUT, "x");
  every_array of, same;
  cellc_call_options options;
  cellc_request request;
  int i, line = 0;
  if (of_x < 0 || every_arrays(h->kernel, direction, &of, 0)) return __LINE__;
  if (every_arrays(h->kernel, direction, &same, 1)) return __LINE__;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.threads = 2;
  request = every_request(direction, &of);
  request.options = &options;
  if (CELLC_CALL(cellc_compile_request)(h->kernel, &request)) line = __LINE__;
  if (CELLC_CALL(cellc_apply)(h->kernel, &request)) line = __LINE__;
  if (back) {
    request.arrays = same.views;
    if (CELLC_CALL(cellc_apply_prepared)(h->backward, &request)) line = __LINE__;
    for (i = 0; i < kEveryChannels; ++i)
      if (fabsf(of.memory[of_x][i] - same.memory[of_x][kEveryChannels * (kEverySteps - 1) + i]) > 1e-4f)
        line = __LINE__;
    options.solver = "newton"; /* of forward calls */
    if (CELLC_CALL(cellc_apply_prepared)(h->backward, &request) != CELLC_WRONG_USAGE) line = __LINE__;
  }
  every_free(&of);
  every_free(&same);
  return line;
}

/* Every kind of call, on handles that somebody opened. */
static int every_call(every_handle* h) {
  every_array of;
  float want[3];
  const int from = CELLC_CALL(cellc_array_find)(h->kernel, "h");
  int t, line;
  if (every_arrays(h->kernel, CELLC_FORWARD, &of, 0)) return __LINE__;
  if (CELLC_CALL(cellc_run)(h->forward, of.arrays, of.count)) return __LINE__;
  for (t = 0; t < 3; ++t) want[t] = of.memory[from][t * kEveryChannels + 3];
  every_free(&of);
  /* tanh(0.253*0.253) + 0.253 and the squares of 0.25 to 0.265, by hand; the start is given, too. */
  if (fabsf(want[0] - 1.3781617f) > 1e-5f) return __LINE__;
  if ((line = every_forward(h, want)) != 0) return line;
  if ((line = every_derivative(h, 1)) != 0) return line;
  if ((line = every_derivative(h, 0)) != 0) return line;
  if (CELLC_CALL(cellc_call_trim)(h->forward) || CELLC_CALL(cellc_kernel_trim)(h->kernel)) return __LINE__;
  return 0;
}

#endif
