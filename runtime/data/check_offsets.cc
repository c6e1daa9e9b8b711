#include "runtime/data/check_offsets.h"

#include <fmt/format.h>

namespace cellc {

std::optional<std::string> fault_of_offsets(std::span<const std::int64_t> offsets) {
  if (offsets[0] != 0) return fmt::format("begin with {}; the first must be 0", offsets[0]);
  for (std::size_t i = 1; i < offsets.size(); ++i)
    if (offsets[i] < offsets[i - 1])
      return fmt::format("decrease from {} to {} at entry {}", offsets[i - 1], offsets[i], i);
  return std::nullopt;
}

}  // namespace cellc
