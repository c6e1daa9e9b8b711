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
    finals.resize(n(r.states)), remade.resize(n(r.states)), addresses.resize(n(r.addresses)),
        before.resize(n(r.before)), once.resize(n(r.once));
    views.resize(n(r.views)), starts.resize(n(r.starts)), lasts.resize(n(r.starts)),
        argument.resize(n(r.argument_words));
    plans.resize(n(r.stages)), sum_parts.resize(n(r.stages)), sums.resize(n(r.sums));
    work = {symbols.data(), inputs.data(),    states.data(), outs.data(),  finals.data(),    remade.data(),
            plans.data(),   sum_parts.data(), sums.data(),   part.data(),  addresses.data(), before.data(),
            once.data(),    views.data(),     starts.data(), lasts.data(), argument.data()};
  }
  std::vector<cellc_nest_array> symbols, part;
  std::vector<cellc_rows_view> inputs, states, outs;
  std::vector<cellc_view> views;
  Words finals, remade, addresses, before, once, starts, lasts, argument, sums;
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

cellc_device_call AotOnDevice::begin() {
  cellc_device_call call{};
  call.cell = &cell_.table();
  call.device = &device_;
  return call;
}

int AotOnDevice::workspace(const void* lengths, const void* arrays, std::int64_t* bytes) {
  Room room(cell_.table());
  cellc_device_call call = begin();
  return cellc_count_bytes(&call, &room.work, lengths, arrays, bytes);
}

int AotOnDevice::forward(const void* lengths, const void* arrays, GpuAddress workspace, std::int64_t bytes,
                         GpuAddress status) {
  Room room(cell_.table());
  cellc_device_call call = begin();
  launched.clear();
  return cellc_run_call(&call, &room.work, lengths, arrays, workspace, bytes, status);
}

namespace {

/// What the emitted NAME_backward_room holds besides.
struct BackwardRoom {
  explicit BackwardRoom(const cellc_backward& of)
      : words(static_cast<std::size_t>(of.words)),
        inputs(static_cast<std::size_t>(of.input_count) + 1),
        outs(static_cast<std::size_t>(of.out_count) + 1),
        past(static_cast<std::size_t>(of.past_count) + 1) {}
  Words words, inputs, outs, past;
};
cellc_backward_call backward_call(const cellc_backward& of, const cellc_device& device, cellc_work& work,
                                  BackwardRoom& room) {
  cellc_backward_call call{};
  call.of = &of;
  call.device = &device;
  call.work = &work;
  call.words = room.words.data();
  call.inputs = room.inputs.data();
  call.outs = room.outs.data();
  call.past = room.past.data();
  return call;
}

}  // namespace

int AotOnDevice::count_backward(const AotBackward& backward, const void* lengths, const void* arrays,
                                std::int64_t* bytes) {
  Room room(cell_.table());
  BackwardRoom more(backward.table());
  cellc_backward_call call = backward_call(backward.table(), device_, room.work, more);
  return cellc_count_backward(&call, lengths, arrays, bytes);
}
int AotOnDevice::run_backward(const AotBackward& backward, const void* lengths, const void* arrays,
                              GpuAddress workspace, std::int64_t bytes) {
  Room room(cell_.table());
  BackwardRoom more(backward.table());
  cellc_backward_call call = backward_call(backward.table(), device_, room.work, more);
  return cellc_run_backward(&call, lengths, arrays, workspace, bytes, 0);
}

