#pragma once
// What the options of a command say about arrays, sizes and devices.
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "compiler/graph/graph.h"
#include "runtime/cuda/device/gpu.h"
#include "runtime/data/bind.h"
#include "runtime/strategy/solve_options.h"
#include "runtime/strategy/strategy.h"

namespace cellc {

/// Reads the arrays. Throws RequestError, UsageError.
BindRequest read_request(const DataOptions& options);

/// --cotangent NAME=FILE. Throws RequestError, UsageError.
std::map<std::string, GivenArray> read_cotangents(const RunOptions& options);

/// --tangent NAME=FILE. Throws RequestError, UsageError.
std::map<std::string, GivenArray> read_tangents(const RunOptions& options);

/// The same for commands that measure: random data where none are given, and sizes where nothing says them
/// (one sequence, 4096 steps, axes of 256 or less where arrays would grow too large).
BindRequest measured_request(const CellGraph& cell, const DataOptions& options);

/// Throws UsageError unless it is auto, cpu or cuda.
void check_device(const std::string& device);

/// What --solver names. Throws UsageError for what there is not, or not yet; `before`: what the option may be besides
/// a strategy ("all", "auto"); `option`: its name.
Strategy strategy_asked(const std::string& solver, std::vector<std::string> before = {"auto"},
                        const char* option = "--solver");

/// The results that --write names; all of them without names or by "all". Throws UsageError.
Wanted wanted_asked(const std::vector<std::string>& names, const CellGraph& cell);

/// The GPU that --device asks for, or none and the reason in one line; throws DeviceError where cuda is asked for
/// and there is none.
struct FoundGpu {
  std::unique_ptr<Gpu> gpu;
  std::string reason;
};
FoundGpu gpu_for(const std::string& device, const std::string& cache_directory);

/// Throws UsageError.
Products products_asked(const std::string& name);
/// What a run multiplies in: CPUs and f64 have one arithmetic.
std::string products_of(Products asked, Dtype dtype, bool on_gpu);

/// `given`: "X", of every state, or "NAME=X". Throws UsageError.
void take_absolute_tolerances(const std::vector<std::string>& given, const CellGraph& cell, SolveOptions& solve);

}  // namespace cellc
