#pragma once
// One launch: the blocks of a grid, their threads as fibers, barriers, warps, and who runs next.
//
// One operating-system thread runs everything. A thread runs until it waits, so between two waits nothing
// comes in between unless the schedule is shuffled: then threads also change at atomics and fences, and
// the order of blocks and threads is another one in every round. Either way a kernel that lacks a barrier
// reads, under some order, what was not yet written: and that is NaN.
//
// Memory is sequentially consistent: a missing fence is not found here.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/device/gpu.h"
#include "tests/emulator/fiber.h"
#include "tests/emulator/shim_interface.h"

namespace cellc::emulator {

class DeviceMemory;

/// Stacks, kept between launches.
class FiberPool {
 public:
  explicit FiberPool(std::size_t stack_bytes) : stack_bytes_(stack_bytes) {}
  std::unique_ptr<Fiber> take();
  void give_back(std::unique_ptr<Fiber> fiber) { free_.push_back(std::move(fiber)); }
  std::size_t stack_bytes() const { return stack_bytes_; }

 private:
  std::size_t stack_bytes_;
  std::vector<std::unique_ptr<Fiber>> free_;
};

/// What is launched.
struct GridJob {
  std::string name;  ///< of the kernel
  void (*entry)(void** arguments) = nullptr;
  void** arguments = nullptr;
  const cellc_emulator::Thread** current = nullptr;  ///< of the loaded object
  char* static_shared = nullptr;                     ///< its thread-local segment, of this thread
  std::size_t static_shared_bytes = 0;
  GpuDim grid, block;
  std::size_t dynamic_shared_bytes = 0;
  std::size_t resident = 1;  ///< blocks that run at the same time; they start in order
  unsigned cluster = 1;      ///< blocks that start together, along x
  bool shuffled = false;
  std::uint64_t seed = 0;
  /// Source lines of a place in the code: ", at a.cuh:5, from b.cuh:7"; empty if they are not known.
  std::function<std::string(const void*)> lines_of;
  std::int64_t patience = 0;  ///< rounds without progress until that is a deadlock
};

const cellc_emulator::Services* grid_services();

/// splitmix64: schedules ask for a number at every turn, and most launches are over before std::mt19937_64 is seeded.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }

 private:
  std::uint64_t state_;
};

class GridRun {
 public:
  GridRun(const GridJob& job, FiberPool& pool, DeviceMemory& memory);
  ~GridRun();
  /// Runs to the end. Throws DeviceError with kernel, block and thread.
  void run();

  // What threads ask for: the functions of Services.
  CELLC_LEAVES_STACK void yield(const char* what);
  CELLC_LEAVES_STACK void preempt();
  void progress() { ++progress_; }
  CELLC_LEAVES_STACK int barrier(int id, int threads, cellc_emulator::BarrierKind kind, int predicate);
  CELLC_LEAVES_STACK unsigned long long warp(cellc_emulator::WarpKind kind, unsigned mask, unsigned long long value,
                                             unsigned source);
  unsigned active_lanes() const;
  CELLC_LEAVES_STACK void copy_begin(void* to, const void* from, unsigned bytes, unsigned source_bytes);
  void copy_commit();
  void copy_wait(unsigned groups_left);
  void copy_wait_all();
  CELLC_LEAVES_STACK void cluster_arrive();
  CELLC_LEAVES_STACK void cluster_wait();
  CELLC_LEAVES_STACK void* of_block(void* at, unsigned rank);
  /// Where the running thread is: of every call above, before it.
  void set_site(const void* site) { running_->site = site; }
  long long clock() { return static_cast<long long>(++clock_); }
  [[noreturn]] CELLC_LEAVES_STACK void fail(const char* message);
  /// From a signal handler on this thread; `site`: of the instruction. False: no emulated thread was running.
  CELLC_LEAVES_STACK bool fault(int signal, const void* address, const void* site);

