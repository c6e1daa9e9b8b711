#pragma once
// Which part of the tests a run makes.
//
// Without CELLC_TEST_SEED: all of them. With it, what is said to come in turns does: consecutive seeds take
// consecutive parts, and after as many seeds as there are parts everything was run. The same seed takes the same part.
//
//   CELLC_ONE_IN(3, "Examples/AotModules");      // of the tests of this suite a run makes every third
//   for (const Dtype dtype : turn.of({F32, F64}))    // a test that makes one of the alternatives
//
// A test's place in its suite is added to the seed, so that neighbours make different alternatives in the same run.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cellc::turns {

/// The seed of this run; none: everything is run. Throws std::invalid_argument where the text is no number.
std::optional<std::uint64_t> seed_from(const char* text);
std::optional<std::uint64_t> seed_of_run();

/// Registers at its construction, before main().
struct OneIn {
  OneIn(std::uint64_t parts, std::string_view suite);
};
#define CELLC_ONE_IN(parts, suite) CELLC_ONE_IN_AT(parts, suite, __LINE__)
#define CELLC_ONE_IN_AT(parts, suite, line) CELLC_ONE_IN_NAMED(parts, suite, line)
#define CELLC_ONE_IN_NAMED(parts, suite, line) const ::cellc::turns::OneIn one_in_of_line_##line(parts, suite)

struct Suite {
  std::string name;
  std::uint64_t parts;
};
const std::vector<Suite>& suites_in_turns();

/// A test at `place` of a suite that has `parts` runs under `seed`.
constexpr bool has_turn(std::uint64_t seed, std::uint64_t place, std::uint64_t parts) {
  return (seed + place) % parts == 0;
}

struct Part {
  std::uint64_t number = 0, of = 1;
};

/// The alternatives that a test makes in this run. Several calls of of() count like the digits of a number: every
/// combination has its turn. So make one Turn a test, and call of() as often in every run, outside of loops.
class Turn {
 public:
  /// Of the test that runs now.
  Turn();
  /// `position` none: every alternative.
  explicit Turn(std::optional<std::uint64_t> position) : position_(position) {}

  template <class T>
  std::vector<T> of(std::vector<T> alternatives) {
    if (!position_ || alternatives.size() < 2) return alternatives;
    const std::uint64_t digit = *position_ % alternatives.size();
    *position_ /= alternatives.size();
    return {std::move(alternatives[digit])};
  }
  /// The same of a list that is cut into equal parts.
  Part part(std::uint64_t of) {
    if (!position_ || of < 2) return {};
    const std::uint64_t number = *position_ % of;
    *position_ /= of;
    return {number, of};
  }

 private:
  std::optional<std::uint64_t> position_;
};

/// Names of the tests of this program that have no turn under `seed`.
std::vector<std::string> tests_without_turn(std::uint64_t seed);

}  // namespace cellc::turns
