#include "runtime/cuda/call/device_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/derive/default_cells.h"
#include "compiler/graph/delay_lines.h"
#include "runtime/cuda/call/absent_arrays.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/launch/strided_copy.h"
#include "runtime/data/errors.h"
#include "runtime/data/offsets.h"

namespace cellc {

namespace {

/// Stands for the caller's memory while a call is rehearsed: aligned like memory, and used by nobody.
constexpr GpuAddress kSomewhere = GpuAddress{1} << 20;

std::map<AxisId, std::int64_t> sizes_of(const CellGraph& cell, const CallShape& shape) {
  std::map<AxisId, std::int64_t> sizes;
  for (std::size_t a = 0; a < cell.header.size(); ++a) sizes[cell.header[a]] = shape.lengths[a];
  return sizes;
}

/// The number of the update that a state has.
std::size_t update_of(const CellGraph& cell, int symbol) {
  for (std::size_t u = 0; u < cell.updates.size(); ++u)
    if (cell.updates[u].symbol == symbol) return u;
  throw std::logic_error("a state without an update");
}

/// Where a lagged copy of a state begins in a sequence's part of its history.
GpuAddress lag_bytes(const Symbol& copy, std::int64_t entries, Dtype dtype) {
  return static_cast<GpuAddress>((copy.lag - 1) * entries) * size_of(dtype);
}

/// Throws RequestError where the cell picks an entry that an axis does not have.
void check_picked(const CellGraph& cell, const std::map<AxisId, std::int64_t>& sizes) {
  each_picked_entry(cell, [&](AxisId header, std::int64_t entry, const std::string& of) {
    if (entry >= sizes.at(header))
      throw RequestError(fmt::format("cell {} reads entry {} of axis {}{}, which has {} (0 to {})", cell.name, entry,
                                     cell.graph.axis(header).name, of, sizes.at(header), sizes.at(header) - 1));
  });
}

/// What the solver prepares for: shapes without data.
BoundRun shape_of_run(const CellGraph& cell, const CallLayout& layout, const CallShape& shape, Dtype dtype) {
  BoundRun run;
  run.sizes = sizes_of(cell, shape);
  run.reverse = shape.reverse;
  run.offsets = shape.offsets;
  if (!shape.packed())
    for (std::int64_t s = 0; s <= shape.sequences; ++s) run.offsets.push_back(s * shape.steps);
  run.symbols.resize(cell.symbols.size());
  run.histories.resize(cell.symbols.size());
  for (const CallField& field : layout.fields)
    if (field.kind == FieldKind::InputHistory)
      run.histories[static_cast<std::size_t>(field.id)] = Array::view(dtype, array_shape(field, shape), nullptr);
  for (const DelayLine& line : delay_lines(cell)) {
    std::vector<std::int64_t> lengths = array_shape(*layout.find(FieldKind::StateHistory, line.state), shape);
    lengths[1] = line.deepest;
    run.histories[static_cast<std::size_t>(line.symbol)] = Array::view(dtype, lengths, nullptr);
  }
  return run;
}

}  // namespace

struct DeviceCall::Impl {
  struct Field {
    CallField field;
    std::int64_t part = 0;
    Dtype given = Dtype::F32, kept = Dtype::F32;  ///< types of the caller's array and of the kernels'
    bool any_strides = false;
    GpuBuffer staged;  ///< what lies between
  };

  CallGpu gpu;
  const CellGraph& cell;
  const Dtype dtype, arithmetic;
  const CallShape shape;
  const SolveOptions solve;
  const CallLayout layout;
  const std::map<AxisId, std::int64_t> sizes;
  SequenceExtent extent;
  CudaSolver solver;
  StridedCopies moves;
  std::vector<Field> fields;
  std::vector<GpuBuffer> companions;  ///< by update: start of a lagged copy
  const std::vector<DelayLine> lines;
  std::vector<GpuBuffer> line_histories;  ///< by line
  GpuBuffer offsets;
  std::optional<AbsentArrays> absent;
  DeviceArrays places;
  std::vector<std::vector<std::int64_t>> rehearsed;
  std::vector<std::int64_t> form;

