#pragma once
// Threads of one run.
#include <barrier>
#include <functional>

namespace cellc {

/// Runs work(0) … work(count - 1), each on a thread of its own; work(0) on the caller's, so that a count
/// of one starts none. Waits for all; rethrows the first exception. Throws DeviceError where so many
/// threads cannot be started, before any of them does anything. Where the host has threads of its own (run_control.h),
/// those do it, one after another too: work that waits for other work is for run_in_step.
void run_on_threads(int count, const std::function<void(int)>& work);

/// Runs work(0) … work(count - 1) on as many threads as there are cores; one after another where none can be started.
/// Waits for all; rethrows what the first of them threw, in their order.
void run_on_cores(int count, const std::function<void(int)>& work);

/// As run_on_threads, for threads that wait for each other: all of them meet equally often. Whoever throws leaves
/// the meeting, and the others go on without it, whatever their results are worth then. Not on a host's threads.
void run_in_step(int count, const std::function<void(int, std::barrier<>&)>& work);

/// What `requested` threads mean: 0 is every core that this process may use.
int thread_count(int requested);

}  // namespace cellc
