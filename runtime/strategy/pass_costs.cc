#include "runtime/strategy/pass_costs.h"

#include <fmt/format.h>

#include <sstream>

#include "compiler/syntax/version.h"

namespace cellc {

namespace {

/// First word of an entry; raise the number with every change of its lines, or of how they are measured.
constexpr const char* kHead = "cellc-costs-7";

ObjectKey key_of(const CostsFor& what) {
  ObjectIdentity identity;
  identity.kind = "costs";
  identity.text = what.cell;
  identity.platform = "cpu";
  identity.processor = what.processor;
  identity.features = what.shape;
  identity.options = what.dtype;
  identity.compiler = std::string(kHead) + " " + kVersion;
  return object_key(identity);
}

}  // namespace

std::optional<PassCosts> KeptCosts::find(const CostsFor& what, std::size_t stages) const {
  const auto entry = cache_.find(key_of(what));
  if (!entry) return std::nullopt;
  std::istringstream in(std::string(entry->data(), entry->size()));
  std::string head;
  PassCosts costs;
  costs.stages.resize(stages);
  std::size_t count = 0;
  const auto is_cost = [](double ns) { return ns >= 0 && ns < 1e12; };
  if (!(in >> head >> costs.fused >> costs.after >> costs.check >> costs.together >> count) || head != kHead ||
      count != stages ||
      !(costs.fused > 0 && is_cost(costs.fused) && is_cost(costs.after) && is_cost(costs.check) &&
        is_cost(costs.together)))
    return std::nullopt;
  for (PassCosts::OfStage& s : costs.stages)
    for (double* const ns : {&s.before, &s.whole, &s.cut, &s.scan})
      if (!(in >> *ns) || !is_cost(*ns)) return std::nullopt;
  return costs;
}

bool KeptCosts::keep(const CostsFor& what, const PassCosts& costs) const {
  std::string text = fmt::format("{} {} {} {} {} {}\n", kHead, costs.fused, costs.after, costs.check, costs.together,
                                 costs.stages.size());
  for (const PassCosts::OfStage& s : costs.stages)
    text += fmt::format("{} {} {} {}\n", s.before, s.whole, s.cut, s.scan);
  return cache_.store(key_of(what), text);
}

}  // namespace cellc
