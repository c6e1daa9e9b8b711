// scan.cuh, scan_stream.cuh and scan_cluster.cuh on the emulator against a plain loop in f64: kinds of maps, layouts,
// loaders, storage, awkward lengths, and schedules in which tiles wait for each other.
#include <gtest/gtest.h>

#include "tests/gpu/scan_runner.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

EmulatorOptions interleaved(std::uint64_t seed) {
  EmulatorOptions options;
  options.interleave = true;
  options.seed = seed;
  options.multiprocessors = 16;  // a stream has a block for each channel of each chain, and others
  return options;
}

/// Lengths around those of a thread, a warp's part and a tile.
std::vector<std::int64_t> awkward(const ScanCase& c) {
  const std::int64_t tile = c.warps * 32 / c.channels * c.steps;
  return {0, 1, 2, c.steps - 1, c.steps, c.steps + 1, tile - 1, tile, tile + 1, 2 * tile + 3, 5 * tile + 7};
}

void check_awkward(const char* copy, std::uint64_t seed, const std::vector<std::pair<int, int>>& channels_and_widths) {
  EmulatorOptions options = interleaved(seed);
  options.optimisation = 0;  // many forms of the kernel, each for a few runs: they compile longer than they run
  ScanRunner runner(linear_cell(), ScanFormat{}, options);
  for (const auto& [channels, width] : channels_and_widths) {
    ScanCase c;
    c.copy = copy;
    c.channels = channels;
    c.width = width;
    for (std::int64_t length : awkward(c)) {
      c.lengths = {length, length};
      c.reverse = length % 2;
      c.checks = length % 3 == 0;
      runner.check(c);
    }
  }
}

TEST(Scan, AwkwardLengthsEntryByEntry) { check_awkward("Each", 1, {{32, 37}, {8, 5}, {4, 9}, {1, 1}, {1, 3}}); }
TEST(Scan, AwkwardLengthsByRows) { check_awkward("Contiguous", 2, {{32, 64}, {16, 16}, {4, 8}}); }

// Transitions take windows of as many tiles as they hold; here several, the last of which is not full, also of channels
// that are none, of packed sequences, and in calls that follow each other.
TEST(Scan, StreamsOfSeveralWindows) {
  struct Layout {
    const char* copy;
    int channels, carried, width, warps;
  };
  std::uint64_t seed = 40;
  ScanRunner runner(linear_cell(), ScanFormat{}, interleaved(seed));
  for (const Layout& layout : std::vector<Layout>{{"Contiguous", 4, 0, 4, 1},
                                                  {"Contiguous", 8, 8, 16, 1},
                                                  {"Contiguous", 16, 2, 16, 3},
                                                  {"Contiguous", 32, 0, 64, 2},
                                                  {"Each", 8, 0, 13, 2},
                                                  {"Each", 32, 32, 37, 1},
                                                  {"Each", 2, 0, 3, 1}}) {
    const std::int64_t tile = layout.warps * 32 / layout.channels * 8;
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{tile * 75 + 5}, {tile * 17 + 1, 0, tile * 2, 3}, {tile * 34, tile * 34}}) {
      ScanCase c;
      c.copy = layout.copy;
      c.channels = layout.channels;
      c.carried = layout.carried;
      c.width = layout.width;
      c.warps = layout.warps;
      c.steps = 8;
      c.buffers = 3;
      c.lengths = lengths;
      c.packed = lengths.size() > 2;
      c.checks = ++seed % 2;
      c.reverse = seed % 3 == 0;
      c.grid = static_cast<int>(1 + seed % 9);
      c.calls = static_cast<int>(lengths.size() % 3 + 1);
      runner.check(c);
    }
  }
}

TEST(Scan, AwkwardLengthsAlongTime) {
  ScanRunner runner(linear_cell(), ScanFormat{}, interleaved(3));
  ScanCase c;
  c.copy = "Time";
  c.channels = 1;
  c.width = 1;
  int turn = 0;
  for (std::int64_t length : awkward(c)) {
    for (const bool reverse : {false, true}) {
      c.lengths = {length, length, length};
      c.reverse = reverse;
      c.checks = turn % 3 == 0;
      c.misalign = turn++ % 4;
      runner.check(c);
    }
  }
  c.width = 3;  // [sequence][channel][row]
  c.time_inner = true;
  c.lengths = {1100, 1100};
  runner.check(c);
}

