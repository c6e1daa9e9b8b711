#pragma once
// The lengths of a call, from the shapes of what is given: every axis, the batch and the steps.
#include <optional>
#include <string>
#include <vector>

#include "kernel.h"

namespace cellc::python {

/// What a call is given, by key, as Python objects and as they lie in memory.
struct Given {
  const ArrayInfo* info;
  nb::object object;
  HeldArray held;
  bool is_scalar = false;  ///< a number, which stands for an array of the right shape
  bool refitted = false;   ///< another array stands for it, of another shape or dtype
};

/// What a caller may say of lengths beside the arrays.
struct AskedSizes {
  std::optional<std::int64_t> batch, length;
  nb::object sizes;    ///< mapping: axis -> length, or None
  nb::object offsets;  ///< of packed sequences, or None
  bool reverse = false;
};

/// (batch, length, sizes, offsets, reverse), as a call has them. Throws ArgumentFault.
AskedSizes asked_sizes(const Kernel& kernel, const nb::tuple& given);

class CallSizes {
 public:
  /// Throws ArgumentFault, which names the argument and what was expected.
  CallSizes(const Kernel& kernel, const std::vector<Given>& given, const AskedSizes& asked);

  /// As `cellc.h` wants it; valid as long as this is.
  cellc_shape shape() const;
  /// Lengths of an array as the user sees it: without a batch where nothing was given with one.
  std::vector<std::int64_t> expected(const ArrayInfo& info) const;
  /// Of an array whose batch may be left out: expected() without it.
  bool has_batch(const ArrayInfo& info) const;
  /// "[B, T, d]" of such an array.
  std::string names(const ArrayInfo& info) const;
  /// Entries that belong together in memory: of one step, or of one sequence's start.
  std::int64_t part(const ArrayInfo& info) const;

  std::int64_t sequences() const { return sequences_; }
  std::int64_t steps() const { return packed_ ? 1 : steps_; }
  std::int64_t rows() const { return packed_ ? offsets_.back() : sequences_ * steps_; }
  bool packed() const { return packed_; }
  bool batched() const { return batched_; }

 private:
  void read_offsets(nb::handle offsets);
  void read_asked(const AskedSizes& asked);
  void read(const Given& given);
  void set(std::int64_t& length, std::int64_t value, const std::string& what, const Given& given);
  void finish();

  const Kernel& kernel_;
  std::vector<std::int64_t> lengths_, offsets_;
  std::vector<std::string> sources_;  ///< of lengths_: the argument that gave it
  std::string sequences_source_, steps_source_;
  std::int64_t sequences_ = -1, steps_ = -1;
  bool packed_ = false, batched_ = false, reverse_ = false;
};

}  // namespace cellc::python
