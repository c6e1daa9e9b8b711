#pragma once
// What a file for GPUs has of a backward call: its tables, its struct of arrays, its functions. print_aot.h prints the
// rest.
#include <string>

#include "compiler/codegen_llvm/print_header.h"
#include "runtime/cuda/ship/aot_backward.h"

namespace cellc {

/// `forward`: the request that the whole cell is shipped by.
CallStructs backward_structs(const AotBackward& backward, const ShipRequest& forward);

/// The adjoint's tables and those of the call, the last of which is NAME_backward_tables; they refer to NAME_cell.
std::string print_backward_tables(const AotBackward& backward, const ShipRequest& forward);

/// Functions of a header that launches a module, whose kernels from `first_kernel` on are the adjoint's; room and words
/// stand before.
std::string module_backward(const AotBackward& backward, const ShipRequest& forward, std::size_t first_kernel,
                            const std::string& about);
/// Those of a file for nvcc.
std::string source_backward(const AotBackward& backward, const ShipRequest& forward, const std::string& about);
/// What the header of such a file, or of a library, declares. `module`: the first argument of a library's functions.
std::string declared_backward(const AotBackward& backward, const ShipRequest& forward, bool module);

}  // namespace cellc
