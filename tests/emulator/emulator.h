#pragma once
// A Gpu that runs CUDA C++ on the CPU, for tests: the kernels' real text, compiled for the host
// against cuda_shim.h, a fiber for each thread. It finds wrong logic and missing barriers; it says nothing of
// speed, of rounding in the card's approximate functions, or of missing fences (README.md).
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/cuda/device/gpu.h"

namespace cellc {

struct EmulatorOptions {
  /// 0: blocks and threads take turns in order. Otherwise every round has another order, and threads also
  /// change at atomics and fences; the same seed gives the same run.
  std::uint64_t seed = 0;
  /// Blocks of an ordinary launch run at the same time, as many as the card would hold; otherwise one after
  /// another. They start in order of their number either way. Cooperative launches always interleave.
  bool interleave = true;
  int multiprocessors = 4;
  std::int64_t memory_bytes = std::int64_t{4} << 30;
  int registers = 64;                   ///< a thread's, for resident_blocks
  std::size_t stack_bytes = 128 << 10;  ///< a thread's, for its local arrays
  std::int64_t patience = 100000;       ///< rounds in which only waiting loops ran: then it is a deadlock
  /// The compiler's -O. 0 compiles in a third of the time and runs several times slower: for kernels
  /// that run once over few steps.
  int optimisation = 1;
  /// Compiled objects; empty: a directory of the build tree.
  std::string cache_directory;
};

class Emulator : public Gpu {
 public:
  struct Counts {
    std::int64_t allocations = 0;       ///< so far
    std::int64_t live_bytes = 0;        ///< now
    std::int64_t launches = 0;          ///< so far
    std::int64_t synchronisations = 0;  ///< so far: synchronize, copy_out, elapsed_ms
    std::int64_t graphs = 0;            ///< of our own that are alive
    std::int64_t graph_launches = 0;    ///< so far; what they launch counts as launches
  };
  virtual Counts counts() const = 0;
  virtual void set_seed(std::uint64_t seed) = 0;  ///< as EmulatorOptions::seed, of the launches from now on
  /// As if other kernels held the rest of the card: of ordinary launches from now on so many blocks, or clusters of
  /// them, find room at once. 0: as many as fit.
  virtual void set_room(int blocks) = 0;
  /// As if streams, but those of make_stream(), were captured for that graph; 0: they are not. What a driver
  /// refuses then is refused, and so is what no graph may keep, such as a copy from the host.
  virtual void set_capture(std::uint64_t graph) = 0;
};

std::unique_ptr<Emulator> open_emulator(const EmulatorOptions& options = {});

}  // namespace cellc
