/* Loads the library by its path (argv[1]), runs a cell on two threads of its own, unloads it, and again; then from
 * several threads at once. Prints "done". */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "cellc.h"

static const char kText[] = "cell sums[d] {\n  state h[d]\n  input x[d]\n  h' = tanh(h) + x\n}\n";
static const char* path;

static int run(void) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  float x[64 * 512] = {0}, h[64 * 512];
  const int64_t lengths[] = {64};
  cellc_array arrays[4];
  cellc_options options;
  cellc_shape shape;
  cellc_kernel* kernel = NULL;
  cellc_status status;
  if (!library) return printf("%s\n", dlerror()), 1;
  {
    typedef cellc_status (*compile_function)(const char*, size_t, const cellc_options*, cellc_kernel**);
    typedef int (*find_function)(const cellc_kernel*, const char*);
    typedef cellc_status (*forward_function)(cellc_kernel*, const cellc_shape*, const cellc_array*, int, cellc_report*);
    typedef void (*free_function)(cellc_kernel*);
    typedef const char* (*error_function)(void);
    const compile_function compile_text = (compile_function)dlsym(library, "cellc_compile_text");
    const find_function array_find = (find_function)dlsym(library, "cellc_array_find");
    const forward_function forward = (forward_function)dlsym(library, "cellc_forward");
    const free_function kernel_free = (free_function)dlsym(library, "cellc_kernel_free");
    const error_function last_error = (error_function)dlsym(library, "cellc_last_error");
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.threads = 2;
    status = compile_text("cell", 4, &options, &kernel); /* leaves a last error behind */
    if (status != CELLC_WRONG_INPUT) return printf("no error\n"), 1;
    status = compile_text(kText, sizeof kText - 1, &options, &kernel);
    if (status != CELLC_OK) return printf("%s\n", last_error()), 1;
    memset(&shape, 0, sizeof shape);
    shape.size = sizeof shape;
    shape.lengths = lengths;
    shape.sequences = 1;
    shape.steps = 512;
    memset(arrays, 0, sizeof arrays);
    arrays[array_find(kernel, "x")].data = x;
    arrays[array_find(kernel, "x")].entries = 64 * 512;
    arrays[array_find(kernel, "h")].data = h;
    arrays[array_find(kernel, "h")].entries = 64 * 512;
    status = forward(kernel, &shape, arrays, 4, NULL);
    if (status != CELLC_OK) return printf("%s\n", last_error()), 1;
    kernel_free(kernel);
  }
  return dlclose(library);
}

static void* run_in_thread(void* failed) {
  if (run()) *(int*)failed = 1;
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t threads[3];
  int i, failed[3] = {0, 0, 0};
  path = argv[argc - 1];
  for (i = 0; i < 2; ++i)
    if (run()) return 1;
  for (i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, run_in_thread, &failed[i]);
  for (i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  if (failed[0] || failed[1] || failed[2]) return 1;
  if (run()) return 1;
  printf("done\n");
  return 0;
}
