#include "runtime/cuda/ship/aot_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/cuda/build/kernel_templates.h"
#include "runtime/cuda/ship/aot_text.h"

namespace cellc {

namespace {

std::string without_kernels(const std::string& text) {
  const std::size_t kernels = text.find("\nextern \"C\" __global__");
  return kernels == std::string::npos ? text : text.substr(0, kernels + 1);
}

}  // namespace

std::string AotSource::space_of(Dtype storage) const { return fmt::format("{}_{}::", prefix_, to_string(storage)); }

void AotSource::add(Dtype storage, const std::string& text, const std::vector<std::string>& uses) {
  Group& group = groups_[storage];
  for (const std::string& use : uses)
    if (std::find(group.uses.begin(), group.uses.end(), use) == group.uses.end()) group.uses.push_back(use);
  group.text += text;
}

int AotSource::add_kernel(const std::string& name, const std::string& place) {
  kernels.push_back(name);
  places.push_back(place);
  return static_cast<int>(kernels.size()) - 1;
}

int AotSource::add_call_kernel(Dtype storage, const char* name, const char* argument, const char* function,
                               const std::vector<std::string>& uses) {
  add(storage,
      fmt::format("extern \"C\" __global__ void __launch_bounds__(256) {0}_{1}(const __grid_constant__ cellc::{2} a) "
                  "{{ cellc::await_stream(); cellc::{3}(a); }}\n",
                  prefix_, name, argument, function),
      uses);
  return add_kernel(fmt::format("{}_{}", prefix_, name), space_of(storage));
}

std::string AotSource::finish() {
  std::string all;
  for (auto& [storage, group] : groups_) {
    std::string text = storage_macro(storage) + template_part("preamble.cuh") + template_part("math.cuh");
    // Kernels of templates that a run compiles as they are have names that a program could not have twice.
    for (const std::string& use : group.uses) text += without_kernels(template_part(use));
    if (!group.products.empty() || !group.stored_products.empty()) {
      const ProductTemplate of = product_template(factors_, storage);
      std::string product = of.macro;
      if (!group.stored_products.empty()) product += stored_operands(!group.products.empty());
      for (const char* part : of.parts) product += template_part(part);
      const auto rename = [&](const std::string& written, const char* kind, const std::vector<int*>& asking) {
        if (asking.empty()) return;
        const std::string name = fmt::format("{}_{}_{}", prefix_, kind, to_string(storage));
        product.replace(product.find(written + "("), written.size(), name);
        const int number = add_kernel(name, space_of(storage));
        for (int* asks : asking) *asks = number;
      };
      rename("cellc_product", "product", group.products);
      rename("cellc_product_stored", "product_stored", group.stored_products);
      text += product;
    }
    text += group.text;
    all += fmt::format("namespace {0}_{1} {{\n\n{2}\n{3}}}  // namespace {0}_{1}\n\n", prefix_, to_string(storage),
                       text, undefined(text));
  }
  return all;
}

}  // namespace cellc
