#pragma once
// Reads a cell file from disk.
#include <string>

#include "compiler/syntax/source.h"
#include "runtime/data/errors.h"

namespace cellc {

/// Throws RequestError where the file cannot be read or is larger than a cell file may be.
SourceText read_text(const std::string& path);

}  // namespace cellc
