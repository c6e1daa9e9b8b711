#pragma once
// The text of the files below kernels-templates/, as part of the library: nothing is read at run time.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/array.h"

namespace cellc {

struct KernelTemplate {
  std::string_view name;  ///< of its file: "preamble.cuh"
  std::string_view text;
};

/// All of them, by name. The build writes this function: cmake/embed_templates.cmake.
std::span<const KernelTemplate> kernel_templates();

/// Text of one. A name that is none is our mistake: std::logic_error.
std::string_view kernel_template(std::string_view name);

/// What factors of a hoisted product are on the device.
enum class ProductFactors : std::uint8_t { Real, Tf32x3, Tf32, BF16, F16 };

/// The templates of hoisted products: on tensor cores (product_tensor.cuh), or by multiply-adds (product.cuh).
/// Arithmetic of 64 bits has the latter alone.
struct ProductTemplate {
  std::vector<const char*> parts;  ///< in order, the last of which has the kernel
  std::string macro;               ///< a line before their text, or none
  /// On tensor cores: shared memory of a stage for each row and column of a tile (kTensorRowBytes), and blocks that a
  /// multiprocessor has registers for (CELLC_PRODUCT_BLOCKS). 0: multiply-adds.
  int row_bytes = 0, blocks = 0;
  /// Of product_wgmma.cuh, whose kernels follow those of `parts`: shared memory of a slot (product_ring.cuh), the
  /// prepared matrix for it, and columns of a tile.
  int wide_slot_bytes = 0, wide_matrix_bytes = 0, wide_columns = 0;
  /// The same of rows that lie in 16 bits (stored_operands(), product_stored.cuh). 0: there are no such rows.
  int stored_slot_bytes = 0, stored_matrix_bytes = 0, stored_columns = 0;
};
/// Parts that product_wgmma.cuh and product_stored.cuh follow, and each of them comes last.
std::vector<const char*> wide_product_parts();
/// The line before `parts` by which rows of 16 bits have a kernel of their own: beside that for others, or alone.
std::string stored_operands(bool others);
ProductTemplate product_template(ProductFactors factors, Dtype storage);

/// The line before preamble.cuh that says what rows are stored as.
std::string storage_macro(Dtype storage);

}  // namespace cellc
