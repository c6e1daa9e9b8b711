#pragma once
// Kernels edited by hand in the place of generated ones: what `run --kernel` needs.
//
// The file is what `inspect --stage cuda --whole` and `run --write-kernels` print: translation units one
// after another, each under a line `// NAME.cu: …`. A unit replaces the generated one of its name, the
// second of a name the second. The file does not say how a kernel is launched. So the parts on which the launch
// depends must stay as they were generated: the definitions at the head of a unit, and the declarations of
// its kernels. Everything else may be changed.
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/syntax/source.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"
#include "runtime/data/run.h"
#include "runtime/evaluate/reference.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {

class EditedKernels {
 public:
  /// Throws RequestError where the text holds no unit. Messages of the compiler will speak of `path` and its
  /// lines.
  EditedKernels(const std::string& path, const std::string& text);

  /// What stands for the `number`th generated source of a name; nullopt: nothing. Throws UsageError where it
  /// cannot be launched as the generated one.
  std::optional<GpuSource> instead_of(const GpuSource& generated, int number) const;
  const std::vector<GpuSource>& units() const { return units_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::vector<GpuSource> units_;
};

/// The text of such a file.
std::string kernels_text(const std::vector<GpuSource>& sources);

struct EditedRun {
  RunOutput output;
  SolveReport report;
  double ms = 0, generated_ms = 0;  ///< of the device's part of a call, by the first call's plan
  /// Against the sequential f64 reference, where that was asked for: what was written, and how far each step
  /// is from the reference's step from the row before it.
  std::optional<Deviation> verified, generated_verified;
  double step_error = 0, generated_step_error = 0;
  /// Further off than the tolerance and what the generated kernels' own rounding explains.
  bool wrong = false;
};

/// Throws UsageError where a unit of the file stands for nothing that the run launches.
EditedRun run_edited(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype, const SourceText* source,
                     const BoundRun& run, const SolveOptions& solve, const EditedKernels& edited, bool verify);

/// Runs once, and gives the sources of all that was launched.
std::vector<GpuSource> launched_sources(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                                        const SourceText* source, const BoundRun& run, const SolveOptions& solve);

}  // namespace cellc
