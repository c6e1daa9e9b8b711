#pragma once
// What a kernel keeps for backward and tangent calls: the derived cells, one for each set of cotangents or tangents
// that calls have had. Private to capi/.
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "compiler/plan/call_directions.h"
#include "runtime/cpu/backward_on_cpu.h"
#include "runtime/gradient/tangent_run.h"

namespace cellc::capi {

/// Things that one call uses at a time, for the next call; another one is made in the place of waiting.
template <typename T>
class Pool {
 public:
  template <typename Make>
  std::unique_ptr<T> take(Make make) {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> taken = std::move(idle_.back());
        idle_.pop_back();
        return taken;
      }
    }
    return make();
  }
  void give(std::unique_ptr<T> used) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(used));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

struct AdjointPlan {
  AdjointPlan(const CellGraph& cell, const AdjointOf& of) : run(cell, of) {}
  const AdjointRun run;
  std::vector<bool> reads;  ///< by array of a backward call: what the forward run read or wrote and is needed
  Pool<BackwardOnCpu> on_cpu;
};

struct TangentPlan {
  TangentPlan(const CellGraph& cell, const TangentOf& of) : run(cell, of) {}
  const TangentRun run;
  std::vector<bool> reads;
  Pool<Solver> on_cpu;
};

class Derivatives {
 public:
  /// All must outlive it.
  Derivatives(const CellGraph& cell, const DirectedCall& backward, const DirectedCall& tangent, bool on_gpu)
      : cell_(cell), backward_(backward), tangent_(tangent), on_gpu_(on_gpu) {}

  /// For a call in which arrays with these numbers are given. Made once; valid as long as this.
  AdjointPlan& adjoint(const std::vector<bool>& given);
  TangentPlan& tangent(const std::vector<bool>& given);

 private:
  /// The symbols that move where those tangents are given, through starts and defaults too.
  TangentOf moved(const std::vector<bool>& given) const;

  const CellGraph& cell_;
  const DirectedCall &backward_, &tangent_;
  const bool on_gpu_;
  std::mutex mutex_;
  std::map<std::vector<bool>, std::unique_ptr<AdjointPlan>> adjoints_;
  std::map<std::vector<bool>, std::unique_ptr<TangentPlan>> tangents_;
};

}  // namespace cellc::capi
