/* Calls on a GPU by a driver that is loaded as libcuda.so.1: with options, prepared and compiled beforehand, of every
 * direction; in a forked child, where a driver gives nothing but errors; and after the library (argv[1]) was unloaded
 * and loaded again. The driver is the fake one of the tests, whose kernels do nothing. Prints "done". */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cellc.h"

static void* library;
static void* function_of(void* of, const char* name) {
  void* const found = dlsym(of, name);
  if (!found) printf("%s\n", dlerror()), exit(1);
  return found;
}
#define CELLC(name) ((__typeof__(&cellc_##name))function_of(library, "cellc_" #name))

enum { kChannels = 8, kSteps = 50, kArrays = 24, kMemory = 1 << 20 };
static const int64_t kLengths[] = {kChannels};
static const char kText[] = "cell one[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n  h' = tanh(a*h) + x\n}\n";

static cellc_kernel* kernel;
static cellc_call* prepared;
static cellc_shape shape;
static char* memory[kArrays];

static int failed(int line, int status) {
  printf("line %d: %d, %s\n", line, status, CELLC(last_error)());
  return 1;
}
/* In a child every call fails, and none is wrong. */
#define WANT(call)                                                                        \
  do {                                                                                    \
    const cellc_status got = call;                                                        \
    if (got != (in_child ? CELLC_DEVICE_FAILED : CELLC_OK)) return failed(__LINE__, got); \
  } while (0)
#define REFUSED(call, want)                                    \
  do {                                                         \
    const int got = (int)(call);                               \
    if ((int)got != (int)(want)) return failed(__LINE__, got); \
  } while (0)

static int calls(int in_child) {
  int direction, i;
  for (direction = CELLC_FORWARD; direction <= CELLC_TANGENT; ++direction) {
    const int count = CELLC(call_array_count)(kernel, direction);
    cellc_view views[kArrays];
    cellc_array arrays[kArrays];
    cellc_request request;
    cellc_call_options options;
    int stop = 1;
    if (count > kArrays) return failed(__LINE__, CELLC_OK);
    memset(views, 0, sizeof views);
    memset(arrays, 0, sizeof arrays);
    memset(&request, 0, sizeof request);
    memset(&options, 0, sizeof options);
    request.size = sizeof request;
    options.size = sizeof options;
    for (i = 0; i < count; ++i) {
      views[i].data = arrays[i].data = memory[i];
      views[i].dtype = arrays[i].dtype = CELLC_F32;
      arrays[i].entries = kMemory / 4;
    }
    request.direction = direction;
    request.shape = &shape;
    request.arrays = views;
    request.count = count;
    request.on_stream = 1;
    request.options = &options;
    WANT(CELLC(compile_request)(kernel, &request));
    WANT(CELLC(apply)(kernel, &request));
    options.has_tolerance = 1;
    options.tolerance = 1e-3;
    WANT(CELLC(apply)(kernel, &request));
    options.threads = 2;
    REFUSED(CELLC(apply)(kernel, &request), CELLC_WRONG_USAGE);
    options.threads = 0;
    if (direction == CELLC_FORWARD) {
      options.solver = "sequential";
      WANT(CELLC(apply)(kernel, &request));
      WANT(CELLC(apply_prepared)(prepared, &request));
      options.solver = NULL;
      WANT(CELLC(run_on)(prepared, arrays, count, NULL, NULL, NULL));
      WANT(CELLC(forward_on)(kernel, &shape, arrays, count, NULL, NULL, NULL));
      request.options = NULL;
      WANT(CELLC(apply_prepared)(prepared, &request));
      request.options = &options;
    } else if (direction == CELLC_BACKWARD) {
      WANT(CELLC(backward_on)(kernel, &shape, arrays, count, NULL, NULL, NULL));
    } else {
      WANT(CELLC(tangent_on)(kernel, &shape, arrays, count, NULL, NULL, NULL));
    }
    options.cancel = &stop;
    if (!in_child) REFUSED(CELLC(apply)(kernel, &request), CELLC_CANCELLED);
    views[0].data = (char*)&stop; /* of nobody's device */
    options.cancel = NULL;
    REFUSED(CELLC(apply)(kernel, &request), in_child ? (int)CELLC_DEVICE_FAILED : (int)CELLC_WRONG_INPUT);
  }
  return 0;
}

