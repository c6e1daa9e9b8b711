#include "runtime/threads.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <vector>

namespace cellc {

void run_on_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(std::max(count, 1)));
  const auto guarded = [&](int index) {
    try {
      work(index);
    } catch (...) {
      errors[static_cast<std::size_t>(index)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < count; ++i) others.emplace_back(guarded, i);
    guarded(0);
  }
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

int thread_count(int requested) {
  constexpr int kMost = 1024;
  if (requested > 0) return std::min(requested, kMost);
  // The affinity mask, not the machine: a container or taskset may leave us fewer cores.
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0 && CPU_COUNT(&mask) > 0) return CPU_COUNT(&mask);
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace cellc
