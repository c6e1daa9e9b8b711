#pragma once
// A cell with data, on arrays of a caller, and the calls that run it.
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/call/device_call.h"
#include "tests/engines/against_oracle.h"
#include "tests/gpu/call_on_arrays.h"
#include "tests/gpu/strategy_matrix.h"

namespace cellc {

/// A pool for the shape of a call, and what it needs.
struct Calls {
  Calls(Gpu& gpu, const LoweredCell& cell, const SourceText* source, Dtype dtype, const CallShape& shape,
        const SolveOptions& solve)
      : pool(gpu, [=, &gpu, &cell, modules = std::make_shared<LoadedModules>()] {
          return std::make_unique<DeviceCall>(gpu, modules, cell.graph, cell.structure, dtype, source, shape, solve);
        }) {}
  CallPool pool;
};

/// One cell with data, on arrays of a caller.
struct CallSetting {
  CallSetting(Gpu& gpu, const std::string& file_name, Dtype dtype, const std::vector<std::int64_t>& lengths,
              std::uint64_t seed, const CallLook& look, const SolveOptions& solve = {})
      : file(oracle::example_named(file_name)),
        cell(file.source, file.tree, file.tree.cells.at(0)),
        random(seed),
        lengths(lengths),
        dtype(dtype) {
    with = {.dtype = dtype,
            .sizes = oracle::axis_lengths(cell.oracle, {32, 2, 2, 2}),
            .steps = 67,
            .sequences = static_cast<int>(lengths.size())};
    with.starts_given = true;
    draw();
    arrays = std::make_unique<CallArrays>(gpu, cell.graph, binding, dtype, look);
    calls = std::make_unique<Calls>(gpu, cell, &file.source, dtype, arrays->shape(), solve);
  }
  /// Other numbers, of the same shape.
  void draw() {
    trial = std::make_unique<Trial>(cell.graph, cell.oracle, file.ranges, random, with);
    binding = trial->bound(lengths, false, 1);
  }
  std::string wrong() { return trial->verify(binding.run, arrays->read(binding), lengths); }

  const oracle::Example& file;
  LoweredCell cell;
  oracle::Random random;
  std::vector<std::int64_t> lengths;
  Dtype dtype;
  Trial::Options with;
  std::unique_ptr<Trial> trial;
  Binding binding;
  std::unique_ptr<CallArrays> arrays;
  std::unique_ptr<Calls> calls;
};

}  // namespace cellc
