#pragma once
// Calls whose params differ by sequence: a call for each sequence, with its params. Private to capi/.
#include "capi/kernel.h"

namespace cellc::capi {

/// Whether a param of the call, or its tangent or gradient, has sequences as a further first axis.
bool has_params_by_sequence(const DirectedCall& call, const cellc_request& request);

/// The call of each sequence, made of one of all.
class RequestsBySequence {
 public:
  /// All must outlive it. Throws RequestError where an array is not of the call's shape, or is written and overlaps
  /// itself or has one for all sequences, or is not memory of the kernel's GPU and not said to be of the host.
  RequestsBySequence(CompiledCell& kernel, const Shape& shape, const cellc_request& request);
  /// Whether all arrays are there that any of the sequences needs: the first may have no steps. Otherwise the thread's
  /// last error says which is not.
  cellc_status check_given(CompiledCell& kernel) const;
  /// Of the calls: as many as sequences have lengths.
  std::int64_t shapes() const;

  /// Of sequence `s`; valid until the next.
  const cellc_request& of(std::int64_t s);
  /// What the call of `s` gave goes into the report of all. Whether the others follow.
  bool take(cellc_status status);
  /// After all: the report, and what the call gives.
  cellc_status finish() const;

 private:
  void check_status(CompiledCell& kernel);
  void add_stages();

  struct Viewed {
    std::vector<std::int64_t> lengths, strides;
    bool by_sequence, shared, rows;  ///< shared: if not by sequence, the same for all of them
    std::int64_t size;               ///< of an entry
  };
  static void check_on_device(Gpu& gpu, const std::string& name, const cellc_view& view, const Viewed& viewed);

  const Shape& shape_;
  const cellc_request& all_;
  std::vector<Viewed> viewed_;
  std::vector<cellc_view> views_;
  cellc_shape one_{};
  std::int64_t offsets_[2] = {0, 0};
  cellc_request request_;
  cellc_report report_{};
  cellc_report sum_{};  ///< of the reports so far
  std::vector<StageReport> stages_;
  cellc_status status_ = CELLC_OK;
};

}  // namespace cellc::capi