  Impl(Gpu& below, std::shared_ptr<LoadedModules> modules, const CellGraph& cell, const Structure& structure,
       Dtype dtype, const SourceText* source, const CallShape& shape, const SolveOptions& solve)
      : gpu(below, std::move(modules)),
        cell(cell),
        dtype(dtype),
        arithmetic(arithmetic_of(dtype)),
        shape(shape),
        solve(solve),
        layout(call_layout(cell)),
        sizes(sizes_of(cell, shape)),
        solver(gpu, cell, structure, dtype, source),
        moves(gpu, dtype),
        lines(delay_lines(cell)),
        line_histories(lines.size()) {
    check_picked(cell, sizes);
    const BoundRun run = shape_of_run(cell, layout, shape, dtype);
    extent = extent_of(run.offsets);

    CallGpu::Rehearsal rehearsal(gpu);
    solver.prepare(run, solve);
    offsets = GpuBuffer(gpu, run.offsets.size() * 8);
    gpu.copy_in(offsets.address(), run.offsets.data(), run.offsets.size() * 8, 0);
    for (const CallField& field : layout.fields) {
      const bool strides = field.kind == FieldKind::Input || field.kind == FieldKind::State;
      fields.push_back({field, part_entries(field, shape), dtype_of(field.kind, dtype),
                        dtype_of(field.kind, solver.storage()), strides && solver.any_strides(field.id), GpuBuffer()});
    }
    absent.emplace(gpu, cell, layout, this->shape, sizes, dtype, solver.storage());
    companions.resize(cell.updates.size());
    std::vector<CallArray> all(fields.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i].data = kSomewhere * (i + 1);
    run_form(all, 0, kSomewhere);
    rehearsal.finish();
    note(all, kSomewhere);
    rehearsed.push_back(form);
  }

  // A run --------------------------------------------------------------------------------------------

  /// The number of a field; of one that the cell has.
  std::size_t number(FieldKind kind, int id) const {
    return static_cast<std::size_t>(layout.find(kind, id) - layout.fields.data());
  }
  const CallArray& given(std::span<const CallArray> arrays, FieldKind kind, int id) const {
    return arrays[number(kind, id)];
  }

  /// What of a call decides on kernels and memory.
  void note(std::span<const CallArray> arrays, GpuAddress status) {
    form.clear();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const CallArray& a = arrays[i];
      form.push_back(a.data ? 1 + static_cast<std::int64_t>(a.data % 16) : 0);
      form.push_back(a.sequence_stride);
      form.push_back(a.step_stride);
      if (fields[i].field.kind == FieldKind::Start)
        form.push_back(a.data && given(arrays, FieldKind::Final, fields[i].field.id).data == a.data);
    }
    form.push_back(status != 0);
  }

  bool knows(std::span<const CallArray> arrays, GpuAddress status) {
    note(arrays, status);
    return std::find(rehearsed.begin(), rehearsed.end(), form) != rehearsed.end();
  }

