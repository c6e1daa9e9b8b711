#include "runtime/cuda/call/device_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "compiler/derive/pipeline.h"
#include "compiler/graph/evaluate.h"
#include "compiler/graph/graph_walk.h"
#include "runtime/cuda/launch/cuda_solver.h"
#include "runtime/cuda/launch/nest_program.h"
#include "runtime/cuda/launch/strided_copy.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"

namespace cellc {

namespace {

/// Stands for the caller's memory while a call is rehearsed: aligned like memory, and used by nobody.
constexpr GpuAddress kSomewhere = GpuAddress{1} << 20;

std::int64_t product(const CellGraph& cell, const std::map<AxisId, std::int64_t>& sizes,
                     const std::vector<AxisId>& axes) {
  std::int64_t n = 1;
  for (const AxisId a : axes) n *= sizes.at(cell.graph.axis(a).extent_of);
  return n;
}

std::map<AxisId, std::int64_t> sizes_of(const CellGraph& cell, const CallShape& shape) {
  std::map<AxisId, std::int64_t> sizes;
  for (std::size_t a = 0; a < cell.header.size(); ++a) sizes[cell.header[a]] = shape.lengths[a];
  return sizes;
}

/// Entries of a row, of one sequence's start, final or history, or of a whole param.
std::int64_t part_of(const CellGraph& cell, const std::map<AxisId, std::int64_t>& sizes, const CallShape& shape,
                     const CallField& field) {
  const std::int64_t depth = field.is_history() ? history_depth(cell, shape.lengths, field.id) : 1;
  return depth * product(cell, sizes, field_axes(cell, field));
}

}  // namespace

struct DeviceCall::Impl {
  struct Field {
    CallField field;
    std::int64_t part = 0;
    Dtype given = Dtype::F32, kept = Dtype::F32;  ///< types of the caller's array and of the kernels'
    bool any_strides = false;
    GpuBuffer staged, standing;  ///< what lies between; what stands for an array that is not given
    int computed = -1;           ///< out of `defaults` that stands for it
  };

  CallGpu gpu;
  const CellGraph& cell;
  const Dtype dtype, arithmetic;
  const CallShape shape;
  const SolveOptions solve;
  const CallLayout layout;
  const std::map<AxisId, std::int64_t> sizes;
  bool uniform = true;
  std::int64_t longest = 0;
  CudaSolver solver;
  StridedCopies moves;
  std::vector<Field> fields;
  std::vector<GpuBuffer> companions;  ///< by update: start of a lagged copy
  GpuBuffer offsets;
  std::vector<int> computed;  ///< symbols whose start or default follows from params
  DerivedCell defaults;       ///< and what computes them
  std::optional<NestProgram> defaults_program;
  std::vector<GpuBuffer> defaults_made;
  GpuBuffer one_row;  ///< offsets {0, 1}
  DeviceArrays places;
  std::vector<std::vector<std::int64_t>> rehearsed;
  std::vector<std::int64_t> form;
  double compile_ms = 0;

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
    each_picked_entry(cell, [&](AxisId header, std::int64_t entry, const std::string& of) {
      if (entry >= sizes.at(header))
        throw RequestError(fmt::format("cell {} reads entry {} of axis {}{}, which has {} (0 to {})", cell.name, entry,
                                       cell.graph.axis(header).name, of, sizes.at(header), sizes.at(header) - 1));
    });
    BoundRun run;
    run.sizes = sizes;
    run.reverse = shape.reverse;
    run.offsets = shape.offsets;
    if (!shape.packed())
      for (std::int64_t s = 0; s <= shape.sequences; ++s) run.offsets.push_back(s * shape.steps);
    for (std::int64_t s = 0; s < shape.sequences; ++s) {
      const std::int64_t n = run.offsets[s + 1] - run.offsets[s];
      uniform = uniform && (s == 0 || n == longest);
      longest = std::max(longest, n);
    }
    run.symbols.resize(cell.symbols.size());
    run.histories.resize(cell.symbols.size());
    for (std::size_t s = 0; s < cell.symbols.size(); ++s)
      if (cell.symbols[s].kind == SymbolKind::Input && cell.symbols[s].max_lag != 0) {
        std::vector<std::int64_t> depth{shape.sequences, history_depth(cell, shape.lengths, static_cast<int>(s))};
        for (const AxisId a : cell.symbols[s].axes) depth.push_back(sizes.at(cell.graph.axis(a).extent_of));
        run.histories[s] = Array::view(dtype, depth, nullptr);
      }

