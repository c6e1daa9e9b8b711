#pragma once
// How one call goes where it differs from its kernel (cellc_call_options). Private to capi/.
#include <optional>

#include "capi/kernel.h"
#include "runtime/data/run_control.h"

namespace cellc::capi {

/// A caller's; null: none is asked for.
cellc_call_options read_call_options(const cellc_call_options* given);

struct CallSettings {
  /// Throws Misuse and RequestError. `forward`: the call has strategies of its own. `report`: of the call, or null.
  CallSettings(const cellc_call_options& options, const CompiledCell& kernel, bool forward, const cellc_report* report);

  /// Of a prepared call, which goes step by step on the calling thread where nothing else is asked for.
  void go_step_by_step();

  std::optional<int> threads;
  std::optional<double> tolerance;
  SolveOptions solve;             ///< of a forward call
  std::optional<Strategy> named;  ///< by the options
  bool planned = false;           ///< by the options
  bool as_kernel = true;          ///< on a CPU `solve` is the kernel's but for the tolerance
  bool verify = false;
  RunControl control;
  bool controls = false;   ///< somebody asks, or has threads
  bool by_driver = false;  ///< of a prepared call: nothing that its driver cannot do
  bool ahead = false;      ///< of a kernel of a GPU: the call is rehearsed, not made
};

/// Of the call that the calling thread makes; null: all is as the kernel has it.
const CallSettings* call_settings();

/// Sets it, for as long as it lives.
class UseCallSettings {
 public:
  explicit UseCallSettings(const CallSettings* settings);
  ~UseCallSettings();
  UseCallSettings(const UseCallSettings&) = delete;
  UseCallSettings& operator=(const UseCallSettings&) = delete;

 private:
  const CallSettings* before_;
  std::optional<UseRunControl> control_;
};

}  // namespace cellc::capi
