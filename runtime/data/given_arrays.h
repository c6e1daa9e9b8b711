#pragma once
// The first part of binding: arrays as a request names them -> fields of a call, and the dtype of all.
#include <deque>
#include <string>
#include <vector>

#include "compiler/plan/call_layout.h"
#include "runtime/data/bind.h"

namespace cellc {

/// What one given array turned out to be.
struct MatchedArray {
  const CallField* field;
  const GivenArray* given;
  std::string label;  ///< for messages: "input x (x.npy)"

  const std::vector<std::int64_t>& shape() const { return given->array.shape(); }
};

class GivenArrays {
 public:
  /// All must outlive it. Throws RequestError or UsageError.
  GivenArrays(const CellGraph& cell, const CallLayout& layout, const BindRequest& request);

  const std::vector<MatchedArray>& all() const { return matched_; }
  const GivenArray* find(FieldKind kind, int id) const;
  /// Of the run: as asked for, or as the arrays agree.
  Dtype dtype() const;

 private:
  void match(const std::map<std::string, GivenArray>& given, SymbolKind kind);
  void check_numbers() const;
  const CallField& field_named(const std::string& name, SymbolKind kind) const;
  const GivenArray* without_last(const CallField& field, const GivenArray& given);

  const CellGraph& cell_;
  const CallLayout& layout_;
  const BindRequest& request_;
  std::vector<MatchedArray> matched_;
  std::deque<GivenArray> scalars_;  ///< what `matched_` points to where a shape was cut
};

const char* to_string(SymbolKind kind);

}  // namespace cellc
