#pragma once
// Chooses a strategy and its parameters from structure, shape, cores and a look at the data,
// and gives the reason in words.
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

/// What the choice depends on, apart from the data.
struct StageShape {
  std::int64_t sequences = 0;
  std::int64_t longest = 0;      ///< steps of the longest sequence
  std::int64_t rows = 0;         ///< steps of all
  std::int64_t channels = 1;     ///< independent lanes of one sequence
  std::int64_t block = 1;        ///< coupled entries of a lane
  bool carries = true;           ///< on a GPU: a thread holds the map over a segment
  int storage_bytes = 4;         ///< of an entry in memory
  std::int64_t mixed = 1;        ///< those of one state: the fused kernel has them side by side in vectors
  std::int64_t look_values = 0;  ///< values of a step's transitions, each written out in the code of a look
  int vector_lanes = 16;
  int threads = 1;
  /// All states of the cell are single numbers, which the fused kernel keeps in registers, and a step has no long
  /// operations.
  bool in_registers = false;
  bool along_time = false;  ///< one lane of one state, whose steps this processor can scan in vectors
};

/// How the lanes forget, as a few segments of the run show (probe_stage).
struct Forgetting {
  double typical = 1;     ///< steps to the tolerance, median lane
  double most = 1;        ///< of the slowest but one in a hundred
  double slow = 0;        ///< share of lanes that would not forget within a segment
  double remembered = 0;  ///< run-up that earlier runs of the same cell turned out to need
};

/// What a stage that mixes its channels through products by params costs on this machine, in nanoseconds a
/// row of the run: measured when a run is planned (solve.cc), since processors differ here by a factor of four.
struct MixingCost {
  double step = 0;       ///< step by step
  double iteration = 0;  ///< an iteration of relaxation
  double look = 0;       ///< the sequential kernel's look at the steps that relaxation left
};

/// Iterations of relaxation that take as long as one pass step by step.
double iterations_worth(const MixingCost& cost);

/// What a strategy offers for a stage: a plan, and what it costs in passes of the fused kernel with full vectors.
struct Offer {
  double passes = 0;
  StagePlan plan;
};

/// Names of states, as messages and plans call a stage: "{h, c}". Companions of lagged states are left out.
std::string name_of_stage(const CellGraph& cell, const std::vector<int>& updates);

/// Lanes that keep every core's vector units busy with independent chains of operations.
std::int64_t lanes_wanted(const StageShape& shape);

/// Why no scan solves a stage, whose states are named ("{h}"); nullopt: one does.
std::optional<std::string> no_scan(const Stage& stage, const std::string& states);

/// Without a look at the data: sequential where lanes or steps leave nothing to gain, else the cheapest of `offers` if
/// that is cheaper. nullopt: it depends on how the lanes forget.
std::optional<StagePlan> plan_from_shape(const StageShape& shape, const std::vector<Offer>& offers);
/// Of the only stage of a cell, or of all that run as one: a segment a sequence, where sequences fill the vectors that
/// its few channels do not.
std::optional<StagePlan> plan_of_narrow_stage(const StageShape& shape);
/// Why stages whose states the fused kernel keeps in registers had better stay there; nullopt: not all are such stages,
/// or cutting them gains more.
std::optional<std::string> stays_in_registers(const std::vector<StageShape>& shapes);
/// With a look at the data.
StagePlan plan_from_data(const StageShape& shape, const Forgetting& seen, const std::vector<Offer>& offers);

// What strategies make their offers from.

/// Whether no state of the stage depends on the states of the step before.
bool feeds_no_state(const Stage& stage);
/// Whether what is added to all states is added to the next ones, as in Viterbi's maxima: no segment can begin early
/// enough, and data need not be looked at to know it.
bool keeps_every_shift(const Stage& stage);
/// Passes of a sweep over the run that is made lane by lane.
double lane_pass(const StageShape& shape);
/// As few and as long segments as fill the vectors `tiles_per_thread` times over.
std::int64_t segment_length(const StageShape& shape, std::int64_t tiles_per_thread);
/// Of a strategy that is requested by name: steps of a segment, and how many it starts early.
std::int64_t requested_segment(const StageShape& shape);
std::int64_t requested_burn_in(const Stage& stage);
/// "3 lanes leave vectors idle"
std::string idle_lanes(const StageShape& shape);

/// The fused kernel takes all stages of a step at once; where one stage leaves it, all do, and those that are
/// run step by step all the same pay for it: their coefficients and states go through memory, and so do the
/// checks. Why the stage that would be cut is not worth it; nullopt: it is. `plans` by stage, Auto where the
/// data decide.
std::optional<std::string> keeps_fused(const std::vector<StagePlan>& plans, const std::vector<StageShape>& shapes);

}  // namespace cellc
