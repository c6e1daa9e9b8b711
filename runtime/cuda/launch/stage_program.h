#pragma once
// The kernels of one stage on a GPU. Its lane cell is emitted as CUDA, joined with the fixed templates
// (kernels-templates/), compiled when first needed, and launched. The CUDA counterpart of StageKernels,
// lane_kernel and the strategies over segments in one: what they decide between sweeps, the kernels decide themselves.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/codegen_cuda/emit_cuda_lane.h"
#include "compiler/derive/pipeline.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/cuda/launch/stage_tables.h"
#include "runtime/cuda/launch/stage_text.h"
#include "runtime/data/array.h"
#include "runtime/data/object_cache.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// An array on the device as a stage reads or writes it: entry (sequence b, step t, place…) lies at
/// b*batch + row(b, t)*row + Σ place*stride.
struct DeviceArray {
  GpuAddress data = 0;
  std::int64_t batch = 0, row = 0;    ///< entries
  GpuAddress last = 0;                ///< of an input, as in cellc_view
  std::vector<std::int64_t> lengths;  ///< of its places, the cell's own axes
  std::vector<std::int64_t> strides;  ///< entries; empty: row-major without gaps
};

/// One run of a stage. Inputs and states have the storage dtype, params, starts and finals arithmetic
/// precision.
struct StageRun {
  std::vector<DeviceArray> symbols;      ///< by symbol of the lane cell; a state's: where it is written
  std::vector<GpuAddress> starts;        ///< by state: [N, a…]
  std::vector<GpuAddress> finals;        ///< by state: [N, a…]
  std::map<AxisId, std::int64_t> sizes;  ///< by header axis
  std::int64_t sequences = 0;
  std::int64_t length = 0;  ///< steps of every sequence, or of the longest
  bool uniform = true;      ///< all sequences are as long
  GpuAddress offsets = 0;   ///< int64 [N+1] where they are packed, else 0
  bool reverse = false;
  std::int64_t part = 0;           ///< entries from a part of a sum to the next
  std::int64_t outer_part = 0;     ///< the same of a sum over the outermost channels
  std::vector<double> absolute{};  ///< by state, in its own units: what a step may be off besides; empty: nothing
};

/// How a stage is run on a device; what a plan pins, besides StagePlan's own numbers.
struct CudaPlan {
  StagePlan plan;
  bool learns = false;          ///< burn-in and transitions of the first sweep follow what earlier calls saw
  bool measures_slope = false;  ///< the first sweep carries the map over each segment
  int rounds = CELLC_ROUNDS;    ///< of repair, at most
  bool fixed = false;           ///< as many rounds as that, also where they lead nowhere
  int eager = 0;                ///< rounds that run every segment whose start has moved at all
  bool repairs = true;
  bool checks = false;      ///< a scan looks at the starts that composed maps give, and walks where they are off
  std::int64_t tile = 0;    ///< steps that a block of a scan takes at most; 0: as many as suit the card
  bool two_passes = false;  ///< a scan over segments, in which lanes make sums (two_passes.cuh)
};

/// What a call reports; read from the device after it.
struct CudaOutcome {
  std::int64_t misses = 0, repaired = 0, tails = 0;
  int rounds = 0;
  double max_residual = 0, growth = 0;
  std::int64_t burn_in = 0;
  bool measures_slope = false;   ///< the next call carries derivatives along
  bool multistarts = false;      ///< this call began with a pass of multistart.cuh
  std::int64_t tile = 0;         ///< steps of a block, where a scan took a single pass; else 0
  std::vector<double> phase_ns;  ///< first sweep, then starts and repair of each round
  std::vector<Unconverged> unconverged;
};

/// The same in the numbers of host_plan.h.
cellc_plan host_plan(const CudaPlan& plan);

class StageProgram {
 public:
  /// `stage`, `cell` and `carried` must outlive it. `carried`: of a stage with fused outs the stage without them, whose
  /// map over a segment it has; else null. Compiles nothing yet.
  StageProgram(Gpu& gpu, const CellGraph& cell, const StageCells& stage, Scannable scannable, Dtype storage,
               const SourceText* source, DeriveHooks derive = {}, const StageCells* carried = nullptr);
  ~StageProgram();

