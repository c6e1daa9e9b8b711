#pragma once
// Arrays with a stride on every axis: as a call takes them where its strides can say the same, else copied. Private to
// capi/.
#include <optional>
#include <vector>

#include "capi/call_settings.h"
#include "capi/kernel.h"
#include "runtime/cuda/launch/view_copy.h"

namespace cellc::capi {

/// The strides of a view in full, where it is of an array of these lengths; those of axes of length 1 stand for
/// nothing. Throws RequestError.
std::vector<std::int64_t> strides_in_full(const DirectedField& field, const Shape& shape, Dtype dtype,
                                          const std::vector<std::int64_t>& lengths, const cellc_view& view);
/// Whether a call takes entries of that type for the field: its own, or of a param 16 bits, which are widened.
bool takes_dtype(const DirectedField& field, Dtype storage, cellc_dtype given);
/// Whether two indices may mean one entry.
bool overlaps_itself(const std::vector<std::int64_t>& lengths, const std::vector<std::int64_t>& strides);

/// Where views are, and who copies what a call cannot take as it lies.
enum class Views : std::uint8_t {
  OnHost,
  OnGpu,  ///< copies are left to the call, which on_device() tells of them
  Staged  ///< on the host, of a call on a GPU: whatever has gaps is copied
};

class ViewedArrays {
 public:
  /// All must outlive it; memory of an earlier use is used again. Throws RequestError where a view is not of the call's
  /// shape or dtype, or is written and overlaps itself.
  void read(const DirectedCall& call, const Shape& shape, Dtype storage, const cellc_view* views, int count,
            Views where);
  const cellc_array* arrays() const { return arrays_.data(); }
  int count() const { return static_cast<int>(arrays_.size()); }
  /// By array, of a kernel of a GPU: what the call has to copy; empty: nothing.
  const std::vector<std::optional<CallView>>& on_device() const { return on_device_; }
  /// What was written into copies, into the memory of the views.
  void write_back() const;
  /// Copies are no longer needed.
  void clear() {
    copies_.clear();
    on_device_.clear();
  }

 private:
  struct Copy {
    bool written;
    Array memory;
    void* data;
    std::vector<std::int64_t> strides;
  };
  std::vector<cellc_array> arrays_;
  std::vector<Copy> copies_;
  std::vector<std::optional<CallView>> on_device_;
};

/// The arrays of a call on a GPU, as it takes them: with the views of the call that the calling thread makes.
/// Valid until the thread's next.
const std::vector<CallArray>& placed_arrays(const cellc_array* arrays, std::size_t count);
/// How an array of a call lies on a GPU.
CallView view_of(const DirectedField& field, Dtype storage, const Shape& shape, const CallArray& array);
/// An array of a GPU without gaps on the host, after what is queued on the stream.
Array on_host(Gpu& gpu, GpuStream stream, const DirectedField& field, Dtype storage, const Shape& shape,
              const CallArray& array);
/// The views that placed_arrays() tells of, for as long as it lives.
class UseDeviceViews {
 public:
  explicit UseDeviceViews(const ViewedArrays& views);
  ~UseDeviceViews();
  UseDeviceViews(const UseDeviceViews&) = delete;
  UseDeviceViews& operator=(const UseDeviceViews&) = delete;

 private:
  const std::vector<std::optional<CallView>>* before_;
};

/// Copies entries between memory of the host; strides in entries.
void copy_entries(Dtype dtype, const std::vector<std::int64_t>& lengths, void* to,
                  const std::vector<std::int64_t>& to_strides, const void* from,
                  const std::vector<std::int64_t>& from_strides);

/// cellc_apply of a request that was read, and with settings in the place of its options; null: as the kernel.
cellc_status apply(cellc_kernel* kernel, const cellc_request& request, const CallSettings* settings);

}  // namespace cellc::capi
