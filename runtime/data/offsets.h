#pragma once
// Offsets of sequences: files, callers, bindings and shipped code give them, and they are checked and measured by one
// function, which is C (kernels-templates/abi/call_extent.h), in one wording.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cellc {

/// What is wrong with them, in words ("the offsets decrease: from 5 to 3 at entry 2"); nullopt: nothing.
std::optional<std::string> fault_of_offsets(std::span<const std::int64_t> offsets);

struct SequenceExtent {
  std::int64_t sequences = 0, longest = 0, rows = 0;
  bool uniform = true;  ///< all are as long
};
/// Of offsets that are right.
SequenceExtent extent_of(std::span<const std::int64_t> offsets);

}  // namespace cellc