TEST(Scan, AwkwardLengthsAlongTimeOfFewChannels) {
  for (const ScanFormat& format : {ScanFormat{}, kBF16}) {
    ScanRunner runner(linear_cell(), format, interleaved(10));
    ScanCase c;
    c.copy = "Time";
    int turn = 0;
    for (const int channels : {2, 4}) {
      c.channels = static_cast<int>(c.width = channels);
      for (std::int64_t length : awkward(c)) {
        c.lengths = {length, length};
        c.reverse = ++turn % 2;
        c.misalign = turn % (16 / format.bytes / channels) * channels;
        runner.check(c);
      }
    }
  }
}

TEST(Scan, BuffersOfAStream) {
  ScanRunner runner(linear_cell(), ScanFormat{}, interleaved(11));
  ScanCase c;
  c.copy = "Time";
  c.channels = 1;
  c.width = 1;
  c.lengths = {9000, 9000};
  for (const int buffers : {3, 4, 5}) {
    c.buffers = buffers;
    for (const int look : {1, 5, 1 << 20}) {
      c.look = look;
      c.grid = 3 + look % 7;
      runner.check(c);
    }
  }
}

TEST(Scan, PackedSequences) {
  for (const char* copy : {"Each", "Contiguous", "Time"}) {
    ScanRunner runner(linear_cell(), ScanFormat{}, interleaved(4));
    ScanCase c;
    c.copy = copy;
    c.packed = true;
    c.warps = 3;
    c.channels = c.width = copy == std::string("Time") ? 1 : 8;
    c.lengths = {5, 0, 133, 1, 700, 0, 64};
    for (const bool reverse : {false, true}) {
      c.reverse = reverse;
      runner.check(c);
    }
  }
}

TEST(Scan, EverySchedule) {
  ScanCase c;
  c.channels = 4;
  c.width = 4;
  c.warps = 3;
  c.lengths = {3000};
  c.calls = 3;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    EmulatorOptions options;
    options.seed = seed;
    options.interleave = seed > 0;
    ScanRunner runner(linear_cell(), ScanFormat{}, options);
    for (const int grid : {1, 7, 40}) {
      c.grid = grid;
      c.look = seed % 2 ? 3 : 1 << 20;
      c.copy = seed % 3 ? "Contiguous" : "Each";
      c.checks = seed % 3 != 1;
      c.before = seed % 4 == 2 ? ~0u - 2 : 0;  // the third call would be number 0
      runner.check(c);
    }
  }
}

TEST(Scan, Storages) {
  for (const ScanFormat& format : {kF64, kBF16, kF16}) {
    ScanRunner runner(linear_cell(), format, interleaved(5));
    ScanCase c;
    c.lengths = {501, 501};
    for (const bool reverse : {false, true}) {
      c.reverse = reverse;
      c.copy = "Each";
      c.channels = 32;
      c.width = 33;
      runner.check(c);
      c.copy = "Contiguous";
      c.channels = 8;
      c.width = 16;
      runner.check(c);
      c.copy = "Time";
      c.channels = c.width = 1;
      c.misalign = 1;
      runner.check(c);
      c.misalign = 0;
    }
  }
}

void check_layouts(const ScanCell& cell, const ScanFormat& format = {}) {
  for (std::uint64_t seed = 6; seed < 9; ++seed) {
    ScanRunner runner(cell, format, interleaved(seed));
    ScanCase c;
    c.lengths = {403, 403};
    c.checks = seed > 6;
    c.reverse = seed % 2;
    c.channels = 32;
    c.width = 40;
    runner.check(c);
    c.copy = "Contiguous";
    c.channels = c.width = 4;
    runner.check(c);
    c.copy = "Time";
    c.channels = c.width = 1;
    c.lengths = {1900};
    runner.check(c);
  }
}

