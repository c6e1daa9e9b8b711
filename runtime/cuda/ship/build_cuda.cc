#include "runtime/cuda/ship/build_cuda.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler/codegen_llvm/print_header.h"
#include "compiler/syntax/version.h"
#include "runtime/cuda/device/nvrtc.h"
#include "runtime/cuda/device/offline_gpu.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/ship/fat_binary.h"
#include "runtime/cuda/ship/print_aot.h"
#include "runtime/cuda/ship/print_backward.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/fixed_lengths.h"
#include "runtime/data/storage_of.h"
#include "runtime/data/threads.h"

namespace cellc {

namespace {

int number_of(const std::string& architecture) {
  int number = 0;
  const char *from = architecture.data(), *end = from + architecture.size();
  bool plain = architecture.rfind("sm_", 0) == 0 && architecture.size() <= 6 && architecture.size() >= 5;
  for (from += 3; plain && from < end; ++from) {
    plain = *from >= '0' && *from <= '9';
    number = 10 * number + (*from - '0');
  }
  if (!plain)
    throw UsageError(fmt::format("--arch {}: expected architectures such as sm_90, or sm_80,sm_90", architecture));
  if (number < 80) throw UsageError(fmt::format("--arch {}: the kernels need sm_80 or newer", architecture));
  return number;
}

bool is_machine_code(CudaTarget target) { return target == CudaTarget::Cubin || target == CudaTarget::Library; }

std::vector<std::string> architectures_of(const CudaBuildRequest& request) {
  std::vector<std::string> all = request.architectures;
  if (all.empty())
    all = is_machine_code(request.target) ? std::vector<std::string>{"sm_80", "sm_90"}
                                          : std::vector<std::string>{"sm_80"};
  std::sort(all.begin(), all.end(),
            [](const std::string& a, const std::string& b) { return number_of(a) < number_of(b); });
  for (const std::string& a : all) number_of(a);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  if (request.target == CudaTarget::Ptx && all.size() > 1)
    throw UsageError(
        fmt::format("--arch {}: PTX is of one architecture, and runs on those above it", fmt::join(all, ",")));
  return all;
}

/// Kernels that suit all of them: with the least shared memory.
GpuFacts least_card(const std::vector<std::string>& architectures) {
  GpuFacts least = facts_of_architecture(architectures[0]);
  for (const std::string& a : architectures) {
    const GpuFacts facts = facts_of_architecture(a);
    least.shared_per_block = std::min(least.shared_per_block, facts.shared_per_block);
    least.shared_per_multiprocessor = std::min(least.shared_per_multiprocessor, facts.shared_per_multiprocessor);
  }
  return least;
}

}  // namespace

BuiltCuda build_cuda(const CellGraph& cell, const Structure& structure, const CudaBuildRequest& request) {
  BuiltCuda result;
  result.architectures = architectures_of(request);
  std::shared_ptr<const Nvrtc> nvrtc;
  if (request.target != CudaTarget::Source) {
    std::string reason;
    nvrtc = Nvrtc::find(0, reason);
    if (!nvrtc) throw DeviceError(reason + "; --target cuda-source needs none");
    const std::vector<int> served = nvrtc->architectures();
    for (const std::string& a : result.architectures)
      if (std::find(served.begin(), served.end(), number_of(a)) == served.end())
        throw UsageError(fmt::format("--arch {}: NVRTC {} compiles for sm_{}", a, to_string(nvrtc->version()),
                                     fmt::join(served, ", sm_")));
  }
  ShipRequest ship;
  ship.dtype = request.dtype;
  ship.lengths = fixed_lengths(cell, request.dims);
  ship.steps = request.length;
  ship.solver = request.solver;
  ship.factors = product_factors(request.products, request.dtype);
  ship.derive = request.derive;
  ship.repeat_bits = request.deterministic;
  ship.card = least_card(result.architectures);
  ship.prefix = request.name.empty() ? build_name(cell, {to_string(request.dtype), true, ship.lengths, request.length})
                                     : request.name;
  const AotCell shipped(cell, structure, ship);
  std::optional<AotBackward> gradients;
  if (request.backward) gradients.emplace(cell, shipped, ship);
  const AotBackward* const backward = gradients ? &*gradients : nullptr;

  ShipOrigin origin;
  origin.about = fmt::format("cell {}, {}, for {}, by cellc {}{}", cell.name, to_string(request.dtype),
                             fmt::join(result.architectures, ", "), kVersion,
                             nvrtc ? fmt::format(" with NVRTC {}", to_string(nvrtc->version())) : "");
  origin.lines =
      fmt::format(" * structure: {}\n * solver: {}\n", structure_summary(cell, structure), to_string(request.solver));
  result.about = origin.about;
  result.kernels = shipped.kernels;
  result.plan = shipped.plan;
  result.functions = {ship.prefix + "_workspace", ship.prefix + "_forward", ship.prefix + "_message",
                      ship.prefix + "_about"};
  const CallStructs structs{shipped.cell(), shipped.layout(), storage_of(ship.dtype), ship.steps, ship.prefix, true};
  result.forward = array_facts(structs);
  result.lengths = length_members(structs);
  if (backward) {
    const std::string& p = backward->request().prefix;
    result.functions.insert(result.functions.end(), {p + "_workspace", p, p + "_message", p + "_about"});
    result.kernels.insert(result.kernels.end(), backward->adjoint().kernels.begin(), backward->adjoint().kernels.end());
    for (const std::string& line : backward->adjoint().plan) result.plan.push_back("backward: " + line);
    result.backward = array_facts(backward_structs(*backward, ship));
  }
  if (request.target == CudaTarget::Source) {
    result.bytes = print_cuda_source(shipped, ship, origin, backward);
    result.header = print_source_header(shipped, ship, origin, backward);
    return result;
  }
  result.functions.insert(result.functions.begin(), {ship.prefix + "_load", ship.prefix + "_unload"});
  if (request.target == CudaTarget::Library) {
    result.functions.insert(result.functions.begin(), {ship.prefix + "_supported", ship.prefix + "_module_bytes"});
    result.header = print_library_header(shipped, ship, origin, request.file, backward);
    result.library = library_parts(shipped, ship, origin, backward);
  } else {
    result.header = print_module_header(shipped, ship, origin, request.file, backward);
  }
  const GpuSource source{cell.name + ".cu", print_module_source(shipped, origin, backward), {}};
  const CompiledKind kind = request.target == CudaTarget::Ptx ? CompiledKind::Ptx : CompiledKind::Cubin;
  std::vector<CardCode> codes(result.architectures.size());
  run_on_cores(static_cast<int>(codes.size()), [&](int i) {
    const std::string& architecture = result.architectures[static_cast<std::size_t>(i)];
    codes[static_cast<std::size_t>(i)] = {number_of(architecture), nvrtc->compile(source, architecture, kind).code};
  });
  if (request.target == CudaTarget::Ptx) result.bytes = codes.back().elf;
  if (request.target == CudaTarget::Cubin) result.bytes = fat_binary(codes);
  if (result.library) result.library->image = fat_binary(codes);
  return result;
}

}  // namespace cellc
