#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "cli/names.h"
#include "cli/output.h"
#include "cli/request.h"
#include "compiler/plan/call_layout.h"
#include "runtime/build/build_library.h"
#include "runtime/build/build_object.h"
#include "runtime/build/link_shared.h"
#include "runtime/cuda/ship/build_cuda.h"
#include "runtime/data/bind.h"
#include "runtime/data/write_files.h"
#include "runtime/strategy/solve_options.h"

namespace cellc {
namespace {

std::optional<CudaTarget> cuda_target(const std::string& target) {
  if (target == "cuda-source") return CudaTarget::Source;
  if (target == "ptx") return CudaTarget::Ptx;
  if (target == "cubin") return CudaTarget::Cubin;
  if (target == "gpu-shared") return CudaTarget::Library;
  return std::nullopt;
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> names;
  for (std::size_t from = 0; from <= list.size() && !list.empty();) {
    const std::size_t end = std::min(list.find(',', from), list.size());
    names.push_back(list.substr(from, end - from));
    from = end + 1;
  }
  return names;
}

/// Of strategies that do not ship.
const char* why_not_shipped(Strategy solver) {
  switch (solver) {
    case Strategy::Persistent:
      return "such kernels are made for the lengths and sequences of a run, and are not built ahead of time";
    case Strategy::Relaxation:
      return "the host looks at every iteration, and calls of what is built wait for nothing";
    case Strategy::Stepped:
      return "the kernels of a step are queued and captured by cellc as it runs, and are not built ahead of time";
    default:
      return "it runs on CPUs only, and is not built ahead of time";
  }
}

void check_request(const BuildOptions& options) {
  const bool cuda = cuda_target(options.target).has_value();
  if (!cuda && options.target != "cpu-object" && options.target != "cpu-shared")
    throw UsageError(fmt::format("--target {}: expected cuda-source, ptx, cubin, gpu-shared, cpu-object or cpu-shared",
                                 options.target));
  const Strategy solver = strategy_asked(options.solver);
  if (!cuda && solver != Strategy::Auto && solver != Strategy::Sequential)
    throw UsageError(
        fmt::format("--solver {}: code for CPUs is built to run step by step (sequential)", options.solver));
  if (cuda && solver != Strategy::Auto && !facts_of(solver).ships)
    throw UsageError(fmt::format("--solver {}: {}; leave the choice to auto, or run the cell by cellc", options.solver,
                                 why_not_shipped(solver)));
  if (cuda && !options.cpu.empty())
    throw UsageError(
        fmt::format("--cpu {}: --target {} is for GPUs; name those with --arch", options.cpu, options.target));
  if (!cuda && !options.arch.empty())
    throw UsageError(
        fmt::format("--arch {}: --target {} is for CPUs; name one with --cpu", options.arch, options.target));
  if (!cuda && !options.products.empty())
    throw UsageError(fmt::format("--products {}: --target {} is for CPUs, which keep their arithmetic",
                                 options.products, options.target));
  if (!options.products.empty()) products_asked(options.products);
  if (!cuda)
    for (const std::string& cpu : names_in(options.cpu)) check_processor(cpu);
}

void check_name(const std::string& name) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  if (!std::all_of(name.begin(), name.end(), fits) || std::isdigit(static_cast<unsigned char>(name[0])) != 0)
    throw UsageError(fmt::format("--name {}: expected a name in C: letters, digits and underscores", name));
  if (c_prefix(name) != name)
    throw UsageError(fmt::format("--name {}: that name has a meaning of its own in C, or is one of cellc's", name));
}

/// Who runs what a header was built with, in whose text that is said.
enum class HeaderKind { None, Cpu, CudaSource, Module, GpuLibrary };
HeaderKind kind_of(const std::string& header) {
  if (header.find("Generated: change the cell") == std::string::npos) return HeaderKind::None;
  if (header.find("#include <cuda.h>") != std::string::npos) return HeaderKind::Module;
  if (header.find("_module_bytes(void)") != std::string::npos) return HeaderKind::GpuLibrary;
  return header.find("cudaStream_t") != std::string::npos ? HeaderKind::CudaSource : HeaderKind::Cpu;
}

/// Throws UsageError where a header would take the place of one that another file beside it was built with: code for
/// CPUs and for GPUs, say, of one name.
void spare_other_header(const std::filesystem::path& header, const std::filesystem::path& out,
                        const std::string& text) {
  namespace fs = std::filesystem;
  const auto begin_of = [](const fs::path& path, std::size_t most) {
    std::ifstream file(path, std::ios::binary);
    std::string begin(most, '\0');
    file.read(begin.data(), static_cast<std::streamsize>(most));
    begin.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    return begin;
  };
  std::error_code error;
  if (!fs::is_regular_file(header, error)) return;
  const std::string before = begin_of(header, std::size_t{1} << 24);
  const HeaderKind kind = kind_of(before);
  if (kind == HeaderKind::None || kind == kind_of(text)) return;
  const fs::path directory = header.has_parent_path() ? header.parent_path() : fs::path(".");
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const fs::path name = it->path().filename();
    if (name == out.filename() || name == header.filename() || !it->is_regular_file(error)) continue;
    const std::string begin = begin_of(it->path(), 8);
    const bool its = kind == HeaderKind::Module ? before.find("kernels are in " + name.string() + ".") < before.size()
                     : kind == HeaderKind::CudaSource ? name.extension() == ".cu" && begin == "/* cell "
                                                      : begin.starts_with(
                                                            "\x7f"
                                                            "ELF");
    if (its && (kind == HeaderKind::Module || name.stem() == header.stem()))
      throw UsageError(fmt::format("--out {}: {} is the header of {}; give this one another name with --name or --out",
                                   out.string(), header.string(), name.string()));
  }
}

