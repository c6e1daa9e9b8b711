// What a library asks of the glibc that it is built with and that glibc 2.28 has not, or has under an earlier version:
// a definition of its own, hidden in the library, over what 2.28 has (oldest_glibc.cmake). For x86-64, whose first
// version is GLIBC_2.2.5. Newer functions would have to be added here; check_versions.cmake says which.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

/// `name` as 2.28 has it, under the name old_`name`.
#define OLD(result, name, parameters, version) \
  extern result old_##name parameters;         \
  __asm__(".symver old_" #name ", " #name "@GLIBC_" version)

// Since 2.29 these set no errno by the rules of SVID; results are the same.
#define OLD_MATH(name, parameters, arguments) \
  OLD(double, name, parameters, "2.2.5");     \
  HIDDEN double name parameters { return old_##name arguments; }
OLD_MATH(exp, (double x), (x))
OLD_MATH(log, (double x), (x))
OLD_MATH(log2, (double x), (x))
OLD_MATH(pow, (double x, double y), (x, y))

// In libpthread and libdl before 2.34.
#define OLD_INT(name, parameters, arguments, version) \
  OLD(int, name, parameters, version);                \
  HIDDEN int name parameters { return old_##name arguments; }
OLD_INT(pthread_sigmask, (int how, const sigset_t* set, sigset_t* before), (how, set, before), "2.2.5")
OLD_INT(pthread_once, (pthread_once_t * once, void (*function)(void)), (once, function), "2.2.5")
OLD_INT(pthread_rwlock_rdlock, (pthread_rwlock_t * lock), (lock), "2.2.5")
OLD_INT(pthread_rwlock_wrlock, (pthread_rwlock_t * lock), (lock), "2.2.5")
OLD_INT(pthread_rwlock_unlock, (pthread_rwlock_t * lock), (lock), "2.2.5")
OLD_INT(pthread_create, (pthread_t * thread, const pthread_attr_t* how, void* (*run)(void*), void* argument),
        (thread, how, run, argument), "2.2.5")
OLD_INT(pthread_join, (pthread_t thread, void** result), (thread, result), "2.2.5")
OLD_INT(pthread_detach, (pthread_t thread), (thread), "2.2.5")
OLD_INT(pthread_key_create, (pthread_key_t * key, void (*destroy)(void*)), (key, destroy), "2.2.5")
extern int old_pthread_setspecific(pthread_key_t key, const void* value);
__asm__(".symver old_pthread_setspecific, pthread_setspecific@GLIBC_2.2.5");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of what the value points to, which nobody reads
HIDDEN int pthread_setspecific(pthread_key_t key, const void* value) { return old_pthread_setspecific(key, value); }
#pragma GCC diagnostic pop
OLD(void*, pthread_getspecific, (pthread_key_t key), "2.2.5");
HIDDEN void* pthread_getspecific(pthread_key_t key) { return old_pthread_getspecific(key); }

OLD(void*, dlopen, (const char* file, int mode), "2.2.5");
HIDDEN void* dlopen(const char* file, int mode) { return old_dlopen(file, mode); }
OLD(void*, dlsym, (void* library, const char* name), "2.2.5");
HIDDEN void* dlsym(void* library, const char* name) { return old_dlsym(library, name); }
OLD(char*, dlerror, (void), "2.2.5");
HIDDEN char* dlerror(void) { return old_dlerror(); }
OLD_INT(dlclose, (void* library), (library), "2.2.5")
OLD_INT(dladdr, (const void* address, void* found), (address, found), "2.2.5")
OLD_INT(dlinfo, (void* library, int what, void* found), (library, what, found), "2.3.3")

// Before 2.33 these were inline functions over others, which are told the version of the struct.
extern int __xstat(int version, const char* path, struct stat* found);
extern int __lxstat(int version, const char* path, struct stat* found);
extern int __fxstat(int version, int file, struct stat* found);
extern int __fxstatat(int version, int folder, const char* path, struct stat* found, int flags);
enum { kStatVersion = 1 };
HIDDEN int stat(const char* path, struct stat* found) { return __xstat(kStatVersion, path, found); }
HIDDEN int lstat(const char* path, struct stat* found) { return __lxstat(kStatVersion, path, found); }
HIDDEN int fstat(int file, struct stat* found) { return __fxstat(kStatVersion, file, found); }
HIDDEN int stat64(const char* path, struct stat* found) { return stat(path, found); }  // one struct for both
HIDDEN int lstat64(const char* path, struct stat* found) { return lstat(path, found); }
HIDDEN int fstat64(int file, struct stat* found) { return fstat(file, found); }
HIDDEN int fstatat(int folder, const char* path, struct stat* found, int flags) {
  return __fxstatat(kStatVersion, folder, path, found, flags);
}

/// Never said to be so: atomic operations stay atomic.
HIDDEN char __libc_single_threaded = 0;

extern int getentropy(void* bytes, size_t count);
HIDDEN unsigned arc4random(void) {
  unsigned value = 0;
  if (getentropy(&value, sizeof value) != 0) {  // of kernels before 3.17; LLVM names files by it, and tries again
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    value = (unsigned)now.tv_nsec * 2654435761u;
  }
  return value;
}

/// Of LLVM's statistics: numbers of 32 bits, as 2.28 has them.
HIDDEN struct mallinfo2 mallinfo2(void) {
  struct mallinfo2 wide;
  memset(&wide, 0, sizeof wide);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const struct mallinfo narrow = mallinfo();
#pragma GCC diagnostic pop
  wide.arena = (unsigned)narrow.arena;
  wide.hblkhd = (unsigned)narrow.hblkhd;
  wide.uordblks = (unsigned)narrow.uordblks;
  wide.fordblks = (unsigned)narrow.fordblks;
  return wide;
}
