#pragma once
// The CUDA text of lane cells as host code: all cells derived of a stage, emitted, compiled for the host and
// run, beside the evaluator on the same values.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/derive/stage_cells.h"
#include "tests/engines/host_code.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/random.h"

namespace cellc {

/// One emitted struct and the cell that it is of.
struct Emitted {
  std::string label;
  CellGraph cell;
  AxisId lane;
  std::map<AxisId, std::int64_t> sizes;
  oracle::Ranges ranges;
  CudaLaneCode code;
  std::optional<TransitionCell> transitions;
  int step = -1;  ///< of a carried cell: the index of the lane cell's own
};

struct Lowered {
  CellGraph cell;
  Structure structure;
};

Lowered lowered(const SourceText& source, const File& file, const Cell& tree);
CudaLaneOptions options_for(const Lowered& cell, const SourceText& source, const Emitted& e, Storage storage);

/// All derived cells of all stages of one cell.
void emit_all(const SourceText& source, const File& file, const Cell& tree, const oracle::Ranges& ranges,
              Storage storage, std::vector<Emitted>& all);
std::vector<Emitted> all_emitted(Storage storage);

std::string translation_unit(const std::vector<Emitted>& all, Storage storage, const std::string& before = "");

// -w: what a cell computes in vain is not the emitter's fault. Nothing is contracted, as in the evaluator.
inline constexpr const char* kOptions = "-std=c++17 -O0 -w -ffp-contract=off";

/// Values of every symbol of a lane, entry by entry.
using Values = std::vector<std::vector<double>>;

template <typename Real>
struct Runner {
  using StepFunction = void (*)(const Real*, const Real*, const Real*, Real*, const Real* const*);
  Runner(const std::vector<Emitted>& all, Storage storage, const std::string& before = "",
         const std::string& options = kOptions)
      : code(translation_unit(all, storage, before), options),
        steps(code.symbol<const StepFunction>("steps")),
        rules(code.symbol<int (*const)(int)>("rules")) {}

  /// Entries of the states after one step.
  std::vector<double> step(int index, const Emitted& e, const Values& values) const {
    const auto gather = [&](const std::vector<SymbolEntry>& entries) {
      std::vector<Real> list;
      for (const SymbolEntry& at : entries) list.push_back(static_cast<Real>(values[at.symbol].at(at.entry)));
      list.push_back(0);
      return list;
    };
    const std::vector<Real> param = gather(e.code.params), input = gather(e.code.inputs), state = gather(e.code.states);
    std::vector<std::vector<Real>> uniforms;
    std::vector<const Real*> uniform;
    for (int u : e.code.uniform_arrays) uniforms.emplace_back(values[u].begin(), values[u].end());
    for (const auto& u : uniforms) uniform.push_back(u.data());
    std::vector<Real> next(state.size());
    steps[index](param.data(), input.data(), state.data(), next.data(), uniform.data());
    return {next.begin(), next.end() - 1};
  }

  HostCode code;
  const StepFunction* steps;
  int (*const* rules)(int);
};

Values draw(const Emitted& e, oracle::Random& random, bool f32);
std::vector<double> reference(const Emitted& e, const Values& values);
bool near(double got, double want, double tolerance);
/// A state that the step leaves out for ever may start as anything else in the evaluator.
void clear_left_out(const Emitted& e, Values& values);

}  // namespace cellc
