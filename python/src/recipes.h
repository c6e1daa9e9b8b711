#pragma once
// Calls on tensors that are like an earlier one: the same names, shapes, strides, dtypes and device. Everything but
// addresses is known of them, so that they cost little beside what torch takes for their results.
#include <list>
#include <memory>
#include <vector>

#include "exchange.h"
#include "kernel.h"

namespace cellc::python {

/// What calls that are alike have in common, beside their tensors' shapes.
struct RecipeKey {
  cellc_direction direction = CELLC_FORWARD;
  nb::tuple names;               ///< of the first tensors
  std::uint64_t wanted = 0;      ///< finals, or gradients: a bit for each name
  std::uint64_t cotangents = 0;  ///< that are given, a bit each; their tensors are the last ones
  std::uint64_t rows = 0;        ///< states and outs that are made, a bit each
  bool reverse = false;
  std::vector<std::pair<std::string, std::int64_t>> lengths;  ///< that the caller says: of axes, "batch" and "length"

  bool operator==(const RecipeKey& other) const;
};

struct Recipe {
  struct Read {
    int number;  ///< of the array
    std::vector<std::int64_t> shape, strides;
    int dtype, device;

    bool is_dense() const;
  };
  struct Made {
    int number;
    std::vector<std::int64_t> shape, strides;  ///< without gaps, as torch counts them
    int dtype;
    int like;  ///< the tensor that it is as, in shape and dtype, both without gaps; -1: none
  };

  RecipeKey key;
  std::vector<Read> reads;  ///< by tensor
  std::vector<Made> made;
  std::vector<int> results;         ///< numbers in `made`, -1 for None; backward: by name
  std::vector<cellc_array> arrays;  ///< of the direction; addresses say nothing
  std::vector<std::int64_t> lengths;
  std::int64_t sequences = 0, steps = 0;
  int device = kHost;                    ///< that its tensors are on
  std::shared_ptr<cellc_call> prepared;  ///< null: none

  cellc_shape shape() const;
  /// The arrays of a call, those that it reads where its tensors lie.
  void place(const DLTensor* read, cellc_array* places) const;
  /// The results of a call as tensors of Python, placed; before them so many Nones. `maker` as of CallArrays.
  nb::tuple make(PyObject* const* tensors, const nb::object& maker, std::size_t before, cellc_array* places) const;
};

/// Kept by a kernel, the last few of them. Needs the GIL.
class Recipes {
 public:
  /// Null: there was no such call yet, or tensors are not as torch itself makes them. Fills `read`.
  std::shared_ptr<const Recipe> find(const RecipeKey& key, PyObject* const* tensors, std::size_t count,
                                     DLTensor* read) const;
  /// Null: there was no such call yet.
  std::shared_ptr<const Recipe> find(const RecipeKey& key, const DLTensor* read, std::size_t count) const;
  void keep(std::shared_ptr<const Recipe> recipe) const;

 private:
  mutable std::list<std::shared_ptr<const Recipe>> kept_;  ///< the latest first
};

}  // namespace cellc::python
