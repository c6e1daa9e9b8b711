#include "runtime/data/offsets.h"

#include <fmt/format.h>

#include "kernels-templates/abi/call_extent.h"

namespace cellc {
namespace {

int read_offsets(std::span<const std::int64_t> offsets, cellc_extent& extent, std::int64_t& wrong) {
  extent.sequences = static_cast<std::int64_t>(offsets.size()) - 1;
  extent.offsets = offsets.data();
  return cellc_read_offsets(&extent, &wrong);
}

}  // namespace

std::optional<std::string> fault_of_offsets(std::span<const std::int64_t> offsets) {
  cellc_extent extent{};
  std::int64_t wrong = 0;
  const int result = read_offsets(offsets, extent, wrong);
  if (result == CELLC_DONE) return std::nullopt;
  const auto at = static_cast<std::size_t>(wrong);
  return at == 0
             ? fmt::format("{}: it is {}", cellc_message(result), offsets[0])
             : fmt::format("{}: from {} to {} at entry {}", cellc_message(result), offsets[at - 1], offsets[at], at);
}

SequenceExtent extent_of(std::span<const std::int64_t> offsets) {
  cellc_extent extent{};
  std::int64_t wrong = 0;
  read_offsets(offsets, extent, wrong);
  return {extent.sequences, extent.steps, extent.rows, extent.even != 0};
}

}  // namespace cellc
