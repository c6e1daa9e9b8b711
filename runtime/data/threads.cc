#include "runtime/data/threads.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/data/errors.h"
#include "runtime/data/host_memory.h"
#include "runtime/data/run_control.h"

namespace cellc {

namespace {

void start_threads(int count, const std::function<void(int)>& work) {
  // They may wait for each other, so none begins before all are there.
  enum : int { kNotYet, kBegin, kNever };
  std::atomic<int> signal{kNotYet};
  const auto give = [&](int what) {
    signal = what;
    signal.notify_all();
  };
  {
    std::vector<std::jthread> others;
    try {
      for (int i = 1; i < count; ++i)
        others.emplace_back([&, i] {
          signal.wait(kNotYet);
          if (signal == kBegin) work(i);
        });
    } catch (const std::system_error& e) {
      give(kNever);
      throw DeviceError(
          fmt::format("cannot start {} threads: {}; ask for fewer with --threads", count, e.code().message()));
    } catch (...) {
      give(kNever);
      throw;
    }
    give(kBegin);
    work(0);
  }
}

}  // namespace

void run_on_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(std::max(count, 1)));
  const HostMemory* const memory = host_memory();
  const RunControl* const control = run_control();
  const auto guarded = [&](int index) {
    try {
      const UseHostMemory same(memory);
      const UseRunControl same_too(control);
      work(index);
    } catch (...) {
      errors[static_cast<std::size_t>(index)] = std::current_exception();
    }
  };
  if (control && control->run_tasks && count > 1) {
    using Guarded = decltype(guarded);
    control->run_tasks(
        control->pool, [](void* data, int number) { (*static_cast<const Guarded*>(data))(number); },
        const_cast<void*>(static_cast<const void*>(&guarded)), count);
  } else {
    start_threads(count, guarded);
  }
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
}

void run_on_cores(int count, const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(std::max(count, 0)));
  std::atomic<int> next{0};
  const auto take = [&](int) {
    for (int i; (i = next++) < count;) {
      try {
        work(i);
      } catch (...) {
        errors[static_cast<std::size_t>(i)] = std::current_exception();
      }
    }
  };
  try {
    run_on_threads(std::min(thread_count(0), count), take);
  } catch (const DeviceError&) {
    take(0);  // no threads
  }
  for (const std::exception_ptr& e : errors)
    if (e) std::rethrow_exception(e);
}

void run_in_step(int count, const std::function<void(int, std::barrier<>&)>& work) {
  std::barrier<> meeting(std::max(count, 1));
  run_on_threads(count, [&](int index) {
    try {
      work(index, meeting);
    } catch (...) {
      meeting.arrive_and_drop();
      throw;
    }
  });
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