    CallGpu::Rehearsal rehearsal(gpu);
    solver.prepare(run, solve);
    offsets = GpuBuffer(gpu, run.offsets.size() * 8);
    gpu.copy_in(offsets.address(), run.offsets.data(), run.offsets.size() * 8, 0);
    for (const CallField& field : layout.fields) fields.push_back(made(field));
    companions.resize(cell.updates.size());
    defaults = defaults_of(cell, computed, Role::Defaults);
    defaults_made.resize(computed.size());
    std::vector<CallArray> all(fields.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i].data = kSomewhere * (i + 1);
    run_form(all, 0, kSomewhere);
    rehearsal.finish();
    note(all, kSomewhere);
    rehearsed.push_back(form);
  }

  Field made(const CallField& field) {
    Field f;
    f.field = field;
    f.part = part_of(cell, sizes, shape, field);
    f.given = field.is_storage() ? dtype : arithmetic;
    f.kept = field.is_storage() ? solver.storage() : arithmetic;
    if (field.kind == FieldKind::Input || field.kind == FieldKind::State) f.any_strides = solver.any_strides(field.id);
    const auto stand = [&](std::int64_t count, Dtype type) {
      f.standing = GpuBuffer(gpu, std::max<std::size_t>(1, static_cast<std::size_t>(count) * size_of(type)));
    };
    if (field.kind == FieldKind::InputHistory) {
      stand(shape.sequences * f.part, f.kept);
      gpu.zero(f.standing.address(), f.standing.bytes(), 0);
    } else if (field.kind == FieldKind::Start) {
      stand(shape.sequences * f.part, arithmetic);
      fill_default(f, shape.sequences);
    } else if (field.kind == FieldKind::Param && cell.symbols[field.id].initial != kNoNode) {
      stand(f.part, arithmetic);
      fill_default(f, 1);
    }
    return f;
  }