TEST(Scan, Clips) { check_layouts(clip_cell()); }
TEST(Scan, ClipsWhoseSlopesOverflow) {
  check_layouts(latch_cell());
  check_layouts(ramp_cell());
}
TEST(Scan, MoebiusMaps) { check_layouts(moebius_cell()); }
TEST(Scan, MaximaOfSums) { check_layouts(viterbi_cell()); }
TEST(Scan, MinimaOfSums) { check_layouts(shortest_cell()); }
TEST(Scan, LogsOfSumsOfExponentials) { check_layouts(forward_cell()); }
TEST(Scan, TwoStates) {
  check_layouts(rotation_cell());
  check_layouts(rotation_cell(Storage::F64), kF64);
}
TEST(Scan, FourStates) { check_layouts(ring_cell()); }
TEST(Scan, AStateThatForgetsAtOnce) { check_layouts(forgetful_cell()); }

/// A case whose data leave something to walk.
void check_walked(ScanRunner& runner, const ScanCase& c) {
  runner.check(c);
  EXPECT_GT(runner.repaired(), 0u);
}

// Chains whose composed maps are rounded by more than the tolerance, since they are differences of large numbers: by
// all kernels, with tiles that wait for each other and tiles that do not.
TEST(Scan, RowsFollowFromEachOther) {
  for (std::uint64_t seed = 20; seed < 24; ++seed) {
    ScanRunner runner(linear_cell(), ScanFormat{}, interleaved(seed));
    ScanCase c;
    c.by_rows = c.checks = c.cancels = true;
    c.reverse = seed % 2;
    c.calls = seed % 3 + 1;
    c.warps = seed % 4 == 3 ? 3 : 2;
    c.look = seed % 2 ? 3 : 1 << 20;
    c.grid = seed % 2 ? 9 : 4;
    c.lengths = {777, 777};
    c.channels = 32;
    c.width = 40;
    check_walked(runner, c);
    c.packed = true;
    c.lengths = {600, 1, 0, 431, 64};
    check_walked(runner, c);
    c.packed = false;
    c.lengths = {1023};
    c.copy = "Contiguous";
    c.channels = c.width = 4;
    check_walked(runner, c);
    c.copy = "Time";
    c.channels = c.width = 1;
    c.misalign = 1;
    c.lengths = {7001};
    check_walked(runner, c);
  }
}

// In 16 bits a walk does not begin at rows, which are rounded: where small states follow large ones it would spoil what
// was right. Nor are finals rounded.
TEST(Scan, RoundedRowsAreNoPlaceToBeginAt) {
  for (ScanFormat format : {kBF16, kF16}) {
    format.tolerance = 5e-4;  // what f32 itself leaves where a state has grown 800-fold
    for (std::uint64_t seed = 60; seed < 63; ++seed) {
      ScanRunner runner(linear_cell(), format, interleaved(seed));
      ScanCase c;
      c.checks = c.cancels = true;
      c.reverse = seed % 2;
      c.lengths = {777, 777};
      c.channels = 32;
      c.width = 40;
      check_walked(runner, c);
      c.packed = true;
      c.lengths = {600, 1, 0, 431, 64};
      check_walked(runner, c);
      c.packed = false;
      c.copy = "Time";
      c.channels = c.width = 1;
      c.lengths = {7001};
      check_walked(runner, c);
    }
  }
}

// Of data like those of gates nothing is walked.
TEST(Scan, GatesAreNotWalked) {
  ScanCell cell = linear_cell();
  cell.ranges = {{0.5, 1}, {-0.5, 0.5}};
  ScanRunner runner(cell, ScanFormat{}, interleaved(30));
  ScanCase c;
  c.by_rows = c.checks = true;
  c.lengths = {777, 777};
  runner.check(c);
  c.copy = "Time";
  c.channels = c.width = 1;
  c.lengths = {7001};
  runner.check(c);
  EXPECT_EQ(runner.repaired(), 0u);
}

// What is infinite makes NaN of a composed map, though steps come back from it.
TEST(Scan, StepsThatComeBackFromInfinity) {
  for (const std::uint64_t seed : {40, 41}) {
    ScanRunner runner(clip_cell(), ScanFormat{}, interleaved(seed));
    ScanCase c;
    c.by_rows = c.checks = true;
    c.infinite = 97;
    c.lengths = {431, 431};
    runner.check(c);
    c.copy = "Time";
    c.channels = c.width = 1;
    c.lengths = {1900};
    runner.check(c);
  }
}

CELLC_ONE_IN(6, "Scan");

}  // namespace
}  // namespace cellc
