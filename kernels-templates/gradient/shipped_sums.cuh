// Sums over steps as shipped code launches them: blocks in one row, and tables that are written on the device, since a
// call copies nothing there. The arguments are those of host/host_sums.h. Needs step_sums.cuh and shifted_rows.cuh.
#pragma once

namespace cellc {

/// Offsets of all positions along some axes, in row-major order.
struct OffsetTable {
  unsigned long long to;
  long long entries, axes;
  long long length[8], stride[8];
};
struct OffsetTables {
  OffsetTable table[11];
};

CELLC_DEVICE void fill_tables(const OffsetTables& p) {
  for (const OffsetTable& t : p.table)
    each_of(t.entries, [&](long long i) {
      long long rest = i, offset = 0;
      for (long long a = t.axes - 1; a >= 0; --a) {
        const long long above = quotient(rest, t.length[a]);
        offset += (rest - above * t.length[a]) * t.stride[a];
        rest = above;
      }
      reinterpret_cast<long long*>(t.to)[i] = offset;
    });
}

struct SumsInARow {
  StepSums sums;
  long long across, groups;  ///< blocks of a part: of columns; of products tiles, and the batch
};

CELLC_DEVICE void columns_in_a_row(const SumsInARow& p) {
  const long long part = quotient(blockIdx.x, p.across);
  sum_columns(p.sums, blockIdx.x - part * p.across, part);
}
CELLC_DEVICE void products_in_a_row(const SumsInARow& p) {
  const long long above = quotient(blockIdx.x, p.across), part = quotient(above, p.groups);
  sum_products(p.sums, blockIdx.x - above * p.across, above - part * p.groups, p.groups, part);
}

}  // namespace cellc
