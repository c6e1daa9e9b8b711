#pragma once
// Prints a shipped cell as files: CUDA C++ with its host functions, or a header that launches a module through
// the driver.
#include <string>

#include "runtime/cuda/ship/aot_backward.h"
#include "runtime/cuda/ship/aot_cell.h"
#include "runtime/data/library_parts.h"

namespace cellc {

/// `origin`: lines for the head of a file, each " * …\n".
struct ShipOrigin {
  std::string about;  ///< one line: what P_about says
  std::string lines;
};

// `backward`: of the same cell and request, or null: there are no gradients in the file.

/// One file that nvcc compiles as it stands, and the header of its functions.
std::string print_cuda_source(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                              const AotBackward* backward = nullptr);
std::string print_source_header(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                                const AotBackward* backward = nullptr);

/// The kernels alone, for NVRTC; and the header by which a module of them is launched.
std::string print_module_source(const AotCell& cell, const ShipOrigin& origin, const AotBackward* backward = nullptr);
std::string print_module_header(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                                const std::string& file, const AotBackward* backward = nullptr);

/// The same with the kernels in one library: its header, and what runtime/build compiles to it, but for the image.
std::string print_library_header(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                                 const std::string& file, const AotBackward* backward = nullptr);
LibraryParts library_parts(const AotCell& cell, const ShipRequest& request, const ShipOrigin& origin,
                           const AotBackward* backward = nullptr);

}  // namespace cellc
