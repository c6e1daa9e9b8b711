#pragma once
// Cells whose channels mix, for whoever relaxes them: found from structure alone, no cell is known by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/data/run.h"

namespace cellc {

inline constexpr const char* kLstm = R"(cell lstm[d, m] {
  state c[d], h[d]
  input x[m]
  param Wi[d,m], Wf[d,m], Wg[d,m], Wo[d,m], Ui[d,d], Uf[d,d], Ug[d,d], Uo[d,d]
  c' = sigmoid(Wf@x + Uf@h + 1)*c + sigmoid(Wi@x + Ui@h)*tanh(Wg@x + Ug@h)
  h' = sigmoid(Wo@x + Uo@h)*tanh(c')
}
)";
/// The reset gate inside the product: one mixing term holds another.
inline constexpr const char* kGru = R"(cell gru[d] {
  state h[d]
  input xz[d], xr[d], xn[d]
  param Uz[d,d], Ur[d,d], Un[d,d]
  z = sigmoid(Uz@h + xz)
  r = sigmoid(Ur@h + xr)
  h' = (1 - z)*h + z*tanh(Un@(r*h) + xn)
}
)";
inline constexpr const char* kMeanField = R"(cell mean_field[d] {
  state h[d]
  input x[d]
  param a[d]
  h' = tanh(a*h + mean[d](h) + x)
}
)";
/// A stage before and one behind the dense one, and an out.
inline constexpr const char* kStaged = R"(cell staged[d] {
  state e[d], h[d], s[d]
  input x[d]
  param U[d,d]
  e' = 0.9*e + 0.1*x
  h' = tanh(U@h + e' - e)
  s' = s + h'
  out y = sum[d](s'*h')
}
)";
/// Neighbours on a ring of three, read at literal places.
inline constexpr const char* kRing = R"(cell ring[d, k=3] {
  state h[d,k]
  input x[d,k]
  h' = tanh(0.3*h[d,0] + 0.2*h[d,1] - 0.1*h + x)
}
)";

inline constexpr const char* kRelaxedCells[] = {kLstm, kGru, kMeanField, kStaged, kRing};

/// The largest difference, over 1 + |b|.
inline double furthest(const RunOutput& a, const RunOutput& b) {
  double most = 0;
  const auto compare = [&](const Array& x, const Array& y) {
    ASSERT_EQ(x.shape(), y.shape());
    for (std::int64_t i = 0; i < x.count(); ++i)
      most = std::max(most, std::fabs(x.get(i) - y.get(i)) / (1 + std::fabs(y.get(i))));
  };
  for (std::size_t i = 0; i < a.states.size(); ++i) compare(a.states[i], b.states[i]);
  for (std::size_t i = 0; i < a.finals.size(); ++i) compare(a.finals[i], b.finals[i]);
  for (std::size_t i = 0; i < a.outs.size(); ++i) compare(a.outs[i], b.outs[i]);
  return most;
}

}  // namespace cellc
