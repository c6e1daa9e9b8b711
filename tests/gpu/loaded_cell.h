#pragma once
// Examples by name, lowered and analysed; and the lengths that a build of theirs asks for.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compiler/structure.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/oracle.h"

namespace cellc {

const std::vector<oracle::Example>& all_examples();
const oracle::Example& example_named(const std::string& name);
std::vector<std::string> example_names();

struct LoadedExample {
  LoadedExample(const oracle::Example& file, const Cell& tree);
  CellGraph graph;
  Structure structure;
  oracle::Cell oracle;
};

/// Those that decide on a lane's code, or all: axes of channels stay open where they may.
std::map<AxisId, std::int64_t> needed_lengths(const LoadedExample& cell,
                                              const std::map<std::string, std::int64_t>& sizes, bool all);

}  // namespace cellc
