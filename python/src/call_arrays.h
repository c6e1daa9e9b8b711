#pragma once
// The arrays of one call as cellc.h wants them: in place where their rows are contiguous, else copied; and new ones for
// what is written.
#include <vector>

#include "call_sizes.h"

namespace cellc::python {

/// Makes and converts arrays: cellc/numpy_arrays.py, or that of torch. Called only where something must be made.
///   empty(shape, dtype)           a new array
///   convert(object, dtype)        of anything else, contiguous
///   spread(object, shape, dtype)  the same, repeated over missing leading axes or, for a number, all of them
using ArrayMaker = nb::object;

class CallArrays {
 public:
  /// `on_host`: of a kernel of a GPU that copies arrays of the host, which have no gaps then.
  CallArrays(const Kernel& kernel, const CallSizes& sizes, cellc_direction direction, ArrayMaker maker, bool on_host);

  /// Places what is read. Throws ArgumentFault where dtype, device or shape are not as expected.
  void read(Given& given);
  /// A new array for what is written; it is the caller's.
  nb::object write(const ArrayInfo& info);

  const cellc_array* data() const { return arrays_.data(); }
  int count() const { return static_cast<int>(arrays_.size()); }

 private:
  bool in_place(const ArrayInfo& info, const View& view, cellc_array& array) const;
  void make_fit(Given& given, const std::vector<std::int64_t>& expected);

  const Kernel& kernel_;
  const CallSizes& sizes_;
  const ArrayMaker maker_;
  const bool on_host_;
  std::vector<cellc_array> arrays_;
  std::vector<HeldArray> kept_;  ///< what was made for this call, and results while it runs
};

}  // namespace cellc::python
