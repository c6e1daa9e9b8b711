#include "runtime/cuda/call/line_histories.h"

#include <algorithm>

namespace cellc {

LineHistories::LineHistories(CallGpu& gpu, const CellGraph& cell, const std::map<AxisId, std::int64_t>& sizes,
                             StridedCopies& moves, Dtype kept, Dtype arithmetic, std::int64_t sequences)
    : gpu_(gpu),
      cell_(cell),
      sizes_(sizes),
      moves_(moves),
      kept_(kept),
      arithmetic_(arithmetic),
      sequences_(sequences),
      lines_(delay_lines(cell)),
      before_(lines_.size()),
      after_(lines_.size()) {}

std::int64_t LineHistories::entries(const DelayLine& line) const {
  std::int64_t count = 1;
  for (const AxisId a : cell_.symbols[static_cast<std::size_t>(line.state)].axes)
    count *= sizes_.at(cell_.graph.axis(a).extent_of);
  return count;
}

std::int64_t LineHistories::copies_of(int state) const {
  return std::count_if(cell_.symbols.begin(), cell_.symbols.end(), [&](const Symbol& s) { return s.lag_of == state; });
}

PlacedRows LineHistories::beyond_copies(GpuAddress history, const DelayLine& line) const {
  const std::int64_t n = entries(line);
  return {history + static_cast<GpuAddress>(copies_of(line.state) * n) * size_of(arithmetic_), (line.deepest - 1) * n,
          n};
}

GpuAddress LineHistories::reserve(std::vector<GpuBuffer>& buffers, std::size_t line) {
  const std::int64_t count = sequences_ * lines_[line].deepest * entries(lines_[line]);
  gpu_.reserve(buffers[line], static_cast<std::size_t>(count) * size_of(kept_));
  return buffers[line].address();
}

void LineHistories::fill(GpuAddress to, const DelayLine& line, const std::vector<GpuAddress>& starts,
                         const PlacedRows& before, GpuStream stream) {
  const std::int64_t n = entries(line), copies = copies_of(line.state);
  const auto rows_from = [&](std::int64_t step) {
    return PlacedRows{to + static_cast<GpuAddress>(step * n) * size_of(kept_), line.deepest * n, n};
  };
  for (std::size_t s = 0; s < cell_.symbols.size(); ++s) {
    const Symbol& symbol = cell_.symbols[s];
    if (static_cast<int>(s) != line.state && symbol.lag_of != line.state) continue;
    moves_.move(rows_from(symbol.lag_of < 0 ? 0 : symbol.lag), kept_, {starts[s], n, n}, arithmetic_, sequences_, 1, n,
                stream);
  }
  moves_.move(rows_from(copies + 1), kept_, before, arithmetic_, sequences_, line.deepest - 1 - copies, n, stream);
}

void LineHistories::begin(const std::vector<GpuAddress>& starts, const std::function<GpuAddress(int)>& given,
                          std::vector<GpuAddress>& histories, GpuStream stream) {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const DelayLine& line = lines_[i];
    const GpuAddress to = histories[static_cast<std::size_t>(line.symbol)] = reserve(before_, i),
                     history = given(line.state);
    fill(to, line, starts,
         history ? beyond_copies(history, line)
                 : PlacedRows{starts[static_cast<std::size_t>(line.state)], entries(line), 0},
         stream);
  }
}

void LineHistories::end(int state, GpuAddress history, StridedCopies::History rows, GpuStream stream) {
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const DelayLine& line = lines_[i];
    if (line.state != state) continue;
    const std::int64_t n = entries(line), first = copies_of(state) + 1;
    rows.to = reserve(after_, i);
    rows.before = before_[i].address();
    rows.sequences = sequences_;
    rows.depth = line.deepest;
    rows.entries = n;
    moves_.move_history(rows, stream);
    moves_.move(beyond_copies(history, line), arithmetic_,
                {rows.to + static_cast<GpuAddress>(first * n) * size_of(kept_), line.deepest * n, n}, kept_, sequences_,
                line.deepest - first, n, stream);
  }
}

}  // namespace cellc
