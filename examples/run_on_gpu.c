/* Compiles a cell at run time and runs it on arrays in the memory of a GPU, on a stream of this program's own: first
 * whole sequences, then the same step after step from a CUDA graph, with the state in place.
 *   cc -std=c99 run_on_gpu.c -I/usr/local/cuda/include -L/usr/local/cuda/lib64 -lcudart -lcellc && ./a.out */
#include <cellc.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text[] =
    "cell leaky[d] {\n"
    "  state h[d]\n"
    "  input x[d]\n"
    "  param decay = 0.75\n"
    "  h' = decay*h + (1 - decay)*x\n"
    "}\n";

enum { STEPS = 8, CHANNELS = 1024, ARRAYS = 8 };

static void need(int right, const char* what) {
  if (right) return;
  fprintf(stderr, "%s: %s\n", what, cellc_last_error());
  exit(1);
}

int main(void) {
  const int64_t lengths[] = {CHANNELS};
  static float x[STEPS][CHANNELS], h[STEPS][CHANNELS], last[CHANNELS];
  float *on_gpu_x, *on_gpu_h, *state, *input;
  cellc_array arrays[ARRAYS];
  cellc_options options;
  cellc_kernel* kernel;
  cellc_shape shape;
  cellc_call* step;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  int t, e;

  for (t = 0; t < STEPS; ++t)
    for (e = 0; e < CHANNELS; ++e) x[t][e] = t % 4 < 2 ? 1.0f : -1.0f;
  need(!cudaMalloc((void**)&on_gpu_x, sizeof x) && !cudaMalloc((void**)&on_gpu_h, sizeof h) &&
           !cudaMalloc((void**)&state, sizeof last) && !cudaMalloc((void**)&input, sizeof last) &&
           !cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
       "cuda");
  cudaMemcpyAsync(on_gpu_x, x, sizeof x, cudaMemcpyHostToDevice, stream);

  cellc_options_init(&options);
  options.device = "cuda";
  need(!cellc_compile_text(text, strlen(text), &options, &kernel), "compile");
  need(cellc_array_count(kernel) <= ARRAYS, "arrays");
  memset(arrays, 0, sizeof arrays); /* null: a default, or not wanted */
  {
    const cellc_array of_x = {on_gpu_x, STEPS * CHANNELS, CELLC_F32, 0, 0};
    const cellc_array of_h = {on_gpu_h, STEPS * CHANNELS, CELLC_F32, 0, 0};
    arrays[cellc_array_find(kernel, "x")] = of_x;
    arrays[cellc_array_find(kernel, "h")] = of_h;
  }
  cellc_shape_init(&shape); /* one sequence of one step */
  shape.lengths = lengths;
  shape.steps = STEPS;
  need(!cellc_forward_on(kernel, &shape, arrays, cellc_array_count(kernel), stream, NULL, NULL), "run");
  cudaMemcpyAsync(h, on_gpu_h, sizeof h, cudaMemcpyDeviceToHost, stream);

  /* One step, captured: the graph reads what `input` holds when it runs. */
  shape.steps = 1;
  need(!cellc_prepare(kernel, &shape, &step), "prepare");
  memset(arrays, 0, sizeof arrays);
  {
    const cellc_array of_x = {input, CHANNELS, CELLC_F32, 0, 0}, of_h = {state, CHANNELS, CELLC_F32, 0, 0};
    arrays[cellc_array_find(kernel, "x")] = of_x;
    arrays[cellc_array_find(kernel, "h_start")] = arrays[cellc_array_find(kernel, "h_final")] = of_h;
  }
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  need(!cellc_run_on(step, arrays, cellc_array_count(kernel), stream, NULL, NULL), "capture");
  cudaStreamEndCapture(stream, &graph);
  need(!cudaGraphInstantiateWithFlags(&replay, graph, 0), "graph");
  cudaMemsetAsync(state, 0, sizeof last, stream);
  for (t = 0; t < STEPS; ++t) {
    cudaMemcpyAsync(input, on_gpu_x + t * CHANNELS, sizeof last, cudaMemcpyDeviceToDevice, stream);
    cudaGraphLaunch(replay, stream);
    cudaMemcpyAsync(last, state, sizeof last, cudaMemcpyDeviceToHost, stream);
    need(!cudaStreamSynchronize(stream), "step");
    printf("%d  %+.6f  %+.6f\n", t, h[t][CHANNELS - 1], last[CHANNELS - 1]);
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cellc_call_free(step);
  cellc_kernel_free(kernel);
  return 0;
}
