#pragma once
// A cell's code for GPUs with what launches it, as one object: C functions that find the driver when they are called.
#include <string>

#include "runtime/data/library_parts.h"

namespace cellc {

/// Object code for this machine's kind of processor, for link_shared. Calls memcpy, memset, dlopen and dlsym. Throws
/// DeviceError.
std::string compile_library(const LibraryParts& parts);

}  // namespace cellc
