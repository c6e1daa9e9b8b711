#pragma once
// Every cell by every strategy that it admits, in every storage type: what the matrix consists of, and the
// device that it runs on. One list serves the runs and the count of them.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/launch/cuda_solver.h"
#include "tests/emulator/emulator.h"
#include "tests/engines/against_oracle.h"
#include "tests/engines/lowered_cell.h"

namespace cellc {

/// The device under test: the emulator, which runs threads in another order for every seed, or the card where
/// CELLC_TEST_DEVICE=gpu asks for it. CELLC_TEST_CACHE names a directory that keeps what a card's runs
/// compile.
struct Device {
  std::unique_ptr<Gpu> gpu;
  Emulator* emulator = nullptr;
  void reorder(std::uint64_t seed) {
    if (emulator) emulator->set_seed(seed);
  }
  /// Few blocks find room at once, and those that wait for others must see that some have not started.
  void crowd(int blocks) {
    if (emulator) emulator->set_room(blocks);
  }
};
bool on_card();
/// Of the emulator: how many multiprocessors, and how well kernels are compiled. What runs a few steps once
/// is sooner done without.
Device open_device(int multiprocessors = 4, int optimisation = 0);

/// Numbers that are none wherever a run will write states: what an earlier run left there must not pass for its own.
void spoil(Device& device, CudaSolver& solver, const CellGraph& cell, const BoundRun& run, const SolveOptions& options);

/// How long and how many the runs are. CELLC_TEST_SIZE says otherwise: small (under tools that take a hundred
/// times as long), usual (the emulator), long (a card).
enum class Extent { Small, Usual, Long };
Extent extent();

struct RunShape {
  std::vector<std::int64_t> lengths;
  bool packed = false;
};

/// Data that several runs share.
struct Setting {
  Dtype dtype = Dtype::F32;
  std::vector<std::int64_t> axes;  ///< in the order of the header; the first is a channel axis as a rule
  bool reverse = false;
  std::vector<RunShape> shapes;
  std::int64_t longest() const;
  std::string text() const;
};
/// Of f32 and f64 storage, and of 16 bits, for a cell of a file.
std::vector<Setting> wide_settings(Extent extent, const std::string& file);
std::vector<Setting> narrow_settings(Extent extent, const std::string& file);

struct Forced {
  Strategy strategy;
  SolveOptions options;
};
/// Every strategy that a stage admits at these sizes, with what asks for it on those stages and for nothing
/// on the others.
std::vector<Forced> forced(CudaSolver& solver, const LoweredCell& cell, const std::map<AxisId, std::int64_t>& sizes);

/// One cell of the examples, or of those that are awkward on purpose. A file of several says which in the
/// name.
struct MatrixCell {
  const oracle::Example* file;
  const Cell* tree;
  std::string name;
};
const std::vector<MatrixCell>& matrix_cells();

/// Lengths by axis of the cell's header.
std::map<AxisId, std::int64_t> sizes_of(const LoweredCell& cell, const std::vector<std::int64_t>& axes);

/// Runs that the settings make of a cell. In 16 bits a cell that amplifies what rounding leaves makes none.
std::int64_t planned_runs(Gpu& gpu, const MatrixCell& of, const std::vector<Setting>& settings);

/// Makes them: each against the oracle, and what is reported against what was asked. What is wrong with the
/// first that fails, or an empty text; `runs` counts those that were right.
std::string run_matrix(Device& device, const MatrixCell& of, const std::vector<Setting>& settings, std::int64_t& runs);

}  // namespace cellc
