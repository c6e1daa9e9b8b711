// h' = a*h + x of inputs a and x, as the compiler would emit it: what the tests of scan.cuh run, and what it is
// measured with.
#pragma once
struct Step {
  static constexpr int kStates = 1, kInputs = 2, kParams = 0, kInvariants = 0, kArrays = 3, kUniforms = 0,
                       kOperations = 2;
  static constexpr bool kHasPrologue = false;
  static CELLC_DEVICE constexpr int state_array(int) { return 0; }
  static CELLC_DEVICE constexpr int input_array(int entry) { return 1 + entry; }
  static CELLC_DEVICE constexpr int param_array(int) { return -1; }
  static CELLC_DEVICE constexpr int uniform_array(int) { return -1; }
  static CELLC_DEVICE void step(const Real*, const Real* input, const Real* state, Real* next, const Real* const*) {
    next[0] = input[0] * state[0] + input[1];
  }
};
struct StepWithTransition {
  static constexpr int kStates = 2, kInputs = 2, kParams = 0, kInvariants = 0, kArrays = 4, kUniforms = 0,
                       kOperations = 3;
  static constexpr bool kHasPrologue = false;
  static CELLC_DEVICE constexpr int state_array(int entry) {
    constexpr int table[] = {0, 3};
    return table[entry];
  }
  static CELLC_DEVICE constexpr int input_array(int entry) { return 1 + entry; }
  static CELLC_DEVICE constexpr int param_array(int) { return -1; }
  static CELLC_DEVICE constexpr int uniform_array(int) { return -1; }
  static CELLC_DEVICE void step(const Real*, const Real* input, const Real* state, Real* next, const Real* const*) {
    next[0] = input[0] * state[0] + input[1];
    next[1] = input[0] * state[1];
  }
};
struct TransitionRule {
  enum Kind { Affine, Clip, Moebius, MaxPlus, MinPlus, LogPlus };
  static constexpr Kind kKind = Affine;
  static CELLC_DEVICE constexpr int transition(int) { return 1; }
};
