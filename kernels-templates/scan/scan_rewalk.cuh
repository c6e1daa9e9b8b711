// After a scan whose lanes also make outs or add up: the chains where a start was off are walked from their first step,
// by a kernel of its own. Rows alone can be mended where they stand (scan_repair.cuh); an out has to be made again with
// the state that it was made of, and a sum all of its summands. Mostly nothing is off, and every warp ends at once.
//
// A chain is marked by the number of the call that found it, so that nothing has to be cleared.
//
// Needs sequential.cuh.
#pragma once

namespace cellc {

struct ScanRewalk {
  Lanes lanes;  ///< parts: of what is added up, by sequence
  ScanControl* control;
  const unsigned* marks;  ///< by chain: a group of channels of a sequence
  int groups, channels;   ///< of a sequence; of a group
};

struct Marked {
  const ScanRewalk& run;
  const unsigned call;
  CELLC_DEVICE bool operator()(const Lane& lane) const {
    const int group = static_cast<int>(quotient(lane.channel_index, run.channels));
    const bool is_off = run.marks[static_cast<long long>(lane.sequence) * run.groups + group] == call;
    if (is_off) atomicAdd(&run.control->repaired, 1u);
    return is_off;
  }
};

template <bool kRows>
CELLC_DEVICE void scan_rewalk(const ScanRewalk& run) {
  const Marked marked{run, run.control->calls};
  sequential<kRows, false>(run.lanes, marked);
}

}  // namespace cellc
