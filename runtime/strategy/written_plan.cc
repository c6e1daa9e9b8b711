#include "runtime/strategy/written_plan.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/data/errors.h"

namespace cellc {

std::string written_plan(const SolveReport& report) {
  nlohmann::json plans = nlohmann::json::array();
  std::string reason;
  for (const StageReport& s : report.stages) {
    plans.push_back({{"solver", to_string(s.plan.strategy)}, {"segment", s.plan.segment}, {"burn_in", s.plan.burn_in}});
    reason += (reason.empty() ? "" : "; ") + s.plan.reason;
  }
  return nlohmann::json{{"stages", plans}, {"reason", reason}}.dump();
}

std::vector<StagePlan> read_plan(const std::string& text, const std::string& name, std::size_t stages) {
  const auto wrong = [&](const std::string& what) { return RequestError(fmt::format("{}: {}", name, what)); };
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_object() && json.contains("plan")) json = nlohmann::json(json["plan"]);
  if (!json.is_object() || !json.contains("stages") || !json["stages"].is_array())
    throw wrong("not a plan; expected the object that `cellc run --json` prints under \"plan\"");
  std::vector<StagePlan> plan;
  for (const auto& s : json["stages"]) {
    const auto number = [&](const char* key) -> std::int64_t {
      if (!s.contains(key)) return 0;
      if (!s[key].is_number_integer() || s[key].get<std::int64_t>() < 0)
        throw wrong(fmt::format("{} of a stage is not a number of steps", key));
      return s[key].get<std::int64_t>();
    };
    if (!s.is_object() || !s.contains("solver") || !s["solver"].is_string())
      throw wrong("a stage of the plan names no solver");
    const auto strategy = strategy_named(s["solver"].get<std::string>());
    if (!strategy || *strategy == Strategy::Auto)
      throw wrong(fmt::format("'{}' is no solver that a plan can name", s["solver"].get<std::string>()));
    plan.push_back({*strategy, number("segment"), number("burn_in"), "pinned by " + name});
  }
  if (plan.size() != stages)
    throw wrong(fmt::format("the plan has {} stage{}, the cell {}", plan.size(), plan.size() == 1 ? "" : "s", stages));
  return plan;
}

}  // namespace cellc
