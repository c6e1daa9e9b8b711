#include "runtime/cuda/call/device_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "compiler/derive/default_cells.h"
#include "compiler/graph/delay_lines.h"
#include "runtime/cuda/call/absent_arrays.h"
#include "runtime/cuda/call/line_histories.h"
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

/// What of a call decides on kernels and memory.
std::vector<std::int64_t> form_of(const CallLayout& layout, std::span<const CallArray> arrays, GpuAddress status) {
  std::vector<std::int64_t> form;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const CallArray& a = arrays[i];
    form.push_back(a.data ? 1 + static_cast<std::int64_t>(a.data % 16) : 0);
    form.push_back(a.sequence_stride);
    form.push_back(a.step_stride);
    if (layout.fields[i].kind == FieldKind::Start) {
      const auto final = layout.find(FieldKind::Final, layout.fields[i].id) - layout.fields.data();
      form.push_back(a.data && arrays[static_cast<std::size_t>(final)].data == a.data);
    }
  }
  form.push_back(status != 0);
  return form;
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
  std::optional<LineHistories> lines;
  GpuBuffer offsets;
  std::optional<AbsentArrays> absent;
  DeviceArrays places;
  std::vector<std::vector<std::int64_t>> rehearsed;  ///< forms of calls

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
        moves(gpu, dtype) {
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
    lines.emplace(gpu, cell, sizes, moves, solver.storage(), arithmetic, this->shape.sequences);
    companions.resize(cell.updates.size());
    std::vector<CallArray> all(fields.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i].data = kSomewhere * (i + 1);
    run_form(all, 0, kSomewhere);
    rehearsal.finish();
    rehearsed.push_back(form_of(layout, all, kSomewhere));
  }

  // A run --------------------------------------------------------------------------------------------

  /// The number of a field; of one that the cell has.
  std::size_t number(FieldKind kind, int id) const {
    return static_cast<std::size_t>(layout.find(kind, id) - layout.fields.data());
  }
  const CallArray& given(std::span<const CallArray> arrays, FieldKind kind, int id) const {
    return arrays[number(kind, id)];
  }

  bool knows(std::span<const CallArray> arrays, GpuAddress status) const {
    return std::find(rehearsed.begin(), rehearsed.end(), form_of(layout, arrays, status)) != rehearsed.end();
  }

  void rehearse(std::span<const CallArray> arrays, GpuAddress status) {
    if (knows(arrays, status)) return;
    CallGpu::Rehearsal rehearsal(gpu);
    run_form(arrays, 0, status);
    rehearsal.finish();
    rehearsed.push_back(form_of(layout, arrays, status));
  }
  void queue(std::span<const CallArray> arrays, GpuStream stream, GpuAddress status) {
    rehearse(arrays, status);
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
    const auto history = [&](int state) { return given(arrays, FieldKind::StateHistory, state).data; };
    lines->begin(places.values, history, places.histories, stream);
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

  /// The last of these rows are to be a history.
  StridedCopies::History last_rows(const PlacedRows& rows) const {
    StridedCopies::History h;
    h.rows = rows;
    if (shape.packed()) h.rows.batch = 0;
    h.offsets = offsets.address();
    h.reverse = shape.reverse;
    return h;
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
        lines->end(
            id, a.data,
            last_rows(shape.rows > 0 ? solver.written_rows(static_cast<int>(update_of(cell, id))) : PlacedRows()),
            stream);
        return;
      case FieldKind::FinalInputHistory: {
        const Field& input = fields[number(FieldKind::Input, id)];
        StridedCopies::History h = last_rows(rows_of(input, given(arrays, FieldKind::Input, id)));
        reserve(f.staged, shape.sequences * f.part, f.given);
        h.to = f.staged.address();
        h.before = given(arrays, FieldKind::InputHistory, id).data;
        h.sequences = shape.sequences;
        h.depth = history_depth(f.field.reaches, shape.lengths);
        h.entries = input.part;
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
      gpu.zero(status, static_cast<std::size_t>(shape.sequences) * 4, stream);
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
void DeviceCall::rehearse(std::span<const CallArray> arrays, GpuAddress status) { impl_->rehearse(arrays, status); }
bool DeviceCall::knows(std::span<const CallArray> arrays, GpuAddress status) const {
  return impl_->knows(arrays, status);
}
void DeviceCall::report(SolveReport& report, GpuStream stream) { impl_->report(report, stream); }
std::int64_t DeviceCall::held_bytes() const { return impl_->gpu.held_bytes(); }

}  // namespace cellc
