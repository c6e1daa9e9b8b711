#pragma once
// The numbers by which the host's tables in C (kernels-templates/host) know the strategies. A strategy that no GPU has
// never comes here: it was refused before.
#include "runtime/strategy/strategy.h"

namespace cellc {

/// cellc_plan::strategy: the kernel that runs it.
int kernel_number(Strategy strategy);
/// What cellc_forced_plan calls it; the sequential one has no plan to force.
int request_number(Strategy strategy);
/// cellc_cell::solver, of code that is shipped.
int solver_number(Strategy strategy);

}  // namespace cellc