namespace {

/// Rows with gaps between them: whatever sequence it is of, row r of the run begins at place(r), and step 0 of the
/// first sequence at first_place(). Of rows of `n` entries.
class RowsWithGaps {
 public:
  RowsWithGaps(const Binding& binding, const AotOnDevice::Options& options)
      : options_(options),
        rows_(binding.run.offsets.back()),
        steps_(binding.run.offsets.size() > 1 && !binding.packed ? binding.run.offsets[1] : 0),
        in_one_(binding.packed || !steps_) {}
  std::int64_t step_stride(std::int64_t n) const {
    return options_.descending ? -(n + options_.gap) : n + options_.gap;
  }
  std::int64_t sequence_stride(std::int64_t n) const { return steps_ * (n + options_.gap) + options_.gap; }
  std::int64_t first_place(std::int64_t n) const {
    return options_.descending && rows_ ? ((in_one_ ? rows_ : steps_) - 1) * (n + options_.gap) : 0;
  }
  std::int64_t place(std::int64_t row, std::int64_t n) const {
    return first_place(n) +
           (in_one_ ? row * step_stride(n) : row / steps_ * sequence_stride(n) + row % steps_ * step_stride(n));
  }
  std::int64_t room(std::int64_t n) const {
    if (!rows_) return 0;
    return n + (in_one_ ? (rows_ - 1) * (n + options_.gap)
                        : (rows_ / steps_ - 1) * sequence_stride(n) + (steps_ - 1) * (n + options_.gap));
  }
  bool strided() const { return options_.gap || options_.descending; }
  std::int64_t steps() const { return steps_; }

 private:
  const AotOnDevice::Options& options_;
  const std::int64_t rows_, steps_;
  const bool in_one_;
};

}  // namespace

/// The caller's side of a run: its struct of lengths, its arrays on the device, and what became of them.
class AotOnDevice::Caller {
 public:
  Caller(AotOnDevice& of, const Binding& binding, Dtype dtype, const Options& options)
      : gpu_(of.gpu_),
        owned_(of.owned_),
        layout_(of.cell_.layout()),
        cell_(of.cell_.cell()),
        binding_(binding),
        run_(binding.run),
        dtype_(dtype),
        arithmetic_(arithmetic_of(dtype)),
        options_(options),
        rows_(binding, options),
        arrays(static_cast<std::size_t>(layout_.words)),
        sequences(static_cast<std::int64_t>(run_.offsets.size()) - 1) {
    fill_lengths();
    for (const CallField& f : layout_.fields) place(f);
  }

  GpuAddress allocate(std::size_t bytes) {
    kept_.emplace_back(gpu_, std::max<std::size_t>(bytes, 16));
    owned_.emplace_back(kept_.back().address(), kept_.back().bytes());
    return kept_.back().address();
  }
  GpuAddress upload(const Array& array) {
    const std::size_t bytes = static_cast<std::size_t>(array.count()) * size_of(array.dtype());
    const GpuAddress to = allocate(bytes);
    if (array.count()) gpu_.copy_in(to, array.data(), bytes, 0);
    return to;
  }

  std::map<std::string, Array> results() {
    std::map<std::string, Array> result;
    for (const Written& w : written_) {
      Array flat(w.dtype, {w.count});
      const std::size_t size = size_of(w.dtype);
      if (w.count == 0) {
      } else if (!w.entries) {
        gpu_.copy_out(flat.data(), w.at, static_cast<std::size_t>(w.count) * size, 0);
      } else {
        std::vector<std::byte> all(static_cast<std::size_t>(rows_.room(w.entries)) * size);
        gpu_.copy_out(all.data(), w.at, all.size(), 0);
        for (std::int64_t r = 0; r < run_.offsets.back(); ++r)
          std::memcpy(static_cast<std::byte*>(flat.data()) + static_cast<std::size_t>(r * w.entries) * size,
                      all.data() + static_cast<std::size_t>(rows_.place(r, w.entries)) * size,
                      static_cast<std::size_t>(w.entries) * size);
      }
      result[w.name] = flat;
    }
    return result;
  }

 private:
  struct Written {
    std::string name;
    GpuAddress at;
    Dtype dtype;
    std::int64_t count, entries;  ///< entries of a row, 0: not rows
  };

  std::uint64_t& word(const CallField& f, int after = 0) { return arrays[static_cast<std::size_t>(f.word + after)]; }
  std::int64_t part_of(const CallField& f) const {
    std::int64_t n = 1;
    for (const int a : f.axes) n *= run_.sizes.at(cell_.header[static_cast<std::size_t>(a)]);
    return n;
  }
  std::vector<int> companions(const CallField& f) const {
    std::vector<int> all;
    for (std::size_t s = 0; s < cell_.symbols.size(); ++s)
      if (cell_.symbols[s].lag_of == f.id && cell_.symbols[s].kind == SymbolKind::State)
        all.push_back(static_cast<int>(s));
    return all;
  }

