#pragma once
// The kernels of a plan as the tables by which kernels-templates/host/host_nests.h runs them: for runs of our own
// and, printed, for code that is shipped.
#include <utility>
#include <vector>

#include "compiler/codegen_cuda/emit_cuda_nests.h"
#include "compiler/derive/derived_cell.h"
#include "kernels-templates/host/host_nests.h"
#include "kernels-templates/sequential/nest_frame.cuh"
#include "runtime/cuda/build/kernel_templates.h"
// clang-format on

namespace cellc {

struct NestTables {
  std::vector<int> axes, state_symbol;
  std::vector<cellc_slot> slots;
  std::vector<cellc_nest> nests;
  std::vector<cellc_nest_kernel> kernels;
  std::vector<cellc_product> products;
  std::vector<cellc_phase> phases;
  std::vector<cellc_dims> once, temps, chunks, symbol_axes, state_axes;
  cellc_nests rows{};

  NestTables() = default;
  NestTables(NestTables&&) = default;  ///< `rows` points into the vectors, whose memory moves with them
  NestTables& operator=(NestTables&&) = default;
  void point();
};

/// The kernels of product_wgmma.cuh, and of product_stored.cuh, but for the numbers that a device knows them by.
cellc_wide_products wide_products(const ProductTemplate& product);
cellc_wide_products wide_stored_products(const ProductTemplate& product);

/// Which inputs, and which histories, a cell between stages reads in the precision of arithmetic though rows are
/// narrow: sums that lanes have left, and starts, which are the row before the first. By symbol.
std::pair<std::vector<char>, std::vector<char>> wide_arrays(const DerivedCell& between);

/// Kernel k is known to the device by the number k, products by the numbers after the last of them: of rows of
/// arithmetic precision, and of those that lie in 16 bits. `wide_inputs`, `wide_outs`: of NestOptions.
NestTables nest_tables(const Plan& plan, const std::vector<NestKernel>& kernels, const ProductTemplate& product,
                       bool f64, const std::vector<char>& wide_inputs = {}, const std::vector<char>& wide_outs = {});

}  // namespace cellc
