#include "runtime/cpu/lagged_rows.h"

#include <cstring>
#include <stdexcept>

namespace cellc {

int LaggingStates::update_of(int of, int lag) const {
  for (int u = 0; u < static_cast<int>(cell_.updates.size()); ++u) {
    const int s = cell_.updates[u].symbol;
    if (lag == 0 ? s == of : cell_.symbols[s].lag_of == of && cell_.symbols[s].lag == lag) return u;
  }
  throw std::logic_error("lagged rows: a lag without its state");
}

LaggedRow LaggingStates::at(int update, std::int64_t step) const {
  const std::int64_t row = step - (lags(update) ? symbol(update).lag : 0);
  if (row >= 0) return {row, -1};
  // One step before the first is the state's own start; further back are the starts of its copies.
  const int of = lags(update) ? symbol(update).lag_of : cell_.updates[update].symbol;
  return {row, update_of(of, static_cast<int>(-1 - row))};
}

void LaggingStates::write(const std::vector<int>& updates, const BoundRun& run,
                          std::vector<Array>& trajectories) const {
  for (const int u : updates) {
    if (!lags(u)) continue;
    const Array& rows = trajectories[static_cast<std::size_t>(parent(u))];
    Array& to = trajectories[static_cast<std::size_t>(u)];
    const std::size_t count = static_cast<std::size_t>(run.offsets.back());
    const std::size_t bytes = count ? static_cast<std::size_t>(to.count()) / count * size_of(to.dtype()) : 0;
    for (std::size_t s = 0; s + 1 < run.offsets.size(); ++s) {
      const std::int64_t begin = run.offsets[s], end = run.offsets[s + 1];
      const auto row_of = [&](std::int64_t step) { return run.reverse ? end - 1 - step : begin + step; };
      for (std::int64_t t = 0; t < end - begin; ++t) {
        const LaggedRow from = at(u, t);
        const Array& array = from.step >= 0 ? rows : run.symbols[cell_.updates[from.start].symbol];
        const std::int64_t row = from.step >= 0 ? row_of(from.step) : static_cast<std::int64_t>(s);
        std::memcpy(static_cast<std::byte*>(to.data()) + static_cast<std::size_t>(row_of(t)) * bytes,
                    static_cast<const std::byte*>(array.data()) + static_cast<std::size_t>(row) * bytes, bytes);
      }
    }
  }
}

}  // namespace cellc
