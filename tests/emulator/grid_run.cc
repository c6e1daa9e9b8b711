#include "tests/emulator/grid_run.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <tuple>

#include "runtime/cpu/engine.h"
#include "tests/emulator/device_memory.h"

namespace cellc::emulator {
namespace {

constexpr std::size_t kSharedGuard = 1024;  // keeps the alignment that cards give dynamic shared memory
// An atomic or a fence may be all that a waiting loop consists of.
constexpr unsigned kCallsPerYield = 64;
// Rounds in which threads only met at barriers: a loop around a barrier that waits for memory to change
// makes these. They weigh less, since a long run over time makes many too.
constexpr std::int64_t kIdleWeight = 25;
constexpr std::size_t kMostBlocksTold = 8;  // of those that wait

constexpr int kPassesPerTurn = 64;
// In one shuffled launch of eight, half of a block's warps go on in one pass of so many while others can. Where all are
// about as far, what lacks a barrier is mostly there by the time that it is read. It takes two and a half times as
// long.
constexpr unsigned kPassesBehind = 24;
constexpr std::uint64_t kLaunchesBehind = 8;

std::string at_index(const char* what, unsigned x, unsigned y, unsigned z) {
  return std::string(what) + " (" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
}

}  // namespace

GridRun*& active_run() {
  static thread_local GridRun* run = nullptr;
  return run;
}

std::unique_ptr<Fiber> FiberPool::take() {
  if (free_.empty()) return std::make_unique<Fiber>(stack_bytes_);
  auto fiber = std::move(free_.back());
  free_.pop_back();
  return fiber;
}

GridRun::Block::~Block() { std::free(dynamic_base); }

GridRun::GridRun(const GridJob& job, FiberPool& pool, DeviceMemory& memory)
    : job_(job),
      pool_(pool),
      memory_(memory),
      random_(job.seed),
      total_(std::uint64_t{job.grid.x} * job.grid.y * job.grid.z) {}

GridRun::~GridRun() {
  for (auto& block : blocks_)
    for (auto& thread : block->threads)
      if (thread.fiber) pool_.give_back(std::move(thread.fiber));
}

template <class T>
void GridRun::shuffle(std::vector<T>& items) {
  if (!job_.shuffled) return;
  for (std::size_t left = items.size(); left > 1; --left)
    std::swap(items[left - 1], items[(random_() >> 32) * left >> 32]);
}

// ---- blocks ----

void GridRun::admit() {
  // The blocks of a cluster start together, or not yet.
  const auto is_room = [&] {
    return next_ % job_.cluster != 0 || blocks_.empty() || blocks_.size() + job_.cluster <= job_.resident;
  };
  while (next_ < total_ && is_room()) {
    auto block = std::make_unique<Block>();
    const unsigned count = job_.block.x * job_.block.y * job_.block.z;
    const std::uint64_t index = next_++;
    block->index = index;
    const cellc_emulator::Index3 position{static_cast<unsigned>(index % job_.grid.x),
                                          static_cast<unsigned>(index / job_.grid.x % job_.grid.y),
                                          static_cast<unsigned>(index / job_.grid.x / job_.grid.y)};
    const std::size_t dynamic =
        (job_.dynamic_shared_bytes + kSharedGuard - 1) / kSharedGuard * kSharedGuard + 2 * kSharedGuard;
    block->dynamic_base = static_cast<char*>(std::aligned_alloc(kSharedGuard, dynamic));
    if (!block->dynamic_base) throw DeviceError("emulator: the host has no memory left");
    fill_guard(block->dynamic_base, dynamic);
    std::memset(block->dynamic_base + kSharedGuard, kUnwritten, job_.dynamic_shared_bytes);
    block->static_shared.assign(job_.static_shared_bytes, static_cast<char>(kUnwritten));
    block->warps.resize((count + 31) / 32);
    block->threads = std::vector<Thread>(count);
    block->states.assign(count, State::Ready);
    for (unsigned i = 0; i < count; ++i) {
      Thread& thread = block->threads[i];
      thread.view.thread = {i % job_.block.x, i / job_.block.x % job_.block.y, i / job_.block.x / job_.block.y};
      thread.view.block = position;
      thread.view.block_dim = {job_.block.x, job_.block.y, job_.block.z};
      thread.view.grid_dim = {job_.grid.x, job_.grid.y, job_.grid.z};
      thread.view.lane = i % 32;
      thread.view.cluster_rank = static_cast<unsigned>(index % job_.cluster);
      thread.view.dynamic_shared = block->dynamic_base + kSharedGuard;
      thread.run = this;
      thread.block = block.get();
      thread.number = i;
      thread.state = &block->states[i];
      thread.fiber = pool_.take();
      thread.fiber->start(&thread_main, &thread);
      block->warps[i / 32].existing |= 1u << (i % 32);
    }
    blocks_.push_back(std::move(block));
  }
}

void GridRun::retire(Block& block) {
  const std::size_t padded = (job_.dynamic_shared_bytes + kSharedGuard - 1) / kSharedGuard * kSharedGuard;
  const std::size_t tail = padded + kSharedGuard - job_.dynamic_shared_bytes;
  const char* const end = block.dynamic_base + kSharedGuard + job_.dynamic_shared_bytes;
  // The tail's fill began at the base: compare with the same phase.
  for (std::size_t i = 0; i < tail; ++i) {
    char expected[4];
    fill_guard(expected, 4);
    if (end[i] == expected[(kSharedGuard + job_.dynamic_shared_bytes + i) % 4]) continue;
    const auto& position = block.threads[0].view.block;
    throw DeviceError("emulator: kernel " + job_.name + ", " + at_index("block", position.x, position.y, position.z) +
                      ": wrote memory from byte " + std::to_string(job_.dynamic_shared_bytes + i) + " of " +
                      std::to_string(job_.dynamic_shared_bytes) + " bytes of dynamic shared memory");
  }
  if (loaded_ == &block) loaded_ = nullptr;
  for (auto& thread : block.threads) pool_.give_back(std::move(thread.fiber));
}

void GridRun::make_current(Block& block) {
  if (loaded_ == &block) return;
  if (loaded_) std::memcpy(loaded_->static_shared.data(), job_.static_shared, job_.static_shared_bytes);
  if (job_.static_shared_bytes) std::memcpy(job_.static_shared, block.static_shared.data(), job_.static_shared_bytes);
  loaded_ = &block;
}

// ---- who runs ----

void GridRun::run() {
  std::int64_t idle = 0;
  std::uint64_t seen_progress = 0, seen_steps = 0;
  while (round()) {
    idle += seen_steps == steps_ ? kIdleWeight : 1;
    if (seen_progress != progress_) idle = 0;
    seen_progress = progress_;
    seen_steps = steps_;
    if (idle <= job_.patience * kIdleWeight) continue;
    std::string all;
    for (std::size_t i = 0; i < blocks_.size() && i < kMostBlocksTold; ++i) all += "; " + who_waits(*blocks_[i]);
    throw DeviceError("emulator: kernel " + job_.name + ": deadlock, nothing has changed for " +
                      std::to_string(job_.patience) + " rounds" + all);
  }
}

bool GridRun::round() {
  admit();
  if (blocks_.empty()) return false;
  std::vector<Block*> order;
  for (auto& block : blocks_) order.push_back(block.get());
  shuffle(order);
  for (Block* block : order) {
    make_current(*block);
    // A block keeps its turn for a while: exchanging static shared memory costs more than a pass.
    for (int passes = 0; passes < kPassesPerTurn && pass(*block); ++passes)
      if (job_.shuffled && chance(2)) break;
    const bool all_wait = std::all_of(block->states.begin(), block->states.end(),
                                      [](State state) { return state != State::Ready && state != State::Yielded; });
    if (block->exited < block->threads.size() && all_wait)
      throw DeviceError("emulator: kernel " + job_.name + ": deadlock, no thread of a block can go on; " +
                        who_waits(*block));
    if (block->exited == block->threads.size()) {
      retire(*block);
      std::erase_if(blocks_, [&](const auto& candidate) { return candidate.get() == block; });
    }
  }
  return true;
}

/// Which warps they are follows from the seed.
bool GridRun::is_behind(const Thread& thread) const {
  if (!job_.shuffled || job_.seed % kLaunchesBehind != 0 || thread.block->warps.size() < 2) return false;
  return (job_.seed * 0x9e3779b97f4a7c15ull >> (20 + thread.number / 32 % 32)) & 1;
}

bool GridRun::pass(Block& block) {
  order_.clear();
  for (std::size_t i = 0; i < block.states.size(); ++i)
    if (block.states[i] == State::Ready || block.states[i] == State::Yielded) order_.push_back(&block.threads[i]);
  shuffle(order_);
  const bool some_are_ahead =
      std::any_of(order_.begin(), order_.end(), [&](const Thread* thread) { return !is_behind(*thread); });
  for (Thread* thread : order_) {
    // Asking each thread took a sixth of the time of kernels whose clusters meet at every step.
    if (thread->waits_for_cluster && !cluster_came(*thread)) continue;
    if (job_.shuffled && chance(8)) continue;  // some fall behind by whole rounds
    if (some_are_ahead && is_behind(*thread) && !chance(kPassesBehind)) continue;
    running_ = thread;
    *thread->state = State::Ready;
    *job_.current = &thread->view;
    thread->fiber->resume();
    running_ = nullptr;
    if (!error_.empty()) throw DeviceError(error_ + lines_of(error_site_));
  }
  return std::find(block.states.begin(), block.states.end(), State::Ready) != block.states.end();
}

void GridRun::thread_main(void* argument) {
  auto* thread = static_cast<Thread*>(argument);
  thread->run->job_.entry(thread->run->job_.arguments);
  thread->run->exit_thread();
  thread->fiber->leave_for_good();
}

void GridRun::exit_thread() {
  Thread& thread = *running_;
  Block& block = *thread.block;
  *thread.state = State::Exited;
  thread.copies.clear();
  ++block.exited;
  block.cluster_arrivals -= thread.cluster_arrivals;  // from now on it counts as arrived, wherever the others are
  ++progress_;
  ++steps_;
  Warp& warp = block.warps[thread.number / 32];
  const unsigned bit = 1u << thread.view.lane;
  warp.exited |= bit;
  if (block.barriers[0].arrived) {
    set_error("ends while " + std::to_string(block.barriers[0].arrived) + " threads wait at __syncthreads");
    return;
  }
  const unsigned first = thread.number / 32 * 32;
  for (unsigned lane = 0; lane < 32 && first + lane < block.threads.size(); ++lane)
    if (const Thread& other = block.threads[first + lane]; *other.state == State::AtWarp && (other.mask & bit)) {
      set_error("ends while lane " + std::to_string(other.view.lane) + " waits for it at " + other.waits_for);
      return;
    }
}

void GridRun::leave(State state, const char* waits_for) {
  Thread& thread = *running_;
  *thread.state = state;
  thread.waits_for = waits_for;
  thread.calls_since_yield = 0;
  thread.fiber->leave();
}

void GridRun::yield(const char* what) { leave(State::Yielded, what); }

void GridRun::preempt() {
  if (++running_->calls_since_yield >= kCallsPerYield) return leave(State::Yielded, "an atomic or a fence");
  if (job_.shuffled && chance(4)) {
    ++steps_;
    leave(State::Ready, "");
  }
}

// ---- barriers ----

int GridRun::barrier(int id, int threads, cellc_emulator::BarrierKind kind, int predicate) {
  using cellc_emulator::BarrierKind;
  Thread& thread = *running_;
  Block& block = *thread.block;
  const int all = static_cast<int>(block.threads.size());
  const int expected = threads ? threads : all;
  const char* const name = id ? "a named barrier" : "__syncthreads";
  if (id < 0 || id > 15 || expected > all || (id > 0 && expected % 32)) {
    set_error("barrier " + std::to_string(id) + " for " + std::to_string(expected) + " threads of " +
              std::to_string(all) + ": the number is 0 to 15, the threads are whole warps of the block");
    die();
  }
  Barrier& barrier = block.barriers[static_cast<std::size_t>(id)];
  if (expected == all && block.exited) {
    set_error("waits at " + std::string(name) + ", but " + std::to_string(block.exited) +
              " threads of its block have ended");
    die();
  }
  if (barrier.arrived && (barrier.kind != kind || barrier.expected != expected)) {
    set_error("waits at " + std::string(name) + " where others of its block wait with another kind or count");
    die();
  }
  if (!barrier.arrived) {
    barrier.kind = kind;
    barrier.expected = expected;
    barrier.accumulated = kind == BarrierKind::And;
  }
  const int vote = predicate != 0;
  if (kind == BarrierKind::And)
    barrier.accumulated &= vote;
  else if (kind == BarrierKind::Or)
    barrier.accumulated |= vote;
  else
    barrier.accumulated += vote;
  ++steps_;
  thread.barrier_id = id;
  if (++barrier.arrived < expected) {
    leave(State::AtBarrier, name);
    return barrier.result;
  }
  // Nobody can complete the next barrier before all have left this one, so the result stays till then.
  barrier.arrived = 0;
  barrier.result = barrier.accumulated;
  for (Thread& other : block.threads)
    if (*other.state == State::AtBarrier && other.barrier_id == id) *other.state = State::Ready;
  const int result = barrier.result;
  if (job_.shuffled) leave(State::Ready, "");
  return result;
}

// ---- clusters ----

GridRun::Block* GridRun::peer(const Block& of, unsigned rank) const {
  const std::uint64_t index = of.index / job_.cluster * job_.cluster + rank;
  for (const auto& block : blocks_)
    if (block->index == index) return block.get();
  return nullptr;
}

void GridRun::cluster_arrive() {
  if (running_->cluster_arrivals > running_->cluster_waits)
    fail("arrives at a cluster's barrier again without having waited there");
  ++running_->cluster_arrivals;
  ++running_->block->cluster_arrivals;
  ++progress_;
  preempt();
}

void GridRun::cluster_wait() {
  if (running_->cluster_waits == running_->cluster_arrivals)
    fail("waits at a cluster's barrier without having arrived there");
  running_->waits_for_cluster = true;
  while (!cluster_came(*running_)) yield("a cluster's barrier");
  running_->waits_for_cluster = false;
  ++running_->cluster_waits;
}

bool GridRun::cluster_came(const Thread& thread) const {
  for (unsigned rank = 0; rank < job_.cluster; ++rank)
    if (const Block* const other = peer(*thread.block, rank);
        other && other->cluster_arrivals < thread.cluster_arrivals * (other->threads.size() - other->exited))
      return false;
  return true;
}

void* GridRun::of_block(void* at, unsigned rank) {
  const auto* const own = static_cast<const char*>(running_->view.dynamic_shared);
  const auto* const place = static_cast<const char*>(at);
  if (rank >= job_.cluster) fail("an address in a block that its cluster does not have");
  if (place < own || place >= own + job_.dynamic_shared_bytes)
    fail("an address outside of the block's dynamic shared memory, for another block");
  Block* const other = peer(*running_->block, rank);
  if (!other || other->exited == other->threads.size()) fail("an address in a block of the cluster that has ended");
  return other->dynamic_base + kSharedGuard + (place - own);
}

// ---- warps ----

unsigned long long GridRun::warp(cellc_emulator::WarpKind kind, unsigned mask, unsigned long long value,
                                 unsigned source) {
  using cellc_emulator::WarpKind;
  static constexpr const char* kNames[] = {"__syncwarp", "a shuffle", "a vote", "a sum", "a maximum"};
  const char* const name = kNames[static_cast<int>(kind)];
  Thread& thread = *running_;
  Block& block = *thread.block;
  Warp& warp = block.warps[thread.number / 32];
  Thread* const lanes = &block.threads[thread.number / 32 * 32];
  const unsigned bit = 1u << thread.view.lane;
  if (!(mask & bit)) {
    set_error(std::string("calls ") + name + " with a mask that lacks its own lane");
    die();
  }
  mask &= warp.existing;  // of a block that is no multiple of 32
  if (mask & warp.exited) {
    set_error(std::string("waits at ") + name + " for lane " + std::to_string(__builtin_ctz(mask & warp.exited)) +
              ", which has ended");
    die();
  }
  // Mostly all lanes come to one place with one mask; only otherwise is there anything to look for.
  if (warp.waiting == 0) warp.common = true, warp.mask = mask, warp.kind = kind;
  if (warp.mask != mask || warp.kind != kind) warp.common = false;
  for (unsigned lane = 0; lane < 32 && !warp.common; ++lane) {
    if (!(mask & warp.waiting & 1u << lane)) continue;
    // Another group that this lane is no member of may still complete; one with it cannot.
    if (lanes[lane].mask == mask ? lanes[lane].warp_kind == kind : !(lanes[lane].mask & bit)) continue;
    set_error(std::string("waits at ") + name + " for lane " + std::to_string(lane) +
              ", which waits for it with another mask or at " + lanes[lane].waits_for);
    die();
  }
  thread.warp_kind = kind;
  thread.mask = mask;
  thread.value = value;
  thread.source = source;
  warp.waiting |= bit;
  ++steps_;
  unsigned here = warp.common ? warp.waiting : 0;
  for (unsigned lane = 0; lane < 32 && !warp.common; ++lane)
    if ((warp.waiting & 1u << lane) && lanes[lane].mask == mask) here |= 1u << lane;
  if ((here & mask) != mask) {
    leave(State::AtWarp, name);
    return thread.result;
  }
  complete_warp(block, warp, thread.number / 32 * 32, mask);
  *thread.state = State::Ready;
  if (job_.shuffled) leave(State::Ready, "");
  return thread.result;
}

void GridRun::complete_warp(Block& block, Warp& warp, unsigned first, unsigned mask) {
  using cellc_emulator::WarpKind;
  Thread* const lanes = &block.threads[first];
  unsigned votes = 0, sum = 0, most = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask & 1u << lane)) continue;
    votes |= unsigned(lanes[lane].value != 0) << lane;
    sum += static_cast<unsigned>(lanes[lane].value);
    most = std::max(most, static_cast<unsigned>(lanes[lane].value));
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask & 1u << lane)) continue;
    Thread& thread = lanes[lane];
    // A lane that is not in the mask has nothing defined to give.
    if (thread.warp_kind == WarpKind::Shuffle)
      thread.result = thread.source < 32 && (mask & 1u << thread.source) ? lanes[thread.source].value : ~0ull;
    else
      thread.result = thread.warp_kind == WarpKind::Sum ? sum : thread.warp_kind == WarpKind::Max ? most : votes;
    *thread.state = State::Ready;
  }
  warp.waiting &= ~mask;
}

