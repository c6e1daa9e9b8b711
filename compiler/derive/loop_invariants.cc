#include "compiler/derive/loop_invariants.h"

#include <stdexcept>
#include <string>

namespace cellc {

namespace {

/// Numbers of a lane, at most.
constexpr std::size_t kMostHeld = 32;

/// What `roots` are made of; no further than what is `held`.
std::vector<bool> reached(const ScalarizedCell& scalars, const std::vector<int>& roots, const std::vector<bool>& held) {
  std::vector<bool> result(scalars.scalars.size(), false);
  for (const int r : roots) result[static_cast<std::size_t>(r)] = true;
  for (std::size_t i = scalars.scalars.size(); i-- > 0;) {
    if (!result[i] || held[i]) continue;
    const Scalar& s = scalars.scalars[i];
    for (int k = 0; k < s.arity; ++k) result[static_cast<std::size_t>(s.args[k])] = true;
  }
  return result;
}

}  // namespace

LoopInvariants loop_invariants(const ScalarizedCell& scalars, const CellGraph& cell) {
  const std::size_t n = scalars.scalars.size();
  const std::vector<bool> none(n, false);
  std::vector<bool> fixed(n), takes_long(n);
  LoopInvariants result;
  result.is_held = none;
  const auto use = [&](int i) {
    const auto a = static_cast<std::size_t>(i);
    if (fixed[a] && takes_long[a]) result.is_held[a] = true;
  };
  for (std::size_t i = 0; i < n; ++i) {
    const Scalar& s = scalars.scalars[i];
    fixed[i] =
        s.op == Op::Read ? cell.symbols[s.entry.symbol].kind == SymbolKind::Param : s.arity > 0 || s.op == Op::Constant;
    takes_long[i] = s.arity > 0 && is_long(s.op);
    for (int k = 0; k < s.arity; ++k) {
      const auto a = static_cast<std::size_t>(s.args[k]);
      fixed[i] = fixed[i] && fixed[a];
      takes_long[i] = takes_long[i] || takes_long[a];
    }
    for (int k = 0; k < s.arity && !fixed[i]; ++k) use(s.args[k]);
  }
  for (const int i : scalars.next) use(i);
  result.in_step = reached(scalars, scalars.next, result.is_held);
  for (std::size_t i = 0; i < n; ++i)
    if (result.is_held[i] && result.in_step[i]) result.values.push_back(static_cast<int>(i));
  if (result.values.size() > kMostHeld) {
    result.is_held = none;
    result.values.clear();
    result.in_step = reached(scalars, scalars.next, none);
  }
  result.before = reached(scalars, result.values, none);
  return result;
}

void verify(const LoopInvariants& held, const ScalarizedCell& scalars) {
  const auto require = [](bool holds, const char* what) {
    if (!holds) throw std::logic_error(std::string("held values: ") + what);
  };
  const std::size_t count = scalars.scalars.size();
  require(held.is_held.size() == count && held.in_step.size() == count && held.before.size() == count,
          "not as many as scalars");
  for (std::size_t i = 0; i < count; ++i) {
    const Scalar& s = scalars.scalars[i];
    for (int k = 0; k < s.arity; ++k) {
      const auto a = static_cast<std::size_t>(s.args[k]);
      require(!held.in_step[i] || held.is_held[i] || held.in_step[a], "a step lacks an operand");
      require(!held.before[i] || held.before[a], "what is held lacks an operand");
    }
  }
  for (const int next : scalars.next) require(held.in_step[static_cast<std::size_t>(next)], "a step lacks a new state");
  for (const int value : held.values)
    require(held.is_held[static_cast<std::size_t>(value)] && held.before[static_cast<std::size_t>(value)],
            "a value that is held is not made");
}

}  // namespace cellc
