// A cell as the compiler emits it, by hand: what the templates beside this file compile against on
// their own. ParaGRU (ParaRNN, arXiv 2510.21450, eq. 3.1a with 3.3), its step alone and with transitions.
//
// One struct a derived cell. A lane is one channel of one sequence. What a lane holds is flattened:
// `states` are all entries of all states of a lane, in the order of the cell's symbols and, inside one,
// row-major over the axes that are not the lane's; `inputs` likewise what a step reads, `params` what
// a lane reads once and keeps, `uniforms` the params that all lanes share, read where they are used.
#pragma once

struct Step {
  static constexpr int kStates = 1;  // entries
  static constexpr int kInputs = 3;
  static constexpr int kParams = 3;
  static constexpr int kInvariants = 3;  // numbers that a lane keeps from step to step: `param`
  static constexpr bool kHasPrologue =
      false;                         // whether hold(raw, param, uniform) makes them of the params; they are the params
  static constexpr int kArrays = 7;  // by symbol of the lane cell: h xz xr xc az ar ac
  static constexpr int kUniforms = 0;     // arrays among them that have no lane
  static constexpr int kOperations = 20;  // arithmetic a step, roughly
  // Functions, since an array at class scope has no device code behind it.
  // Which array an entry lies in, and which entry of the array's own it is.
  static CELLC_DEVICE constexpr int state_array(int entry) {
    constexpr int table[] = {0};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int state_entry(int entry) {
    constexpr int table[] = {0};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int input_array(int entry) {
    constexpr int table[] = {1, 2, 3};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int input_entry(int entry) {
    constexpr int table[] = {0, 0, 0};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int param_array(int entry) {
    constexpr int table[] = {4, 5, 6};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int param_entry(int entry) {
    constexpr int table[] = {0, 0, 0};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int uniform_array(int) { return -1; }

  // next = f(state, input). `uniform[i]` is the data of array uniform_array(i).
  static CELLC_DEVICE void step(const Real* param, const Real* input, const Real* state, Real* next,
                                const Real* const* uniform) {
    const Real z = cellc::sigmoid(param[0] * state[0] + input[0]);
    const Real r = cellc::sigmoid(param[1] * state[0] + input[1]);
    const Real c = cellc::tanh(param[2] * (r * state[0]) + input[2]);
    next[0] = (Real(1) - z) * state[0] + z * c;
  }
};

// The same with its transitions as further states: compiler/derive/transition_cell.h.
struct StepWithTransition {
  static constexpr int kStates = 2;  // the states of Step come first, then the transitions
  static constexpr int kInputs = 3;
  static constexpr int kParams = 3;
  static constexpr int kInvariants = 3;
  static constexpr bool kHasPrologue = false;
  static constexpr int kArrays = 8;
  static constexpr int kUniforms = 0;
  static constexpr int kOperations = 50;
  static CELLC_DEVICE constexpr int state_array(int entry) {
    constexpr int table[] = {0, 7};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int state_entry(int entry) {
    constexpr int table[] = {0, 0};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int input_array(int entry) {
    constexpr int table[] = {1, 2, 3};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int input_entry(int entry) {
    constexpr int table[] = {0, 0, 0};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int param_array(int entry) {
    constexpr int table[] = {4, 5, 6};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int param_entry(int entry) {
    constexpr int table[] = {0, 0, 0};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int uniform_array(int) { return -1; }

  static CELLC_DEVICE void step(const Real* param, const Real* input, const Real* state, Real* next,
                                const Real* const* uniform) {
    const Real z = cellc::sigmoid(param[0] * state[0] + input[0]);
    const Real r = cellc::sigmoid(param[1] * state[0] + input[1]);
    const Real c = cellc::tanh(param[2] * (r * state[0]) + input[2]);
    next[0] = (Real(1) - z) * state[0] + z * c;
    const Real dz = param[0] * (z * (Real(1) - z)), dr = param[1] * (r * (Real(1) - r));
    const Real dc = (Real(1) - c * c) * (param[2] * (r + state[0] * dr));
    next[1] = ((Real(1) - z) + dz * (c - state[0]) + z * dc) * state[1];
  }
};

// Which state of StepWithTransition holds ∂(state i)/∂(start j), by i * kStates + j; -1 where it is proved zero.
struct TransitionRule {
  enum Kind { Affine, Clip, Moebius, MaxPlus, MinPlus, LogPlus };
  static constexpr Kind kKind = Affine;
  static CELLC_DEVICE constexpr int transition(int place) {
    constexpr int table[] = {1};
    return table[place];
  }
};