unsigned GridRun::active_lanes() const {
  const Warp& warp = running_->block->warps[running_->number / 32];
  return warp.existing & ~warp.exited;
}

// ---- asynchronous copies ----

bool GridRun::in_shared(const void* at, std::size_t bytes) const {
  const auto* from = static_cast<const char*>(at);
  const auto inside = [&](const char* base, std::size_t size) { return from >= base && from + bytes <= base + size; };
  return inside(static_cast<const char*>(running_->view.dynamic_shared), job_.dynamic_shared_bytes) ||
         inside(job_.static_shared, job_.static_shared_bytes);
}

void GridRun::copy_begin(void* to, const void* from, unsigned bytes, unsigned source_bytes) {
  const auto misaligned = [&](const void* at) { return reinterpret_cast<std::uintptr_t>(at) % bytes != 0; };
  const char* wrong = nullptr;
  if (bytes != 4 && bytes != 8 && bytes != 16)
    wrong = "cp.async copies 4, 8 or 16 bytes";
  else if (source_bytes > bytes)
    wrong = "cp.async reads more than it writes";
  else if (misaligned(to) || (source_bytes && misaligned(from)))
    wrong = "cp.async at a misaligned address";
  else if (!in_shared(to, bytes))
    wrong = "cp.async to an address outside of the block's shared memory";
  if (wrong) fail(wrong);
  std::memset(to, kUnwritten, bytes);
  running_->copies.push_back(
      {static_cast<char*>(to), static_cast<const char*>(from), bytes, source_bytes, running_->group});
}

