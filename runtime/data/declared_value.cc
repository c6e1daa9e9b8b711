#include "runtime/data/declared_value.h"

#include <cstdint>
#include <utility>

#include "compiler/graph/evaluate.h"

namespace cellc {

Array declared_value(const CellGraph& cell, int symbol, const std::map<AxisId, std::int64_t>& sizes,
                     const std::vector<Array>& symbols, Dtype dtype, std::vector<std::int64_t> shape) {
  Environment environment;
  environment.sizes = sizes;
  environment.read = [&](int s, const std::vector<std::int64_t>& position, int) {
    const Array& array = symbols[static_cast<std::size_t>(s)];
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < position.size(); ++i) flat = flat * array.shape()[i] + position[i];
    return array.get(flat);
  };
  const Symbol& of = cell.symbols[static_cast<std::size_t>(symbol)];
  const Tensor value = Evaluator(cell, environment).value_over(of.initial, of.index);
  Array array(dtype, std::move(shape));
  const auto count = static_cast<std::int64_t>(value.data.size());
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, value.data[static_cast<std::size_t>(i % count)]);
  return array;
}

}  // namespace cellc
