#pragma once
// The arrays of one call on the CPU, as runs take them: read where they lie, unless their rows have gaps. Private to
// capi/.
#include <vector>

#include "capi/kernel.h"
#include "runtime/data/bind.h"
#include "runtime/gradient/through_defaults.h"

namespace cellc::capi {

class HostArrays {
 public:
  /// All must outlive it. The arrays are as they are expected.
  HostArrays(const CompiledCell& kernel, const Shape& shape, const std::vector<Expected>& expected,
             const cellc_array* arrays)
      : kernel_(kernel), shape_(shape), expected_(expected), arrays_(arrays) {}

  bool is_given(std::size_t i) const { return arrays_[i].data != nullptr; }
  bool is_dense(std::size_t i) const { return arrays_[i].step_stride == 0 && arrays_[i].sequence_stride == 0; }
  /// The caller's memory, or a copy without gaps. Of null: no memory, under the shape that it would have.
  Array given(std::size_t i) const;
  /// The same as runs see it: rows of all sequences one behind another.
  Array rows(std::size_t i) const;
  /// Writes array `i`, of any floating-point dtype and any shape of as many entries.
  void put(std::size_t i, const Array& from) const;

  /// The results that have an array.
  Wanted wanted() const;

  struct Bound {
    Binding binding;
    GivenSymbols given;  ///< what was not null
  };
  /// The values that the call reads, which come first. An input that is null has no memory.
  Bound bound() const;

 private:
  const CompiledCell& kernel_;
  const Shape& shape_;
  const std::vector<Expected>& expected_;
  const cellc_array* const arrays_;
};

}  // namespace cellc::capi
