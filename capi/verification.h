#pragma once
// What a call wrote beside the reference. Private to capi/.
#include <optional>
#include <vector>

#include "capi/host_arrays.h"

namespace cellc::capi {

class Verification {
 public:
  /// Before the run, which may write finals over starts. Arrays of a forward call on the host; all must outlive it.
  Verification(const CompiledCell& kernel, const Shape& shape, const std::vector<Expected>& expected,
               const cellc_array* arrays);
  /// After the run.
  double error() const;

 private:
  std::optional<std::size_t> number(FieldKind kind, int id) const;
  Array rows(FieldKind kind, int id) const;
  Array given(FieldKind kind, int id) const;
  Array lagged(const Symbol& copy) const;

  const CompiledCell& kernel_;
  const HostArrays arrays_;
  BoundRun run_;
  RunOutput reference_;
};

}  // namespace cellc::capi
