// What a unit of kernels is made for, by hand: the templates beside this file compile against it on their own. The host
// prints such a struct for each variant of a stage (stage_traits_text of runtime/cuda/launch/stage_text.cc): these
// are all the holes that the templates have beside the cell's structs (stub_cell.cuh) and the storage type.
#pragma once

struct Traits {
  // Of all kernels of lanes.
  static constexpr int kStepsPerCopy = 8;   // steps of inputs that a warp copies to shared memory at once; 1, 2, … 8
  static constexpr int kPipelineDepth = 3;  // such copies that are under way or in use
  static constexpr int kWidth = 1;          // lanes of a thread: 1, 2 or 4, which divides the innermost channel axis
  static constexpr int kAxes = 4;           // channel axes at most, once those are joined that all arrays have as one
  static constexpr bool kSharedInputs = false;  // some input lacks a channel axis: threads of a warp may read the same
  // Of sequential sweeps and scans: the last states of Step that nobody reads (compiler/derive/fused_outs.h).
  static constexpr int kOuts = 0;                 // those that are written
  static constexpr int kAccumulated = 0;          // behind them, those that are added up over all steps
  static constexpr bool kOutsReadStates = false;  // some of either read a state as it was before the step
  static constexpr bool kWritesRows = true;       // false: nobody wants the states' rows
  // The last states of Step that are terms of sums: not 0 in a sequential sweep alone.
  static constexpr int kSums = 0;       // all of them
  static constexpr int kBases = 0;      // as many states before them as there are sums, where those are outs; else 0
  static constexpr int kOuterSums = 0;  // the last of those: along the outermost channels (outer_sums.cuh)
  static constexpr unsigned kShiftedInputs = 0;  // bit e: a step reads the row of input e one step later (lanes.cuh)
  // Of a sequential sweep that makes sums over lanes (sums.cuh).
  static constexpr unsigned kUniformInputs = 0;  // several lanes a thread, in f32: bit e: one number for all of them
  static constexpr unsigned kColumns =
      0;  // of shared inputs, four bits each: entries of a step (columns_of of sweep.cuh)
  // Of scans.
  static constexpr int kScanChannels = 32;     // channels of a block: 1, 2, 4, … 32
  static constexpr int kScanSteps = 16;        // steps of a thread
  static constexpr bool kScanForward = false;  // no sequence runs backwards
  static constexpr bool kScanChecks = false;   // starts that come from composed maps are looked at (scan_repair.cuh)
  static constexpr int kScanCluster = 0;       // blocks of a cluster, 1, 2, 4, 8, 16 (scan_cluster.cuh); 0: none
  static constexpr bool kScanWhole = false;  // of a cluster: all sequences are whole tiles, channels fill whole groups
  static constexpr int kScanBuffers = 3;     // of a stream: tiles of a block that are on chip at once, 3 or 4
  static constexpr int kScanCarry = 4;       // of a stream: channels of a carry block; they divide kScanChannels
};
