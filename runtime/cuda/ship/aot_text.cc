#include "runtime/cuda/ship/aot_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/launch/stage_text.h"
#include "runtime/cuda/ship/aot_variants.h"

namespace cellc {

std::string template_part(std::string_view name) {
  const std::string text(kernel_template(name));
  std::string result = fmt::format("// {} {}\n", name, std::string(std::max<std::size_t>(3, 100 - name.size()), '-'));
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    if (line != "#pragma once" && !line.starts_with("#line ")) result += line + "\n";
    from = end + 1;
  }
  return result + "\n";
}

std::string undefined(const std::string& text) {
  std::set<std::string> names;
  std::string result;
  for (std::size_t at = 0; (at = text.find("#define ", at)) != std::string::npos; ++at) {
    const std::size_t from = at + 8, end = text.find_first_of(" (\n", from);
    if (names.insert(text.substr(from, end - from)).second) result += "#undef " + text.substr(from, end - from) + "\n";
  }
  return result;
}

std::string renamed(const std::string& text, const std::string& name, const std::string& other) {
  const auto in_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  std::string result;
  std::size_t from = 0;
  for (std::size_t at; (at = text.find(name, from)) != std::string::npos; from = at + name.size()) {
    const bool whole =
        (at == 0 || !in_name(text[at - 1])) && (at + name.size() == text.size() || !in_name(text[at + name.size()]));
    result += text.substr(from, at - from) + (whole ? other : name);
  }
  return result + text.substr(from);
}

namespace {

/// One for each set of traits that lanes or scans are compiled with. How many lanes a sum runs along is none of them.
std::string space_of(const cellc_variant& v) {
  if (v.kernel == CELLC_SCAN)
    return fmt::format("{}{}{}{}", v.buffers ? "stream" : "channels", v.channels,
                       v.forward ? fmt::format("_steps{}", v.steps) : "",
                       v.buffers ? fmt::format("_carried{}", v.carry_channels) : "");
  return fmt::format("{}{}{}",
                     v.width == 2 ? "pairs"
                     : v.rows     ? "rows"
                                  : "lanes",
                     v.steps, v.broadcast ? fmt::format("_shared{}", v.broadcast) : "");
}

}  // namespace

std::string kind_of_lanes(const StageProgram::Parts& parts, const cellc_stage& stage,
                          const std::vector<cellc_variant>& variants) {
  std::string kind = *parts.alike;
  for (const cellc_variant& v : variants) {
    kind += stage_traits_text(stage, v, channel_axes_of(stage, v)) + space_of(v) + "\n";
    for (const std::string_view p : stage_kernel_parts(v)) kind += std::string(p) + "\n";
    kind += stage_kernel_text(*parts.step, *parts.step_with_transition, stage, v, "kernel");
  }
  return kind;
}

LanesText lanes_text(const StageProgram::Parts& parts, const cellc_stage& stage,
                     const std::vector<cellc_variant>& variants, const std::string& outside, const std::string& place,
                     const std::string& about, const std::string& prefix) {
  LanesText result;
  result.text = fmt::format("// {}\nnamespace {} {{\n\n{}\n{}\n", about, place, parts.step->text,
                            parts.step_with_transition->text);
  std::map<std::string, std::string> inside;
  std::vector<std::string> order;
  for (const cellc_variant& v : variants) {
    const std::string space = space_of(v), name = fmt::format("{}_{}_{}", prefix, place, variant_name(v));
    std::string& body = inside[space];
    if (body.empty()) {
      order.push_back(space);
      body = stage_traits_text(stage, v, channel_axes_of(stage, v));
      body += fmt::format("namespace cellc {{\nusing namespace {}cellc;\n}}\n\n", outside);
      body += template_part("lanes.cuh") + template_part("sweep.cuh");
    }
    for (const std::string_view p : stage_kernel_parts(v))
      if (body.find(fmt::format("// {} -", p)) == std::string::npos) body += template_part(p);
    body += stage_kernel_text(*parts.step, *parts.step_with_transition, stage, v, name) + "\n";
    result.kernels.push_back(name);
    result.places.push_back(fmt::format("{}{}::{}::", outside, place, space));
  }
  for (const std::string& space : order)
    result.text += fmt::format("namespace {0} {{\n\n{1}\n{2}}}  // namespace {0}\n\n", space, inside[space],
                               undefined(inside[space]));
  result.text += fmt::format("}}  // namespace {}\n\n", place);
  return result;
}

}  // namespace cellc
