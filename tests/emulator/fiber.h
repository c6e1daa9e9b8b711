#pragma once
// Stacks that one operating-system thread changes between: what emulated GPU threads run on.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

/// Of functions in whose midst a stack is left. The sanitizer of threads keeps the calls that a thread is in as one
/// list: here it would have those of all stacks, and of stacks that were given up, until it overflows. Its own fibers,
/// a thread each in its eyes, are 8,128 at most, and every switch between them takes as long as there are many.
#if defined(__clang__)
#if __has_feature(thread_sanitizer)
#define CELLC_LEAVES_STACK __attribute__((disable_sanitizer_instrumentation))
#endif
#elif defined(__SANITIZE_THREAD__)
#define CELLC_LEAVES_STACK __attribute__((no_sanitize("thread")))
#endif
#ifndef CELLC_LEAVES_STACK
#define CELLC_LEAVES_STACK
#endif

namespace cellc::emulator {

/// One stack and what was left on it. Nothing unwinds a stack that is given up in the middle.
class Fiber {
 public:
  explicit Fiber(std::size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Forgets what was running. The next resume() calls `entry(argument)`, which must never return: its
  /// last act is leave_for_good().
  void start(void (*entry)(void*), void* argument);
  /// Runs the fiber until it leaves. Not from inside a fiber.
  CELLC_LEAVES_STACK void resume();
  /// From inside: back to who resumed. Returns at the next resume().
  CELLC_LEAVES_STACK void leave();
  [[noreturn]] CELLC_LEAVES_STACK void leave_for_good();

  /// The address lies in the pages below the stack: it ran over.
  bool overflowed_at(const void* address) const;

 private:
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;  ///< with the guard below
  bool cut_ = false;       ///< the guard is a mapping of its own
  std::size_t colour_;     ///< bytes at the top that are left out
  struct Context;          ///< of where registers are kept; by platform
  std::unique_ptr<Context> context_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  CELLC_LEAVES_STACK void run();
  friend void run_fiber(Fiber* fiber);
};

}  // namespace cellc::emulator
