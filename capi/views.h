#pragma once
// Arrays with a stride on every axis: as a call takes them where its strides can say the same, else copied. Private to
// capi/.
#include <vector>

#include "capi/call_settings.h"
#include "capi/kernel.h"

namespace cellc::capi {

/// The strides of a view in full, where it is of an array of these lengths; those of axes of length 1 stand for
/// nothing. Throws RequestError.
std::vector<std::int64_t> strides_in_full(const DirectedField& field, const Shape& shape, Dtype dtype,
                                          const std::vector<std::int64_t>& lengths, const cellc_view& view);
/// Whether two indices may mean one entry.
bool overlaps_itself(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& strides);

class ViewedArrays {
 public:
  /// All must outlive it; memory of an earlier use is used again. Throws RequestError where a view is not of the call's
  /// shape or dtype, or is written and overlaps itself. `on_gpu`: throws it, too, where a copy would be needed.
  void read(const DirectedCall& call, const Shape& shape, Dtype storage, const cellc_view* views, int count,
            bool on_gpu);
  const cellc_array* arrays() const { return arrays_.data(); }
  int count() const { return static_cast<int>(arrays_.size()); }
  /// What was written into copies, into the memory of the views.
  void write_back() const;
  /// Copies are no longer needed.
  void clear() { copies_.clear(); }

 private:
  struct Copy {
    bool written;
    Array memory;
    void* data;
    std::vector<std::int64_t> strides;
  };
  std::vector<cellc_array> arrays_;
  std::vector<Copy> copies_;
};

/// cellc_apply of a request that was read, and with settings in the place of its options; null: as the kernel.
cellc_status apply(cellc_kernel* kernel, const cellc_request& request, const CallSettings* settings);

}  // namespace cellc::capi
