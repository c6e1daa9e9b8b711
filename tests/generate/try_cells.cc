#include "tests/generate/try_cells.h"

#include <cstdlib>

#include "tests/generate/shrink.h"

namespace cellc::generate {

namespace {

std::uint64_t number_from(const char* text, std::uint64_t otherwise) {
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

Seeds::Seeds(std::uint64_t otherwise, turns::Part part) {
  const char *seed = std::getenv("CELLC_SEED"), *cells = std::getenv("CELLC_CELLS");
  first_given = seed != nullptr;
  count_given = cells != nullptr;
  whole = !first_given && !count_given && part.of == 1;
  if (first_given || count_given) part = {};
  const std::uint64_t begin = otherwise * part.number / part.of, end = otherwise * (part.number + 1) / part.of;
  first = number_from(seed, 1 + begin);
  count = number_from(cells, end - begin);
}

std::string describe_failure(std::uint64_t seed, const std::string& text, const std::string& why,
                             const std::function<std::string(const std::string&)>& failure, const std::string& tests) {
  const std::string small = shrink(text, [&](const std::string& t) {
    const std::string reason = failure(t);
    return reason.starts_with("invalid") && !why.starts_with("invalid") ? std::string() : reason;
  });
  const std::string number = std::to_string(seed);
  return "seed " + number + ": " + why + "\nsmallest cell, " + failure(small) + "\n" + small +
         "again: CELLC_SEED=" + number + " CELLC_CELLS=1 " + tests;
}

void try_seeds(const Seeds& seeds, const std::function<std::string(std::uint64_t seed)>& text_of,
               const std::function<std::string(const std::string& text, std::uint64_t seed, bool again)>& failure,
               const std::string& tests, const std::function<void(const std::string&)>& tell) {
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const std::string text = text_of(seed), why = failure(text, seed, false);
    if (why.empty()) continue;
    tell(describe_failure(
        seed, text, why, [&](const std::string& t) { return failure(t, seed, true); }, tests));
  }
}

}  // namespace cellc::generate