/// What a build wrote, and what is said of it.
struct Built {
  std::string bytes, header, about;
  nlohmann::json facts;
};

/// What a caller gives and gets, by call.
nlohmann::json arrays_of(const std::vector<ArrayFacts>& forward, const std::vector<ArrayFacts>& backward) {
  const auto list = [](const std::vector<ArrayFacts>& arrays) {
    nlohmann::json all = nlohmann::json::array();
    for (const ArrayFacts& a : arrays)
      all.push_back({{"name", a.name},
                     {"type", a.type},
                     {"shape", a.shape},
                     {"strides", a.rows},
                     {"written", a.written},
                     {"required", a.required}});
    return all;
  };
  nlohmann::json calls = {{"forward", list(forward)}};
  if (!backward.empty()) calls["backward"] = list(backward);
  return calls;
}

nlohmann::json results() {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, number] : result_numbers()) all[name] = number;
  return all;
}

Built build_for_cpu(const BuildOptions& options, const LoadedCell& loaded, const std::string& name) {
  BuildRequest request;
  request.shared = options.target == "cpu-shared";
  if (!options.cpu.empty()) request.cpus = names_in(options.cpu);
  request.dtype = dtype_named(options.dtype);
  request.dims = dims_named(options.dims);
  request.length = options.length;
  request.file = name;
  request.name = options.name;
  request.backward = options.backward;
  const BuiltObject built = build_object(loaded.cell, loaded.structure, request);
  nlohmann::json facts = {{"cpu", fmt::format("{}", fmt::join(request.cpus, ","))},
                          {"functions", built.functions},
                          {"arrays", arrays_of(built.forward, built.backward)},
                          {"lengths", built.lengths},
                          {"results", results()},
                          {"products", products_of({}, request.dtype, false)}};
  nlohmann::json stages = nlohmann::json::array();
  for (std::size_t k = 0; k < loaded.structure.stages.size(); ++k) stages.push_back({{"solver", "sequential"}});
  facts["plan"] = {{"stages", stages}, {"reason", "code for CPUs is built to run step by step"}};
  return {built.bytes, built.header, built.about, facts};
}

Built build_for_gpu(const BuildOptions& options, const LoadedCell& loaded, const std::string& name) {
  CudaBuildRequest request;
  request.target = *cuda_target(options.target);
  request.file = name;
  request.name = options.name;
  request.architectures = names_in(options.arch);
  request.dtype = dtype_named(options.dtype);
  request.dims = dims_named(options.dims);
  request.length = options.length;
  request.solver = strategy_asked(options.solver);
  request.products = products_asked(options.products.empty() ? "3xtf32" : options.products);
  request.derive = derive_hooks();
  request.backward = options.backward;
  request.deterministic = options.deterministic;
  BuiltCuda built = build_cuda(loaded.cell, loaded.structure, request);
  if (built.library) built.bytes = link_shared(compile_library(*built.library), name);
  const nlohmann::json facts = {{"arch", built.architectures},
                                {"functions", built.functions},
                                {"arrays", arrays_of(built.forward, built.backward)},
                                {"lengths", built.lengths},
                                {"results", results()},
                                {"kernels", built.kernels},
                                {"runs", built.plan},
                                {"products", products_of(request.products, request.dtype, true)}};
  return {built.bytes, built.header, built.about, facts};
}

}  // namespace

int command_build(const BuildOptions& options) {
  check_request(options);
  dtype_named(options.dtype);
  dims_named(options.dims);
  const std::filesystem::path out(options.out);
  if (out.filename().empty()) throw UsageError(fmt::format("--out {}: expected the name of a file", options.out));
  if (out.extension() == ".h")
    throw UsageError(fmt::format("--out {}: the header is written beside it, as *.h", options.out));
  if (!options.name.empty()) check_name(options.name);
  const std::filesystem::path header = options.name.empty() ? std::filesystem::path(out).replace_extension(".h")
                                                            : out.parent_path() / (options.name + ".h");
  for (const auto& written : {out, header}) spare_cell_file("--out " + options.out, written.string(), options.file);

  const LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("compile");
  const std::string name = out.filename().string();
  const Built built =
      cuda_target(options.target) ? build_for_gpu(options, loaded, name) : build_for_cpu(options, loaded, name);
  spare_other_header(header, out, built.header);
  enter_stage("write");
  const std::string directory = out.has_parent_path() ? out.parent_path().string() : ".";
  std::string said =
      fmt::format("{}\nwrote {} ({} bytes) and {}\n", built.about, out.string(), built.bytes.size(), header.string());
  if (options.json) {
    nlohmann::json object = {{"cell", loaded.cell.name},  {"target", options.target}, {"out", out.string()},
                             {"header", header.string()}, {"dtype", options.dtype},   {"bytes", built.bytes.size()},
                             {"about", built.about}};
    object.update(built.facts);
    // Paths need not be UTF-8.
    said = object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }
  write_files(directory, {{name, built.bytes}, {header.filename().string(), built.header}},
              [&] { return print_out(said); });
  return kDone;
}

}  // namespace cellc
