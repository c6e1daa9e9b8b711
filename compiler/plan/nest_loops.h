#pragma once
// The order of a nest's loops and the axis that is walked in vectors: as its memory suits them. For plan_nests.cc.
#include "compiler/plan/plan_nests.h"

namespace cellc {

/// Chooses both for a nest whose loads and stores are known, and lays out those of its stores that have no order yet.
void choose_loops(Plan& plan, Nest& nest, Homes& homes);

}  // namespace cellc
