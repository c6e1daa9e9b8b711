#pragma once
// The state of a CudaSolver, and what its files do with it: one run is decided, compiled and launched by what the last
// one left. Of that class alone.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "compiler/derive/pipeline.h"
#include "runtime/cuda/device/shared_modules.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/launch/plan_execution.h"
#include "runtime/cuda/launch/relaxation_on_gpu.h"
#include "runtime/cuda/launch/run_arrays.h"
#include "runtime/cuda/launch/stepped_on_gpu.h"
#include "runtime/data/call_shape.h"

namespace cellc {

struct CudaSolver::Impl {
  SharedModules gpu;
  const CellGraph& cell;
  const Structure& structure;
  const Dtype dtype, arithmetic;
  const SourceText* source;
  const DeriveHooks derive;
  std::optional<StagedCell> staged;
  std::vector<std::unique_ptr<StageProgram>> stages;
  std::vector<std::optional<FusedStage>> summed;       ///< by stage, where it has sums in its lanes
  std::vector<std::unique_ptr<StageProgram>> summing;  ///< those, as programs; else null
  const std::optional<AccumulatedOuts> outs_in_lanes;
  bool repeats_bits;                                       ///< in every run, whatever is asked for
  std::vector<std::optional<StageCells>> with_outs;        ///< by stage, where its lanes can make outs
  std::vector<std::unique_ptr<StageProgram>> making_outs;  ///< those, as programs; else null
  std::vector<std::unique_ptr<StageProgram>> remaking;  ///< by stage, over single steps, where later ones ask for that
  /// How the lanes of a stage are made: alone, with sums, with outs.
  enum Form { kPlain, kSums, kOuts, kForms };
  /// By form: lanes that make sums of segments, in two passes; else null.
  std::vector<std::unique_ptr<StageProgram>> two_passes[kForms];
  std::vector<std::optional<NestProgram>> before[kForms], once[kForms];  ///< by stage
  std::vector<std::vector<std::optional<NestProgram>>> remade;           ///< by stage and pass
  std::optional<NestProgram> after, step, whole;
  bool made_nests = false;  ///< any of these, ever: their kernels may be running
  Relaxations relaxations;
  SteppedStages stepped;
  std::string unrelaxed;  ///< why the run that is on the device is not relaxed after all
  std::string given_up;   ///< the same of runs of its shape that did not ask for it
  std::map<PersistentShape, std::optional<NestProgram>> persistent;  ///< whole steps, likewise
  std::optional<Plan> plan_of_steps;
  int most_blocks = 16;            ///< of a cluster, as far as is known of the card
  bool groups_fit = true;          ///< likewise
  std::vector<Observed> observed;  ///< by stage, for the shape of the last run
  double compile_ms = 0;
  std::vector<CacheState> caches;

  // The run that is on the device.
  CudaRunArrays arrays;
  SolveOptions solve;
  double tolerance = 0;
  Dtype running = Dtype::F32;         ///< storage that programs have code for
  ExecutionPlan execution;            ///< of the run that is on the device
  using SumParts = std::vector<int>;  ///< by stage: of each sum that its lanes make; 0: they make none
  struct LeftOuts {
    DerivedCell cell;  ///< what is left of `after` then
    std::optional<NestProgram> program;
  };
  std::map<SumParts, LeftOuts> after_summing;        ///< never dropped by another plan: its kernels may still run
  std::map<std::vector<bool>, LeftOuts> after_outs;  ///< by stages that make outs; likewise
  bool reserved = false;                             ///< memory for what stages and sums pass on, as planned
  bool compiled_ahead = false;                       ///< what this plan's first launch needs
  std::vector<GpuBuffer> step_arrays;
  bool runs_again = false;        ///< whoever upload()s runs it another way where it does not converge
  bool asked_of_refusal = false;  ///< whether stages can be relaxed is asked for
  bool on_device = false;         ///< all arrays are the caller's, unless place_all() says else
  bool may_wait = false;          ///< and the caller waits
  bool outs_wanted = true;
  Wanted wanted;  ///< of what is downloaded

  Impl(Gpu& device, const CellGraph& cell, const Structure& structure, Dtype dtype, const SourceText* source,
       const DeriveHooks& derive, const std::optional<AccumulatedOuts>& outs_in_lanes)
      : gpu(device),
        cell(cell),
        structure(structure),
        dtype(dtype),
        arithmetic(arithmetic_of(dtype)),
        source(source),
        derive(derive),
        outs_in_lanes(outs_in_lanes),
        repeats_bits(outs_in_lanes.has_value()),
        relaxations(gpu, cell, structure, arithmetic, source, this->derive),
        stepped(gpu, cell, structure, arithmetic, source, this->derive),
        arrays(gpu, cell, arithmetic) {}

