#pragma once
// A cell -> a module of LLVM IR that runs whole sequences by itself: the driver. It holds the sequential kernels,
// and tables by which kernels-templates/cpu/cpu_call.c checks its arguments, fills in defaults, runs sequences in
// blocks of steps and writes finals; runtime/build/link_call.h brings that code in. It calls memcpy, memmove and
// memset, nothing else. Its plan keeps products in the step, so it needs no BLAS. Emits text only: this file links no
// LLVM.
//
//   int    P_workspace(const P_lengths*, int64_t* bytes)
//   int    P_forward(const P_lengths*, const P_arrays*, void* workspace, int64_t bytes, int32_t* status)
//   const char* P_message(int)     what a result other than 0 means
//   const char* P_about(void)
//
// and, for headers, P_workspace_as and P_forward_as, whose first argument is layout_number of the structs
// (print_header.h).
//
// P is DriverOptions::prefix; the structs are those of CallLayout. Nothing is written unless the result is 0.
// A function keeps nothing between calls and may run on many threads, each with a workspace of its own.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/codegen_llvm/backward_layout.h"
#include "compiler/codegen_llvm/emit_llvm.h"
#include "compiler/plan/call_layout.h"

namespace cellc {

struct DriverOptions {
  Storage storage = Storage::F32;
  int vector_bits = 256;
  std::string prefix = "cell";
  std::map<AxisId, std::int64_t> lengths{};  ///< of header axes that are the same in every call
  std::optional<std::int64_t> steps{};       ///< of every sequence of every call
  std::string about{};                       ///< what P_about says
  /// By which the header names them, and of several P_message knows CELLC_NO_PROCESSOR.
  std::vector<std::string> processors{};
  /// Of a narrow cell, code that walks the sequences of a batch side by side in vectors, too: with the same bits, but
  /// for gradients of params, which are added up by lane.
  bool side_by_side = false;
  /// The cell is an adjoint, and P_forward and P_workspace are P_backward and P_backward_workspace, of these arrays.
  /// `storage` is then what the adjoint runs in, f32 where rows of the call have 16 bits: `rows`.
  const CellGraph* whole = nullptr;
  const AdjointCell* adjoint = nullptr;
  const BackwardLayout* backward = nullptr;
  std::optional<Storage> rows{};
};

struct DriverModule {
  std::string ir;
  CellGraph cell;  ///< with the lengths that are fixed
  CallLayout layout;
  std::vector<std::string> functions;  ///< those that may be called from outside: workspace, the call, message, about
};

/// Throws std::invalid_argument where a fixed length is too small for the cell.
DriverModule emit_driver(const CellGraph& cell, const Structure& structure, const DriverOptions& options);

/// Whether such code has a place for these sequences: the rule that calls go by, as far as lengths decide.
bool may_lie_side_by_side(const CellGraph& cell, const std::vector<std::int64_t>& lengths, std::int64_t sequences,
                          std::int64_t rows);
/// Whether there is such code of a cell, or of its adjoint.
bool has_side_by_side(const CellGraph& cell, bool backward);

/// The gradients of `whole`, step by step, for cotangents of any of its results: P_backward. Throws
/// std::invalid_argument likewise.
DriverModule emit_backward_driver(const CellGraph& whole, const DriverOptions& options);

}  // namespace cellc
