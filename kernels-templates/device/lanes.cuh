// Lanes: how the threads of a kernel see the arrays of a run.
//
// A lane is one channel of one segment of one sequence, numbered
//   lane = (sequence * segments + segment) * channels + channel,
// so that neighbours of a warp are neighbours in memory and a lane's left neighbour in time is
// lane - channels. A warp takes 32 * kWidth consecutive lanes, kWidth of them a thread.
#pragma once

namespace cellc {

constexpr int kChannelAxes = 4;
/// The most axes that channels of this unit can have: axes that all arrays have as one are joined. Where rows of
/// neighbours are copied there is one.
constexpr int kAxes = Traits::kAxes;

/// The first of a step's states are what it hands on to the next step. Others are only written, or added up over all
/// steps (compiler/derive/fused_outs.h), or are terms of sums over lanes (sums.cuh); nobody reads them.
constexpr int kAccumulated = Traits::kAccumulated;
constexpr int kCarried = Step::kStates - Traits::kOuts - kAccumulated - Traits::kBases - Traits::kSums;
constexpr int kRowStates = kCarried + Traits::kOuts;  ///< the first ones too: those that are written at every step

/// An array as lanes see it, in entries: sequence * batch + row * row + the channel's own offset.
struct ArrayView {
  void* data;  ///< null: a state that is not written
  long long batch, row;
  long long channel[kChannelAxes];  ///< from one position of a channel axis to the next
};

/// Where the entries of a cell lie in their arrays, beside the lane's own offset.
template <class Cell>
struct Offsets {
  int state[Cell::kStates];
  int input[(Cell::kInputs > 0 ? Cell::kInputs : 1)];
  int param[(Cell::kParams > 0 ? Cell::kParams : 1)];
};

/// An adjoint, whose time runs backwards, reads the state before each step: the row that the trajectory has for the
/// adjoint's next step. There is none for its last step, which reads the start.
constexpr unsigned kShiftedInputs = Traits::kShiftedInputs;
CELLC_DEVICE constexpr bool is_shifted(int input) { return input < 31 && kShiftedInputs >> input & 1; }
template <bool kAny>
struct ShiftedInputs {};
template <>
struct ShiftedInputs<true> {
  const Stored* in_place_of_last[Step::kInputs > 0 ? Step::kInputs : 1];  ///< by input that is shifted: [B, ...]
};

struct Lanes : ShiftedInputs<kShiftedInputs != 0> {
  ArrayView array[Step::kArrays];    ///< by symbol; params and starts are Real, the others Stored
  const Real* start[Step::kStates];  ///< by entry: of its state's array of starts [B, ...]; of those carried
  Real* last[Step::kStates];         ///< by entry: of the final states [B, ...]; null: not written
  long long start_batch[Step::kStates];
  Offsets<Step> step;
  Offsets<StepWithTransition> carried;
  long long channels;
  int axes;  ///< channel axes in use, kAxes at most; arrays do not move along others
  int size[kChannelAxes];
  int sequences;
  long long length;          ///< steps of every sequence, or of the longest
  const long long* offsets;  ///< first rows of packed sequences, and the total; null: all are `length` long
  int reverse;               ///< time runs from the last row to the first
  long long segment;         ///< steps of a segment
  int segments;              ///< of the longest sequence
  long long part;            ///< of sums: entries from one of its parts to the next (sums.cuh)
  long long outer_part;      ///< the same of sums over lanes that lie apart (outer_sums.cuh)
  int parts;
};

/// One lane, resolved.
struct Lane {
  long long channel_index;
  int inner[kAxes];  ///< position along the axes of the channels, but the outermost
  long long outer;   ///< and along that
  int sequence, segment;
  long long first_row;  ///< row of the sequence's step 0
  long long direction;  ///< rows from a step to the next
  long long steps;      ///< of the whole sequence
};

/// Where a lane's channel is along each axis. Told once: every array of a lane would divide anew, which was a third of
/// what a scan of `s6` took (160 instructions an array, for each 32 steps).
CELLC_DEVICE void set_channel(const Lanes& lanes, Lane& lane, long long channel) {
  lane.channel_index = lane.outer = channel;
  lane.inner[0] = 0;
  CELLC_UNROLL()
  for (int axis = kAxes - 1; axis > 0; --axis) {
    lane.inner[axis] = 0;
    if (axis >= lanes.axes) continue;
    const long long rest = quotient(lane.outer, lanes.size[axis]);
    lane.inner[axis] = static_cast<int>(lane.outer - rest * lanes.size[axis]);
    lane.outer = rest;
  }
}

CELLC_DEVICE Lane resolve_here(const Lanes& lanes, long long lane) {
  Lane l;
  const long long position = quotient(lane, lanes.channels);
  set_channel(lanes, l, lane - position * lanes.channels);
  l.sequence = static_cast<int>(quotient(position, lanes.segments));
  l.segment = static_cast<int>(position - static_cast<long long>(l.sequence) * lanes.segments);
  long long first = 0;
  l.steps = lanes.length;
  if (lanes.offsets) {
    first = lanes.offsets[l.sequence];
    l.steps = lanes.offsets[l.sequence + 1] - first;
  }
  l.first_row = lanes.reverse ? first + l.steps - 1 : first;
  l.direction = lanes.reverse ? -1 : 1;
  return l;
}
/// A function that is called reads a kernel's arguments as memory, which is cold: not for what a kernel begins with.
CELLC_APART Lane resolve(const Lanes& lanes, long long lane) { return resolve_here(lanes, lane); }

/// The lane's own offset in an array, without time.
CELLC_DEVICE long long channel_offset(const ArrayView& array, const Lane& lane) {
  long long offset = lane.outer * array.channel[0];
  CELLC_UNROLL()
  for (int axis = 1; axis < kAxes; ++axis) offset += lane.inner[axis] * array.channel[axis];
  return offset;
}

/// Entry of an array at step t of a lane (of step 0, where rows do not matter).
CELLC_DEVICE long long place(const ArrayView& array, const Lane& lane, long long t) {
  return lane.sequence * array.batch + (lane.first_row + lane.direction * t) * array.row + channel_offset(array, lane);
}

/// What a lane's last step reads of a shifted input.
template <int kInput, class AllLanes>
CELLC_DEVICE const Stored* last_of_shifted(const AllLanes& lanes, const Lane& lane) {
  if constexpr (is_shifted(kInput)) {
    const ArrayView& array = lanes.array[Step::input_array(kInput)];
    return lanes.in_place_of_last[kInput] +
           (lane.sequence * array.row + channel_offset(array, lane) + lanes.step.input[kInput]);
  } else {
    return nullptr;
  }
}

template <class Cell>
CELLC_DEVICE const auto& offsets_of(const Lanes& lanes);
template <>
CELLC_DEVICE const auto& offsets_of<Step>(const Lanes& lanes) {
  return lanes.step;
}
template <>
CELLC_DEVICE const auto& offsets_of<StepWithTransition>(const Lanes& lanes) {
  return lanes.carried;
}

template <class Cell>
struct Uniforms {
  const Real* data[Cell::kUniforms ? Cell::kUniforms : 1];
  CELLC_DEVICE explicit Uniforms(const Lanes& lanes) {
    data[0] = nullptr;
    CELLC_UNROLL()
    for (int u = 0; u < Cell::kUniforms; ++u)
      data[u] = static_cast<const Real*>(lanes.array[Cell::uniform_array(u)].data);
  }
};

/// What a lane holds for its steps.
template <class Cell>
CELLC_DEVICE void load_invariants(const Lanes& lanes, const Lane& lane, Real* held) {
  const auto param = [&](int e) {
    const ArrayView& array = lanes.array[Cell::param_array(e)];
    return static_cast<const Real*>(array.data)[channel_offset(array, lane) + offsets_of<Cell>(lanes).param[e]];
  };
  if constexpr (Cell::kHasPrologue) {
    Real raw[(Cell::kParams > 0 ? Cell::kParams : 1)];
    CELLC_UNROLL()
    for (int e = 0; e < Cell::kParams; ++e) raw[e] = param(e);
    Cell::hold(raw, held, Uniforms<Cell>(lanes).data);
  } else {
    CELLC_UNROLL()
    for (int e = 0; e < Cell::kParams; ++e) held[e] = param(e);
  }
}
// `> 0` in brackets: with -default-device NVRTC 13.0 finds no such function without it.
template <class Cell, int kWidth>
CELLC_DEVICE void load_params(const Lanes& lanes, const Lane (&lane)[kWidth],
                              Real (&param)[kWidth][(Cell::kInvariants > 0 ? Cell::kInvariants : 1)]) {
  CELLC_UNROLL()
  for (int v = 0; v < kWidth; ++v) load_invariants<Cell>(lanes, lane[v], param[v]);
}

/// The state before step 0 of the lane's sequence.
CELLC_DEVICE const Real* start_place(const Lanes& lanes, const Lane& lane, int entry) {
  const ArrayView& array = lanes.array[Step::state_array(entry)];
  return lanes.start[entry] +
         (lane.sequence * lanes.start_batch[entry] + channel_offset(array, lane) + lanes.step.state[entry]);
}
CELLC_DEVICE Real start_of(const Lanes& lanes, const Lane& lane, int entry) { return *start_place(lanes, lane, entry); }

/// Writes the final state, where this lane is the one that ends its sequence.
CELLC_DEVICE void finish(const Lanes& lanes, const Lane& lane, int entry, Real value) {
  if (!lanes.last[entry]) return;
  const ArrayView& array = lanes.array[Step::state_array(entry)];
  lanes.last[entry][lane.sequence * lanes.start_batch[entry] + channel_offset(array, lane) + lanes.step.state[entry]] =
      value;
}

}  // namespace cellc
