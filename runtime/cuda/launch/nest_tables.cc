#include "runtime/cuda/launch/nest_tables.h"

#include <algorithm>
#include <stdexcept>

#include "compiler/graph/axes.h"

namespace cellc {

namespace {

class Filler {
 public:
  Filler(const Plan& plan, NestTables& tables, const std::vector<char>& wide_inputs, const std::vector<char>& wide_outs)
      : plan_(plan), cell_(plan.cell), t_(tables), wide_inputs_(wide_inputs), wide_outs_(wide_outs) {}

  void run(const std::vector<NestKernel>& kernels, bool f64) {
    for (const Symbol& s : cell_.symbols) t_.symbol_axes.push_back(dims(s.axes));
    for (const StateUpdate& u : cell_.updates) {
      t_.state_axes.push_back(dims(cell_.symbols[u.symbol].index));
      t_.state_symbol.push_back(u.symbol);
    }
    for (const Buffer& b : plan_.once) t_.once.push_back(dims(b.dims));
    for (const Buffer& b : plan_.temps) t_.temps.push_back(dims(b.dims));
    for (const Buffer& b : plan_.chunks) t_.chunks.push_back(dims(b.dims));
    for (const Product& p : plan_.products) product(p);
    for (const Phase& p : plan_.phases) t_.phases.push_back({p.product, p.index});
    for (const NestKernel& k : kernels) kernel(k);
    cellc_nests& r = t_.rows;
    r.kernel_count = static_cast<int>(t_.kernels.size());
    r.phase_count = static_cast<int>(t_.phases.size());
    r.once_count = static_cast<int>(t_.once.size());
    r.temp_count = static_cast<int>(t_.temps.size());
    r.chunk_count = static_cast<int>(t_.chunks.size());
    r.once_kernel = plan_.once_kernel;
    r.split = plan_.split_axis == kNoAxis ? -1 : axis(plan_.split_axis);
    r.real_bytes = f64 ? 8 : 4;
    r.product_kernel = r.kernel_count;
    r.stored_kernel = r.kernel_count + 1;
    t_.point();
  }

 private:
  static bool is_in(const std::vector<char>& flags, int id) {
    return static_cast<std::size_t>(id) < flags.size() && flags[static_cast<std::size_t>(id)];
  }
  int axis(AxisId id) const { return header_position(cell_, id); }
  cellc_dims dims(const std::vector<AxisId>& axes) {
    const cellc_dims result{static_cast<int>(t_.axes.size()), static_cast<int>(axes.size())};
    for (const AxisId a : axes) t_.axes.push_back(axis(a));
    return result;
  }
  void product(const Product& p) {
    cellc_product q{};
    switch (p.operand.place) {
      case Place::Input:
        q.operand = CELLC_OF_INPUT;
        break;
      case Place::StateNew:
        q.operand = CELLC_OF_STATE;
        break;
      case Place::Out:
        q.operand = CELLC_OF_OUT;
        break;
      case Place::Chunk:
        q.operand = CELLC_OF_CHUNK;
        break;
      default:
        throw std::logic_error("rows: a product of something without rows");
    }
    q.operand_id = p.operand.id;
    q.matrix = p.matrix.place == Place::Param ? CELLC_OF_PARAM : CELLC_OF_ONCE;
    q.matrix_id = p.matrix.id;
    q.sum_last = p.sum_last;
    q.batch_inside = p.batch_inside;
    q.result = p.result.place == Place::Out ? CELLC_OF_OUT : CELLC_OF_CHUNK;
    q.result_id = p.result.id;
    q.stores = stores_rows(plan_, p) && !(p.result.place == Place::Out && is_in(wide_outs_, p.result.id));
    q.stored = reads_stored_rows(plan_, p) && !(p.operand.place == Place::Input && is_in(wide_inputs_, p.operand.id));
    q.batch = dims(p.batch);
    q.shared = dims(p.shared);
    q.rows = dims(p.rows);
    q.sums = dims(p.sums);
    t_.products.push_back(q);
  }
  void kernel(const NestKernel& k) {
    cellc_nest_kernel r{};
    r.form = static_cast<int>(k.form);
    r.kernel = k.kernel;
    r.first_slot = static_cast<int>(t_.slots.size());
    r.slots = static_cast<int>(k.slots.size());
    if (r.slots > CELLC_MOST_SLOTS) throw std::logic_error("rows: a kernel has too many arguments");
    for (const NestSlot& s : k.slots)
      t_.slots.push_back(
          {static_cast<int>(s.kind), s.kind == NestSlotKind::Length ? axis(static_cast<AxisId>(s.id)) : s.id});
    r.first_nest = static_cast<int>(t_.nests.size());
    const std::vector<Nest>& nests = plan_.kernels[k.kernel].nests;
    for (std::size_t n = 0; n < nests.size(); ++n)
      if (k.nest < 0 || k.nest == static_cast<int>(n)) t_.nests.push_back({dims(nests[n].axes), dims(nests[n].bound)});
    r.nests = static_cast<int>(t_.nests.size()) - r.first_nest;
    r.cluster = k.cluster;
    r.sequences = k.sequences;
    r.threads = k.threads;
    r.shared_bytes = static_cast<int>(k.shared_bytes);
    r.parts = k.parts;
    r.exchange_bytes = k.exchange_bytes;
    t_.kernels.push_back(r);
  }

  const Plan& plan_;
  const CellGraph& cell_;
  NestTables& t_;
  const std::vector<char>&wide_inputs_, &wide_outs_;
};

}  // namespace

void NestTables::point() {
  rows.axes = axes.data();
  rows.slots = slots.data();
  rows.nests = nests.data();
  rows.kernels = kernels.data();
  rows.products = products.data();
  rows.phases = phases.data();
  rows.once = once.data();
  rows.temps = temps.data();
  rows.chunks = chunks.data();
  rows.symbol_axes = symbol_axes.data();
  rows.state_axes = state_axes.data();
  rows.state_symbol = state_symbol.data();
}

cellc_wide_products wide_products(const ProductTemplate& product) {
  cellc_wide_products wide{};
  wide.slot_bytes = product.wide_slot_bytes;
  wide.head_bytes = CELLC_WIDE_HEAD_BYTES;
  wide.matrix_bytes = product.wide_matrix_bytes;
  wide.terms = 32;
  wide.columns = product.wide_columns;
  wide.neighbours = 4;
  return wide;
}

cellc_wide_products wide_stored_products(const ProductTemplate& product) {
  cellc_wide_products wide = wide_products(product);
  wide.slot_bytes = product.stored_slot_bytes;
  wide.matrix_bytes = product.stored_matrix_bytes;
  wide.terms = 64;
  wide.columns = product.stored_columns;
  wide.neighbours = 8;
  return wide;
}

std::pair<std::vector<char>, std::vector<char>> wide_arrays(const DerivedCell& between) {
  std::vector<char> inputs, histories;
  for (const ArraySource& s : between.sources) {
    inputs.push_back(s.kind == ArraySource::Kind::Sum);
    histories.push_back(s.kind == ArraySource::Kind::Trajectory || s.kind == ArraySource::Kind::Remade);
  }
  return {inputs, histories};
}

NestTables nest_tables(const Plan& plan, const std::vector<NestKernel>& kernels, const ProductTemplate& product,
                       bool f64, const std::vector<char>& wide_inputs, const std::vector<char>& wide_outs) {
  NestTables tables;
  Filler(plan, tables, wide_inputs, wide_outs).run(kernels, f64);
  tables.rows.product_row_bytes = product.row_bytes;
  tables.rows.product_blocks = product.blocks;
  return tables;
}

}  // namespace cellc
