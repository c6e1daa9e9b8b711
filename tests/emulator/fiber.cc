#include "tests/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "runtime/cpu/engine.h"

#if defined(__SANITIZE_ADDRESS__)
#define CELLC_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CELLC_ASAN 1
#endif
#endif
#ifdef CELLC_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// ucontext saves the signal mask by two system calls a switch, which would be most of the time of a run;
// on x86-64 a switch is written out.
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cellc::emulator {

CELLC_LEAVES_STACK void run_fiber(Fiber* fiber) { fiber->run(); }

#if defined(__x86_64__)

// Saves what a call must preserve, exchanges stacks. The control words of x87 and SSE are never changed by
// kernels and need no saving.
extern "C" void cellc_emulator_switch(void** save, void* to);
asm(R"(
.text
.globl cellc_emulator_switch
.hidden cellc_emulator_switch
.type cellc_emulator_switch, @function
cellc_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cellc_emulator_switch, .-cellc_emulator_switch
.globl cellc_emulator_first
.hidden cellc_emulator_first
.type cellc_emulator_first, @function
cellc_emulator_first:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size cellc_emulator_first, .-cellc_emulator_first
)");
extern "C" void cellc_emulator_first();

struct Fiber::Context {
  void *inside = nullptr, *outside = nullptr;  // stack pointers
  void* fake_inside = nullptr;                 // of the address sanitizer
  void* fake_outside = nullptr;
  const void* outside_bottom = nullptr;
  std::size_t outside_bytes = 0;

  void prepare(char* top, Fiber* fiber) {
    auto* slot = reinterpret_cast<void**>(top);
    *--slot = nullptr;  // ends a debugger's walk
    *--slot = nullptr;  // and the stack is aligned to 16 where `first` calls
    *--slot = reinterpret_cast<void*>(&cellc_emulator_first);
    *--slot = nullptr;                              // rbp
    *--slot = fiber;                                // rbx
    *--slot = reinterpret_cast<void*>(&run_fiber);  // r12
    for (int i = 0; i < 3; ++i) *--slot = nullptr;  // r13, r14, r15
    inside = slot;
  }
  CELLC_LEAVES_STACK void enter() { cellc_emulator_switch(&outside, inside); }
  CELLC_LEAVES_STACK void exit() { cellc_emulator_switch(&inside, outside); }
};

#else

struct Fiber::Context {
  ucontext_t inside{}, outside{};
  void* fake_inside = nullptr;
  void* fake_outside = nullptr;
  const void* outside_bottom = nullptr;
  std::size_t outside_bytes = 0;
  CELLC_LEAVES_STACK static void first(unsigned high, unsigned low) {
    run_fiber(reinterpret_cast<Fiber*>(std::uintptr_t(high) << 32 | low));
  }
  void prepare(char* top, Fiber* fiber) {
    getcontext(&inside);
    inside.uc_stack.ss_sp = fiber->memory_;
    inside.uc_stack.ss_size = std::size_t(top - static_cast<char*>(fiber->memory_));
    inside.uc_link = nullptr;
    const auto word = reinterpret_cast<std::uintptr_t>(fiber);
    makecontext(&inside, reinterpret_cast<void (*)()>(&first), 2, unsigned(word >> 32), unsigned(word));
  }
  CELLC_LEAVES_STACK void enter() { swapcontext(&outside, &inside); }
  CELLC_LEAVES_STACK void exit() { swapcontext(&inside, &outside); }
};

#endif

namespace {
std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

/// Makes of a page one that nobody may touch. Since Linux 6.13 that is a mark which leaves the mapping whole. Otherwise
/// it is cut in two, and a process has 65530 mappings at most where nobody has changed that: a card of 132
/// multiprocessors has more threads than half of that. Then so many stacks are guarded; those after them, whose
/// mappings the system joins, are not.
constexpr int kMostCuts = 16384;
std::atomic<int> cuts = 0;

/// Whether the mapping was cut.
bool guard(void* page) {
#ifndef MADV_GUARD_INSTALL
  constexpr int MADV_GUARD_INSTALL = 102;
#endif
  if (madvise(page, page_bytes(), MADV_GUARD_INSTALL) == 0) return false;
  if (cuts >= kMostCuts || mprotect(page, page_bytes(), PROT_NONE) != 0) return false;
  ++cuts;
  return true;
}

/// Frames of all threads at the same place of a page would share the few lines of a cache that belong to it.
constexpr std::size_t kColours = 16, kColourBytes = 256;
std::size_t next_colour() {
  static std::atomic<std::size_t> number{0};
  return number++ % kColours * kColourBytes;
}
}  // namespace

Fiber::Fiber(std::size_t stack_bytes) : colour_(next_colour()), context_(std::make_unique<Context>()) {
  const std::size_t page = page_bytes();
  stack_bytes += kColours * kColourBytes;
  bytes_ = (stack_bytes + page - 1) / page * page + page;
  memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ != MAP_FAILED) {
    cut_ = guard(memory_);
    return;
  }
  throw DeviceError(
      "emulator: the system gives no more stacks for threads: let fewer blocks run at the same time "
      "(EmulatorOptions::multiprocessors)");
}

Fiber::~Fiber() {
  munmap(memory_, bytes_);
  cuts -= cut_;
}

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
#ifdef CELLC_ASAN
  // What was given up in the middle left the marks of its frames.
  __asan_unpoison_memory_region(static_cast<char*>(memory_) + page_bytes(), bytes_ - page_bytes());
  context_->fake_inside = nullptr;
#endif
  context_->prepare(static_cast<char*>(memory_) + bytes_ - colour_, this);
}

void Fiber::run() {
#ifdef CELLC_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &context_->outside_bottom, &context_->outside_bytes);
#endif
  entry_(argument_);
  std::abort();
}

void Fiber::resume() {
#ifdef CELLC_ASAN
  __sanitizer_start_switch_fiber(&context_->fake_outside, static_cast<char*>(memory_) + page_bytes(),
                                 bytes_ - page_bytes());
#endif
  context_->enter();
#ifdef CELLC_ASAN
  __sanitizer_finish_switch_fiber(context_->fake_outside, nullptr, nullptr);
#endif
}

void Fiber::leave() {
#ifdef CELLC_ASAN
  __sanitizer_start_switch_fiber(&context_->fake_inside, context_->outside_bottom, context_->outside_bytes);
#endif
  context_->exit();
#ifdef CELLC_ASAN
  __sanitizer_finish_switch_fiber(context_->fake_inside, &context_->outside_bottom, &context_->outside_bytes);
#endif
}

void Fiber::leave_for_good() {
#ifdef CELLC_ASAN
  __sanitizer_start_switch_fiber(nullptr, context_->outside_bottom, context_->outside_bytes);
#endif
  context_->exit();
  std::abort();
}

bool Fiber::overflowed_at(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  const auto* low = static_cast<const char*>(memory_);
  return at >= low && at < low + page_bytes();
}

}  // namespace cellc::emulator
