/* Compiles a cell at run time and runs it: a leaky integrator over a square wave, two channels.
 *   cc -std=c99 run_cell.c -lcellc && ./a.out */
#include <cellc.h>
#include <stdio.h>
#include <string.h>

static const char text[] =
    "cell leaky[d] {\n"
    "  state h[d]\n"
    "  input x[d]\n"
    "  param decay[d] in (0, 1)\n"
    "  h' = decay*h + (1 - decay)*x\n"
    "  out y = x - h'\n"
    "}\n";

enum { STEPS = 8, CHANNELS = 2, ARRAYS = 8 };

static int fail(const char* what) {
  int line, column;
  cellc_last_error_position(&line, &column);
  fprintf(stderr, "%s: %s (line %d, column %d)\n", what, cellc_last_error(), line, column);
  return 1;
}

int main(void) {
  float x[STEPS][CHANNELS], y[STEPS][CHANNELS], decay[CHANNELS] = {0.5f, 0.875f};
  const int64_t lengths[] = {CHANNELS};
  cellc_array arrays[ARRAYS];
  cellc_kernel* kernel;
  cellc_shape shape;
  int t;

  for (t = 0; t < STEPS; ++t) x[t][0] = x[t][1] = t % 4 < 2 ? 1.0f : -1.0f;
  if (cellc_compile_text(text, strlen(text), NULL, &kernel)) return fail("compile");
  if (cellc_array_count(kernel) > ARRAYS) return 1;
  memset(arrays, 0, sizeof arrays); /* what stays null has a default or is not wanted */
  {
    cellc_array of_x = {x, STEPS * CHANNELS, CELLC_F32, 0, 0}, of_y = {y, STEPS * CHANNELS, CELLC_F32, 0, 0};
    cellc_array of_decay = {decay, CHANNELS, CELLC_F32, 0, 0};
    arrays[cellc_array_find(kernel, "x")] = of_x;
    arrays[cellc_array_find(kernel, "y")] = of_y;
    arrays[cellc_array_find(kernel, "decay")] = of_decay;
  }
  cellc_shape_init(&shape); /* one sequence of one step */
  shape.lengths = lengths;
  shape.steps = STEPS;
  if (cellc_forward(kernel, &shape, arrays, cellc_array_count(kernel), NULL)) return fail("run");
  for (t = 0; t < STEPS; ++t) printf("%d  %+.6f  %+.6f\n", t, y[t][0], y[t][1]);
  cellc_kernel_free(kernel);
  return 0;
}
