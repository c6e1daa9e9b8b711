#include "tests/gpu/pass_recorder.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler/codegen_cuda/without_names.h"

namespace cellc {

namespace {

constexpr const char* kTraits = "struct Traits {\n";

/// Lines that say where others come from, and what a run's units alone have, are left out.
std::string without_lines(const std::string& text) {
  std::string result;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    if (!line.empty() && !line.starts_with("#line ") && !line.starts_with("  static constexpr int kAxes "))
      result += line + "\n";
    from = end + 1;
  }
  return result;
}

std::string between(const std::string& text, std::size_t from, const std::string& end) {
  return text.substr(from, text.find(end, from) - from);
}

/// Traits and steps of the lanes that the kernel at `at` runs: of a unit, and of a file of many kernels.
std::string lanes_of(const std::string& text, std::size_t at) {
  const std::size_t stage = text.rfind("// The stage ", at);
  if (stage == std::string::npos) {
    const std::size_t cell = text.find("\n", text.find("#line 1 \"", text.find("#line 1 \"math.cuh\"") + 1));
    return between(text, text.find(kTraits), "#line 1 \"preamble.cuh\"") + between(text, cell, "#line 1 \"lanes.cuh\"");
  }
  const std::size_t traits = text.rfind(std::string("{\n\n") + kTraits, at) + 3;
  const std::size_t steps = text.find('\n', text.find('\n', stage) + 1);
  std::string of_stage = between(text, steps, kTraits);
  return between(text, traits, "namespace cellc {") + of_stage.substr(0, of_stage.rfind("namespace "));
}

std::string line_at(const std::string& text, std::size_t at) {
  const std::size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
  return between(text, begin, "\n");
}

std::string first_difference(const std::string& run, const std::string& shipped) {
  const std::size_t at = static_cast<std::size_t>(
      std::mismatch(run.begin(), run.end(), shipped.begin(), shipped.end()).first - run.begin());
  if (at == run.size()) return "the same text";
  return fmt::format("\n  {}\n  {}", line_at(run, at), line_at(shipped, at));
}

/// A shipped copy has the number of its file behind its name.
bool is_a_copy(const std::string& file, const std::string& name) {
  return file == "strided_copy.cu" || name.find("_copy") != std::string::npos || name.ends_with("_offsets") ||
         name.ends_with("_last_steps");
}

}  // namespace

std::string to_string(const LaunchedPass& pass) {
  return fmt::format("{}x{}{} {}", pass.blocks, pass.threads, pass.cooperative ? " together" : "", pass.kernel);
}

std::string difference(const std::vector<LaunchedPass>& run, const std::vector<LaunchedPass>& shipped) {
  const auto at = [](const std::vector<LaunchedPass>& passes, std::size_t i) {
    return i < passes.size() ? to_string(passes[i]) : "nothing";
  };
  // Of stages that are alike a run has the kernel of the first, and a file that of the first with the same variants.
  const auto alike = [](LaunchedPass a, LaunchedPass b) {
    for (LaunchedPass* pass : {&a, &b}) pass->text = without_names(pass->text);
    return a == b;
  };
  for (std::size_t i = 0; i < std::max(run.size(), shipped.size()); ++i)
    if (i >= run.size() || i >= shipped.size() || !alike(run[i], shipped[i])) {
      std::string all = fmt::format("pass {}: a run launches {}, shipped code {}", i + 1, at(run, i), at(shipped, i));
      if (at(run, i) == at(shipped, i))
        all += fmt::format("; {} and {} bytes, {}", run[i].shared_bytes, shipped[i].shared_bytes,
                           first_difference(run[i].text, shipped[i].text));
      return all;
    }
  return "";
}

GpuModule PassRecorder::load(const GpuSource& source) {
  GpuModule module = below_.load(source);
  sources_[module.module.get()] = source;
  kept_.push_back(module);
  return module;
}

GpuFunction PassRecorder::function(const GpuModule& module, const std::string& name) {
  GpuFunction function = below_.function(module, name);
  const GpuSource& source = sources_.at(module.module.get());
  Kernel& kernel = kernels_[{module.module.get(), function.handle}];
  kernel.is_pass = !is_a_copy(source.name, name);
  if (!kernel.is_pass || kernel.pass.kernel.size()) return function;
  const std::string& text = source.text;
  const std::size_t at = text.find(name + "(const __grid_constant__ ");
  const std::string line = between(text, text.rfind('\n', at) + 1, "\n");
  const bool is_nest = line.starts_with(name);
  std::string own = is_nest ? between(text, text.find("struct " + name + "_arguments {"), "\n}\n") : line;
  for (std::size_t found; (found = own.find(name)) != std::string::npos;) own.replace(found, name.size(), "kernel");
  kernel.pass.kernel = is_nest ? "nests" : own;
  const bool is_product = name.find("_product") != std::string::npos && !is_nest;
  kernel.pass.text = without_lines((is_nest || is_product ? "" : lanes_of(text, at)) + own);
  return function;
}

void PassRecorder::launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) {
  const Kernel& kernel = kernels_.at({function.module.get(), function.handle});
  if (kernel.is_pass) {
    LaunchedPass pass = kernel.pass;
    pass.blocks = launch.grid.x;
    pass.threads = launch.block.x;
    pass.shared_bytes = launch.shared_bytes;
    pass.cooperative = launch.cooperative;
    passes.push_back(std::move(pass));
  }
  below_.launch(function, launch, arguments);
}

GpuModule PaperGpu::load(const GpuSource&) { return {std::make_shared<int>(0), 0, CacheState::Off}; }

GpuFunction PaperGpu::function(const GpuModule& module, const std::string&) { return {module.module, ++functions_}; }

GpuAddress PaperGpu::allocate(std::size_t bytes) {
  const GpuAddress at = next_;
  next_ += (bytes + 511) / 256 * 256;
  return at;
}

}  // namespace cellc
