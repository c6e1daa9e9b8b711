#include "runtime/cuda/ship/print_aot_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <initializer_list>
#include <map>

namespace cellc {

namespace {

// Tables are printed field after field, so each of these lists has all fields of its struct, in order.

struct Placed {
  std::size_t offset, size, alignment;
};
constexpr std::size_t aligned(std::size_t at, std::size_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}
template <typename Table>
constexpr bool fills(std::initializer_list<Placed> fields) {
  std::size_t end = 0;
  for (const Placed& f : fields) {
    if (f.offset != aligned(end, f.alignment)) return false;
    end = f.offset + f.size;
  }
  return aligned(end, alignof(Table)) == sizeof(Table);
}
#define CELLC_AT(field) \
  Placed { offsetof(Table, field), sizeof(Table::field), alignof(decltype(Table::field)) }

/// Behind `kernel`.
// It would be laid out anew each time.
// clang-format off
#define CELLC_VARIANT_FIELDS(FIELD) \
  FIELD(rows) FIELD(lockstep) FIELD(width) FIELD(copy) FIELD(channels) FIELD(steps) \
  FIELD(warps) FIELD(blocks) FIELD(buffers) FIELD(carry_channels) FIELD(forward) FIELD(cluster) \
  FIELD(whole) FIELD(checks) FIELD(shared_bytes) FIELD(sum_lanes) FIELD(broadcast) FIELD(rewalks) FIELD(shifted) \
  FIELD(columns) FIELD(kept) FIELD(unwritten) FIELD(pass)
// clang-format on

namespace variant_table {
using Table = cellc_variant;
#define CELLC_LISTED(field) , CELLC_AT(field)
static_assert(fills<Table>({CELLC_AT(kernel) CELLC_VARIANT_FIELDS(CELLC_LISTED)}));
#undef CELLC_LISTED
}  // namespace variant_table
namespace stage_table {
using Table = cellc_stage;
static_assert(fills<Table>({CELLC_AT(symbols),
                            CELLC_AT(channels),
                            CELLC_AT(channel_axes),
                            CELLC_AT(places),
                            CELLC_AT(place_channel),
                            CELLC_AT(place_axis),
                            CELLC_AT(is_param),
                            CELLC_AT(step_states),
                            CELLC_AT(step_inputs),
                            CELLC_AT(step_params),
                            CELLC_AT(transition_states),
                            CELLC_AT(transition_inputs),
                            CELLC_AT(transition_params),
                            CELLC_AT(entries),
                            CELLC_AT(map_numbers),
                            CELLC_AT(has_transition),
                            CELLC_AT(scans),
                            CELLC_AT(warps),
                            CELLC_AT(stage_steps),
                            CELLC_AT(storage_bytes),
                            CELLC_AT(real_bytes),
                            CELLC_AT(sums),
                            CELLC_AT(summed),
                            CELLC_AT(bases),
                            CELLC_AT(repeats),
                            CELLC_AT(outs),
                            CELLC_AT(accumulated),
                            CELLC_AT(outer),
                            CELLC_AT(outer_summed),
                            CELLC_AT(outs_read_states),
                            CELLC_AT(scan_slack),
                            CELLC_AT(for_run),
                            CELLC_AT(two_passes)}));
}  // namespace stage_table
namespace part_table {
using Table = cellc_stage_part;
static_assert(fills<Table>({CELLC_AT(facts), CELLC_AT(states), CELLC_AT(plain), CELLC_AT(summing),
                            CELLC_AT(making_outs), CELLC_AT(stands_alone), CELLC_AT(remade), CELLC_AT(remade_states),
                            CELLC_AT(remade_count)}));
}  // namespace part_table
namespace remade_table {
using Table = cellc_remade;
static_assert(fills<Table>({CELLC_AT(made), CELLC_AT(copies)}));
}  // namespace remade_table
namespace lanes_table {
using Table = cellc_lanes;
static_assert(fills<Table>({CELLC_AT(stage), CELLC_AT(once), CELLC_AT(before), CELLC_AT(sources), CELLC_AT(sums),
                            CELLC_AT(variants), CELLC_AT(variant_count), CELLC_AT(first_kernel)}));
}  // namespace lanes_table
namespace reduced_table {
using Table = cellc_reduced;
static_assert(fills<Table>({CELLC_AT(parts), CELLC_AT(after)}));
}  // namespace reduced_table
namespace facts_table {
using Table = cellc_stage_facts;
static_assert(fills<Table>({CELLC_AT(exact), CELLC_AT(forgets), CELLC_AT(remembers), CELLC_AT(storage_bytes)}));
}  // namespace facts_table
namespace rows_table {
using Table = cellc_nests;
static_assert(fills<Table>({CELLC_AT(axes),           CELLC_AT(slots),         CELLC_AT(nests),
                            CELLC_AT(kernels),        CELLC_AT(products),      CELLC_AT(phases),
                            CELLC_AT(once),           CELLC_AT(temps),         CELLC_AT(chunks),
                            CELLC_AT(symbol_axes),    CELLC_AT(state_axes),    CELLC_AT(state_symbol),
                            CELLC_AT(kernel_count),   CELLC_AT(phase_count),   CELLC_AT(once_count),
                            CELLC_AT(temp_count),     CELLC_AT(chunk_count),   CELLC_AT(once_kernel),
                            CELLC_AT(split),          CELLC_AT(real_bytes),    CELLC_AT(first_kernel),
                            CELLC_AT(product_kernel), CELLC_AT(stored_kernel), CELLC_AT(product_row_bytes),
                            CELLC_AT(product_blocks), CELLC_AT(wide),          CELLC_AT(wide_stored)}));
}  // namespace rows_table
namespace derived_table {
using Table = cellc_derived;
static_assert(fills<Table>({CELLC_AT(rows), CELLC_AT(sources), CELLC_AT(source_count), CELLC_AT(out_count),
                            CELLC_AT(outs)}));
}  // namespace derived_table
namespace symbol_table {
using Table = cellc_symbol;
static_assert(fills<Table>({CELLC_AT(kind), CELLC_AT(axes), CELLC_AT(lag_of), CELLC_AT(lag), CELLC_AT(line_of),
                            CELLC_AT(reaches), CELLC_AT(default_kind), CELLC_AT(default_out), CELLC_AT(number),
                            CELLC_AT(read_by_nests)}));
}  // namespace symbol_table
namespace product_table {
using Table = cellc_product;
static_assert(fills<Table>({CELLC_AT(operand), CELLC_AT(operand_id), CELLC_AT(matrix), CELLC_AT(matrix_id),
                            CELLC_AT(sum_last), CELLC_AT(batch_inside), CELLC_AT(result), CELLC_AT(result_id),
                            CELLC_AT(stored), CELLC_AT(stores), CELLC_AT(batch), CELLC_AT(shared), CELLC_AT(rows),
                            CELLC_AT(sums)}));
}  // namespace product_table
namespace outline_table {
using Table = cellc_outline;
static_assert(fills<Table>({CELLC_AT(axis_count), CELLC_AT(fixed), CELLC_AT(least), CELLC_AT(axis_word),
                            CELLC_AT(first_word), CELLC_AT(fixed_steps), CELLC_AT(axes), CELLC_AT(fields),
                            CELLC_AT(field_count)}));
}  // namespace outline_table
namespace cell_table {
using Table = cellc_cell;
static_assert(fills<Table>({CELLC_AT(outline),
                            CELLC_AT(symbols),
                            CELLC_AT(updates),
                            CELLC_AT(outs),
                            CELLC_AT(symbol_count),
                            CELLC_AT(update_count),
                            CELLC_AT(out_count),
                            CELLC_AT(stage_count),
                            CELLC_AT(storage),
                            CELLC_AT(running),
                            CELLC_AT(real),
                            CELLC_AT(stages),
                            CELLC_AT(whole),
                            CELLC_AT(after),
                            CELLC_AT(defaults),
                            CELLC_AT(starts),
                            CELLC_AT(reduced),
                            CELLC_AT(reduced_count),
                            CELLC_AT(solver),
                            CELLC_AT(tolerance),
                            CELLC_AT(control_bytes),
                            CELLC_AT(copy_kernel),
                            CELLC_AT(offsets_kernel),
                            CELLC_AT(history_kernel),
                            CELLC_AT(kernel_count),
                            CELLC_AT(shared_per_block),
                            CELLC_AT(shared_per_multiprocessor)}));
}  // namespace cell_table
#undef CELLC_AT

std::string item(int n) { return std::to_string(n); }
std::string item(std::int64_t n) { return std::to_string(n); }
std::string item(cellc_entry e) { return fmt::format("{{{}, {}}}", e.symbol, e.entry); }
std::string item(cellc_dims d) { return fmt::format("{{{}, {}}}", d.first, d.count); }
std::string item(cellc_slot s) { return fmt::format("{{{}, {}}}", s.kind, s.id); }
std::string item(cellc_source s) { return fmt::format("{{{}, {}}}", s.kind, s.id); }
std::string item(cellc_phase p) { return fmt::format("{{{}, {}}}", p.is_product, p.index); }
std::string item(const cellc_nest& n) { return fmt::format("{{{}, {}}}", item(n.axes), item(n.bound)); }
std::string item(const cellc_field& f) { return fmt::format("{{{}, {}, {}, {}}}", f.kind, f.id, f.word, f.required); }
std::string item(const cellc_nest_kernel& k) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}", k.form, k.kernel, k.first_slot, k.slots,
                     k.first_nest, k.nests, k.cluster, k.sequences, k.threads, k.shared_bytes, k.parts,
                     k.exchange_bytes);
}
std::string item(const cellc_product& p) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}}", p.operand, p.operand_id, p.matrix,
                     p.matrix_id, p.sum_last, p.batch_inside ? 1 : 0, p.result, p.result_id, p.stored, p.stores,
                     item(p.batch), item(p.shared), item(p.rows), item(p.sums));
}
std::string item(const cellc_variant& v) {
#define CELLC_PRINT(field) , v.field
  return fmt::format("{{{}}}", fmt::join(std::initializer_list<int>{v.kernel CELLC_VARIANT_FIELDS(CELLC_PRINT)}, ", "));
#undef CELLC_PRINT
}
std::string item(const cellc_symbol& s) {
  return fmt::format("{{{}, {}, {}, {}, {}, {}, {}, {}, UINT64_C({:#x}), {}}}", s.kind, item(s.axes), s.lag_of, s.lag,
                     s.line_of, item(s.reaches), s.default_kind, s.default_out, s.number, s.read_by_nests);
}

