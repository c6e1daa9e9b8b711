#pragma once
// All code that runs of one cell on a CPU may need: the fused kernel, the cells around each stage, each stage's
// kernels. Each is compiled when a run first asks for it.
#include <memory>
#include <optional>
#include <vector>

#include "compiler/derive/stage_cells.h"
#include "runtime/cpu/engine.h"
#include "runtime/cpu/relax_stage.h"
#include "runtime/cpu/stage_kernels.h"

namespace cellc {

class JoinedStages;

class CellPrograms {
 public:
  CellPrograms(const CellGraph& cell, const Structure& structure, const CompileOptions& options);
  ~CellPrograms();

  const CellGraph& cell() const { return cell_; }
  const Structure& structure() const { return structure_; }
  const CompileOptions& options() const { return options_; }
  Dtype arithmetic() const { return arithmetic_.dtype; }

  const Program& whole();  ///< the sequential kernel of the cell
  const StagedCell& stages();
  StageKernels& kernels(int stage);
  const Program& once(int stage);
  const Program& before(int stage);
  const Program& after();
  const StepsFromRows& step();  ///< of `whole`, in arithmetic precision
  /// Whether lanes add up sums of a step in another order than the sequential kernel, or round a product once with its
  /// sum where that rounds twice, or may: what they make of a step is then not what is promised of it, and runs in
  /// lanes look at every step by step().
  bool adds_otherwise();
  /// Whether the fused kernel keeps every state in a register, and a step has no long operations.
  bool in_registers();
  /// The only stage of a cell, with lanes that make every out among `wanted`; null: they cannot.
  struct WithOuts {
    StageCells stage;
    std::unique_ptr<LaneKernel> kernel;
  };
  const WithOuts* with_outs(const Wanted& wanted);
  Relaxation* relaxation(int stage);  ///< null: nothing to relax
  JoinedStages* joined();             ///< all stages as one; null: they cannot be

  double compile_ms() const;  ///< of all that was compiled so far
  CacheState cache() const;

 private:
  const Program& compiled(std::optional<Program>& program, const CellGraph& cell, const Structure& structure,
                          const CompileOptions& options);
  const Program& stateless(std::optional<Program>& program, const DerivedCell& cell);

  const CellGraph& cell_;
  const Structure& structure_;
  const CompileOptions options_;
  CompileOptions arithmetic_;
  std::optional<Program> whole_, after_;
  std::optional<StepsFromRows> step_;
  std::optional<StagedCell> staged_;
  std::vector<std::unique_ptr<StageKernels>> kernels_;
  std::vector<std::optional<Program>> before_, once_;
  std::optional<std::unique_ptr<WithOuts>> with_outs_;                   ///< asked for; null: lanes make no outs
  std::vector<std::optional<std::unique_ptr<Relaxation>>> relaxations_;  ///< asked for; null: nothing to relax
  std::optional<bool> in_registers_, adds_otherwise_;
  std::optional<std::unique_ptr<JoinedStages>> joined_;  ///< asked for; null: stages run one after the other
  double compile_ms_ = 0;
  std::vector<CacheState> caches_;
};

}  // namespace cellc
