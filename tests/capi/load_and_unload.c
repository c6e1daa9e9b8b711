/* Loads the library by its path (argv[1]), makes calls of every kind on threads of its own, unloads it, and again; then
 * from several threads at once. The process is as it was before: what signals do, locale, rounding, mask of files,
 * folder, threads. Prints "done". */
#include <dirent.h>
#include <dlfcn.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cellc.h"

static void* function_of(void* library, const char* name) {
  void* const found = dlsym(library, name);
  if (!found) printf("%s\n", dlerror());
  return found;
}
/* Threads have a library each, as they load and unload it apart. */
static __thread void* library;
#define CELLC_CALL(name) ((__typeof__(&name))function_of(library, #name))
#include "every_call.h"

static const char* path;

static int run(void) {
  every_handle handle;
  int line;
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return printf("%s\n", dlerror()), 1;
  line = every_open(&handle, 2);
  if (!line) line = every_call(&handle);
  if (line) printf("line %d: %s\n", line, CELLC_CALL(cellc_last_error)());
  every_close(&handle);
  return line ? 1 : dlclose(library);
}

typedef struct {
  struct sigaction signals[32];
  sigset_t blocked;
  char locale[256], folder[4096];
  int rounding, threads;
  mode_t mask;
} process_state;

static process_state process_now(void) {
  process_state now;
  DIR* const tasks = opendir("/proc/self/task");
  int s;
  memset(&now, 0, sizeof now);
  for (s = 1; s < 32; ++s) sigaction(s, NULL, &now.signals[s]);
  pthread_sigmask(SIG_SETMASK, NULL, &now.blocked);
  snprintf(now.locale, sizeof now.locale, "%s", setlocale(LC_ALL, NULL));
  if (!getcwd(now.folder, sizeof now.folder)) now.folder[0] = 0;
  now.rounding = fegetround();
  while (tasks && readdir(tasks)) ++now.threads;
  if (tasks) closedir(tasks);
  now.mask = umask(0);
  umask(now.mask);
  return now;
}
static int is_as_it_was(const process_state* before) {
  const process_state now = process_now();
  int s;
  for (s = 1; s < 32; ++s)
    if (now.signals[s].sa_handler != before->signals[s].sa_handler ||
        now.signals[s].sa_flags != before->signals[s].sa_flags ||
        sigismember(&now.blocked, s) != sigismember(&before->blocked, s))
      return printf("signal %d is another\n", s), 0;
  if (strcmp(now.locale, before->locale) != 0) return printf("the locale is %s\n", now.locale), 0;
  if (strcmp(now.folder, before->folder) != 0) return printf("the folder is %s\n", now.folder), 0;
  if (now.rounding != before->rounding || now.mask != before->mask) return printf("rounding or mask\n"), 0;
  if (now.threads != before->threads) return printf("%d threads, not %d\n", now.threads - 2, before->threads - 2), 0;
  return 1;
}

static void* nothing(void* none) { return none; }
static void* run_in_thread(void* failed) {
  if (run()) *(int*)failed = 1;
  return NULL;
}

int main(int argc, char** argv) {
  pthread_t threads[3];
  int i, failed[3] = {0, 0, 0};
  process_state before;
  /* The sanitizer of threads has one of its own beside the first that is started. */
  pthread_create(&threads[0], NULL, nothing, NULL);
  pthread_join(threads[0], NULL);
  before = process_now();
  path = argv[argc - 1];
  for (i = 0; i < 2; ++i)
    if (run()) return 1;
  for (i = 0; i < 3; ++i) pthread_create(&threads[i], NULL, run_in_thread, &failed[i]);
  for (i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  if (failed[0] || failed[1] || failed[2]) return 1;
  if (run() || !is_as_it_was(&before)) return 1;
  printf("done\n");
  return 0;
}
