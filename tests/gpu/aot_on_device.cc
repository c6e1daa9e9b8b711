#include "tests/gpu/aot_on_device.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include "compiler/graph/delay_lines.h"
#include "runtime/cuda/device/offline_gpu.h"

namespace cellc {

namespace {

using Words = std::vector<std::uint64_t>;

}  // namespace

/// What the emitted NAME_room holds.
struct AotOnDevice::Room {
  explicit Room(const cellc_cell& cell) {
    const CallRoom r = call_room(cell);
    const auto n = [](int count) { return static_cast<std::size_t>(count); };
    symbols.resize(n(r.symbols)), part.resize(n(r.part));
    inputs.resize(n(r.inputs)), states.resize(n(r.states)), outs.resize(n(r.outs));
    finals.resize(n(r.states)), addresses.resize(n(r.addresses)), before.resize(n(r.before)), once.resize(n(r.once));
    views.resize(n(r.views)), starts.resize(n(r.starts)), lasts.resize(n(r.starts)),
        argument.resize(n(r.argument_words));
    plans.resize(n(r.stages)), sum_parts.resize(n(r.stages)), sums.resize(n(r.sums));
    work = {symbols.data(),   inputs.data(), states.data(), outs.data(),      finals.data(), plans.data(),
            sum_parts.data(), sums.data(),   part.data(),   addresses.data(), before.data(), once.data(),
            views.data(),     starts.data(), lasts.data(),  argument.data()};
  }
  std::vector<cellc_nest_array> symbols, part;
  std::vector<cellc_rows_view> inputs, states, outs;
  std::vector<cellc_view> views;
  Words finals, addresses, before, once, starts, lasts, argument, sums;
  std::vector<cellc_plan> plans;
  std::vector<int> sum_parts;
  cellc_work work;
};

AotOnDevice::AotOnDevice(Gpu& gpu, const AotCell& cell) : gpu_(gpu), cell_(cell) {
  module_ = gpu.load({cell.cell().name + ".cu", cell.text, {}});
  for (const std::string& name : cell.kernels) functions_.push_back(gpu.function(module_, name));
  device_.self = this;
  device_.facts = cellc_facts_of(&cell.table(), gpu.facts().multiprocessors, static_cast<int>(gpu.facts().l2_bytes));
  device_.resident = [](void* self, int kernel, int threads, std::int64_t shared) {
    auto& that = *static_cast<AotOnDevice*>(self);
    return that.gpu_.resident_blocks(that.functions_.at(kernel), threads, shared);
  };
  device_.launch = [](void* self, int kernel, cellc_grid grid, std::int64_t shared, const void* argument, std::size_t) {
    auto& that = *static_cast<AotOnDevice*>(self);
    GpuLaunch launch;
    launch.grid.x = grid.blocks;
    launch.block.x = grid.threads;
    launch.shared_bytes = shared;
    launch.cooperative = grid.cooperative;
    void* arguments = const_cast<void*>(argument);
    that.launched.push_back(kernel);
    that.gpu_.launch(that.functions_.at(kernel), launch, &arguments);
    return 0;
  };
  device_.zero = [](void* self, std::uint64_t address, std::int64_t bytes) {
    static_cast<AotOnDevice*>(self)->gpu_.zero(address, static_cast<std::size_t>(bytes), 0);
    return 0;
  };
  device_.owns = [](void* self, std::uint64_t address) {
    const auto& owned = static_cast<AotOnDevice*>(self)->owned_;
    return static_cast<int>(static_cast<AotOnDevice*>(self)->trusts ||
                            std::any_of(owned.begin(), owned.end(), [&](const auto& o) {
                              return address >= o.first && address < o.first + o.second;
                            }));
  };
}

cellc_call AotOnDevice::begin() {
  cellc_call call{};
  call.cell = &cell_.table();
  call.device = &device_;
  return call;
}

int AotOnDevice::workspace(const void* lengths, const void* arrays, std::int64_t* bytes) {
  Room room(cell_.table());
  cellc_call call = begin();
  return cellc_count_bytes(&call, &room.work, lengths, arrays, bytes);
}

int AotOnDevice::forward(const void* lengths, const void* arrays, GpuAddress workspace, std::int64_t bytes,
                         GpuAddress status) {
  Room room(cell_.table());
  cellc_call call = begin();
  launched.clear();
  return cellc_run_call(&call, &room.work, lengths, arrays, workspace, bytes, status);
}

std::map<std::string, Array> AotOnDevice::run(const Binding& binding, Dtype dtype, const Options& options) {
  const BoundRun& run = binding.run;
  const CellGraph& cell = cell_.cell();
  const Dtype arithmetic = arithmetic_of(dtype);
  const std::int64_t sequences = static_cast<std::int64_t>(run.offsets.size()) - 1, rows = run.offsets.back();
  const std::int64_t steps = sequences && !binding.packed ? run.offsets[1] : 0;
  std::vector<GpuBuffer> kept;
  owned_.clear();
  trusts = false;
  const auto allocate = [&](std::size_t bytes) {
    kept.emplace_back(gpu_, std::max<std::size_t>(bytes, 16));
    owned_.emplace_back(kept.back().address(), kept.back().bytes());
    return kept.back().address();
  };
  const auto upload = [&](const Array& array) {
    const GpuAddress to = allocate(static_cast<std::size_t>(array.count()) * size_of(array.dtype()));
    if (array.count())
      gpu_.copy_in(to, array.data(), static_cast<std::size_t>(array.count()) * size_of(array.dtype()), 0);
    return to;
  };
  const auto entries = [&](const std::vector<AxisId>& axes) {
    std::int64_t n = 1;
    for (const AxisId a : axes) n *= run.sizes.at(cell.graph.axis(a).extent_of);
    return n;
  };
  // Rows with gaps: row r of the run begins at place(r), whatever sequence it is of, and step 0 of the first
  // at first_place().
  const bool in_one = binding.packed || !steps;
  const auto step_stride = [&](std::int64_t n) { return options.descending ? -(n + options.gap) : n + options.gap; };
  const auto sequence_stride = [&](std::int64_t n) { return steps * (n + options.gap) + options.gap; };
  const auto first_place = [&](std::int64_t n) {
    return options.descending && rows ? ((in_one ? rows : steps) - 1) * (n + options.gap) : 0;
  };
  const auto place = [&](std::int64_t row, std::int64_t n) {
    return first_place(n) +
           (in_one ? row * step_stride(n) : row / steps * sequence_stride(n) + row % steps * step_stride(n));
  };
  const auto room_of = [&](std::int64_t n) {
    return !rows ? 0
                 : n + (in_one ? (rows - 1) * (n + options.gap)
                               : (rows / steps - 1) * sequence_stride(n) + (steps - 1) * (n + options.gap));
  };
  const bool strided = options.gap || options.descending;

  Words lengths(static_cast<std::size_t>(cell_.layout().length_words()) + 2);
  for (std::size_t i = 0; i < cell_.layout().lengths.size(); ++i)
    lengths[i] = static_cast<std::uint64_t>(run.sizes.at(cell_.layout().lengths[i]));
  std::uint64_t* const tail = lengths.data() + cell_.layout().lengths.size();
  tail[0] = static_cast<std::uint64_t>(sequences);
  tail[1] = static_cast<std::uint64_t>(steps);
  if (binding.packed) {
    Array offsets(Dtype::I64, {sequences + 1});
    std::memcpy(offsets.data(), run.offsets.data(), run.offsets.size() * 8);
    tail[2] = reinterpret_cast<std::uint64_t>(run.offsets.data());
    tail[3] = upload(offsets);
  }
  tail[4] = run.reverse;

  Words arrays(static_cast<std::size_t>(cell_.layout().words));
  struct Written {
    std::string name;
    GpuAddress at;
    Dtype dtype;
    std::int64_t count, entries;  ///< entries of a row, 0: not rows
  };
  std::vector<Written> written;
  std::map<int, int> update_of;
  for (std::size_t u = 0; u < cell.updates.size(); ++u) update_of[cell.updates[u].symbol] = static_cast<int>(u);
  std::map<int, std::pair<GpuAddress, std::size_t>> starts;
  for (const CallField& f : cell_.layout().fields) {
    std::int64_t n = 1;
    for (const int a : f.axes) n *= run.sizes.at(cell.header[static_cast<std::size_t>(a)]);
    const auto rows_at = [&](GpuAddress at) {
      arrays[static_cast<std::size_t>(f.word)] = at + static_cast<GpuAddress>(first_place(n)) * size_of(dtype);
      arrays[static_cast<std::size_t>(f.word) + 1] = strided ? static_cast<std::uint64_t>(sequence_stride(n)) : 0;
      arrays[static_cast<std::size_t>(f.word) + 2] = strided ? static_cast<std::uint64_t>(step_stride(n)) : 0;
    };
    const std::int64_t room = room_of(n);
    const auto history = [&](const auto& entry_of, std::int64_t depth, Dtype type) {
      Array all(type, {sequences, depth, n});
      for (std::int64_t s = 0; s < sequences; ++s)
        for (std::int64_t j = 0; j < depth; ++j)
          for (std::int64_t i = 0; i < n; ++i) all.set((s * depth + j) * n + i, entry_of(s, j, i));
      arrays[static_cast<std::size_t>(f.word)] = upload(all);
    };
    const auto write = [&](const std::string& name, Dtype type, std::int64_t count, std::int64_t of_row) {
      const GpuAddress at = allocate(static_cast<std::size_t>(of_row ? room : count) * size_of(type));
      written.push_back({name, at, type, count, of_row});
      if (of_row)
        rows_at(at);
      else
        arrays[static_cast<std::size_t>(f.word)] = at;
    };
    const auto line_of = [&](int state) -> std::optional<DelayLine> {
      for (const DelayLine& line : delay_lines(cell))
        if (line.state == state) return line;
      return std::nullopt;
    };
    const auto companions = [&] {
      std::vector<int> all;
      for (std::size_t s = 0; s < cell.symbols.size(); ++s)
        if (cell.symbols[s].lag_of == f.id && cell.symbols[s].kind == SymbolKind::State)
          all.push_back(static_cast<int>(s));
      return all;
    };
    switch (f.kind) {
      case FieldKind::Param:
        if (options.defaults && !f.required()) break;
        arrays[static_cast<std::size_t>(f.word)] = upload(convert(run.symbols[f.id], arithmetic));
        break;
      case FieldKind::Input: {
        const Array given = convert(run.symbols[f.id], dtype);
        Array apart(dtype, {std::max<std::int64_t>(1, room)});
        for (std::int64_t r = 0; r < rows; ++r)
          std::memcpy(static_cast<std::byte*>(apart.data()) + static_cast<std::size_t>(place(r, n)) * size_of(dtype),
                      static_cast<const std::byte*>(given.data()) + static_cast<std::size_t>(r * n) * size_of(dtype),
                      static_cast<std::size_t>(n) * size_of(dtype));
        rows_at(upload(apart));
        break;
      }
      case FieldKind::InputHistory: {
        const Array& given = run.histories[f.id];
        if (options.defaults || !given.data()) break;
        history([&](std::int64_t s, std::int64_t j,
                    std::int64_t i) { return given.get((s * given.shape()[1] + j) * n + i); },
                given.shape()[1], dtype);
        break;
      }
      case FieldKind::Start:
        if (options.defaults) break;
        arrays[static_cast<std::size_t>(f.word)] = upload(convert(run.symbols[f.id], arithmetic));
        starts[f.id] = {arrays[static_cast<std::size_t>(f.word)], 0};
        break;
      case FieldKind::StateHistory: {
        if (options.defaults) break;
        const std::vector<int> all = companions();
        if (const auto line = line_of(f.id)) {  // begins with the start
          const Array& of = run.histories[static_cast<std::size_t>(line->symbol)];
          history(
              [&](std::int64_t s, std::int64_t j, std::int64_t i) {
                return j < static_cast<std::int64_t>(all.size())
                           ? run.symbols[all[static_cast<std::size_t>(j)]].get(s * n + i)
                           : of.get((s * line->deepest + j + 1) * n + i);
              },
              line->deepest - 1, arithmetic);
          break;
        }
        history([&](std::int64_t s, std::int64_t j,
                    std::int64_t i) { return run.symbols[all[static_cast<std::size_t>(j)]].get(s * n + i); },
                static_cast<std::int64_t>(all.size()), arithmetic);
        break;
      }
      case FieldKind::State:
        if (options.no_states) break;
        write(f.name, dtype, rows * n, n);
        break;
      case FieldKind::Out:
        write(f.name, dtype, rows * n, n);
        break;
      case FieldKind::Final:
        if (options.in_place && starts.contains(f.id)) {
          arrays[static_cast<std::size_t>(f.word)] = starts[f.id].first;
          written.push_back({cell.symbols[f.id].name + ".final", starts[f.id].first, arithmetic, sequences * n, 0});
        } else {
          write(cell.symbols[f.id].name + ".final", arithmetic, sequences * n, 0);
        }
        break;
      case FieldKind::FinalStateHistory:
        write(cell.symbols[f.id].name + ".lag", arithmetic, sequences * n * cell.symbols[f.id].max_lag, 0);
        break;
      case FieldKind::FinalInputHistory: {
        std::int64_t depth = 0;
        for (const Reach& r : f.reaches)
          depth = std::max(depth,
                           r.lag + (r.axis < 0 ? 0 : run.sizes.at(cell.header[static_cast<std::size_t>(r.axis)]) - 1));
        write(cell.symbols[f.id].name + ".lag", dtype, sequences * n * depth, 0);
        break;
      }
    }
  }
  const auto checked = [&](int result, const char* what) {
    if (result)
      throw std::runtime_error(std::string(what) + ": " +
                               (result < CELLC_MISSING_FIELD ? cellc_message(result) : std::to_string(result)));
  };
  std::int64_t bytes = 0, any = 0;
  checked(workspace(lengths.data(), nullptr, &any), "the workspace of any arrays");
  checked(workspace(lengths.data(), arrays.data(), &bytes), "the workspace");
  if (bytes > any) throw std::runtime_error("these arrays need more memory than any arrays");
  if (!options.less_memory) bytes = any;
  const GpuAddress memory = allocate(static_cast<std::size_t>(bytes));
  Array status(Dtype::I64, {sequences / 2 + 1});
  for (std::int64_t i = 0; i < status.count(); ++i) static_cast<std::int64_t*>(status.data())[i] = -1;
  const GpuAddress status_at = upload(status);
  checked(forward(lengths.data(), arrays.data(), memory, bytes, status_at), "the call");
  std::vector<std::int32_t> statuses(static_cast<std::size_t>(sequences));
  if (sequences) gpu_.copy_out(statuses.data(), status_at, statuses.size() * 4, 0);
  for (const std::int32_t s : statuses)
    if (s) throw std::runtime_error("a status that is not 0");

  std::map<std::string, Array> result;
  for (const Written& w : written) {
    Array flat(w.dtype, {w.count});
    const std::size_t size = size_of(w.dtype);
    if (w.count == 0) {
    } else if (!w.entries) {
      gpu_.copy_out(flat.data(), w.at, static_cast<std::size_t>(w.count) * size, 0);
    } else {
      std::vector<std::byte> all(static_cast<std::size_t>(room_of(w.entries)) * size);
      gpu_.copy_out(all.data(), w.at, all.size(), 0);
      for (std::int64_t r = 0; r < rows; ++r)
        std::memcpy(static_cast<std::byte*>(flat.data()) + static_cast<std::size_t>(r * w.entries) * size,
                    all.data() + static_cast<std::size_t>(place(r, w.entries)) * size,
                    static_cast<std::size_t>(w.entries) * size);
    }
    result[w.name] = flat;
  }
  return result;
}

}  // namespace cellc
