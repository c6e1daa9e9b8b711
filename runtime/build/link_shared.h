#pragma once
// Links an object file to a shared library with the linker of this machine: LLVM has none.
#include <string>

namespace cellc {

/// The library's bytes; `name` is what programs that are linked with it will look for. Throws DeviceError,
/// also where there is no linker.
std::string link_shared(const std::string& object, const std::string& name);

}  // namespace cellc
