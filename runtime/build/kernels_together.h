#pragma once
// Kernels of a plan that step several sequences together, so that a matrix of params is read once a step for all of
// them. Alone, a row of the matrix serves one sequence, and what a step takes is what it takes to bring the matrix from
// the second-level cache or beyond; together it comes near to what a product of matrices takes
// (docs/notes/strategies.md). Every sequence has the bits that it has alone: each sum is added up in the same order.
//
// Cells that have it: whatever multiplies a matrix by its states (LSTM, GRU, Elman, lipschitz). Channel-wise cells lack
// it, and cells whose matrices are made of inputs or states (DeltaNet): each sequence has its own.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "compiler/codegen_llvm/emit_llvm.h"
#include "compiler/graph/axes.h"
#include "runtime/build/compile_orc.h"

namespace cellc {

using KernelFunction = void (*)(const std::uint64_t* slots, std::int64_t steps, std::int64_t lane_begin,
                                std::int64_t lane_end);

/// Functions of emitted kernels, by kernel; null where one does nothing. Throws DeviceError where LLVM lost one.
std::vector<KernelFunction> functions_of(const std::vector<KernelCode>& kernels, const CompiledModule& module);

class KernelsTogether {
 public:
  /// Sequences that a call steps.
  static constexpr int kSequences = 4;

  /// Whether some sum of a step multiplies by a matrix of params.
  static bool serve(const Plan& plan);

  KernelsTogether(Plan plan, const EmitOptions& emit, std::string cpu, std::string cache_directory);

  struct Code {
    std::vector<KernelCode> kernels;        ///< slots: one value a sequence for each
    std::vector<KernelFunction> functions;  ///< by kernel; null where it does nothing
    std::unique_ptr<CompiledModule> module;
  };
  /// Compiled by the first call: runs of few sequences never need it. For any number of threads. Throws DeviceError.
  const Code& code();
  /// Whether any run has asked for it.
  bool is_compiled() const { return code_.module != nullptr; }

  /// Counts the sums over matrices of params of so many steps, and says whether all so far were worth compiling for.
  bool pays_after(const AxisLengths& lengths, std::int64_t steps);
  /// Multiply-adds from which on it is: compiling takes some 50 ms the first time.
  std::int64_t worth = 1 << 28;

 private:
  const Plan plan_;
  EmitOptions emit_;
  const std::string cpu_, cache_directory_;
  std::atomic<std::int64_t> counted_ = 0;
  std::once_flag compiled_;
  Code code_;
};

}  // namespace cellc
