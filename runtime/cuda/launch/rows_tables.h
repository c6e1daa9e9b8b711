#pragma once
// A plan's row kernels as the tables that kernels-templates/host/host_rows.h runs them by: for runs of our own and,
// printed, for code that is shipped.
#include <vector>

#include "compiler/codegen_cuda/emit_cuda_rows.h"
#include "kernels-templates/host/host_lanes.h"
#include "kernels-templates/host/host_rows.h"
#include "kernels-templates/host/host_scan.h"
#include "kernels-templates/host/host_stage.h"
#include "kernels-templates/sequential/rows_frame.cuh"

namespace cellc {

struct RowsTables {
  std::vector<int> axes, state_symbol;
  std::vector<cellc_slot> slots;
  std::vector<cellc_nest> nests;
  std::vector<cellc_rows_kernel> kernels;
  std::vector<cellc_product> products;
  std::vector<cellc_phase> phases;
  std::vector<cellc_dims> once, temps, chunks, symbol_axes, state_axes;
  cellc_rows rows{};

  RowsTables() = default;
  RowsTables(RowsTables&& other) noexcept { *this = std::move(other); }
  RowsTables& operator=(RowsTables&& other) noexcept;  ///< `rows` points into the vectors
  void point();
};

/// Kernel k is known to the device by the number k, the product by the number after the last of them.
RowsTables rows_tables(const Plan& plan, const std::vector<RowsKernel>& kernels, bool f64);

}  // namespace cellc