  void queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status) {
    if (!knows(arrays, status)) {
      CallGpu::Rehearsal rehearsal(gpu);
      run_form(arrays, 0, status);
      rehearsal.finish();
      rehearsed.push_back(form);
    }
    run_form(arrays, stream, status);
  }

  /// The caller's rows, with strides in full.
  PlacedRows rows_of(const Field& f, const CallArray& a) const {
    const cellc_strides full = strides_of(f.field, shape, {a.sequence_stride, a.step_stride});
    if (shape.packed()) return {a.data, extent.uniform ? full.step * extent.longest : 0, full.step};
    return {a.data, full.sequence, full.step};
  }
  PlacedRows dense(GpuAddress data, const Field& f) const {
    return {data, f.part * (shape.packed() && !extent.uniform ? 0 : extent.longest), f.part};
  }
  void reserve(GpuBuffer& buffer, std::int64_t entries, Dtype type) {
    gpu.reserve(buffer, static_cast<std::size_t>(entries) * size_of(type));
  }
  /// Parts of all sequences between two arrays, which have the same type, or another step from part to part.
  void move_parts(GpuAddress to, std::int64_t to_step, Dtype to_type, GpuAddress from, std::int64_t from_step,
                  Dtype from_type, std::int64_t entries, GpuStream stream) {
    moves.move({to, to_step, entries}, to_type, {from, from_step, entries}, from_type, shape.sequences, 1, entries,
               stream);
  }
  /// All rows of the run between two arrays.
  void move_rows(const Field& f, const PlacedRows& to, Dtype to_type, const PlacedRows& from, Dtype from_type,
                 GpuStream stream) {
    if (shape.packed())
      moves.move(to, to_type, from, from_type, 1, shape.rows, f.part, stream);
    else
      moves.move(to, to_type, from, from_type, shape.sequences, shape.steps, f.part, stream);
  }
  bool direct(const Field& f, const CallArray& a) const {
    if (f.given != f.kept) return false;
    if (f.any_strides || (a.step_stride == 0 && a.sequence_stride == 0)) return true;
    const PlacedRows rows = rows_of(f, a);
    // Row kernels read inputs row by row; what they write has no gaps.
    return f.field.kind == FieldKind::Input &&
           (shape.packed() || shape.sequences == 1 || rows.batch == shape.steps * rows.row);
  }

  void run_form(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status) {
    places.inputs.assign(cell.symbols.size(), {});
    places.values.assign(cell.symbols.size(), 0);
    places.histories.assign(cell.symbols.size(), 0);
    places.trajectories.assign(cell.updates.size(), {});
    places.finals.assign(cell.updates.size(), 0);
    places.outs.assign(cell.outs.size(), 0);
    places.outs_wanted = false;
    for (std::size_t i = 0; i < fields.size(); ++i) place_read(i, arrays, stream);
    absent->compute(arrays, places.values, moves, stream);
    for (std::size_t u = 0; u < cell.updates.size(); ++u) start_companion(u, arrays, stream);
    for (std::size_t i = 0; i < lines.size(); ++i) start_line(i, arrays, stream);
    for (std::size_t i = 0; i < fields.size(); ++i) place_written(fields[i], arrays[i]);
    solver.place_all(places);
    if (shape.rows > 0) solver.launch(stream);
    // Final histories may be the memory of the histories that were read, so they come last.
    for (std::size_t i = 0; i < fields.size(); ++i) take_written(fields[i], arrays[i], arrays, stream);
    if (status) write_status(status, stream);
  }

  void place_read(std::size_t i, std::span<const CallArray> arrays, GpuStream stream) {
    Field& f = fields[i];
    const CallArray& a = arrays[i];
    const GpuAddress data = a.data ? a.data : (*absent)[i];
    const int id = f.field.id;
    switch (f.field.kind) {
      case FieldKind::Input:
        if (shape.rows == 0) return;
        if (direct(f, a)) {
          places.inputs[id] = rows_of(f, a);
        } else {
          reserve(f.staged, shape.rows * f.part, f.kept);
          places.inputs[id] = dense(f.staged.address(), f);
          move_rows(f, places.inputs[id], f.kept, rows_of(f, a), f.given, stream);
        }
        return;
      case FieldKind::InputHistory:
        places.histories[id] = data;
        if (a.data && f.given != f.kept) {
          reserve(f.staged, shape.sequences * f.part, f.kept);
          move_parts(f.staged.address(), f.part, f.kept, a.data, f.part, f.given, f.part, stream);
          places.histories[id] = f.staged.address();
        }
        return;
      case FieldKind::Param:
        places.values[id] = data;
        return;
      case FieldKind::Start:
        places.values[id] = data;
        // Kernels that write a final while others still read its start get a copy of the start.
        if (a.data && a.data == given(arrays, FieldKind::Final, id).data && shape.rows > 0 &&
            solver.overlaps_starts()) {
          reserve(f.staged, shape.sequences * f.part, arithmetic);
          gpu.copy(f.staged.address(), a.data, static_cast<std::size_t>(shape.sequences * f.part) * size_of(arithmetic),
                   stream);
          places.values[id] = f.staged.address();
        }
        return;
      default:
        return;
    }
  }

  /// A lagged copy starts as the history says, or as the state that it follows.
  void start_companion(std::size_t update, std::span<const CallArray> arrays, GpuStream stream) {
    const int s = cell.updates[update].symbol;
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of < 0) return;
    const std::size_t history = number(FieldKind::StateHistory, symbol.lag_of);
    places.values[s] = places.values[symbol.lag_of];
    if (!arrays[history].data) return;
    const std::int64_t entries = fields[number(FieldKind::Start, symbol.lag_of)].part;
    reserve(companions[update], shape.sequences * entries, arithmetic);
    places.values[s] = companions[update].address();
    move_parts(places.values[s], entries, arithmetic, arrays[history].data + lag_bytes(symbol, entries, arithmetic),
               fields[history].part, arithmetic, entries, stream);
  }

  std::int64_t copies_of(int state) const {
    return std::count_if(cell.symbols.begin(), cell.symbols.end(), [&](const Symbol& s) { return s.lag_of == state; });
  }

  /// A delay line begins with the start of its state and of the copies that lag behind that; then with what the history
  /// says, or with the start again.
  void start_line(std::size_t i, std::span<const CallArray> arrays, GpuStream stream) {
    const DelayLine& line = lines[i];
    const std::size_t history = number(FieldKind::StateHistory, line.state);
    const std::int64_t entries = fields[number(FieldKind::Start, line.state)].part, depth = line.deepest;
    const Dtype kept = solver.storage();
    reserve(line_histories[i], shape.sequences * depth * entries, kept);
    const GpuAddress to = line_histories[i].address();
    const auto at = [&](std::int64_t step) { return to + static_cast<GpuAddress>(step * entries) * size_of(kept); };
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      const Symbol& symbol = cell.symbols[s];
      if (static_cast<int>(s) != line.state && symbol.lag_of != line.state) continue;
      move_parts(at(symbol.lag_of < 0 ? 0 : symbol.lag), depth * entries, kept, places.values[s], entries, arithmetic,
                 entries, stream);
    }
    const std::int64_t copies = copies_of(line.state), more = depth - 1 - copies;
    const GpuAddress given = arrays[history].data;
    const PlacedRows from = given ? PlacedRows{given + static_cast<GpuAddress>(copies * entries) * size_of(arithmetic),
                                               fields[history].part, entries}
                                  : PlacedRows{places.values[static_cast<std::size_t>(line.state)], entries, 0};
    moves.move({at(copies + 1), depth * entries, entries}, kept, from, arithmetic, shape.sequences, more, entries,
               stream);
    places.histories[static_cast<std::size_t>(line.symbol)] = to;
  }

  /// What copies that lag do not have of a state's history after the run.
  void take_line(std::size_t i, Field& f, const CallArray& a, GpuStream stream) {
    const DelayLine& line = lines[i];
    const std::int64_t entries = fields[number(FieldKind::Start, line.state)].part, depth = line.deepest;
    const std::int64_t copies = copies_of(line.state);
    const Dtype kept = solver.storage();
    StridedCopies::History h;
    reserve(f.staged, shape.sequences * depth * entries, kept);
    h.to = f.staged.address();
    h.before = line_histories[i].address();
    if (shape.rows > 0) h.rows = solver.written_rows(static_cast<int>(update_of(cell, line.state)));
    if (shape.packed()) h.rows.batch = 0;
    h.offsets = offsets.address();
    h.sequences = shape.sequences;
    h.depth = depth;
    h.entries = entries;
    h.reverse = shape.reverse;
    moves.move_history(h, stream);
    const PlacedRows from{h.to + static_cast<GpuAddress>((copies + 1) * entries) * size_of(kept), depth * entries,
                          entries};
    const PlacedRows to{a.data + static_cast<GpuAddress>(copies * entries) * size_of(arithmetic), f.part, entries};
    moves.move(to, arithmetic, from, kept, shape.sequences, depth - 1 - copies, entries, stream);
  }

  void place_written(Field& f, const CallArray& a) {
    if (!a.data || shape.rows == 0) return;
    switch (f.field.kind) {
      case FieldKind::State:
        if (direct(f, a))
          places.trajectories[update_of(cell, f.field.id)] = rows_of(f, a);
        else
          places.trajectories[update_of(cell, f.field.id)] = staged_rows(f);
        return;
      case FieldKind::Out:
        places.outs_wanted = true;
        places.outs[static_cast<std::size_t>(f.field.id)] = direct(f, a) ? a.data : staged_rows(f).data;
        return;
      case FieldKind::Final:
        places.finals[update_of(cell, f.field.id)] = a.data;
        return;
      default:
        return;
    }
  }
  PlacedRows staged_rows(Field& f) {
    reserve(f.staged, shape.rows * f.part, f.kept);
    return dense(f.staged.address(), f);
  }

  void take_written(Field& f, const CallArray& a, std::span<const CallArray> arrays, GpuStream stream) {
    if (!a.data) return;
    const int id = f.field.id;
    switch (f.field.kind) {
      case FieldKind::State:
      case FieldKind::Out:
        if (shape.rows > 0 && !direct(f, a))
          move_rows(f, rows_of(f, a), f.given, dense(f.staged.address(), f), f.kept, stream);
        return;
      case FieldKind::Final:
        if (shape.rows == 0)
          move_parts(a.data, f.part, arithmetic, places.values[id], f.part, arithmetic, f.part, stream);
        return;
      case FieldKind::FinalStateHistory:
        for (std::size_t u = 0; u < cell.updates.size(); ++u) {
          const int s = cell.updates[u].symbol;
          const Symbol& symbol = cell.symbols[s];
          if (symbol.lag_of != id) continue;
          const std::int64_t entries = fields[number(FieldKind::Start, id)].part;
          const GpuAddress from = shape.rows == 0 ? places.values[s] : solver.final_state(static_cast<int>(u));
          move_parts(a.data + lag_bytes(symbol, entries, arithmetic), f.part, arithmetic, from, entries, arithmetic,
                     entries, stream);
        }
        for (std::size_t i = 0; i < lines.size(); ++i)
          if (lines[i].state == id) take_line(i, f, a, stream);
        return;
      case FieldKind::FinalInputHistory: {
        const Field& input = fields[number(FieldKind::Input, id)];
        StridedCopies::History h;
        reserve(f.staged, shape.sequences * f.part, f.given);
        h.to = f.staged.address();
        h.before = given(arrays, FieldKind::InputHistory, id).data;
        h.rows = rows_of(input, given(arrays, FieldKind::Input, id));
        if (shape.packed()) h.rows.batch = 0;
        h.offsets = offsets.address();
        h.sequences = shape.sequences;
        h.depth = history_depth(f.field.reaches, shape.lengths);
        h.entries = input.part;
        h.reverse = shape.reverse;
        moves.move_history(h, stream);
        move_parts(a.data, f.part, f.given, h.to, f.part, f.given, f.part, stream);
        return;
      }
      default:
        return;
    }
  }

  void write_status(GpuAddress status, GpuStream stream) {
    const std::vector<GpuAddress> bad = shape.rows > 0 ? solver.first_bad_steps() : std::vector<GpuAddress>();
    if (bad.empty()) {
      if (!gpu.rehearsing()) gpu.zero(status, static_cast<std::size_t>(shape.sequences) * 4, stream);
      return;
    }
    for (std::size_t k = 0; k < bad.size(); ++k) moves.status(status, bad[k], shape.sequences, k > 0, stream);
  }

  void report(SolveReport& report, GpuStream stream) {
    solver.report(report, stream);
    report.compile_ms += absent->compile_ms();
    gpu.synchronize(stream);
    // What earlier runs took may call for another plan.
    if (solver.replan(solve)) rehearsed.clear();
  }
};

