#pragma once
// Chooses a plan from what passes cost on this machine (PassCosts): pure, like plan_stages(), which asks it where costs
// are known.
#include <optional>

#include "runtime/cpu/plan_stages.h"

namespace cellc {

/// `request.costs` is not null. A stage is Auto where only a look at its data tells whether to cut it.
StagesPlan plan_from_costs(const StagesRequest& request);

}  // namespace cellc
