#pragma once
// Threads of one run.
#include <functional>

namespace cellc {

/// Runs work(0) … work(count - 1), each on a thread of its own; work(0) on the caller's, so that a count
/// of one starts none. Waits for all; rethrows the first exception.
void run_on_threads(int count, const std::function<void(int)>& work);

/// What `requested` threads mean: 0 is every core that this process may use.
int thread_count(int requested);

}  // namespace cellc