  /// The same bits in every run, which costs where channels are few or rounds many. No kernel is another one for it.
  void repeat_bits(bool repeats);
  /// What a scan's starts may be off by (CELLC_GRADIENT_SLACK). No kernel is another one for it.
  void loosen_scans(bool of_gradients);
  /// Kernels are compiled when a run asks for them, and may be of its lengths alone; else they are to be shipped.
  /// Before all else.
  void compile_for_runs() { for_run_ = true; }

  /// Lanes that make sums have the map over a segment, too, and walk segments in two passes. Before all else.
  void walk_in_two_passes() { for_run_ = has_two_passes_ = true; }
  /// Whether they do, at these sizes.
  bool has_two_passes(const std::map<AxisId, std::int64_t>& sizes);

  /// Why the stage cannot be run a lane a thread at these sizes; nullopt where it can.
  std::optional<std::string> refusal(const std::map<AxisId, std::int64_t>& sizes);
  /// Entries that one lane couples.
  std::int64_t block(const std::map<AxisId, std::int64_t>& sizes) const;
  /// Whether a thread holds the map over a segment.
  bool carries(const std::map<AxisId, std::int64_t>& sizes) { return code(sizes).has_transition; }
  int storage_bytes() const { return static_cast<int>(size_of(storage_)); }
  std::int64_t channels(const std::map<AxisId, std::int64_t>& sizes) const;

  /// Parts that each of the stage's sums is made in, where it has any; 0: these sizes are not for its lanes.
  int sum_parts(const std::map<AxisId, std::int64_t>& sizes);

  /// Parts in which lanes leave an accumulated out, run by this plan in arrays of this run.
  std::int64_t accumulated_parts(const StageRun& run, const CudaPlan& plan);
  /// Whether some of the sums run along the outermost channels.
  bool has_outer_sums() const { return stage_.outer > 0; }
  bool makes_sums() const { return !stage_.sums.empty(); }
  /// Parts in which blocks leave such a sum.
  std::int64_t outer_parts(const StageRun& run, const CudaPlan& plan);

  /// Whether its kernels can read an input one step later: threads that share entries cannot.
  bool shifts(const std::map<AxisId, std::int64_t>& sizes);

  /// Queues a run. Nothing is allocated where the last run had the same shape and plan.
  void run(const StageRun& run, const CudaPlan& plan, double tolerance, GpuStream stream);
  /// Of the last run; synchronises.
  CudaOutcome outcome(GpuStream stream);

  /// What run() is about to compile, as far as that can be told before; nothing where it has its kernels.
  std::vector<GpuSource> missing(const StageRun& run, const CudaPlan& plan);

  /// What run() compiles for one sequence of `steps` at these sizes, in arrays without gaps, where refusal() has
  /// nothing against them.
  GpuSource unit(const std::map<AxisId, std::int64_t>& sizes, const StagePlan& plan, std::int64_t steps);

  /// What the kernels of these sizes are made of, where refusal() has nothing against them; lives as long as this.
  struct Parts {
    const CudaLaneCode* step;
    const CudaLaneCode* step_with_transition;
    const cellc_stage* stage;
    const std::string* alike;  ///< of both steps: the same where they differ in names alone
  };
  Parts parts(const std::map<AxisId, std::int64_t>& sizes);

  /// Whether Strategy::Scan makes every start from exact maps, in a single pass.
  bool scans_in_one_pass(const std::map<AxisId, std::int64_t>& sizes) { return code(sizes).tables.stage.scans; }
  /// Of a run without repair: for each sequence its first bad step in 64 bits, ~0 for none. 0: the last run left none.
  GpuAddress first_bad_steps() const { return writes_down_ ? bad_.address() : 0; }

  double compile_ms() const { return compile_ms_; }
  const std::vector<CacheState>& caches() const { return caches_; }

