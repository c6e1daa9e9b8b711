#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "runtime/check/check_cell.h"
#include "runtime/data/object_cache.h"

namespace cellc {
namespace {

std::string check_text(const std::string& cell, const CheckReport& report) {
  std::vector<std::string> sizes;
  for (const auto& [name, size] : report.sizes) sizes.push_back(fmt::format("{}={}", name, size));
  std::string text = fmt::format("checked {} with {}{}seed {}\n", cell, fmt::join(sizes, ", "),
                                 sizes.empty() ? "" : ", ", report.seed);
  std::size_t failed = 0, nothing = 0;
  for (const CheckItem& item : report.items) {
    const bool untried = item.passed && item.tried == 0;
    text += fmt::format("  {} {}: {}",
                        untried       ? "-     "
                        : item.passed ? "ok    "
                                      : "FAILED",
                        item.what, untried ? "nothing could be compared" : fmt::format("{} compared", item.tried));
    if (item.skipped > 0) text += fmt::format(", {} skipped (kinks, not finite, or nothing to conclude)", item.skipped);
    if (item.tried > 0) text += fmt::format(", worst {:.2g} of what is allowed", item.worst);
    if (!item.detail.empty()) text += fmt::format("\n         {}", item.detail);
    text += "\n";
    failed += !item.passed;
    nothing += untried;
  }
  const std::size_t held = report.items.size() - nothing;
  text += failed == 0 && nothing > 0
              ? fmt::format("{} hold; of {} nothing is known, for want of numbers to compare\n", held, nothing)
          : failed == 0
              ? fmt::format("all {} hold\n", held)
              : fmt::format("{} of {} failed; replay with --seed {}\n", failed, report.items.size(), report.seed);
  return text;
}

std::string check_json(const std::string& cell, const CheckReport& report) {
  using nlohmann::json;
  json object = {{"cell", cell}, {"seed", report.seed}, {"passed", report.passed()}};
  object["sizes"] = json::object();
  for (const auto& [name, size] : report.sizes) object["sizes"][name] = size;
  object["checks"] = json::array();
  for (const CheckItem& item : report.items)
    object["checks"].push_back({{"what", item.what},
                                {"passed", item.passed},
                                {"worst", std::isfinite(item.worst) ? json(item.worst) : json()},
                                {"outcome", !item.passed      ? "failed"
                                            : item.tried == 0 ? "nothing compared"
                                                              : "ok"},
                                {"tried", item.tried},
                                {"skipped", item.skipped},
                                {"detail", item.detail}});
  if (!report.passed()) object["error"] = "a check failed";
  return object.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

int command_check(const CheckOptions& options) {
  LoadedCell loaded = load_cell(options.file, options.cell);
  enter_stage("check");
  const CheckReport report = check_cell(loaded.cell, loaded.jacobian, loaded.structure, options.seed,
                                        options.cache_dir.value_or(default_cache_directory()));
  std::fputs((options.json ? check_json(loaded.cell.name, report) : check_text(loaded.cell.name, report)).c_str(),
             stdout);
  return report.passed() ? kDone : kWrongInput;
}

}  // namespace cellc
