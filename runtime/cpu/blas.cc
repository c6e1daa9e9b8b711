#include "runtime/cpu/blas.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>
#include <type_traits>

#include "runtime/data/errors.h"
#include "runtime/data/threads.h"

namespace cellc {
namespace {

/// OpenBLAS maps a buffer for each call that is under way, and one for each of its threads, keeps them for later ones,
/// and asks for ever where there is no room. So room is looked for before a call that may need a new one; whoever takes
/// it in between is beyond us.
void find_room(int buffers) {
  constexpr std::size_t kBuffer = std::size_t{129} << 20;  // of x86-64, and a little for its tables
  const std::size_t bytes = kBuffer * static_cast<std::size_t>(buffers);
  void* room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    throw DeviceError(fmt::format("there is no room for the buffers of matrix products, {} MiB of address space: {}",
                                  bytes >> 20, std::strerror(errno)));
  munmap(room, bytes);
}

#ifdef CELLC_BLAS_FILE

/// It starts a thread for every processor but one, and raises SIGINT where that fails: better tried before.
void make_sure_of_threads() {
  const char* asked = std::getenv("OPENBLAS_NUM_THREADS");
  if (asked && std::string_view(asked) == "1") return;
  if (dlopen(CELLC_BLAS_FILE, RTLD_NOW | RTLD_NOLOAD)) return;  // the process has it already
  constexpr int kMost = 64;
  const int threads = std::min(thread_count(0), kMost);
  try {
    run_on_threads(threads, [](int) {});
  } catch (const DeviceError&) {
    throw DeviceError(
        fmt::format("{} cannot be loaded: it starts {} threads, and the system does not; "
                    "OPENBLAS_NUM_THREADS=1 in the environment lets it start none",
                    CELLC_BLAS_FILE, threads - 1));
  }
  find_room(threads);
}

Blas load() {
  make_sure_of_threads();
  void* library = dlopen(CELLC_BLAS_FILE, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw DeviceError(fmt::format("matrix products need a BLAS: {}", dlerror()));
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
  };
  Blas result;
  find("cblas_sgemm", result.sgemm);
  find("cblas_dgemm", result.dgemm);
  if (!result.sgemm || !result.dgemm) throw DeviceError(fmt::format("{} has no cblas_sgemm", CELLC_BLAS_FILE));
  find("openblas_set_num_threads", result.set_threads);
  find("openblas_get_num_threads", result.threads);
  return result;
}

#else

Blas load() {
#ifdef OPENBLAS_VERSION
  return {&cblas_sgemm, &cblas_dgemm, &openblas_set_num_threads, &openblas_get_num_threads};
#else
  return {&cblas_sgemm, &cblas_dgemm, nullptr, nullptr};
#endif
}

#endif

/// Calls that are in OpenBLAS.
std::mutex mutex;
int running = 0;
int most = 0;    ///< that were at once, and found room
int before = 0;  ///< threads of a call as others had set them

bool is_openblas() { return blas().set_threads && blas().threads; }

}  // namespace

const Blas& blas() {
  static const Blas loaded = load();  // tried again where it failed
  return loaded;
}

BlasCall::BlasCall() {
  if (!is_openblas()) return;
  const std::lock_guard lock(mutex);
  if (running == most) {
    find_room(1);
    ++most;
  }
  if (running++ != 0) return;
  before = blas().threads();
  if (before != 1) blas().set_threads(1);
}

BlasCall::~BlasCall() {
  if (!is_openblas()) return;
  const std::lock_guard lock(mutex);
  // Unless somebody has set another number meanwhile.
  if (--running == 0 && before != 1 && blas().threads() == 1) blas().set_threads(before);
}

}  // namespace cellc
