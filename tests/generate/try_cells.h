#pragma once
// Random cells as tests try them: which seeds, and what is said of one that fails.
#include <cstdint>
#include <functional>
#include <string>

#include "tests/main/turns.h"

namespace cellc::generate {

/// The environment's CELLC_CELLS seeds from CELLC_SEED on; without it `count` from 1 on, of which a run in turns makes
/// a part.
struct Seeds {
  explicit Seeds(std::uint64_t count, turns::Part part = {});
  std::uint64_t first, count;
  bool first_given, count_given;
  bool whole;  ///< all that are usual, and no others
};

/// For a cell that fails because of `why`: the smallest that still fails, and how to run it again. `failure`
/// says why a text fails, "invalid: …" of one that is no valid cell; `tests`: "test_engines
/// --gtest_filter='RandomCells.*'".
std::string describe_failure(std::uint64_t seed, const std::string& text, const std::string& why,
                             const std::function<std::string(const std::string&)>& failure, const std::string& tests);

/// Tries a cell of each seed and tells what is to be said of each that fails. `failure` says why the text of a seed
/// does; `again`: it has been tried before.
void try_seeds(const Seeds& seeds, const std::function<std::string(std::uint64_t seed)>& text_of,
               const std::function<std::string(const std::string& text, std::uint64_t seed, bool again)>& failure,
               const std::string& tests, const std::function<void(const std::string&)>& tell);

}  // namespace cellc::generate
