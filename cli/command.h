#pragma once
// The commands of cellc: what each is asked, and what the process then says and returns.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cellc {

/// Exit statuses, as scripts rely on them.
enum ExitStatus {
  kDone = 0,
  kWrongInput = 1,  ///< the cell file, an array or a check is wrong; an input is missing
  kWrongUsage = 2,
  kNotConverged = 3,  ///< and repair was switched off
  kDeviceFailed = 4,  ///< device, code generator or writing
  kInternalFault = 5,
};

struct CellOptions {
  std::string file;
  std::string cell;  ///< --cell, or empty
  bool json = false;
  std::optional<std::string> cache_dir;  ///< --cache-dir; empty: no cache
};

struct InspectOptions : CellOptions {
  bool latex = false;
  std::string stage;
  std::string dtype = "f32", arch = "sm_90";
  std::vector<std::string> dims;       ///< for the stages ptx and, with `whole`, cuda
  std::optional<std::int64_t> length;  ///< the same; 4096 steps by default
  bool whole = false;                  ///< --stage cuda: all that is compiled
};

/// Arrays and sizes of a run.
struct DataOptions : CellOptions {
  std::vector<std::string> inputs, params, states, dims;  ///< NAME=VALUE
  std::string offsets, dtype, device = "auto";
  std::optional<std::uint64_t> random;
  std::optional<std::int64_t> batch, length;
  std::optional<double> tolerance;
  std::vector<std::string> absolute_tolerances;  ///< "X", or "NAME=X"
  std::string products = "3xtf32";               ///< on a GPU
  bool reverse = false, deterministic = false;
  int threads = 0;
};

struct RunOptions : DataOptions {
  std::string solver = "auto", out, plan;
  std::vector<std::string> wanted;    ///< --write: names of results; empty: all
  std::string kernel, write_kernels;  ///< CUDA source to run in the place of what is generated; where to write that
  std::vector<std::string> cotangents, tangents;
  std::string backward_solver = "auto", tangent_solver = "auto";
  bool recompute = false;
  std::optional<int> max_iterations, fixed_iterations;
  bool no_repair = false, verify = false, trace = false;
  std::string cpu = "native";
};

struct BenchOptions : DataOptions {
  std::string solver = "all";
  std::vector<std::string>
      wanted;       ///< --write: names of results, "all" for all; empty: outs, where there are, and finals
  int repeats = 0;  ///< calls in a row that are timed; 0: as many as half a second allows
};

struct BuildOptions : CellOptions {
  std::string target, out, arch, cpu, name, dtype = "f32", solver = "auto";
  std::vector<std::string> dims;
  std::optional<std::int64_t> length;
  std::string products;  ///< empty: 3xtf32 on a GPU
  bool backward = false, deterministic = false;
};

struct CheckOptions : CellOptions {
  std::uint64_t seed = 1;
};

struct TuneOptions : DataOptions {
  int repeats = 0;
};

/// What --stage of `inspect` takes, in the order of the pipeline.
const std::vector<std::string>& inspect_stages();

// Each returns an exit status, or throws RequestError (1), UsageError (2) or DeviceError (4).
int command_inspect(const InspectOptions& options);
int command_run(const RunOptions& options);
int command_build(const BuildOptions& options);
int command_check(const CheckOptions& options);
int command_bench(const BenchOptions& options);
int command_tune(const TuneOptions& options);

}  // namespace cellc
