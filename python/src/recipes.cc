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
  if (direction != other.direction || wanted != other.wanted || cotangents != other.cotangents ||
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

std::vector<cellc_array> Recipe::places(const std::vector<DLTensor>& read) const {
  std::vector<cellc_array> places = arrays;
  for (std::size_t i = 0; i < reads.size(); ++i)
    places[static_cast<std::size_t>(reads[i].number)].data = read[i].first();
  return places;
}

nb::tuple Recipe::make(const std::vector<PyObject*>& tensors, const nb::object& maker,
                       std::vector<cellc_array>& places) const {
  const nb::tuple all = nb::steal<nb::tuple>(PyTuple_New(static_cast<Py_ssize_t>(results.size())));
  if (!all.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < results.size(); ++i) {
    nb::object result = nb::none();
    if (results[i] >= 0) {
      const Made& one = made[static_cast<std::size_t>(results[i])];
      result = one.like >= 0 ? empty_like(tensors[static_cast<std::size_t>(one.like)])
                             : nb::object(maker.attr("empty")(shape_tuple(one.shape), one.dtype));
      DLTensor tensor;
      if (!torch_types().exchange.read(result.ptr(), tensor)) throw std::logic_error("a tensor that cannot be read");
      places[static_cast<std::size_t>(one.number)].data = tensor.first();
    }
    PyTuple_SetItem(all.ptr(), static_cast<Py_ssize_t>(i), result.release().ptr());
  }
  return all;
}

std::shared_ptr<const Recipe> Recipes::find(const RecipeKey& key, const std::vector<PyObject*>& tensors,
                                            std::vector<DLTensor>& read) const {
  const TorchTypes& torch = torch_types();
  if (!torch.exchange.exists() || kept_.empty()) return nullptr;
  read.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!torch.is_plain(tensors[i]) || !torch.exchange.read(tensors[i], read[i])) return nullptr;
  return find(key, read);
}

std::shared_ptr<const Recipe> Recipes::find(const RecipeKey& key, const std::vector<DLTensor>& read) const {
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const Recipe& recipe = **it;
    if (recipe.reads.size() != read.size() || !(recipe.key == key)) continue;
    if (!std::equal(read.begin(), read.end(), recipe.reads.begin(), is_like)) continue;
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
