#pragma once
// Example cells and the device that they are tested on: the emulator or, where CELLC_TEST_DEVICE=gpu asks for
// it, a card.
#include <memory>
#include <string>
#include <vector>

#include "compiler/graph.h"
#include "compiler/structure.h"
#include "tests/emulator/emulator.h"
#include "tests/oracle/examples.h"

namespace cellc {

/// All cells of the tree, by file.
const std::vector<oracle::Example>& all_examples();
const oracle::Example& example_named(const std::string& name);
std::vector<std::string> example_names();

/// The device under test; the emulator runs threads in another order for every seed.
struct TestDevice {
  std::unique_ptr<Gpu> gpu;
  Emulator* emulator = nullptr;
  void reorder(std::uint64_t seed) {
    if (emulator) emulator->set_seed(seed);
  }
};
TestDevice open_test_device();

struct LoweredCell {
  LoweredCell(const oracle::Example& file, const Cell& tree);
  CellGraph graph;
  Structure structure;
  oracle::Cell oracle;
};

/// A comparison looks at a state.
bool has_jumps(const CellGraph& cell);

}  // namespace cellc