void GridRun::copy_commit() { ++running_->group; }

// Data move at the wait: the latest time at which a card may read the source.
void GridRun::finish_copies(int before_group) {
  auto& copies = running_->copies;
  auto copy = copies.begin();
  for (; copy != copies.end() && copy->group < before_group; ++copy) {
    std::memset(copy->to, 0, copy->bytes);
    if (copy->source_bytes) std::memcpy(copy->to, copy->from, copy->source_bytes);
  }
  copies.erase(copies.begin(), copy);
}

void GridRun::copy_wait(unsigned groups_left) { finish_copies(running_->group - static_cast<int>(groups_left)); }
void GridRun::copy_wait_all() {
  copy_commit();
  copy_wait(0);
}

// ---- errors ----

std::string GridRun::place(const Thread& thread) const {
  const auto& view = thread.view;
  return "kernel " + job_.name + ", " + at_index("block", view.block.x, view.block.y, view.block.z) + ", " +
         at_index("thread", view.thread.x, view.thread.y, view.thread.z);
}

std::string GridRun::who_waits(const Block& block) const {
  const auto& position = block.threads[0].view.block;
  std::string text = at_index("block", position.x, position.y, position.z) + ":";
  std::map<std::tuple<State, std::string, const void*>, int> counts;
  for (const Thread& thread : block.threads) {
    const bool waits = *thread.state != State::Exited && *thread.state != State::Ready;
    ++counts[{*thread.state, waits ? thread.waits_for : "", waits ? thread.site : nullptr}];
  }
  const char* separator = " ";
  for (const auto& [what, count] : counts) {
    const auto& [state, waits_for, site] = what;
    text += separator + std::to_string(count) + (count == 1 ? " thread " : " threads ");
    text += state == State::Exited ? "ended" : state == State::Ready ? "could go on" : "at " + waits_for;
    text += lines_of(site);
    separator = "; ";
  }
  return text;
}

