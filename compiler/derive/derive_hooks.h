#pragma once
// Who listens to the derivations of a cell (pipeline.h): a program that says where it is when something goes wrong, a
// measurement, a test that breaks what was made.
#include <cstdint>
#include <functional>

#include "compiler/derive/derived_cell.h"

namespace cellc {

enum class Derivation : std::uint8_t {
#define CELLC_DERIVATION(Name, text) Name,
#include "compiler/derive/derivations.def"
#undef CELLC_DERIVATION
};
const char* to_string(Derivation derivation);

struct DeriveHooks {
  std::function<void(Derivation)> entering = {};            ///< before it is made
  std::function<void(Derivation, DerivedCell&)> made = {};  ///< each cell, before it is verified
  std::function<void(Derivation, double ms)> done = {};     ///< made and verified; or not, where it throws
};

}  // namespace cellc
