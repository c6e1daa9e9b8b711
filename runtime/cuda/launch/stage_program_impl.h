#pragma once
// What the files of StageProgram share.
#include "runtime/cuda/launch/stage_program.h"

namespace cellc {

/// A run as host_lanes.h reads it.
struct StageProgram::Described {
  std::vector<std::int64_t> lengths, strides;
  std::vector<cellc_view> views;
  cellc_stage_run run{};
  cellc_facts facts{};
};

}  // namespace cellc
