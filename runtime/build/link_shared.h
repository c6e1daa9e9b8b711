#pragma once
// An object file becomes a shared library, by the linker of this machine: LLVM brings none.
#include <string>

namespace cellc {

/// The library's bytes; `name` is what programs that are linked with it will look for. Throws DeviceError,
/// also where there is no linker.
std::string link_shared(const std::string& object, const std::string& name);

}  // namespace cellc