  /// A default that is a constant is there once and for all; one that follows from params is computed in each
  /// run that needs it.
  void fill_default(Field& f, std::int64_t times) {
    const Symbol& symbol = cell.symbols[f.field.id];
    if (symbol.initial == kNoNode) {
      gpu.zero(f.standing.address(), f.standing.bytes(), 0);
      return;
    }
    std::set<int> all;
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) all.insert(static_cast<int>(s));
    if (depends_on(cell.graph, symbol.initial, all)) {
      f.computed = static_cast<int>(computed.size());
      computed.push_back(f.field.id);
      return;
    }
    Environment environment;
    environment.sizes = sizes;
    const Tensor value = Evaluator(cell, environment).value_over(symbol.initial, symbol.index);
    // A param's default is rounded as a param of an input file would be.
    Array array(symbol.kind == SymbolKind::Param ? dtype : arithmetic, {times * f.part});
    for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, value.data[static_cast<std::size_t>(i % f.part)]);
    array = convert(array, arithmetic);
    gpu.copy_in(f.standing.address(), array.data(), static_cast<std::size_t>(array.count()) * size_of(arithmetic), 0);
  }

  // A run --------------------------------------------------------------------------------------------

  const CallArray& given(std::span<const CallArray> arrays, FieldKind kind, int id) const {
    static const CallArray none;
    for (std::size_t i = 0; i < fields.size(); ++i)
      if (fields[i].field.kind == kind && fields[i].field.id == id) return arrays[i];
    return none;
  }
  Field* find(FieldKind kind, int id) {
    for (Field& f : fields)
      if (f.field.kind == kind && f.field.id == id) return &f;
    return nullptr;
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
    const std::int64_t row = a.step_stride ? a.step_stride : f.part;
    if (shape.packed()) return {a.data, uniform ? row * longest : 0, row};
    return {a.data, a.sequence_stride ? a.sequence_stride : row * shape.steps, row};
  }
  PlacedRows dense(GpuAddress data, const Field& f) const {
    return {data, f.part * (shape.packed() && !uniform ? 0 : longest), f.part};
  }
  void reserve(GpuBuffer& buffer, std::int64_t entries, Dtype type) {
    const std::size_t bytes = std::max<std::size_t>(256, static_cast<std::size_t>(entries) * size_of(type));
    if (buffer.bytes() < bytes) buffer = GpuBuffer(gpu, bytes);
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
    for (std::size_t i = 0; i < fields.size(); ++i) place_read(fields[i], arrays[i], arrays, stream);
    run_defaults(arrays, stream);
    for (std::size_t u = 0; u < cell.updates.size(); ++u) start_companion(u, arrays, stream);
    for (std::size_t i = 0; i < fields.size(); ++i) place_written(fields[i], arrays[i]);
    solver.place_all(places);
    if (shape.rows > 0) solver.launch(stream);
    // Final histories may be the memory of the histories that were read, so they come last.
    for (std::size_t i = 0; i < fields.size(); ++i) take_written(fields[i], arrays[i], arrays, stream);
    if (status) write_status(status, stream);
  }

  void place_read(Field& f, const CallArray& a, std::span<const CallArray> arrays, GpuStream stream) {
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
        places.histories[id] = a.data ? a.data : f.standing.address();
        if (a.data && f.given != f.kept) {
          reserve(f.staged, shape.sequences * f.part, f.kept);
          moves.move({f.staged.address(), f.part, f.part}, f.kept, {a.data, f.part, f.part}, f.given, shape.sequences,
                     1, f.part, stream);
          places.histories[id] = f.staged.address();
        }
        return;
      case FieldKind::Param:
        places.values[id] = a.data ? a.data : f.standing.address();
        return;
      case FieldKind::Start:
        places.values[id] = a.data ? a.data : f.standing.address();
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

  /// Starts that follow from params. All of them where any is wanted.
  void run_defaults(std::span<const CallArray> arrays, GpuStream stream) {
    bool wanted = false;
    for (std::size_t i = 0; i < fields.size(); ++i) wanted = wanted || (fields[i].computed >= 0 && !arrays[i].data);
    if (!wanted) return;
    if (!defaults_program) {
      defaults_program.emplace(NestProgram::compile(gpu, defaults.cell, Structure{}, arithmetic, {}));
      compile_ms += defaults_program->compile_ms();
      one_row = GpuBuffer(gpu, 16);
      const std::int64_t offsets[] = {0, 1};
      gpu.copy_in(one_row.address(), offsets, sizeof offsets, 0);
    }
    NestRun run;
    run.sizes = sizes;
    run.offsets = {0, 1};
    run.device_offsets = one_row.address();
    for (const ArraySource& source : defaults.sources) {
      NestArray array;
      array.data = places.values[static_cast<std::size_t>(source.id)];
      array.history = one_row.address();
      run.symbols.push_back(array);
    }
    for (Field& f : fields) {
      if (f.computed < 0) continue;
      GpuBuffer& made = defaults_made[static_cast<std::size_t>(f.computed)];
      reserve(made, f.part, arithmetic);
      run.outs.push_back(made.address());
    }
    defaults_program->run(run, stream);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      Field& f = fields[i];
      if (f.computed < 0 || arrays[i].data) continue;
      moves.move({f.standing.address(), f.part, f.part}, arithmetic,
                 {run.outs[static_cast<std::size_t>(f.computed)], 0, f.part}, arithmetic, shape.sequences, 1, f.part,
                 stream);
    }
  }

  /// A lagged copy starts as the history says, or as the state that it follows.
  void start_companion(std::size_t update, std::span<const CallArray> arrays, GpuStream stream) {
    const int s = cell.updates[update].symbol;
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of < 0) return;
    const CallArray& history = given(arrays, FieldKind::StateHistory, symbol.lag_of);
    places.values[s] = places.values[symbol.lag_of];
    if (!history.data) return;
    const Field& f = *find(FieldKind::StateHistory, symbol.lag_of);
    const std::int64_t entries = product(cell, sizes, symbol.axes), skipped = (symbol.lag - 1) * entries;
    reserve(companions[update], shape.sequences * entries, arithmetic);
    moves.move({companions[update].address(), entries, entries}, arithmetic,
               {history.data + static_cast<GpuAddress>(skipped) * size_of(arithmetic), f.part, entries}, arithmetic,
               shape.sequences, 1, entries, stream);
    places.values[s] = companions[update].address();
  }

  int update_of(int symbol) const {
    for (std::size_t u = 0; u < cell.updates.size(); ++u)
      if (cell.updates[u].symbol == symbol) return static_cast<int>(u);
    throw std::logic_error("a state without an update");
  }

  void place_written(Field& f, const CallArray& a) {
    if (!a.data || shape.rows == 0) return;
    switch (f.field.kind) {
      case FieldKind::State:
        if (direct(f, a))
          places.trajectories[static_cast<std::size_t>(update_of(f.field.id))] = rows_of(f, a);
        else
          places.trajectories[static_cast<std::size_t>(update_of(f.field.id))] = staged_rows(f);
        return;
      case FieldKind::Out:
        places.outs_wanted = true;
        places.outs[static_cast<std::size_t>(f.field.id)] = direct(f, a) ? a.data : staged_rows(f).data;
        return;
      case FieldKind::Final:
        places.finals[static_cast<std::size_t>(update_of(f.field.id))] = a.data;
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
          moves.move({a.data, f.part, f.part}, arithmetic, {places.values[id], f.part, f.part}, arithmetic,
                     shape.sequences, 1, f.part, stream);
        return;
      case FieldKind::FinalStateHistory:
        for (std::size_t u = 0; u < cell.updates.size(); ++u) {
          const int s = cell.updates[u].symbol;
          const Symbol& symbol = cell.symbols[s];
          if (symbol.lag_of != id) continue;
          const std::int64_t entries = product(cell, sizes, symbol.axes), skipped = (symbol.lag - 1) * entries;
          const GpuAddress from = shape.rows == 0 ? places.values[s] : solver.final_state(static_cast<int>(u));
          moves.move({a.data + static_cast<GpuAddress>(skipped) * size_of(arithmetic), f.part, entries}, arithmetic,
                     {from, entries, entries}, arithmetic, shape.sequences, 1, entries, stream);
        }
        return;
      case FieldKind::FinalInputHistory: {
        const Field& input = *find(FieldKind::Input, id);
        StridedCopies::History h;
        reserve(f.staged, shape.sequences * f.part, f.given);
        h.to = f.staged.address();
        h.before = given(arrays, FieldKind::InputHistory, id).data;
        h.rows = rows_of(input, given(arrays, FieldKind::Input, id));
        if (shape.packed()) h.rows.batch = 0;
        h.offsets = offsets.address();
        h.sequences = shape.sequences;
        h.depth = history_depth(cell, shape.lengths, id);
        h.entries = input.part;
        h.reverse = shape.reverse;
        moves.move_history(h, stream);
        moves.move({a.data, f.part, f.part}, f.given, {h.to, f.part, f.part}, f.given, shape.sequences, 1, f.part,
                   stream);
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
    report.compile_ms += compile_ms;
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

void check_on_device(Gpu& gpu, const CellGraph& cell, const CallLayout& layout, const CallShape& shape, Dtype dtype,
                     std::span<const CallArray> arrays, GpuAddress status) {
  const std::map<AxisId, std::int64_t> sizes = sizes_of(cell, shape);
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
    const std::int64_t part = part_of(cell, sizes, shape, field);
    std::int64_t entries = field.kind == FieldKind::Param ? part : shape.sequences * part;
    if (field.is_rows()) {
      const std::int64_t row = arrays[i].step_stride ? arrays[i].step_stride : part;
      const std::int64_t sequences = shape.packed() ? 1 : shape.sequences,
                         steps = shape.packed() ? shape.rows : shape.steps;
      const std::int64_t batch = arrays[i].sequence_stride ? arrays[i].sequence_stride : row * steps;
      entries = shape.rows == 0 ? 0 : (sequences - 1) * batch + (steps - 1) * row + part;
    }
    look_at(field.name, arrays[i].data, entries, size_of(field.is_storage() ? dtype : arithmetic_of(dtype)));
  }
  look_at("status", status, shape.sequences, 4);
}

}  // namespace cellc
