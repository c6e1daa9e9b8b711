#pragma once
// Random cells as tests try them: which seeds, and what is said of one that fails.
#include <cstdint>
#include <functional>
#include <string>

namespace cellc::generate {

/// The environment's CELLC_CELLS seeds from CELLC_SEED on; without it `count` from 1 on.
struct Seeds {
  explicit Seeds(std::uint64_t count);
  std::uint64_t first, count;
  bool first_given, count_given;
};

/// For a cell that fails because of `why`: the smallest that still fails, and how to run it again. `failure`
/// says why a text fails, "invalid: …" of one that is no valid cell; `tests`: "test_engines
/// --gtest_filter='RandomCells.*'".
std::string describe_failure(std::uint64_t seed, const std::string& text, const std::string& why,
                             const std::function<std::string(const std::string&)>& failure,
                             const std::string& tests);

}  // namespace cellc::generate
