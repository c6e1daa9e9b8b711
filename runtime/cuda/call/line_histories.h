#pragma once
// What the delay lines of a cell bring of steps before the first, on the device: the start of a line's state, of the
// copies that lag behind that, and then what the state's history says, or the start again.
#include <functional>
#include <map>
#include <vector>

#include "compiler/graph/delay_lines.h"
#include "runtime/cuda/call/call_gpu.h"
#include "runtime/cuda/launch/strided_copy.h"

namespace cellc {

class LineHistories {
 public:
  /// All references must outlive it. `kept`: what the histories hold; starts and callers' histories are `arithmetic`.
  LineHistories(CallGpu& gpu, const CellGraph& cell, const std::map<AxisId, std::int64_t>& sizes, StridedCopies& moves,
                Dtype kept, Dtype arithmetic, std::int64_t sequences);

  const std::vector<DelayLine>& lines() const { return lines_; }
  std::int64_t entries(const DelayLine& line) const;  ///< of a row
  std::int64_t copies_of(int state) const;            ///< that lag behind it

  /// Queues all of them. `starts`: by symbol; `given`: the caller's history of a state, 0: none. They are put into
  /// `histories`, by symbol.
  void begin(const std::vector<GpuAddress>& starts, const std::function<GpuAddress(int)>& given,
             std::vector<GpuAddress>& histories, GpuStream stream);
  /// One of them at `to`, [sequences, deepest, a…]; `before`: of each sequence what no copy has.
  void fill(GpuAddress to, const DelayLine& line, const std::vector<GpuAddress>& starts, const PlacedRows& before,
            GpuStream stream);
  /// What copies do not have of a state's history after the run, if it has a line. `rows`: of the state, with offsets
  /// and direction.
  void end(int state, GpuAddress history, StridedCopies::History rows, GpuStream stream);
  /// Where the rows that no copy has begin in a caller's history [sequences, deepest - 1, a…].
  PlacedRows beyond_copies(GpuAddress history, const DelayLine& line) const;

 private:
  GpuAddress reserve(std::vector<GpuBuffer>& buffers, std::size_t line);

  CallGpu& gpu_;
  const CellGraph& cell_;
  const std::map<AxisId, std::int64_t>& sizes_;
  StridedCopies& moves_;
  const Dtype kept_, arithmetic_;
  const std::int64_t sequences_;
  const std::vector<DelayLine> lines_;
  std::vector<GpuBuffer> before_, after_;  ///< by line
};

}  // namespace cellc