 private:
  enum class State : unsigned char { Ready, Yielded, AtBarrier, AtWarp, Exited };
  struct Copy {
    char* to;
    const char* from;
    unsigned bytes, source_bytes;
    int group;
  };
  struct Block;
  struct Thread {
    cellc_emulator::Thread view{};
    GridRun* run = nullptr;
    Block* block = nullptr;
    unsigned number = 0;  ///< in the block
    std::unique_ptr<Fiber> fiber;
    State* state = nullptr;  ///< in its block
    const char* waits_for = "";
    const void* site = nullptr;  ///< in the kernel, of its last request
    int barrier_id = 0;
    // What it brought to its warp, and what it got.
    cellc_emulator::WarpKind warp_kind{};
    unsigned mask = 0, source = 0;
    unsigned long long value = 0, result = 0;
    unsigned calls_since_yield = 0;
    std::vector<Copy> copies;                             ///< on their way, oldest first
    int group = 0;                                        ///< of copies, that is open
    std::size_t cluster_arrivals = 0, cluster_waits = 0;  ///< at the barrier of its cluster
    bool waits_for_cluster = false;                       ///< there; nobody needs to ask it whether all have come
  };
  struct Barrier {
    int expected = 0, arrived = 0, accumulated = 0, result = 0;
    cellc_emulator::BarrierKind kind{};
  };
  struct Warp {
    unsigned existing = 0, waiting = 0, exited = 0;
    // Whether all that wait came with this mask to this kind of place.
    bool common = true;
    unsigned mask = 0;
    cellc_emulator::WarpKind kind{};
  };
  struct Block {
    std::vector<Thread> threads;
    std::vector<State> states;  ///< of the threads, side by side: every pass looks at all of them
    std::vector<Warp> warps;
    std::array<Barrier, 16> barriers{};
    std::vector<char> static_shared;               ///< while another block runs
    char* dynamic_base = nullptr;                  ///< guard, memory, guard
    std::size_t exited = 0, cluster_arrivals = 0;  ///< of threads that have not ended
    std::uint64_t index = 0;
    ~Block();
  };

  void admit();
  void retire(Block& block);
  void make_current(Block& block);
  bool round();             ///< false: everything has ended
  bool pass(Block& block);  ///< true: a thread could go on at once
  CELLC_LEAVES_STACK void leave(State state, const char* waits_for);
  void exit_thread();
  void finish_copies(int before_group);
  bool in_shared(const void* at, std::size_t bytes) const;
  void set_error(const std::string& message);  ///< of the running thread
  [[noreturn]] CELLC_LEAVES_STACK void die();
  Block* peer(const Block& of, unsigned rank) const;  ///< in its cluster; nullptr: it has ended
  bool cluster_came(const Thread& thread) const;      ///< to the barrier that the thread has arrived at
  void complete_warp(Block& block, Warp& warp, unsigned first, unsigned mask);
  std::string place(const Thread& thread) const;
  std::string who_waits(const Block& block) const;
  std::string lines_of(const void* site) const { return job_.lines_of && site ? job_.lines_of(site) : ""; }
  CELLC_LEAVES_STACK static void thread_main(void* thread);
  bool is_behind(const Thread& thread) const;
  bool chance(unsigned of) { return random_() % of == 0; }
  template <class T>
  void shuffle(std::vector<T>& items);

  const GridJob& job_;
  FiberPool& pool_;
  DeviceMemory& memory_;
  Random random_;
  std::vector<std::unique_ptr<Block>> blocks_;  ///< resident
  std::uint64_t next_ = 0, total_ = 0;
  Block* loaded_ = nullptr;  ///< whose static shared memory lies in place
  Thread* running_ = nullptr;
  std::vector<Thread*> order_;  ///< of a pass
  std::uint64_t progress_ = 0, steps_ = 0, clock_ = 0;
  std::string error_;
  const void* error_site_ = nullptr;
};

/// The run of this thread, nullptr outside of launches.
GridRun*& active_run();

}  // namespace cellc::emulator
