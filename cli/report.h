#pragma once
// What a run did, for people and for programs.
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/backward.h"
#include "cli/load.h"
#include "cli/tangent.h"
#include "runtime/cuda/ship/edited_kernels.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/reference.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

struct RunReport {
  const LoadedCell& loaded;
  std::string gpu;  ///< the card's name; empty: it ran on the CPU
  const Binding& binding;
  const RunOutput& output;
  const SolveReport& solve;
  bool repair;           ///< what does not converge is repaired
  std::string products;  ///< what factors of hoisted products were: "3xtf32"
  std::vector<std::pair<std::string, Array>> arrays;
  std::string out;  ///< directory written to, or empty
  std::optional<NonFinite> nonfinite;
  std::optional<Deviation> verified;
  std::string kernel;                        ///< --kernel: the file, or empty
  const EditedRun* edited = nullptr;         ///< and what became of it
  const BackwardReport* backward = nullptr;  ///< --cotangent
  const TangentReport* tangent = nullptr;    ///< --tangent
};

/// What is wrong with edited kernels; empty: nothing, or nobody asked.
std::string wrong_kernel(const RunReport& report);

/// That a run did not converge and what helps; empty: it did, or its residual is all that was asked for.
std::string not_converged(const RunReport& report);

/// From where on a state is not finite; empty: nowhere. For people: run_json says it in its own way.
std::string not_finite(const RunReport& report);

/// "segmented, segments of 64 steps started 32 early".
std::string plan_text(const StagePlan& plan);
/// As `run --json` prints it and --plan reads it.
nlohmann::json plan_json(const SolveReport& report);
/// "d=256, B=1, T=4096".
std::string sizes_text(const CellGraph& cell, const Binding& binding);
/// "h, c".
std::string stage_states(const CellGraph& cell, const Stage& stage);

std::string run_text(const RunReport& report);
std::string run_json(const RunReport& report);
/// What --trace shows: each stage's iterations as a table and a plot of the residual.
std::string trace_text(const RunReport& report);

}  // namespace cellc