DeviceCall::DeviceCall(Gpu& gpu, std::shared_ptr<LoadedModules> modules, const CellGraph& cell,
                       const Structure& structure, Dtype dtype, const SourceText* source, const CallShape& shape,
                       const SolveOptions& solve)
    : impl_(std::make_unique<Impl>(gpu, std::move(modules), cell, structure, dtype, source, shape, solve)) {}
DeviceCall::~DeviceCall() = default;

void DeviceCall::queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status) {
  impl_->queue(arrays, stream, status);
}
bool DeviceCall::knows(std::span<const CallArray> arrays, GpuAddress status) const {
  return impl_->knows(arrays, status);
}
void DeviceCall::report(SolveReport& report, GpuStream stream) { impl_->report(report, stream); }

void check_on_device(Gpu& gpu, const CallLayout& layout, const CallShape& shape, Dtype dtype,
                     std::span<const CallArray> arrays, GpuAddress status) {
  const auto look_at = [&](const std::string& name, GpuAddress data, std::int64_t entries, std::size_t size) {
    if (!data || entries == 0) return;
    std::optional<std::string> fault;
    if (data % size)
      fault = fmt::format("is not aligned to the {} bytes of an entry", size);
    else
      fault = gpu.pointer_fault(data, static_cast<std::size_t>(entries) * size);
    if (fault) throw RequestError(fmt::format("array {}: its address {:#x} {}", name, data, *fault));
  };
  for (std::size_t i = 0; i < layout.fields.size(); ++i) {
    const CallField& field = layout.fields[i];
    if (!arrays[i].data) continue;
    std::int64_t entries = all_entries(field, shape);
    if (field.is_rows() && shape.rows > 0) {
      const cellc_strides full = strides_of(field, shape, {arrays[i].sequence_stride, arrays[i].step_stride});
      const std::int64_t sequences = shape.packed() ? 1 : shape.sequences;
      const std::int64_t steps = shape.packed() ? shape.rows : shape.steps;
      entries = (sequences - 1) * full.sequence + (steps - 1) * full.step + part_entries(field, shape);
    }
    look_at(field.name, arrays[i].data, entries, size_of(dtype_of(field.kind, dtype)));
  }
  look_at("status", status, shape.sequences, 4);
}

}  // namespace cellc