static int run(void) {
  cellc_options options;
  pid_t child;
  int status = -1;
  library = dlopen(getenv("CELLC_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  if (!library) return printf("%s\n", dlerror()), 1;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.device = "cuda";
  memset(&shape, 0, sizeof shape);
  shape.size = sizeof shape;
  shape.lengths = kLengths;
  shape.sequences = 2;
  shape.steps = kSteps;
  if (CELLC(compile_text)(kText, sizeof kText - 1, &options, &kernel)) return failed(__LINE__, CELLC_OK);
  if (CELLC(prepare)(kernel, &shape, &prepared)) return failed(__LINE__, CELLC_OK);
  if (calls(0)) return 1;
  fflush(stdout);
  child = fork();
  if (child == 0) {
    cellc_kernel* none = NULL;
    cellc_device_info info;
    info.size = sizeof info;
    alarm(60);
    status = calls(1);
    if (CELLC(prepare)(kernel, &shape, &prepared) != CELLC_DEVICE_FAILED) status = 1;
    if (CELLC(compile_text)(kText, sizeof kText - 1, &options, &none) == CELLC_OK) CELLC(kernel_free)(none);
    if (CELLC(device_describe)("cpu", &info)) status = failed(__LINE__, CELLC_OK);
    options.device = "cpu"; /* which goes on */
    if (CELLC(compile_text)(kText, sizeof kText - 1, &options, &none)) status = failed(__LINE__, CELLC_OK);
    CELLC(kernel_free)(none);
    CELLC(call_free)(prepared);
    CELLC(kernel_free)(kernel);
    fflush(stdout);
    _exit(status);
  }
  if (waitpid(child, &status, 0) != child || status != 0) return printf("the child ended with %d\n", status), 1;
  if (calls(0)) return 1;
  CELLC(call_free)(prepared);
  CELLC(kernel_free)(kernel);
  return dlclose(library);
}

/* Where a card has no compiler, that is what the error is about; of a card that there is not it is another. */
static int has_no_compiler(void) {
  char* const folder = strdup(getenv("CELLC_NVRTC"));
  cellc_device_info info;
  info.size = sizeof info;
  library = dlopen(getenv("CELLC_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
  if (!library) return printf("%s\n", dlerror()), 1;
  setenv("CELLC_NVRTC", "/missing", 1);
  REFUSED(CELLC(device_describe)("cuda", &info), CELLC_DEVICE_FAILED);
  REFUSED(CELLC(last_error_kind)(), CELLC_ERROR_NO_NVRTC);
  REFUSED(CELLC(device_describe)("cuda:1", &info), CELLC_DEVICE_FAILED);
  REFUSED(CELLC(last_error_kind)(), CELLC_ERROR_NO_DEVICE);
  setenv("CELLC_NVRTC", folder, 1);
  free(folder);
  REFUSED(CELLC(device_describe)("cuda", &info), CELLC_OK);
  return dlclose(library);
}

int main(void) {
  void (*own)(uint64_t);
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  int i;
  if (!driver) return printf("%s\n", dlerror()), 1;
  own = (void (*)(uint64_t))function_of(driver, "fake_driver_own");
  for (i = 0; i < kArrays; ++i) {
    if (posix_memalign((void**)&memory[i], 4096, kMemory)) return 1;
    memset(memory[i], 0, kMemory);
    own((uint64_t)(uintptr_t)memory[i]);
  }
  if (has_no_compiler()) return 1;
  for (i = 0; i < 3; ++i)
    if (run()) return 1;
  for (i = 0; i < kArrays; ++i) free(memory[i]);
  printf("done\n");
  return 0;
}