// Errors are made in functions that return before the fiber is left: nothing unwinds its stack.
void GridRun::set_error(const std::string& message) {
  if (!error_.empty()) return;
  error_ = "emulator: " + place(*running_) + ": " + message;
  error_site_ = running_->site;
}
void GridRun::die() { running_->fiber->leave_for_good(); }
void GridRun::fail(const char* message) {
  set_error(message);
  die();
}

bool GridRun::fault(int signal, const void* address, const void* site) {
  if (!running_) return false;
  set_site(site);
  if (signal == SIGILL || signal == SIGTRAP)
    set_error("misaligned access, or an index outside of an array of known size");
  else if (signal == SIGFPE)
    set_error("integer division by zero");
  else if (running_->fiber->overflowed_at(address))
    set_error("the stack of " + std::to_string(pool_.stack_bytes()) +
              " bytes is full: raise EmulatorOptions::stack_bytes");
  else
    set_error("access to " + memory_.describe(address));
  die();
}

namespace {

// Functions, not lambdas: their return address is the place in the kernel.
#define CELLC_SITE active_run()->set_site(__builtin_return_address(0))

CELLC_LEAVES_STACK void do_yield(const char* what) {
  CELLC_SITE;
  active_run()->yield(what);
}
CELLC_LEAVES_STACK void do_preempt() {
  CELLC_SITE;
  active_run()->preempt();
}
void do_progress() { active_run()->progress(); }
CELLC_LEAVES_STACK int do_barrier(int id, int threads, cellc_emulator::BarrierKind kind, int predicate) {
  CELLC_SITE;
  return active_run()->barrier(id, threads, kind, predicate);
}
CELLC_LEAVES_STACK unsigned long long do_warp(cellc_emulator::WarpKind kind, unsigned mask, unsigned long long value,
                                              unsigned source) {
  CELLC_SITE;
  return active_run()->warp(kind, mask, value, source);
}
unsigned do_active_lanes() { return active_run()->active_lanes(); }
CELLC_LEAVES_STACK void do_copy_begin(void* to, const void* from, unsigned bytes, unsigned source_bytes) {
  CELLC_SITE;
  active_run()->copy_begin(to, from, bytes, source_bytes);
}
void do_copy_commit() { active_run()->copy_commit(); }
void do_copy_wait(unsigned groups_left) { active_run()->copy_wait(groups_left); }
void do_copy_wait_all() { active_run()->copy_wait_all(); }
CELLC_LEAVES_STACK void do_cluster_arrive() {
  CELLC_SITE;
  active_run()->cluster_arrive();
}
CELLC_LEAVES_STACK void do_cluster_wait() {
  CELLC_SITE;
  active_run()->cluster_wait();
}
CELLC_LEAVES_STACK void* do_of_block(void* at, unsigned rank) {
  CELLC_SITE;
  return active_run()->of_block(at, rank);
}
long long do_clock() { return active_run()->clock(); }
CELLC_LEAVES_STACK void do_fail(const char* message) {
  CELLC_SITE;
  active_run()->fail(message);
}

#undef CELLC_SITE

}  // namespace

const cellc_emulator::Services* grid_services() {
  static constexpr cellc_emulator::Services services = {
      do_yield,          do_preempt,      do_progress,    do_barrier,   do_warp,
      do_active_lanes,   do_copy_begin,   do_copy_commit, do_copy_wait, do_copy_wait_all,
      do_cluster_arrive, do_cluster_wait, do_of_block,    do_clock,     do_fail,
  };
  return &services;
}

}  // namespace cellc::emulator
