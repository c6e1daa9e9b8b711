#pragma once
// What the library of operators (operators/) asks this module for, in C, as both are built without the other's headers:
// calls that are like an earlier one. All others are made in Python (cellc/operators.py).
#include "dlpack.h"

namespace cellc::python {

/// An operator's arguments. All is borrowed.
struct OperatorCall {
  std::int64_t function;  ///< its number
  const char* names;
  std::size_t names_length;
  std::int64_t length, batch;  ///< that no tensor says; -1: none
  const char* write;           ///< names of the states and outs that are made; null: all
  std::size_t write_length;
  bool backward, finals, reverse;
  std::uint64_t wanted;      ///< backward: of which of the named tensors there are to be gradients, a bit each
  std::uint64_t cotangents;  ///< that are given, a bit each
  const DLTensor* tensors;   ///< those of the names; backward then states, and the cotangents that are given
  int count;
};

/// How results are made: new tensors without gaps, in order.
struct OperatorResults {
  void* context;
  int (*make)(void* context, const std::int64_t* shape, int rank, int dtype, void** data);  ///< 0, or it failed
};

struct OperatorTable {
  int version;  ///< of these structs
  /// Whether the call is made. Where not, some results may be.
  bool (*repeat)(const OperatorCall* call, const OperatorResults* results);
  /// What went wrong in the calling thread's last call in Python; null: nothing did, or it was taken.
  const char* (*take_error)();
};
inline constexpr int kOperatorTableVersion = 2;

}  // namespace cellc::python
