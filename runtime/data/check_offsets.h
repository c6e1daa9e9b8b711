#pragma once
// Offsets of packed sequences, as files, callers and bindings give them, are checked here in one wording.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cellc {

/// What is wrong with them, to stand behind a name of theirs ("offsets decrease from 5 to 3 at entry 2"); nullopt:
/// nothing.
std::optional<std::string> fault_of_offsets(std::span<const std::int64_t> offsets);

}  // namespace cellc
