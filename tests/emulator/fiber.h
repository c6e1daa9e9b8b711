#pragma once
// Stacks that one operating-system thread changes between: what emulated GPU threads run on.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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
  void resume();
  /// From inside: back to who resumed. Returns at the next resume().
  void leave();
  [[noreturn]] void leave_for_good();

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
  void run();
  friend void run_fiber(Fiber* fiber);
};

}  // namespace cellc::emulator