  std::optional<DelayLine> line_of(int state) const {
    for (const DelayLine& line : delay_lines(cell_))
      if (line.state == state) return line;
    return std::nullopt;
  }

  void fill_lengths() {
    lengths.resize(static_cast<std::size_t>(layout_.length_words()) + 2);
    for (std::size_t i = 0; i < layout_.lengths.size(); ++i)
      lengths[i] = static_cast<std::uint64_t>(run_.sizes.at(layout_.lengths[i]));
    std::uint64_t* const tail = lengths.data() + layout_.lengths.size();
    tail[0] = static_cast<std::uint64_t>(sequences);
    tail[1] = static_cast<std::uint64_t>(rows_.steps());
    if (binding_.packed) {
      Array offsets(Dtype::I64, {sequences + 1});
      std::memcpy(offsets.data(), run_.offsets.data(), run_.offsets.size() * 8);
      tail[2] = reinterpret_cast<std::uint64_t>(run_.offsets.data());
      tail[3] = upload(offsets);
    }
    tail[4] = run_.reverse;
  }

  void place(const CallField& f) {
    const std::int64_t n = part_of(f), rows = run_.offsets.back();
    switch (f.kind) {
      case FieldKind::Param:
        if (!options_.defaults || f.required()) word(f) = upload(convert(run_.symbols[f.id], arithmetic_));
        break;
      case FieldKind::Input:
        place_input(f, n);
        break;
      case FieldKind::InputHistory: {
        const Array& given = run_.histories[f.id];
        if (options_.defaults || !given.data()) break;
        place_history(f, n, given.shape()[1], dtype_, [&](std::int64_t s, std::int64_t j, std::int64_t i) {
          return given.get((s * given.shape()[1] + j) * n + i);
        });
        break;
      }
      case FieldKind::Start:
        if (options_.defaults) break;
        starts_[f.id] = word(f) = upload(convert(run_.symbols[f.id], arithmetic_));
        break;
      case FieldKind::StateHistory: {
        if (options_.defaults) break;
        const std::vector<int> all = companions(f);
        if (const auto line = line_of(f.id)) {  // begins with the start
          const Array& of = run_.histories[static_cast<std::size_t>(line->symbol)];
          place_history(f, n, line->deepest - 1, arithmetic_, [&](std::int64_t s, std::int64_t j, std::int64_t i) {
            return j < static_cast<std::int64_t>(all.size())
                       ? run_.symbols[all[static_cast<std::size_t>(j)]].get(s * n + i)
                       : of.get((s * line->deepest + j + 1) * n + i);
          });
          break;
        }
        place_history(f, n, static_cast<std::int64_t>(all.size()), arithmetic_,
                      [&](std::int64_t s, std::int64_t j, std::int64_t i) {
                        return run_.symbols[all[static_cast<std::size_t>(j)]].get(s * n + i);
                      });
        break;
      }
      case FieldKind::State:
        if (!options_.no_states) write(f, f.name, dtype_, rows * n, n);
        break;
      case FieldKind::Out:
        write(f, f.name, dtype_, rows * n, n);
        break;
      case FieldKind::Final: {
        const std::string name = cell_.symbols[f.id].name + ".final";
        if (options_.in_place && starts_.contains(f.id)) {
          word(f) = starts_[f.id];
          written_.push_back({name, starts_[f.id], arithmetic_, sequences * n, 0});
        } else {
          write(f, name, arithmetic_, sequences * n, 0);
        }
        break;
      }
      case FieldKind::FinalStateHistory:
        write(f, cell_.symbols[f.id].name + ".lag", arithmetic_, sequences * n * cell_.symbols[f.id].max_lag, 0);
        break;
      case FieldKind::FinalInputHistory: {
        std::int64_t depth = 0;
        for (const Reach& r : f.reaches)
          depth = std::max(
              depth, r.lag + (r.axis < 0 ? 0 : run_.sizes.at(cell_.header[static_cast<std::size_t>(r.axis)]) - 1));
        write(f, cell_.symbols[f.id].name + ".lag", dtype_, sequences * n * depth, 0);
        break;
      }
    }
  }

