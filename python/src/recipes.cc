#include "recipes.h"

#include <algorithm>

namespace cellc::python {
namespace {

/// Whether entries stand as those of an earlier tensor of that shape. An axis of one entry has no stride that counts.
bool has_strides(const DLTensor& tensor, const Recipe::Read& earlier) {
  std::int64_t next = 1;
  for (int i = tensor.rank - 1; i >= 0; --i) {
    const std::int64_t stride = tensor.strides ? tensor.strides[i] : next;
    if (tensor.shape[i] > 1 && stride != earlier.strides[static_cast<std::size_t>(i)]) return false;
    next *= tensor.shape[i];
  }
  return true;
}

bool is_like(const DLTensor& tensor, const Recipe::Read& earlier) {
  if (tensor.rank != static_cast<int>(earlier.shape.size()) || tensor.cellc_dtype() != earlier.dtype) return false;
  return std::equal(earlier.shape.begin(), earlier.shape.end(), tensor.shape) &&
         tensor.cellc_device() == earlier.device && has_strides(tensor, earlier) &&
         reinterpret_cast<std::uintptr_t>(tensor.first()) % static_cast<std::uintptr_t>(size_of(earlier.dtype)) == 0;
}

nb::object empty_like(PyObject* tensor) {
  const nb::object result = nb::steal(PyObject_Vectorcall(torch_types().empty_like.ptr(), &tensor, 1, nullptr));
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

}  // namespace

bool RecipeKey::operator==(const RecipeKey& other) const {
  if (direction != other.direction || wanted != other.wanted || cotangents != other.cotangents || rows != other.rows ||
      reverse != other.reverse || lengths != other.lengths)
    return false;
  return names.is(other.names) || PyObject_RichCompareBool(names.ptr(), other.names.ptr(), Py_EQ) == 1;
}

cellc_shape Recipe::shape() const {
  cellc_shape shape;
  cellc_shape_init(&shape);
  shape.lengths = lengths.data();
  shape.sequences = sequences;
  shape.steps = steps;
  shape.reverse = key.reverse;
  return shape;
}

bool Recipe::Read::is_dense() const {
  std::int64_t next = 1;
  for (std::size_t i = shape.size(); i-- > 0; next *= shape[i])
    if (shape[i] > 1 && strides[i] != next) return false;
  return true;
}

void Recipe::place(const DLTensor* read, cellc_array* places) const {
  std::copy(arrays.begin(), arrays.end(), places);
  for (std::size_t i = 0; i < reads.size(); ++i) places[reads[i].number].data = read[i].first();
}

nb::tuple Recipe::make(PyObject* const* tensors, const nb::object& maker, std::size_t before,
                       cellc_array* places) const {
  const TorchTypes& torch = torch_types();
  const nb::tuple all = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(before + results.size())));
  if (!all.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < before; ++i)
    PyTuple_SetItem(all.ptr(), static_cast<Py_ssize_t>(i), nb::none().release().ptr());
  for (std::size_t i = 0; i < results.size(); ++i) {
    nb::object result = nb::none();
    if (results[i] >= 0) {
      const Made& one = made[static_cast<std::size_t>(results[i])];
      void*& place = places[one.number].data;
      result = nb::object();
      if (torch.factory.exists())
        result = torch.factory.make(one.shape.data(), one.strides.data(), static_cast<int>(one.shape.size()), one.dtype,
                                    device, &place);
      if (!result.is_valid()) {
        result = one.like >= 0 ? empty_like(tensors[one.like])
                               : nb::object(maker.attr("empty")(shape_tuple(one.shape), one.dtype));
        DLTensor tensor;
        if (!torch.exchange.read(result.ptr(), tensor)) throw std::logic_error("a tensor that cannot be read");
        place = tensor.first();
      }
    }
    PyTuple_SetItem(all.ptr(), static_cast<Py_ssize_t>(before + i), result.release().ptr());
  }
  return all;
}

std::shared_ptr<const Recipe> Recipes::find(const RecipeKey& key, PyObject* const* tensors, std::size_t count,
                                            DLTensor* read) const {
  const TorchTypes& torch = torch_types();
  if (!torch.exchange.exists() || kept_.empty()) return nullptr;
  for (std::size_t i = 0; i < count; ++i)
    if (!torch.is_plain(tensors[i]) || !torch.exchange.read(tensors[i], read[i])) return nullptr;
  return find(key, read, count);
}

std::shared_ptr<const Recipe> Recipes::find(const RecipeKey& key, const DLTensor* read, std::size_t count) const {
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const Recipe& recipe = **it;
    if (recipe.reads.size() != count || !(recipe.key == key)) continue;
    if (!std::equal(read, read + count, recipe.reads.begin(), is_like)) continue;
    kept_.splice(kept_.begin(), kept_, it);
    return *kept_.begin();
  }
  return nullptr;
}

void Recipes::keep(std::shared_ptr<const Recipe> recipe) const {
  constexpr std::size_t kKept = 16;
  kept_.push_front(std::move(recipe));
  if (kept_.size() > kKept) kept_.pop_back();
}

}  // namespace cellc::python
