// What is launched, from a stage, a shape and a card: numbers only, nothing runs.
#include <gtest/gtest.h>

#include "runtime/cuda/launch/stage_tables.h"

namespace cellc {
namespace {

struct Launch {
  cellc_stage stage{};
  cellc_facts card{};
  cellc_stage_run run{};
  cellc_lane_axes axes{};
  cellc_plan plan{};
  cellc_variant variant{};

  Launch() {
    stage.step_inputs = 3;
    stage.step_states = 1;
    stage.storage_bytes = stage.real_bytes = 4;
    stage.warps = 4;
    card.multiprocessors = 132;
    card.l2_bytes = 50 << 20;
    axes.axes = 1;
    variant.width = 1;
  }
  cellc_grid of(std::int64_t sequences, std::int64_t length, std::int64_t channels) {
    run.sequences = sequences;
    run.length = length;
    run.uniform = 1;
    axes.channels = channels;
    return cellc_stage_grid(&stage, &card, &run, &axes, &plan, &variant, 2);
  }
};

TEST(StageGrid, ARunIsCyclicIfItIsALittleLargerThanTheCache) {
  Launch launch;
  launch.plan.strategy = launch.variant.kernel = CELLC_SEGMENTED;
  launch.plan.segment = 64;
  EXPECT_FALSE(launch.of(1, 512, 1024).cyclic);  // 8 MiB
  EXPECT_TRUE(launch.of(8, 512, 1024).cyclic);   // 64 MiB
  EXPECT_TRUE(launch.of(1, 65536, 64).cyclic);
  EXPECT_FALSE(launch.of(8, 2048, 1024).cyclic);  // 256 MiB
  launch.stage.storage_bytes = 2;
  EXPECT_TRUE(launch.of(1, 8192, 1024).cyclic);  // of 16 bits, 64 MiB
  launch.card.l2_bytes = 0;
  EXPECT_FALSE(launch.of(8, 512, 1024).cyclic);  // of a card that does not say
  launch.variant.kernel = CELLC_SEQUENTIAL;
  launch.card.l2_bytes = 50 << 20;
  EXPECT_FALSE(launch.of(8, 512, 1024).cyclic);
}

TEST(StageGrid, BlocksThatWaitForEachOtherFitTheCard) {
  Launch launch;
  launch.plan.strategy = launch.variant.kernel = CELLC_SEGMENTED;
  launch.plan.segment = 64;
  const cellc_grid few = launch.of(1, 512, 1024), many = launch.of(8, 1 << 16, 1024);
  EXPECT_EQ(few.blocks, 8u * 1024 / (32 * 4));
  EXPECT_EQ(many.blocks, 2u * 132);
  // They go on without those that have not started: the launch need not promise that all do, which would take 1.2 us.
  EXPECT_FALSE(few.cooperative || many.cooperative);
}

TEST(StageGrid, AStreamHasCarriersForTheChannelsOfAChain) {
  Launch launch;
  cellc_variant& v = launch.variant;
  launch.plan.strategy = v.kernel = CELLC_SCAN;
  v.copy = CELLC_TIME;
  v.channels = 1;
  v.steps = 20;
  v.warps = 7;
  const cellc_grid scan = launch.of(1, 44800, 1);
  EXPECT_FALSE(scan.cooperative);  // it looks back for itself
  EXPECT_EQ(scan.threads, 7u * 32);
  EXPECT_EQ(scan.blocks, 11u);  // the first tile begins up to 15 bytes early
  v.buffers = 3;
  v.carry_channels = 1;
  const cellc_grid stream = launch.of(1, 44800, 1);
  EXPECT_TRUE(stream.cooperative);
  EXPECT_EQ(stream.threads, 8u * 32);
  EXPECT_EQ(stream.blocks, 12u);
  EXPECT_EQ(launch.of(1, 1 << 26, 1).blocks, 2u * 132);
  v.channels = 4;
  EXPECT_EQ(cellc_stream_carry_blocks(3, &v), 12);
  v.carry_channels = 2;
  EXPECT_EQ(cellc_stream_carry_blocks(3, &v), 6);
  v.carry_channels = 1;
  // However small the card: transitions, and somebody for whom they carry.
  launch.card.multiprocessors = 1;
  EXPECT_EQ(launch.of(1, 1 << 20, 4).blocks, 5u);
}

TEST(StageGrid, AStreamPaysWhereChainsAreFew) {
  Launch launch;
  launch.stage.step_states = 1;
  launch.stage.step_inputs = launch.stage.map_numbers = 2;
  launch.card.shared_per_multiprocessor = 228 << 10;
  launch.card.shared_per_block = 227 << 10;
  const auto variant_of = [&](std::int64_t sequences, std::int64_t length, std::int64_t channels) {
    launch.run.sequences = sequences;
    launch.run.length = length;
    launch.axes.channels = channels;
    cellc_variant v{};
    v.copy = channels > 1 ? CELLC_CONTIGUOUS : CELLC_TIME;
    for (v.channels = 1; 2 * v.channels <= channels && v.channels < CELLC_WARP;) v.channels *= 2;
    const std::int64_t chains = cellc_divide_up(channels, v.channels) * sequences;
    if (!cellc_stream_block(&launch.stage, &launch.card, &v) ||
        !cellc_streams(&launch.stage, &launch.card, &launch.run, chains, &v))
      v.buffers = 0;
    return v;
  };
  EXPECT_EQ(variant_of(9, 1 << 24, 1).carry_channels, 1);
  EXPECT_EQ(variant_of(10, 1 << 24, 1).buffers, 0);  // so many transitions cost more than they save
  EXPECT_EQ(variant_of(1, 1 << 21, 32).carry_channels, 4);
  EXPECT_EQ(variant_of(1, 1 << 20, 128).carry_channels, 32);
  EXPECT_EQ(variant_of(1, 1 << 19, 256).buffers, 0);
  EXPECT_EQ(variant_of(1, 1 << 20, 32).buffers, 0);  // too short
}

TEST(StageGrid, ScansOfManyChainsDoNotCrowdMemory) {
  Launch launch;
  launch.stage.step_inputs = launch.stage.map_numbers = 2;
  launch.card.shared_per_multiprocessor = 228 << 10;
  launch.card.shared_per_block = 227 << 10;
  launch.plan.strategy = CELLC_SCAN;
  cellc_variant& v = launch.variant;
  /// Blocks of each multiprocessor, of a card that has room for three.
  const auto blocks_of = [&](std::int64_t sequences, int storage, int real) {
    launch.stage.storage_bytes = storage;
    launch.stage.real_bytes = real;
    v = {};
    v.kernel = CELLC_SCAN;
    v.copy = CELLC_CONTIGUOUS;
    v.channels = CELLC_WARP;
    launch.run.length = 2048;
    launch.axes.channels = 1024;
    launch.run.sequences = sequences;
    EXPECT_TRUE(cellc_scan_block(&launch.stage, &launch.card, 0, &v));
    return cellc_stage_grid(&launch.stage, &launch.card, &launch.run, &launch.axes, &launch.plan, &v, 3).blocks / 132.;
  };
  EXPECT_EQ(blocks_of(8, 4, 4), 2);
  EXPECT_EQ(v.warps * v.steps, 8 * 32);
  EXPECT_EQ(v.blocks, 3) << "as what is shipped, which has been compiled for any number of chains";
  EXPECT_EQ(blocks_of(4, 4, 4), 3) << "some look back";
  EXPECT_EQ(blocks_of(8, 2, 4), 3) << "they ask for half as much";
  EXPECT_EQ(blocks_of(8, 8, 8), 3) << "of four warps each";
}

TEST(StageGrid, WalksOfManyLanesDoNotCrowdMemory) {
  Launch launch;
  launch.stage.stage_steps = 8;
  /// Steps that a warp stages at once, of lanes that neighbour each other in memory.
  const auto steps_of = [&](std::int64_t lanes, int segments = 0) {
    const cellc_variant v = cellc_sequential_variant(&launch.stage, &launch.card, 1, 1, lanes, 2048, segments);
    const int inputs =
        segments ? std::max(launch.stage.step_inputs, launch.stage.transition_inputs) : launch.stage.step_inputs;
    EXPECT_EQ(v.shared_bytes, launch.stage.warps * CELLC_STAGES_AHEAD * v.steps * inputs * CELLC_WARP * v.width *
                                  launch.stage.storage_bytes);
    return v.steps;
  };
  EXPECT_EQ(steps_of(16 * 2048), 8) << "71 KB a multiprocessor";
  EXPECT_EQ(steps_of(20 * 2048), 8);
  EXPECT_EQ(steps_of(24 * 2048), 4) << "107 KB";
  EXPECT_EQ(steps_of(512 * 2048), 4);
  EXPECT_EQ(steps_of(512 * 2048, 2), 8) << "run-ups are whole stages of eight";
  EXPECT_EQ(steps_of(512 * 2048 + 32), 8) << "not all warps go together";
  launch.stage.storage_bytes = launch.stage.real_bytes = 8;
  EXPECT_EQ(steps_of(16 * 2048), 4);
  launch.stage.stage_steps = 4;
  EXPECT_EQ(steps_of(16 * 2048), 4) << "because of many inputs";
}

TEST(StageGrid, AClusterHasASequenceIfAllOfThemFit) {
  Launch launch;
  launch.stage.step_inputs = launch.stage.map_numbers = 2;
  launch.card.clusters = 1;
  launch.run.uniform = 1;
  const auto of = [&](std::int64_t sequences, std::int64_t length, std::int64_t channels) {
    launch.run.sequences = sequences;
    launch.run.length = length;
    launch.axes.channels = channels;
    cellc_variant& v = launch.variant = {};
    v.kernel = CELLC_SCAN;
    v.channels = 32;
    return cellc_cluster_block(&launch.stage, &launch.card, &launch.run, &launch.axes, &v) != 0;
  };
  EXPECT_TRUE(of(1, 2048, 1024));
  EXPECT_EQ(launch.variant.steps, 32);
  EXPECT_EQ(launch.variant.warps, 4);
  EXPECT_EQ(launch.variant.blocks, 5);
  EXPECT_TRUE(launch.variant.whole);
  const cellc_grid grid = launch.of(1, 2048, 1024);
  EXPECT_EQ(grid.cluster, 16u);
  EXPECT_EQ(grid.blocks, 32u * 16);
  EXPECT_FALSE(grid.cooperative);
  EXPECT_TRUE(of(1, 2000, 1024));  // a tile that is not full
  EXPECT_FALSE(launch.variant.whole);
  EXPECT_TRUE(of(1, 1920, 1024));  // the last of the cluster has none
  EXPECT_EQ(launch.variant.cluster, 16);
  EXPECT_TRUE(launch.variant.whole);
  EXPECT_TRUE(of(1, 2048, 1000));
  EXPECT_FALSE(launch.variant.whole);
  EXPECT_TRUE(of(1, 512, 1024));  // short sequences have more threads
  EXPECT_EQ(launch.variant.steps, 8);
  EXPECT_TRUE(of(1, 30, 64));
  EXPECT_EQ(launch.variant.cluster, 1);
  EXPECT_TRUE(of(1, 4096, 256));
  EXPECT_EQ(launch.variant.warps, 8);
  EXPECT_FALSE(of(1, 4097, 32));    // more than a cluster holds
  EXPECT_FALSE(of(8, 2048, 1024));  // more than the card does
  launch.stage.real_bytes = 8;
  EXPECT_FALSE(of(1, 2048, 32));  // twice the registers
  EXPECT_TRUE(of(1, 1024, 32));
  launch.stage.map_numbers = 20;
  EXPECT_FALSE(of(1, 1024, 32));
  launch.stage.map_numbers = 2;
  launch.card.clusters = 0;
  EXPECT_FALSE(of(1, 1024, 32));
}

}  // namespace
}  // namespace cellc