/// Tables as C, each a constant of the prefix's.
class TablePrinter {
 public:
  TablePrinter(const AotCell& cell, const std::string& prefix) : cell_(cell), p_(prefix) {}

  std::string print() {
    const cellc_cell& t = cell_.table();
    const cellc_outline& o = t.outline;
    const std::string lengths = list("int64_t", "fixed", cell_.fixed), least = list("int64_t", "least", cell_.least);
    const std::string words = list("int", "axis_word", cell_.axis_word), axes = list("int", "axes", cell_.axes);
    const std::string fields = list("cellc_field", "fields", cell_.fields),
                      symbols = list("cellc_symbol", "symbols", cell_.symbols);
    const std::string updates = list("int", "updates", cell_.updates), outs = list("cellc_dims", "outs", cell_.outs);
    std::vector<std::string> parts;
    for (std::size_t k = 0; k < cell_.stages.size(); ++k) parts.push_back(stage(static_cast<int>(k)));
    const std::string stages = raw("cellc_stage_part", "stages", parts);
    const std::string whole = derived("rows", t.whole, cell_.whole), after = derived("after", t.after, cell_.after);
    const std::string defaults = derived("defaults", t.defaults, cell_.defaults),
                      starts = derived("starts", t.starts, cell_.starts);
    std::vector<std::string> ways;
    for (std::size_t r = 0; r < cell_.reduced.size(); ++r) {
      const std::string name = fmt::format("after{}", r + 1),
                        sums = list("int", name + "_parts", cell_.reduced[r].parts);
      ways.push_back(fmt::format("{{{}, {}}}", sums, derived(name, t.reduced[r].after, cell_.reduced[r].after)));
    }
    const std::string reduced = raw("cellc_reduced", "reduced", ways);
    text_ += fmt::format(
        "static const cellc_cell {}_cell = {{\n"
        "  {{{}, {}, {}, {}, {}, INT64_C({}), {}, {}, {}}},\n"
        "  {}, {}, {},\n"
        "  {}, {}, {}, {}, {}, {}, {},\n"
        "  {},\n  {},\n  {},\n  {},\n  {},\n  {}, {},\n"
        "  {}, {}, {}, {}, {}, {}, {}, {}, {}}};\n\n",
        p_, o.axis_count, lengths, least, words, o.first_word, o.fixed_steps, axes, fields, o.field_count, symbols,
        updates, outs, t.symbol_count, t.update_count, t.out_count, t.stage_count, t.storage, t.running, t.real, stages,
        whole, after, defaults, starts, reduced, t.reduced_count, t.solver, t.tolerance, t.control_bytes, t.copy_kernel,
        t.offsets_kernel, t.history_kernel, t.kernel_count, t.shared_per_block, t.shared_per_multiprocessor);
    return text_;
  }

