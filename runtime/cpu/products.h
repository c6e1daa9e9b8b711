#pragma once
// Hoisted products through BLAS.
#include <cstdint>
#include <map>

#include "compiler/plan/plan.h"
#include "runtime/data/array.h"

namespace cellc {

/// A product's matrices as BLAS sees them: for each entry of the batch, and for each of `shared` with the same matrix,
/// operand [rows, depth] times a matrix of params gives [rows, width].
struct ProductShape {
  std::int64_t batch, width, depth, shared = 1;
  bool batch_inside = false;  ///< the matrix's batch lies between its other two axes, not before them
  std::int64_t in() const { return batch * shared * depth; }  ///< entries of a row of the operand
  std::int64_t out() const { return batch * shared * width; }
};
ProductShape product_shape(const Plan& plan, const Product& product, const std::map<AxisId, std::int64_t>& sizes);

/// Rows that one call of BLAS multiplies, always: what BLAS adds in which order may follow from the
/// shape of the call, so every call has the same, and the bits of a row do not depend on the threads;
/// nor on how a sequence was cut, but for one kernel (docs/notes/plan.md).
inline constexpr std::int64_t kProductRows = 64;

/// What a run may ask for where it has long sequences (BoundRun::product_rows): BLAS packs the matrix anew in
/// every call, which takes a fifth of the time of 64 rows and a twentieth of that of 256.
inline constexpr std::int64_t kManyProductRows = 256;

/// Rows [0, rows) with rows <= kProductRows or rows == kManyProductRows. Rows are contiguous in both. On the calling
/// thread alone, whatever the BLAS of this process is set to otherwise, and that stays set. Throws DeviceError where
/// the address space has no room for what BLAS keeps beside the matrices.
void multiply_rows(const ProductShape& shape, bool sum_last, Dtype dtype, const void* matrix, const void* operand,
                   void* result, std::int64_t rows);

}  // namespace cellc
