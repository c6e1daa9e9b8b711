#pragma once
// The cells of dsl-examples/ and tests/cells/ with what their heads say of them, and data to run them on.
//
//   # expect: cell=NAME class=… block=… linear=… stages={a},{b*} lanes=d,n mask=[dd;0d] rank=… …
//   # data: NAME in (low, high)       values for which the cell makes sense
//   # amplifies: CELL                 errors grow along a run: compare it one step at a time
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler/syntax/source.h"
#include "compiler/syntax/tree.h"
#include "tests/oracle/oracle.h"
#include "tests/oracle/random.h"

namespace cellc::oracle {

using Ranges = std::map<std::string, Range>;

struct Example {
  std::string name;  ///< of the file, without folder and ".cell"
  SourceText source;
  File tree;
  std::vector<std::map<std::string, std::string>> expectations;  ///< key -> value, one map a cell
  Ranges ranges;
  std::set<std::string> amplifies;
};

/// The examples of this source tree, by name. Throws if one does not parse.
const std::vector<Example>& dsl_examples();

/// The same, and after them those of tests/cells, whose cells are awkward on purpose.
const std::vector<Example>& all_cells();

/// One of all; throws if there is none.
const Example& example_named(const std::string& name);

std::vector<std::string> names_of(const std::vector<Example>& examples);

/// Parses text that must be right; throws OracleError with the diagnostics otherwise.
File parse_or_throw(const SourceText& source);

/// Inputs in [-2, 2], params in [-1, 1]/sqrt(columns), or in the range that `ranges` or the cell
/// states; params with a default keep it. With `random_starts`, states start in [-1, 1] or in
/// their range, otherwise as declared.
Data draw_data(const Cell& cell, const std::map<std::string, std::int64_t>& sizes, std::int64_t steps,
               const Ranges& ranges, Random& random, bool random_starts);

/// `count` values for a declaration, as draw_data draws them.
std::vector<double> draw_values(const Declaration& declaration, std::int64_t count, std::int64_t columns,
                                const Ranges& ranges, Random& random);

/// Lengths for the cell's free axes, taken from `lengths` in turn.
std::map<std::string, std::int64_t> axis_lengths(const Cell& cell, const std::vector<std::int64_t>& lengths);

}  // namespace cellc::oracle