 private:
  /// A constant array; no array in C is empty. The name.
  std::string raw(const std::string& type, const std::string& name, const std::vector<std::string>& items) {
    const std::string full = p_ + "_" + name;
    if (items.empty()) return "0";
    std::string line = "  ", body;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (line.size() + items[i].size() > 112) body += line + "\n", line = "  ";
      line += items[i] + (i + 1 < items.size() ? ", " : "");
    }
    text_ += fmt::format("static const {} {}[] = {{\n{}{}}};\n", type, full, body, line);
    return full;
  }
  template <typename T>
  std::string list(const std::string& type, const std::string& name, const std::vector<T>& values) {
    std::vector<std::string> items;
    for (const T& v : values) items.push_back(item(v));
    return raw(type, name, items);
  }

  std::string rows(const std::string& name, const NestTables& t) {
    const auto sub = [&](const char* what) { return name + "_" + what; };
    const std::string axes = list("int", sub("axes"), t.axes), slots = list("cellc_slot", sub("slots"), t.slots);
    const std::string nests = list("cellc_nest", sub("nests"), t.nests),
                      kernels = list("cellc_nest_kernel", sub("kernels"), t.kernels);
    const std::string products = list("cellc_product", sub("products"), t.products),
                      phases = list("cellc_phase", sub("phases"), t.phases);
    const std::string once = list("cellc_dims", sub("once"), t.once), temps = list("cellc_dims", sub("temps"), t.temps);
    const std::string chunks = list("cellc_dims", sub("chunks"), t.chunks),
                      of_symbol = list("cellc_dims", sub("symbol_axes"), t.symbol_axes);
    const std::string of_state = list("cellc_dims", sub("state_axes"), t.state_axes),
                      state = list("int", sub("state_symbol"), t.state_symbol);
    const cellc_nests& r = t.rows;
    text_ += fmt::format(
        "static const cellc_nests {}_{} = {{{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},\n  {}, {}, {}, "
        "{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, 0, 0}};\n",
        p_, name, axes, slots, nests, kernels, products, phases, once, temps, chunks, of_symbol, of_state, state,
        r.kernel_count, r.phase_count, r.once_count, r.temp_count, r.chunk_count, r.once_kernel, r.split, r.real_bytes,
        r.first_kernel, r.product_kernel, r.stored_kernel, r.product_row_bytes, r.product_blocks);
    return p_ + "_" + name;
  }

  std::string derived(const std::string& name, const cellc_derived& d, const AotNests& of) {
    if (!d.rows) return "{0, 0, 0, 0, 0}";
    const std::string table = rows(name, of.tables), sources = list("cellc_source", name + "_sources", of.sources);
    const std::string outs = list("cellc_dims", name + "_outs", of.outs);
    return fmt::format("{{&{}, {}, {}, {}, {}}}", table, sources, d.source_count, d.out_count, outs);
  }

  /// `plain`: the form whose parts a form with sums shares, where it needs no more.
  std::string lanes(const std::string& name, const cellc_lanes& table, const AotLanes& of, const AotLanes& plain) {
    if (!table.stage) return "{0, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}, 0, 0, 0, 0, 0}";
    const cellc_stage& t = of.tables.stage;
    const auto sub = [&](const char* what) { return name + "_" + what; };
    const std::string channels = list("int", sub("channel_axes"), of.tables.channel_axes),
                      places = list("int", sub("places"), of.tables.places);
    const std::string of_place = list("int", sub("place_channel"), of.tables.place_channel),
                      axis = list("int", sub("place_axis"), of.tables.place_axis);
    const std::string is_param = list("int", sub("is_param"), of.tables.is_param),
                      entries = list("cellc_entry", sub("entries"), of.tables.entries);
    const std::string sources = list("cellc_source", sub("sources"), of.sources),
                      sums = list("cellc_dims", sub("sums"), of.sums);
    const std::string variants = list("cellc_variant", sub("variants"), of.variants);
    const auto part = [&](const char* what, const cellc_derived& d, const AotNests& own, const AotNests& shared) {
      std::string& printed = parts_[d.rows];
      if (printed.empty()) printed = derived(sub(what), d, d.rows == shared.derived.rows ? shared : own);
      return printed;
    };
    const std::string once = part("once", table.once, of.once, plain.once),
                      before = part("before", table.before, of.before, plain.before);
    text_ += fmt::format(
        "static const cellc_stage {}_{} = {{{}, {}, {}, {}, {}, {}, {},\n  {}, {}, {}, {}, {}, {}, {},\n  "
        "{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}}};\n",
        p_, name, t.symbols, t.channels, channels, places, of_place, axis, is_param, t.step_states, t.step_inputs,
        t.step_params, t.transition_states, t.transition_inputs, t.transition_params, entries, t.map_numbers,
        t.has_transition, t.scans, t.warps, t.stage_steps, t.storage_bytes, t.real_bytes, t.sums, t.summed, t.bases,
        t.repeats, t.outs, t.accumulated, t.outer, t.outer_summed, t.outs_read_states, t.scan_slack, t.for_run,
        t.two_passes);
    return fmt::format("{{&{}_{}, {}, {}, {}, {}, {}, {}, {}}}", p_, name, once, before, sources, sums, variants,
                       table.variant_count, table.first_kernel);
  }

  std::string stage(int k) {
    const AotStage& s = cell_.stages[k];
    const cellc_stage_part& part = cell_.parts[k];
    const std::string name = fmt::format("stage{}", k), states = list("int", name + "_states", s.states);
    const std::string plain = lanes(name, part.plain, s.plain, s.plain),
                      summing = lanes(name + "_sums", part.summing, s.summing, s.plain),
                      making_outs = lanes(name + "_outs", part.making_outs, s.making_outs, s.plain);
    std::vector<std::string> passes;
    for (std::size_t i = 0; i < s.remade.size(); ++i) {
      const std::string of = fmt::format("{}_remade{}", name, i),
                        copies = list("int", of + "_copies", s.remade[i].copies);
      passes.push_back(fmt::format("{{{}, {}}}", derived(of, part.remade[i].made, s.remade[i].made), copies));
    }
    const std::string remade = raw("cellc_remade", name + "_remade", passes),
                      values = list("int", name + "_remade_states", s.remade_states);
    return fmt::format("{{{{{}, {}, {}, {}}}, {},\n   {},\n   {},\n   {}, {},\n   {}, {}, {}}}", part.facts.exact,
                       part.facts.forgets, part.facts.remembers, part.facts.storage_bytes, states, plain, summing,
                       making_outs, part.stands_alone, remade, values, part.remade_count);
  }

  const AotCell& cell_;
  const std::string p_;
  std::map<const cellc_nests*, std::string> parts_;  ///< of stages, as they are referred to
  std::string text_;
};

}  // namespace

std::string print_aot_tables(const AotCell& cell, const std::string& prefix) {
  return TablePrinter(cell, prefix).print();
}

}  // namespace cellc
