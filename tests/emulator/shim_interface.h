#pragma once
// What generated code, compiled for the host, and the emulator tell each other. Included by both sides:
// plain types only, no library.

namespace cellc_emulator {

struct Index3 {
  unsigned x, y, z;
};

/// What a thread reads of itself. The emulator sets `current` of the loaded object to the running thread's.
struct Thread {
  Index3 thread, block, block_dim, grid_dim;
  unsigned lane;          // of its warp, 0..31
  unsigned cluster_rank;  // of its block
  void* dynamic_shared;   // of its block
};

enum class BarrierKind { Plain, Or, And, Count };
enum class WarpKind { Sync, Shuffle, Ballot, Sum, Max };

/// Services of the emulator. All are called on the stack of an emulated thread.
struct Services {
  // A wait that may go on: others run before this returns. `what` names it in a report of a deadlock.
  void (*yield)(const char* what);
  // A place where a real card may run others: under a random schedule the emulator does so at times.
  void (*preempt)();
  // Memory changed in a way that others may wait for. Without it, endless yields count as a deadlock.
  void (*progress)();
  int (*barrier)(int id, int threads, BarrierKind kind, int predicate);  // threads 0: all of the block
  // Shuffle: the value of lane `source`; Ballot: a bit for each lane of the mask whose value is not 0.
  unsigned long long (*warp)(WarpKind kind, unsigned mask, unsigned long long value, unsigned source);
  unsigned (*active_lanes)();
  void (*copy_begin)(void* to, const void* from, unsigned bytes, unsigned source_bytes);
  void (*copy_commit)();
  void (*copy_wait)(unsigned groups_left);
  void (*copy_wait_all)();
  void (*cluster_arrive)();
  void (*cluster_wait)();
  void* (*of_block)(void* at,
                    unsigned rank);  // the same place in the dynamic shared memory of another block of the cluster
  long long (*clock)();
  void (*fail)(const char* message);  // does not return
};

}  // namespace cellc_emulator