  void place_rows(const CallField& f, GpuAddress at, std::int64_t n) {
    word(f) = at + static_cast<GpuAddress>(rows_.first_place(n)) * size_of(dtype_);
    word(f, 1) = rows_.strided() ? static_cast<std::uint64_t>(rows_.sequence_stride(n)) : 0;
    word(f, 2) = rows_.strided() ? static_cast<std::uint64_t>(rows_.step_stride(n)) : 0;
  }
  void place_input(const CallField& f, std::int64_t n) {
    const Array given = convert(run_.symbols[f.id], dtype_);
    Array apart(dtype_, {std::max<std::int64_t>(1, rows_.room(n))});
    const std::size_t size = size_of(dtype_);
    for (std::int64_t r = 0; r < run_.offsets.back(); ++r)
      std::memcpy(static_cast<std::byte*>(apart.data()) + static_cast<std::size_t>(rows_.place(r, n)) * size,
                  static_cast<const std::byte*>(given.data()) + static_cast<std::size_t>(r * n) * size,
                  static_cast<std::size_t>(n) * size);
    place_rows(f, upload(apart), n);
  }
  /// [sequences, depth, n], of what `entry(sequence, step, i)` says.
  template <class Entry>
  void place_history(const CallField& f, std::int64_t n, std::int64_t depth, Dtype type, const Entry& entry) {
    Array all(type, {sequences, depth, n});
    for (std::int64_t s = 0; s < sequences; ++s)
      for (std::int64_t j = 0; j < depth; ++j)
        for (std::int64_t i = 0; i < n; ++i) all.set((s * depth + j) * n + i, entry(s, j, i));
    word(f) = upload(all);
  }
  /// `of_row`: entries of a row; 0: it has none.
  void write(const CallField& f, const std::string& name, Dtype type, std::int64_t count, std::int64_t of_row) {
    const GpuAddress at = allocate(static_cast<std::size_t>(of_row ? rows_.room(of_row) : count) * size_of(type));
    written_.push_back({name, at, type, count, of_row});
    if (of_row)
      place_rows(f, at, of_row);
    else
      word(f) = at;
  }

  Gpu& gpu_;
  std::vector<std::pair<GpuAddress, std::size_t>>& owned_;
  const CallLayout& layout_;
  const CellGraph& cell_;
  const Binding& binding_;
  const BoundRun& run_;
  const Dtype dtype_, arithmetic_;
  const Options& options_;
  const RowsWithGaps rows_;
  std::vector<GpuBuffer> kept_;
  std::vector<Written> written_;
  std::map<int, GpuAddress> starts_;

 public:
  Words lengths, arrays;
  const std::int64_t sequences;
};

std::map<std::string, Array> AotOnDevice::run(const Binding& binding, Dtype dtype, const Options& options) {
  owned_.clear();
  trusts = false;
  Caller caller(*this, binding, dtype, options);
  const auto checked = [&](int result, const char* what) {
    if (result)
      throw std::runtime_error(std::string(what) + ": " +
                               (result < CELLC_MISSING_FIELD ? cellc_message(result) : std::to_string(result)));
  };
  std::int64_t bytes = 0, any = 0;
  checked(workspace(caller.lengths.data(), nullptr, &any), "the workspace of any arrays");
  checked(workspace(caller.lengths.data(), caller.arrays.data(), &bytes), "the workspace");
  if (bytes > any) throw std::runtime_error("these arrays need more memory than any arrays");
  if (!options.less_memory) bytes = any;
  const GpuAddress memory = caller.allocate(static_cast<std::size_t>(bytes));
  Array status(Dtype::I64, {caller.sequences / 2 + 1});
  for (std::int64_t i = 0; i < status.count(); ++i) static_cast<std::int64_t*>(status.data())[i] = -1;
  const GpuAddress status_at = caller.upload(status);
  checked(forward(caller.lengths.data(), caller.arrays.data(), memory, bytes, status_at), "the call");
  std::vector<std::int32_t> statuses(static_cast<std::size_t>(caller.sequences));
  if (caller.sequences) gpu_.copy_out(statuses.data(), status_at, statuses.size() * 4, 0);
  for (const std::int32_t s : statuses)
    if (s) throw std::runtime_error("a status that is not 0");
  return caller.results();
}

}  // namespace cellc
