#include "compiler/codegen_cuda/emit_cuda_nests.h"

#include <algorithm>
#include <set>

#include "compiler/codegen_cuda/emit_cuda_nest_kernel.h"

namespace cellc {

namespace {

/// Does a nest of the kernel read what another nest of it wrote?
bool passes_values(const Plan& plan, const Kernel& kernel) {
  std::set<std::pair<Place, int>> written;
  std::set<NodeId> scalars;
  std::set<NodeId> own;
  for (std::size_t n = 0; n < kernel.nests.size(); ++n) {
    const Nest& nest = kernel.nests[n];
    const bool follows = n > 0 && fuses_with_next(kernel, n - 1);
    const auto handed_on = [&](const Access& a) {
      return follows &&
             std::any_of(kernel.nests[n - 1].stores.begin(), kernel.nests[n - 1].stores.end(),
                         [&](const Store& s) { return s.home.place == a.home.place && s.home.id == a.home.id; });
    };
    for (const Access& a : nest.loads) {
      if (written.contains({a.home.place, a.home.id}) && !handed_on(a)) return true;
    }
    if (!follows) own.clear();
    own.insert(nest.nodes.begin(), nest.nodes.end());
    const auto reads_scalar = [&](NodeId id) { return scalars.contains(id) && !own.contains(id); };
    for (const auto* list : {&nest.nodes, &nest.inlined}) {
      for (const NodeId id : *list) {
        for (const NodeId a : plan.cell.graph[id].args) {
          if (reads_scalar(a)) return true;
        }
      }
    }
    for (const Store& s : nest.stores) {
      if (reads_scalar(s.value)) return true;
    }
    for (const Store& s : nest.stores) written.insert({s.home.place, s.home.id});
    if (nest.axes.empty()) scalars.insert(nest.nodes.begin(), nest.nodes.end());
  }
  return false;
}

/// Nests whose loops are the same and of which a position reads its own entries only.
bool reads_own_entries(const Access& a) {
  if (a.index.size() != a.home.dims.size() || a.lag != 0 || a.lag_axis != kNoAxis) return false;
  for (std::size_t i = 0; i < a.index.size(); ++i)
    if (a.index[i].axis != a.home.dims[i]) return false;
  return true;
}

/// "#line" markers of the file itself know their line only when all is written.
std::string number_lines(const std::string& text, const std::string& file) {
  std::string result;
  std::size_t line = 1;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    if (end == from + 1 && text[from] == '\x01') {
      result += fmt::format("#line {} \"{}\"", line + 1, file);
    } else {
      result.append(text, from, end - from);
    }
    result += '\n';
    from = end + 1;
    ++line;
  }
  return result;
}

}  // namespace

bool fuses_with_next(const Kernel& kernel, std::size_t n) {
  if (kernel.once || n + 1 >= kernel.nests.size()) return false;
  const Nest &sum = kernel.nests[n], &next = kernel.nests[n + 1];
  if (!sum.is_reduction() || next.is_reduction() || sum.loops != next.loops) return false;
  for (const Access& a : next.loads) {
    for (std::size_t m = 0; m <= n; ++m) {
      for (const Store& s : kernel.nests[m].stores)
        if (s.home.place == a.home.place && s.home.id == a.home.id && (m < n || !reads_own_entries(a))) return false;
    }
  }
  return true;
}

CudaNestsModule emit_cuda_nests(const Plan& plan, const CudaNestsOptions& options) {
  CudaNestsModule module;
  module.name = plan.cell.name + ".cu";
  std::string text = options.prelude + fmt::format("\x01\n// cell {}\n", plan.cell.name);
  CudaNames functions;
  const auto add = [&](NestForm form, int kernel, int nest) {
    // A prefix of our own: the cell may be called like a keyword or a function of the library.
    const std::string stem = options.functions.empty() ? "cellc_" + plan.cell.name : options.functions;
    std::string function = fmt::format("{}_{}", stem, kernel);
    if (plan.kernels[kernel].once) function = stem + "_once";
    if (nest >= 0) function += fmt::format("_{}", nest);
    function = functions.unique(function);
    NestEmitter emitter(plan, options, form, kernel, nest, function);
    text += "\n" + emitter.emit();
    module.kernels.push_back(emitter.kernel());
  };
  for (int k = 0; k < static_cast<int>(plan.kernels.size()); ++k) {
    const Kernel& kernel = plan.kernels[k];
    const bool steps =
        !kernel.once && std::find(plan.state_kernel.begin(), plan.state_kernel.end(), k) != plan.state_kernel.end();
    if (kernel.nests.empty() && !steps) continue;
    if (steps) {
      const bool persistent = std::any_of(options.persistent.begin(), options.persistent.end(),
                                          [&](const PersistentCode& p) { return p.kernel.kernel == k; });
      add(persistent ? NestForm::Persistent : NestForm::Steps, k, -1);
    } else if (!kernel.once && passes_values(plan, kernel)) {
      add(NestForm::Tile, k, -1);
    } else {
      for (int n = 0; n < static_cast<int>(kernel.nests.size()); ++n) {
        if (n == 0 || !fuses_with_next(kernel, static_cast<std::size_t>(n) - 1)) add(NestForm::Flat, k, n);
      }
    }
  }
  module.text = number_lines(text, module.name);
  return module;
}

}  // namespace cellc
