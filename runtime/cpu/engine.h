#pragma once
// The public entry of the runtime: makes a cell graph a callable that runs whole sequences.
#include <memory>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"
#include "runtime/data/run.h"

namespace cellc {

class Program {
 public:
  /// Emits, compiles and links the sequential CPU kernel. Throws DeviceError.
  static Program compile(const CellGraph& cell, const Structure& structure, const CompileOptions& options);
  ~Program();
  Program(Program&&) noexcept;
  /// Throws RequestError. Arrays of `reuse`, an earlier output, are written again where they have the
  /// right shape and nobody else holds them: a repeated call then touches no fresh memory.
  RunOutput run(const BoundRun& run, RunOutput reuse = {}) const;
  double compile_ms() const;
  CacheState cache() const;            ///< where the machine code came from
  const std::string& llvm_ir() const;  ///< text handed to LLVM
  std::string assembly() const;        ///< of the optimised module

 private:
  struct Impl;
  explicit Program(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The steps of the sequential kernel, each from the row before it as somebody else wrote that: what `converged` is
/// about. The same plan and the same code of a step, so the same bits; but no step waits for another.
class StepsFromRows {
 public:
  /// As Program's; of a type that is computed in.
  static StepsFromRows compile(const CellGraph& cell, const Structure& structure, const CompileOptions& options);
  ~StepsFromRows();
  StepsFromRows(StepsFromRows&&) noexcept;
  /// What the kernel makes of each row of every state, by state. `rows`: the rows of all states.
  std::vector<Array> operator()(const BoundRun& run, const std::vector<Array>& rows) const;
  double compile_ms() const;
  CacheState cache() const;

 private:
  struct Impl;
  explicit StepsFromRows(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cellc
