#pragma once
// Compiles a cell with its driver (compiler/codegen_llvm/emit_llvm_driver.h) to machine code: of this process, or as
// an object file for others.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/codegen_llvm/emit_llvm_driver.h"
#include "runtime/build/compile_orc.h"
#include "runtime/data/errors.h"
#include "runtime/data/run.h"

namespace cellc {

/// The driver as code of this process.
struct CompiledDriver {
  DriverModule module;
  std::shared_ptr<CompiledModule> code;  ///< owns the functions
  int (*workspace)(const std::uint64_t* lengths, std::int64_t* bytes) = nullptr;
  int (*forward)(const std::uint64_t* lengths, const std::uint64_t* arrays, void* workspace,
                 std::int64_t workspace_bytes, std::int32_t* status) = nullptr;
  const char* (*message)(int result) = nullptr;
};

/// `side_by_side`: as in DriverOptions. Throws DeviceError or RequestError.
CompiledDriver compile_driver(const CellGraph& cell, const Structure& structure, const CompileOptions& options,
                              bool side_by_side = false);

/// `whole`'s gradients: `forward` runs a backward call. Its fields are those of directed_call, in that order. Throws
/// the same, and std::invalid_argument where a length that the cell fixes is too small for it.
CompiledDriver compile_backward_driver(const CellGraph& whole, const CompileOptions& options,
                                       bool side_by_side = false);

}  // namespace cellc
