#include "tests/oracle/tensor.h"

#include <algorithm>

namespace cellc::oracle {
namespace {

struct Space {
  std::vector<std::string> labels;
  std::vector<std::int64_t> lengths;

  void add(const std::string& label, std::int64_t length) {
    for (std::size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] != label) continue;
      if (lengths[i] != length) throw OracleError("axis '" + label + "' has two lengths");
      return;
    }
    labels.push_back(label);
    lengths.push_back(length);
  }

  /// Calls f with every position, the last label fastest.
  template <typename F>
  void each(F f) const {
    std::vector<std::int64_t> at(labels.size(), 0);
    for (std::int64_t left = element_count(lengths); left > 0; --left) {
      f(at);
      for (std::size_t i = labels.size(); i-- > 0;) {
        if (++at[i] < lengths[i]) break;
        at[i] = 0;
      }
    }
  }
};

std::vector<std::int64_t> place_strides(const Tensor& t) {
  std::vector<std::int64_t> strides(t.shape.size(), 1);
  for (std::size_t i = t.shape.size(); i-- > 1;) strides[i - 1] = strides[i] * t.shape[i];
  return strides;
}

/// For each label of `space`, how far one step along it moves in `t` (0 where t lacks it).
std::vector<std::int64_t> strides_in(const Space& space, const Tensor& t, const std::vector<std::string>& labels) {
  const std::vector<std::int64_t> strides = place_strides(t);
  std::vector<std::int64_t> result(space.labels.size(), 0);
  for (std::size_t p = 0; p < labels.size(); ++p)
    for (std::size_t i = 0; i < space.labels.size(); ++i)
      if (space.labels[i] == labels[p]) result[i] += strides[p];
  return result;
}

std::int64_t offset(const std::vector<std::int64_t>& at, const std::vector<std::int64_t>& strides) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < at.size(); ++i) sum += at[i] * strides[i];
  return sum;
}

void forbid_repeats(const Tensor& t) {
  for (std::size_t i = 0; i < t.axes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (t.axes[i] == t.axes[j])
        throw OracleError("a tensor with the axis '" + t.axes[i] + "' twice, used elementwise");
}

Tensor shaped(const Space& space) {
  Tensor t{space.labels, space.lengths, {}};
  t.data.reserve(element_count(space.lengths));
  return t;
}

}  // namespace

std::int64_t element_count(const std::vector<std::int64_t>& shape) {
  std::int64_t n = 1;
  for (std::int64_t length : shape) n *= length;
  return n;
}

Tensor scalar(double value) { return {{}, {}, {value}}; }

Tensor elementwise(const std::vector<const Tensor*>& operands,
                   const std::function<double(const std::vector<double>&)>& f) {
  Space space;
  for (const Tensor* t : operands) {
    forbid_repeats(*t);
    for (std::size_t i = 0; i < t->axes.size(); ++i) space.add(t->axes[i], t->shape[i]);
  }
  std::vector<std::vector<std::int64_t>> strides;
  for (const Tensor* t : operands) strides.push_back(strides_in(space, *t, t->axes));
  Tensor result = shaped(space);
  std::vector<double> values(operands.size());
  space.each([&](const std::vector<std::int64_t>& at) {
    for (std::size_t i = 0; i < operands.size(); ++i) values[i] = operands[i]->data[offset(at, strides[i])];
    result.data.push_back(f(values));
  });
  return result;
}

Tensor renamed(const Tensor& tensor, const std::vector<Place>& places) {
  if (places.size() != tensor.axes.size()) throw OracleError("an index list of the wrong length");
  const std::vector<std::int64_t> strides = place_strides(tensor);
  Space space;
  std::vector<std::string> labels;
  std::int64_t base = 0;
  for (std::size_t p = 0; p < places.size(); ++p) {
    labels.push_back(places[p].label);
    if (!places[p].label.empty()) {
      space.add(places[p].label, tensor.shape[p]);
      continue;
    }
    if (places[p].entry < 0 || places[p].entry >= tensor.shape[p]) throw OracleError("an entry outside its axis");
    base += places[p].entry * strides[p];
  }
  const std::vector<std::int64_t> moves = strides_in(space, tensor, labels);
  Tensor result = shaped(space);
  space.each(
      [&](const std::vector<std::int64_t>& at) { result.data.push_back(tensor.data[base + offset(at, moves)]); });
  return result;
}

