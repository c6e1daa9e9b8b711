// What kernels keep in global memory from call to call and the host reads: zeroed once, when it is allocated. Compiled
// by C++ and under NVRTC, so both see the same members.
#ifndef CELLC_ABI_KERNEL_MEMORY
#define CELLC_ABI_KERNEL_MEMORY

namespace cellc {

/// A barrier of a grid that sums (preamble.cuh).
struct GridSum {
  unsigned long long slot[3];  ///< by turn; zeros to begin with, and whatever happens as many to the next call
  unsigned passed;   ///< barriers before this call, modulo 3: a count that wraps would come to a slot twice running
  unsigned started;  ///< blocks of this call that run, or have run
};

/// What happened in a call of segmented.cuh.
struct Tally {
  unsigned misses;           ///< boundaries that the first check found off
  unsigned repaired, tails;  ///< segments that were run again: in rounds, and along chains
  unsigned worst_residual;   ///< bits of a float: of what was left as it is, over |s| and the size of the state
  unsigned rounds;
  unsigned growth;              ///< bits of a float: the largest factor by which a segment grew a difference
  unsigned phases;              ///< marks taken
  unsigned multistarts;         ///< the first pass was that of multistart.cuh, and the sweep began from what it found
  unsigned long long time[32];  ///< ns, of block 0: begin, checked, then composed and repaired for every round
  unsigned ran[16];             ///< segments run again, by round
  unsigned expanding;           ///< of those in the first round: what they start from grows in them
  unsigned burn_in;             ///< steps that the sweep began early
  unsigned long long ended;     ///< ns: when the last warp was done
};

/// Of segmented.cuh.
struct Control {
  GridSum grid;
  unsigned calls;
  // What the next call starts from.
  unsigned burn_in;          ///< steps; 0: the plan's
  unsigned measures_slope;   ///< the first sweep carries P
  unsigned enough;           ///< steps of run-up with which the last call missed nothing; 0: it says nothing of that
  unsigned too_short;        ///< the longest run-up that was
  unsigned slow, needed[8];  ///< misses by the burn-in that they called for, by place in need(); then slower ones
  Tally of[2];               ///< by parity of the call: one is cleared for the next while the other is written
};

/// Of scans.
struct ScanControl {
  unsigned calls;
  unsigned drawn;                  ///< tickets of this call
  unsigned long long carrying;     ///< transitions that know the number of this call
  unsigned long long finished[2];  ///< tickets whose rows are written, of even and odd calls (scan_repair.cuh)
  unsigned repaired;               ///< shares of the steps of a channel that were walked, of all calls together
  unsigned clustered;              ///< calls that clusters made, which have no numbers
};

}  // namespace cellc

#endif
