#pragma once
// The options of a parallel run, and its report.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"
#include "runtime/data/array.h"
#include "runtime/data/object_cache.h"
#include "runtime/data/run.h"
#include "runtime/strategy/strategy.h"

namespace cellc {

/// 1e-6 (f32), 1e-12 (f64), 1e-4 (16 bits).
double default_tolerance(Dtype dtype);

/// How a GPU multiplies rows by matrices of params, in arithmetic of 32 bits (`--products`).
enum class Products : std::uint8_t {
  F32,      ///< multiply-adds
  Tf32x3,   ///< tensor cores, each factor as two numbers of 11 bits: errors like those of f32
  Tf32,     ///< tensor cores, factors of 11 bits: some 5e-4 of a product
  Bf16,     ///< tensor cores, factors of 8 bits and the range of f32: some 4e-3 of a product
  F16,      ///< the same with factors of 11 bits and the range of f16: of gradients alone, which are scaled for it
  Storage,  ///< factors rounded to the storage type, where that has 16 bits; else as F32
};
const char* to_string(Products products);
std::optional<Products> products_named(const std::string& name);
std::string products_names();  ///< "f32, 3xtf32, ... or storage"
/// What `storage` stands for in runs of derivatives, whose arrays are f32: the factors that `storage` has where these
/// are gradients; of tangents, which nobody scales into the range of f16, TF32's instead, which have as many bits.
Products gradient_products(Products products, Dtype storage);
Products tangent_products(Products products, Dtype storage);

/// Whether products over all steps run by the instructions of sm_90a, where a card has them (product_wgmma.cuh).
enum class WideProducts : std::uint8_t {
  WherePaid,  ///< where rows, columns and terms are enough
  Always,     ///< of tests: as few as they are
  Never,
};

/// Parameters of a strategy: what a plan pins.
struct StagePlan {
  Strategy strategy = Strategy::Sequential;
  std::int64_t segment = 0;  ///< steps; 0: the whole sequence. Relaxation: of a window
  std::int64_t burn_in = 0;  ///< steps that a segment starts early
  std::string reason;
};

/// What the reason of a plan ends with where a trajectory that is not wanted is made all the same.
constexpr const char* kStaysInMemory = "; every step is in memory while it runs, though it is not wanted";

/// Shape of kernels that live through all steps (runtime/cuda/launch/choose_persistent.h); 0: chosen.
struct PersistentWish {
  int blocks = 0;  ///< of a cluster or group; below 0: none are to be such kernels, unless they are asked for
  int slots = 0, threads = 0;  ///< sequences of a cluster or group; of a block
  enum class Exchange : std::uint8_t { Any, Cluster, Group } exchange = Exchange::Any;  ///< how blocks do it
};

struct SolveOptions {
  Strategy solver = Strategy::Auto;
  std::optional<double> tolerance;                      ///< default 1e-6 (f32), 1e-12 (f64), 1e-4 (16 bits)
  double absolute_tolerance = 0;                        ///< of every state, in its own units, besides
  std::map<std::string, double> absolute_tolerances{};  ///< by state, instead of that
  int max_iterations = 50;
  std::optional<int> fixed_iterations;  ///< exactly so many, no repair
  bool repair = true;
  /// On a GPU: scans look at the rows that start from composed maps, and walk where those were rounded by more than the
  /// tolerance, or say so where nothing is to be repaired. docs/notes/device-scan.md has what it costs.
  bool check_scans = true;
  /// On a GPU: the same call gives the same bits again, whatever else runs there. docs/notes/cuda-strategies.md has
  /// how, and what that costs. A CPU's calls do anyway.
  bool repeat_bits = false;
  std::vector<StagePlan> plan;  ///< by stage, where pinned
  Products products = Products::Tf32x3;
  WideProducts wide_products = WideProducts::WherePaid;
  PersistentWish persistent{};
};

/// What is tolerated of a state besides the relative tolerance, in its own units.
double absolute_tolerance(const SolveOptions& options, const std::string& state);
/// The same of an update; of a copy that lags, what its state has.
double absolute_tolerance(const SolveOptions& options, const CellGraph& cell, int update);

/// As users write it: "X", of every state, or "NAME=X". Throws RequestError, which says what is wrong with it.
void take_absolute_tolerance(const std::string& one, const CellGraph& cell, SolveOptions& solve);

/// One iteration of a stage's solver.
struct IterationTrace {
  double change = 0;        ///< largest change of an unknown (a start, or a state), over |s| + its size so far
  std::int64_t active = 0;  ///< lanes that took part
};

struct StageReport {
  StagePlan plan;
  int iterations = 0;         ///< relaxation: of the window that took most
  double max_residual = 0;    ///< final, over |s| + the largest |s| of its lane so far
  double error_estimate = 0;  ///< residuals carried through the Jacobians
  std::int64_t misses = 0;    ///< boundaries beyond the tolerance after the first sweep
  std::int64_t boundaries = 0;
  std::int64_t repaired = 0;  ///< segments of single channels run again
  int repair_rounds = 0;
  std::vector<double> phases_us;            ///< on a GPU: the sweep, then composing and running again, for every round
  std::optional<int> changed_over;          ///< from segmented to shooting, after so many rounds of repair
  std::optional<double> contraction;        ///< factor by which a step shrinks a difference, typical channel;
                                            ///< relaxation: by which an iteration does
  std::optional<double> lyapunov;           ///< largest exponent per step, estimated from the transitions
  std::optional<int> predicted_iterations;  ///< from how the first few went
  std::vector<IterationTrace> trace;
};

struct Unconverged {
  std::int64_t sequence = 0, first_bad_step = 0;
  double residual = 0;
};

struct SolveReport {
  std::vector<StageReport> stages;
  bool converged = true;
  double max_residual = 0, error_estimate = 0;
  std::int64_t repaired = 0;
  std::vector<Unconverged> unconverged;
  double compile_ms = 0;
  CacheState cache = CacheState::Off;  ///< hit where all code was found, miss where any was compiled
};

/// Whether a caller asks for it, of the whole cell or of a stage of a plan.
bool asks_for(const SolveOptions& options, Strategy strategy);

/// Adds kStaysInMemory to the plans of stages one of whose states nobody wants. `in_memory`: whether that update's rows
/// are there; nothing: they are.
void say_what_stays(const CellGraph& cell, const Structure& structure, const Wanted& wanted, SolveReport& report,
                    const std::function<bool(int)>& in_memory = {});

}  // namespace cellc
