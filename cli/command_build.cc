#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "cli/names.h"
#include "runtime/bind.h"
#include "runtime/build_object.h"
#include "runtime/solve_options.h"
#include "runtime/write_files.h"

namespace cellc {
namespace {

void check_request(const BuildOptions& options) {
  if (options.target == "cuda-source" || options.target == "ptx" || options.target == "cubin")
    throw UsageError(fmt::format("--target {}: not available in this version", options.target));
  if (options.target != "cpu-object" && options.target != "cpu-shared")
    throw UsageError(fmt::format("--target {}: expected cuda-source, ptx, cubin, cpu-object or cpu-shared",
                                 options.target));
  if (options.solver != "auto" && options.solver != "sequential") {
    if (!strategy_named(options.solver))
      throw UsageError(fmt::format("--solver {}: there is none of that name", options.solver));
    throw UsageError(
        fmt::format("--solver {}: code for CPUs is built to run step by step (sequential)", options.solver));
  }
  if (options.length && *options.length < 0) throw UsageError("--length: expected 0 or more");
}

}  // namespace

int command_build(const BuildOptions& options) {
  check_request(options);
  BuildRequest request;
  request.shared = options.target == "cpu-shared";
  request.cpu = options.cpu;
  request.dtype = dtype_named(options.dtype);
  request.dims = dims_named(options.dims);
  request.length = options.length;
  const std::filesystem::path out(options.out);
  if (out.filename().empty())
    throw UsageError(fmt::format("--out {}: expected the name of a file", options.out));
  if (out.extension() == ".h")
    throw UsageError(fmt::format("--out {}: the header is written beside it, as *.h", options.out));
  request.name = out.filename().string();
  const std::filesystem::path header = std::filesystem::path(out).replace_extension(".h");

  const LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("compile");
  const BuiltObject built = build_object(loaded.cell, loaded.structure, request);
  enter_stage("write");
  const std::string directory = out.has_parent_path() ? out.parent_path().string() : ".";
  write_files(directory,
              {{out.filename().string(), built.bytes}, {header.filename().string(), built.header}});

  if (options.json) {
    nlohmann::json object = {
        {"cell", loaded.cell.name},    {"target", options.target},     {"out", out.string()},
        {"header", header.string()},   {"cpu", options.cpu},           {"dtype", options.dtype},
        {"bytes", built.bytes.size()}, {"functions", built.functions}, {"about", built.about}};
    nlohmann::json stages = nlohmann::json::array();
    for (std::size_t k = 0; k < loaded.structure.stages.size(); ++k)
      stages.push_back({{"solver", "sequential"}});
    object["plan"] = {{"stages", stages}, {"reason", "code for CPUs is built to run step by step"}};
    std::fputs((object.dump(2) + "\n").c_str(), stdout);
  } else {
    std::fputs(fmt::format("{}\nwrote {} ({} bytes) and {}\n", built.about, out.string(), built.bytes.size(),
                           header.string())
                   .c_str(),
               stdout);
  }
  return kDone;
}

}  // namespace cellc