 private:
  struct Compiled {
    cellc_variant variant;
    GpuFunction function;
    GpuFunction beside;  ///< another of the same unit: of outer sums add_parts, of passes what stands around them
    int resident;        ///< blocks of a multiprocessor
    int clusters;        ///< of a variant that has any: on the whole card
  };
  struct Code {
    std::map<AxisId, std::int64_t> sizes;
    CudaLaneCode step, step_with_transition;
    std::string alike;  ///< of both, without names
    bool has_transition = false, two_passes = false;
    int warps = kStageWarps, stage_steps = 8;  ///< of a block; that a warp stages at once: what shared memory holds
    StageTables tables;
    std::optional<std::string> refusal;
    std::vector<Compiled> kernels;
  };
  struct Described;

  Code& code(const std::map<AxisId, std::int64_t>& sizes);
  const Compiled& kernel(Code& code, const cellc_variant& variant);
  GpuSource source(const Code& code, const cellc_variant& variant) const;
  Described describe(const StageRun& run) const;
  void launch(const Compiled& k, const cellc_stage& stage, const Described& d, const cellc_lane_axes& axes,
              const cellc_plan& numbers, const cellc_variant& variant, const cellc_scratch& at, double tolerance,
              const double* absolute, GpuStream stream);
  void add_parts(const Compiled& k, const Described& d, const StageRun& run, const cellc_variant& variant,
                 GpuStream stream);
  /// The kernel for a run by this plan, which may have to be another one.
  void rewalk(Code& code, Described& d, const cellc_lane_axes& axes, cellc_plan numbers, const cellc_variant& scan,
              const cellc_scratch& at, double tolerance, const StageRun& run, GpuStream stream);
  void run_in_two_passes(Code& code, const Described& d, const cellc_lane_axes& axes, const cellc_plan& numbers,
                         double tolerance, const StageRun& run, GpuStream stream);
  /// The kernel beside `k`, with a thread for each of so many, and what the kernel of `variant` is told.
  void launch_beside(const Compiled& k, const cellc_stage& stage, const Described& d, const cellc_lane_axes& axes,
                     const cellc_plan& numbers, const cellc_variant& variant, const cellc_scratch& at, double tolerance,
                     const double* absolute, std::int64_t threads, GpuStream stream);
  static bool takes_two_passes(const Code& code, const Described& d, cellc_plan& numbers);
  cellc_variant variant_of(const StageRun& run, const CudaPlan& plan, Described& d);
  static const Compiled* known(const Code& code, const cellc_variant& variant);
  cellc_variant without_segments(const Code& code, const Described& d, const cellc_lane_axes& axes,
                                 cellc_plan& numbers) const;
  cellc_variant variant_for(Code& code, Described& d, const cellc_lane_axes& axes, cellc_plan& numbers);
  void reserve(GpuBuffer& buffer, std::size_t bytes, GpuStream stream, bool cleared);

  Gpu& gpu_;
  const CellGraph& cell_;
  const StageCells& stage_;
  const StageCells& carried_;
  const Scannable scannable_;
  const Dtype storage_;
  const SourceText* source_;
  const DeriveHooks derive_;
  int scan_slack_ = 1;
  bool repeats_ = false, for_run_ = false, has_two_passes_ = false;
  std::vector<std::unique_ptr<Code>> codes_;
  GpuBuffer control_, sent_, off_, states_, bad_, none_bad_;
  bool writes_down_ = false;  ///< the last run left in bad_ what it did not repair
  GpuBuffer scan_control_, scan_words_, scan_marks_;
  unsigned repaired_before_ = 0,
           scans_before_ = 0;  ///< shares of channels that scans had walked, and scans, when somebody last asked
  bool ran_segmented_ = false;
  std::int64_t ran_tile_ = 0;  ///< 0: the last run was no scan in a single pass
  std::int64_t sequences_ = 0, segment_ = 0;
  CudaPlan last_;
  double compile_ms_ = 0;
  std::vector<CacheState> caches_;
};

}  // namespace cellc
