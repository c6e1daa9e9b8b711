#include "runtime/cpu/products.h"

#include <algorithm>
#include <vector>

#include "compiler/graph/axes.h"
#include "runtime/cpu/blas.h"

namespace cellc {

ProductShape product_shape(const Plan& plan, const Product& product, const std::map<AxisId, std::int64_t>& sizes) {
  const AxisLengths lengths(plan.cell.graph, sizes);
  return {lengths.entries(product.batch), lengths.entries(product.rows), lengths.entries(product.sums),
          lengths.entries(product.shared), product.batch_inside};
}

namespace {

template <typename T>
void multiply(const ProductShape& s, bool sum_last, const T* matrix, const T* operand, T* result, std::int64_t rows) {
  const std::int64_t in = s.in(), out = s.out();
  // Of the matrix, from one row to the next, and from one entry of the batch to the next.
  const std::int64_t along = sum_last ? s.depth : s.width, apart = s.batch_inside ? s.batch * along : along,
                     batch_apart = s.batch_inside ? along : s.width * s.depth;
  if (out == 0 || rows == 0) return;
  if (s.depth == 0) {
    std::fill_n(result, rows * out, T(0));
    return;
  }
  thread_local std::vector<T> padded_in, padded_out;
  T* target = result;
  if (rows < kProductRows) {
    padded_in.assign(static_cast<std::size_t>(kProductRows * in), T(0));
    padded_out.resize(static_cast<std::size_t>(kProductRows * out));
    std::copy_n(operand, rows * in, padded_in.begin());
    operand = padded_in.data();
    target = padded_out.data();
  }
  const auto narrow = [](std::int64_t n) { return static_cast<blasint>(std::max<std::int64_t>(n, 1)); };
  for (std::int64_t b = 0; b < s.batch * s.shared; ++b) {
    blas().multiply(sum_last ? CblasTrans : CblasNoTrans, narrow(std::max(rows, kProductRows)), narrow(s.width),
                    narrow(s.depth), operand + b * s.depth, narrow(in), matrix + b / s.shared * batch_apart,
                    narrow(apart), target + b * s.width, narrow(out));
  }
  if (target != result) std::copy_n(target, rows * out, result);
}

}  // namespace

void multiply_rows(const ProductShape& shape, bool sum_last, Dtype dtype, const void* matrix, const void* operand,
                   void* result, std::int64_t rows) {
  const BlasCall call;
  if (dtype == Dtype::F64) {
    multiply(shape, sum_last, static_cast<const double*>(matrix), static_cast<const double*>(operand),
             static_cast<double*>(result), rows);
  } else {
    multiply(shape, sum_last, static_cast<const float*>(matrix), static_cast<const float*>(operand),
             static_cast<float*>(result), rows);
  }
}
}  // namespace cellc