Tensor contracted(const Tensor& a, const Tensor& b) {
  if (a.axes.empty()) throw OracleError("the left side of '@' has no axes");
  const std::string label = a.axes.back();
  const auto found = std::find(b.axes.begin(), b.axes.end(), label);
  if (found == b.axes.end()) throw OracleError("axis '" + label + "' is not on the right side of '@'");
  const std::string bound = label + "@";  // no axis of a cell is called so
  std::vector<std::string> left = a.axes, right = b.axes;
  left.back() = bound;
  right[found - b.axes.begin()] = bound;

  Space space;
  for (std::size_t i = 0; i + 1 < left.size(); ++i) space.add(left[i], a.shape[i]);
  for (std::size_t i = 0; i < right.size(); ++i)
    if (right[i] != bound) space.add(right[i], b.shape[i]);
  for (const auto* side : {&left, &right})
    for (const std::string& name : *side)
      if (std::count(side->begin(), side->end(), name) > 1)
        throw OracleError("the axis '" + name + "' is left twice by '@'");

  const auto move_left = strides_in(space, a, left), move_right = strides_in(space, b, right);
  Space inner;
  inner.add(bound, a.shape.back());
  inner.add(bound, b.shape[found - b.axes.begin()]);
  const std::int64_t step_left = strides_in(inner, a, left)[0], step_right = strides_in(inner, b, right)[0];
  Tensor result = shaped(space);
  space.each([&](const std::vector<std::int64_t>& at) {
    double sum = 0;
    for (std::int64_t i = 0; i < a.shape.back(); ++i)
      sum += a.data[offset(at, move_left) + i * step_left] * b.data[offset(at, move_right) + i * step_right];
    result.data.push_back(sum);
  });
  return result;
}

Tensor reduced(const Tensor& tensor, const std::vector<std::string>& labels, const std::vector<std::int64_t>& lengths,
               const std::function<double(const std::vector<double>&)>& f) {
  forbid_repeats(tensor);
  Space inner, outer;
  for (std::size_t i = 0; i < labels.size(); ++i) inner.add(labels[i], lengths[i]);
  for (std::size_t i = 0; i < tensor.axes.size(); ++i) {
    if (std::find(labels.begin(), labels.end(), tensor.axes[i]) == labels.end())
      outer.add(tensor.axes[i], tensor.shape[i]);
    else
      inner.add(tensor.axes[i], tensor.shape[i]);  // the lengths must agree
  }
  const auto move_outer = strides_in(outer, tensor, tensor.axes), move_inner = strides_in(inner, tensor, tensor.axes);
  Tensor result = shaped(outer);
  outer.each([&](const std::vector<std::int64_t>& at) {
    std::vector<double> values;
    inner.each([&](const std::vector<std::int64_t>& in) {
      values.push_back(tensor.data[offset(at, move_outer) + offset(in, move_inner)]);
    });
    result.data.push_back(f(values));
  });
  return result;
}

Tensor over(const Tensor& tensor, const std::vector<std::string>& labels, const std::vector<std::int64_t>& lengths) {
  if (tensor.axes == labels) {
    if (tensor.shape != lengths) throw OracleError("a value of the wrong shape");
    return tensor;
  }
  forbid_repeats(tensor);
  Space space;
  for (std::size_t i = 0; i < labels.size(); ++i) space.add(labels[i], lengths[i]);
  if (space.labels.size() != labels.size()) {
    // W[d,d] = 0: only a constant can fill a tensor with a repeated axis.
    if (!tensor.axes.empty()) throw OracleError("a value whose axes do not say which of two it means");
    return {labels, lengths, std::vector<double>(element_count(lengths), tensor.data[0])};
  }
  for (std::size_t i = 0; i < tensor.axes.size(); ++i) {
    const auto found = std::find(labels.begin(), labels.end(), tensor.axes[i]);
    if (found == labels.end()) throw OracleError("the axis '" + tensor.axes[i] + "' is not an axis of the target");
    if (lengths[found - labels.begin()] != tensor.shape[i]) throw OracleError("a value of the wrong shape");
  }
  const auto moves = strides_in(space, tensor, tensor.axes);
  Tensor result = shaped(space);
  space.each([&](const std::vector<std::int64_t>& at) { result.data.push_back(tensor.data[offset(at, moves)]); });
  return result;
}

}  // namespace cellc::oracle