  bool repeats() const { return repeats_bits || solve.repeat_bits; }
  /// Rows of that state, as they were written or made again: whether they are depends on the plan.
  static bool is_of(const ArraySource& source, int update) {
    return (source.kind == ArraySource::Kind::Trajectory || source.kind == ArraySource::Kind::Remade) &&
           source.id == update;
  }
  Form form_of(std::size_t k) const {
    return execution.fuses(k, outs_wanted) ? kSums : execution.makes_outs_of(k, outs_wanted) ? kOuts : kPlain;
  }
  /// Segments in two passes look at their boundaries, by the very step that made their rows.
  bool looks_at_boundaries(std::size_t k) const { return execution.stages[k].two_passes && form_of(k) != kPlain; }
  static Form form_of(const Pass& pass) { return pass.fused ? kSums : pass.with_outs ? kOuts : kPlain; }
  const StageCells& lanes_of(std::size_t k, Form form) const {
    return form == kSums ? summed[k]->stage : form == kOuts ? *with_outs[k] : staged->stages[k];
  }
  const StageCells& lanes_of(std::size_t k) const { return lanes_of(k, form_of(k)); }
  static std::size_t k_of(const Pass& pass) { return static_cast<std::size_t>(std::max(0, pass.stage)); }

  // Made on demand: cuda_solver_programs.cc.
  const StagedCell& stages_of_cell();
  /// Programs that hold code for `storage`, the type on the device.
  void use_storage(Dtype storage);
  void repeat_scans();
  void forget_nests();
  /// `between`: of a cell that stands between stages; null: of whole steps.
  NestOptions nest_options(const DerivedCell* between = nullptr);
  NestProgram& nest_program(std::optional<NestProgram>& program, const CellGraph& graph, const Structure& of,
                            Dtype storage, const std::vector<PersistentCode>& lives_through_steps = {},
                            const DerivedCell* between = nullptr);
  double compiled_ms() const;
  NestProgram& whole_program();
  StageProgram& program(std::size_t k) const;
  /// What is left of the cell after the stages; null: it is as it was.
  LeftOuts* left_outs();
  const DerivedCell& after_cell() const;

  // What is decided: cuda_solver_plan.cc.
  /// Of runs from host to host that leave the choice to us.
  bool may_relax_unasked() const;
  std::string why_given_up(const SolveReport& report) const;
  ExecutionRequest request();
  SteppedChoice choose_kernels_a_step(const ExecutionRequest& r);
  bool adds_up(int out) const;
  /// Lanes that walk their whole sequence, or scan it unchecked, may leave a state unwritten, if nothing else reads it;
  /// so do kernels of whole steps.
  bool needs_no_trajectory(int update);
  /// Whether a run from host to host may check whole steps afterwards (unchecked): there is none after lanes that walk.
  bool looks_at_steps() const;
  PersistentChoice choose_persistent_kernels();
  /// No kernel but lanes touches the rows of a symbol, whatever the plan: what sums need before a stage is otherwise
  /// read after it.
  bool any_strides(int symbol) const;
  bool shifts(int symbol) const;
  bool is_read_in_rows(int symbol, bool as_planned) const;
  bool overlaps_starts() const;
  bool replan(const SolveOptions& options);
  /// What is left of the cell after the stages, as planned.
  void plan_left_outs();
  /// After unchecked(): scans give way to segments, whose boundaries are checked; where there are none, all is walked.
  void replace_plans(const char* why);

  // To the device, and what runs there: cuda_solver_launch.cc.
  void upload(const BoundRun& run, const SolveOptions& options);
  /// Memory for what is written and is not the caller's.
  void reserve_written();
  /// With the launch, not with the plan: a call that is replanned is rehearsed before it runs, and may find no memory
  /// only there.
  void reserve_between();
  std::vector<GpuAddress> first_bad_steps() const;
  void launch(GpuStream stream);
  /// The kernels that these passes lack, all of them at the same time: of a cell of many stages a run would otherwise
  /// wait for one after the other, on one core.
  void compile_ahead(const std::vector<Pass>& passes);
  /// What a pass around stages runs.
  struct Nest {
    std::optional<NestProgram>* program = nullptr;
    const DerivedCell* derived = nullptr;  ///< null: the pass is another
  };
  Nest nest_of(const Pass& pass);
  NestProgram& program_of(const Pass& pass);
  void run(const Pass& pass, GpuStream stream);
  StageRun single_steps(std::size_t k) const;
  /// Sequences that are shorter than others leave nothing in the parts of tiles that they do not reach.
  void clear_accumulated(const Pass& pass, GpuStream stream);

  // And back: cuda_solver_report.cc.
  void report(SolveReport& report, GpuStream stream);
  /// Why steps may be further off than `report` says, or null. Also of a run that is known to be off somewhere: it has
  /// to say where else it is.
  const char* unchecked(const SolveReport& report);
  /// Each stage was checked against what the stages before it wrote. What is promised is the residual of
  /// the whole step, in which a later stage may amplify what an earlier one left.
  void check_whole_steps(SolveReport& report, GpuStream stream);
};

}  // namespace cellc
