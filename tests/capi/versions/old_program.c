/* A program of the first version of the C API, as its users built it. Prints what it found. */
#include <stdio.h>
#include <string.h>

#include "cellc_1_0.h"

static const char kText[] =
    "cell decay[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n  h' = a*h + x\n  out y = 2*h'\n}\n";

static int need(cellc_status status, const char* what) {
  if (status != CELLC_OK) printf("%s: %d, %s\n", what, (int)status, cellc_last_error());
  return status != CELLC_OK;
}

/* A struct with memory behind it that nobody may write. */
#define FENCED(type)         \
  struct {                   \
    type it;                 \
    unsigned char fence[64]; \
  }
static int whole(const unsigned char* fence) {
  int i;
  for (i = 0; i < 64; ++i)
    if (fence[i] != 0x5a) return 0;
  return 1;
}

int main(void) {
  FENCED(cellc_options) options;
  FENCED(cellc_shape) shape;
  FENCED(cellc_report) report;
  FENCED(cellc_call_array_info) info;
  FENCED(cellc_kernel_info) about;
  const int64_t lengths[] = {2};
  double x[] = {1, 10, 2, 20, 3, 30}, a[] = {0.5, 0.25}, h[6], y[6], ones[] = {1, 1, 1, 1, 1, 1}, dx[6];
  cellc_array forward[8], backward[16];
  cellc_kernel* kernel = NULL;
  cellc_call* call = NULL;
  int i, count;
  memset(&options, 0x5a, sizeof options);
  memset(&shape, 0x5a, sizeof shape);
  memset(&report, 0x5a, sizeof report);
  memset(&info, 0x5a, sizeof info);
  memset(&about, 0x5a, sizeof about);
  cellc_options_init(&options.it);
  cellc_shape_init(&shape.it);
  cellc_report_init(&report.it);
  cellc_call_array_info_init(&info.it);
  about.it.size = sizeof about.it;
  options.it.dtype = CELLC_F64;
  shape.it.lengths = lengths;
  shape.it.steps = 3;
  if (cellc_api_version() != CELLC_API_VERSION) return printf("another version\n"), 1;
  if (need(cellc_compile_text(kText, sizeof kText - 1, &options.it, &kernel), "compile")) return 1;
  if (need(cellc_kernel_describe(kernel, &about.it), "describe")) return 1;
  printf("%s\n", about.it.cell);
  count = cellc_array_count(kernel);
  memset(forward, 0, sizeof forward);
  {
    const cellc_array of_x = {x, 6, CELLC_F64, 0, 0}, of_a = {a, 2, CELLC_F64, 0, 0}, of_h = {h, 6, CELLC_F64, 0, 0},
                      of_y = {y, 6, CELLC_F64, 0, 0};
    forward[cellc_array_find(kernel, "x")] = of_x;
    forward[cellc_array_find(kernel, "a")] = of_a;
    forward[cellc_array_find(kernel, "h")] = of_h;
    forward[cellc_array_find(kernel, "y")] = of_y;
  }
  if (need(cellc_forward(kernel, &shape.it, forward, count, &report.it), "forward")) return 1;
  for (i = 0; i < 6; ++i) printf("%g%c", y[i], i == 5 ? '\n' : ' ');
  if (need(cellc_prepare(kernel, &shape.it, &call), "prepare")) return 1;
  memset(y, 0, sizeof y);
  if (need(cellc_run(call, forward, count), "run")) return 1;
  for (i = 0; i < 6; ++i) printf("%g%c", y[i], i == 5 ? '\n' : ' ');
  memset(backward, 0, sizeof backward);
  count = cellc_call_array_count(kernel, CELLC_BACKWARD);
  for (i = 0; i < count; ++i) {
    if (need(cellc_call_array_describe(kernel, CELLC_BACKWARD, i, &info.it), "array")) return 1;
    backward[i].entries = 6;
    backward[i].dtype = info.it.dtype;
    if (!strcmp(info.it.name, "x")) backward[i].data = x;
    if (!strcmp(info.it.name, "a")) backward[i].data = a, backward[i].entries = 2;
    if (!strcmp(info.it.name, "h")) backward[i].data = h;
    if (!strcmp(info.it.name, "cotangent.h")) backward[i].data = ones;
    if (!strcmp(info.it.name, "gradient.x")) backward[i].data = dx;
  }
  if (need(cellc_backward(kernel, &shape.it, backward, count, NULL, &report.it), "backward")) return 1;
  for (i = 0; i < 6; ++i) printf("%g%c", dx[i], i == 5 ? '\n' : ' ');
  options.it.size = 8;
  printf("%d\n", (int)cellc_compile_text(kText, sizeof kText - 1, &options.it, &kernel));
  printf("%s\n",
         whole(options.fence) && whole(shape.fence) && whole(report.fence) && whole(info.fence) && whole(about.fence)
             ? "whole"
             : "written beyond a struct");
  cellc_call_free(call);
  return 0;
}
