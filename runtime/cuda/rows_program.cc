#include "runtime/cuda/rows_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>

#include "compiler/emit_cuda_rows.h"
#include "kernels-templates/rows_frame.cuh"
#include "runtime/cuda/kernel_templates.h"
#include "runtime/engine.h"

namespace cellc {

// The device reads them as rows of numbers of 8 bytes.
static_assert(sizeof(RowsFrame) == 14 * 8 && sizeof(ProductArguments) == sizeof(RowsFrame) + 9 * 8);

namespace {

// Of rows.cuh and product.cuh.
constexpr std::int64_t kRowsThreads = 512, kProductThreads = 256, kProductTile = 64;
/// Steps of a window below which short launches cost more than their chunks save.
constexpr std::int64_t kShortestWindow = 64;
/// Positions of a part below which splitting a sequence further leaves threads idle.
constexpr std::int64_t kPartPositions = 128;

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

struct Emitted {
  Plan plan;
  GpuSource source;
  std::vector<RowsKernel> kernels;
};

Emitted emit_rows(const CellGraph& cell, const Structure& structure, Dtype dtype,
                  const RowsOptions& options) {
  const char* storage = nullptr;
  CudaRowsOptions emit;
  switch (dtype) {
    case Dtype::F32:
      storage = "F32", emit.storage = Storage::F32;
      break;
    case Dtype::F64:
      storage = "F64", emit.storage = Storage::F64;
      break;
    case Dtype::F16:
      storage = "F16", emit.storage = Storage::F16;
      break;
    case Dtype::BF16:
      storage = "BF16", emit.storage = Storage::BF16;
      break;
    default:
      throw RequestError(
          fmt::format("arrays of {} cannot be run; use f32, f64, f16 or bf16", to_string(dtype)));
  }
  emit.wide_inputs = options.wide_inputs;
  emit.wide_histories = options.wide_histories;
  emit.wide_states = options.wide_states;
  emit.wide_outs = options.wide_outs;
  emit.source = options.source;
  Emitted result;
  result.plan = make_plan(cell, structure, {.narrow_storage = size_of(dtype) == 2});
  emit.prelude = fmt::format("#define CELLC_STORAGE_{} 1\n", storage);
  std::vector<const char*> parts{"preamble.cuh", "math.cuh", "rows_frame.cuh", "rows.cuh"};
  if (!result.plan.products.empty()) parts.push_back("product.cuh");
  for (const char* part : parts) {
    emit.prelude += fmt::format("#line 1 \"{}\"\n{}", part, kernel_template(part));
  }
  CudaRowsModule module = emit_cuda_rows(result.plan, emit);
  result.source = {std::move(module.name), std::move(module.text), {}};
  result.kernels = std::move(module.kernels);
  return result;
}

/// Grows and never shrinks.
struct KeptBuffer {
  GpuBuffer buffer;
  GpuAddress at_least(Gpu& gpu, std::int64_t bytes) {
    if (static_cast<std::int64_t>(buffer.bytes()) < bytes) {
      buffer = GpuBuffer();  // the old one first: both need not fit
      buffer = GpuBuffer(gpu, static_cast<std::size_t>(bytes));
    }
    return buffer.address();
  }
};

}  // namespace

struct RowsProgram::Impl {
  Impl(Gpu& on, Dtype storage, const RowsOptions& given, Emitted code)
      : gpu(on), dtype(storage), options(given), emitted(std::move(code)) {}

  Gpu& gpu;
  Dtype dtype;
  RowsOptions options;
  Emitted emitted;
  GpuModule module;
  std::vector<GpuFunction> functions;  ///< by emitted kernel
  GpuFunction product;
  std::map<std::tuple<std::uint64_t, int, std::int64_t>, int> resident;

  // Kept between runs
  KeptBuffer scratch;
  std::vector<KeptBuffer> once, once_temps, chunks;
  KeptBuffer once_scalars;

  // The run
  const RowsRun* run = nullptr;
  GpuStream stream = 0;
  std::int64_t sequences = 0, rows = 0, longest = 0;
  bool even = false;

  const Plan& plan() const { return emitted.plan; }
  const CellGraph& cell() const { return emitted.plan.cell; }
  std::int64_t real_bytes() const { return dtype == Dtype::F64 ? 8 : 4; }
  std::int64_t length(AxisId axis) const {
    const Axis& header = cell().graph.axis(cell().graph.axis(axis).extent_of);
    const auto it = run->sizes.find(cell().graph.axis(axis).extent_of);
    if (it != run->sizes.end()) return it->second;
    if (header.fixed) return *header.fixed;
    throw RequestError(fmt::format("the length of axis {} is not given", header.name));
  }
  std::int64_t entries(const std::vector<AxisId>& axes) const {
    std::int64_t n = 1;
    for (const AxisId a : axes) n *= length(a);
    return n;
  }

  /// Threads and memory of a kernel's blocks.
  struct Block {
    int threads = 32;
    std::int64_t shared_bytes = 0, scratch_entries = 0, blocks = 1;
    std::map<std::pair<RowsSlotKind, int>, std::int64_t> places;
  };

  // Checks -----------------------------------------------------------------------------------------

  void begin(const RowsRun& given, GpuStream on) {
    run = &given;
    stream = on;
    if (given.offsets.empty()) throw RequestError("a run needs the offsets of its sequences");
    if (given.symbols.size() != cell().symbols.size() || given.states.size() != cell().updates.size() ||
        given.finals.size() != cell().updates.size() || given.outs.size() != cell().outs.size()) {
      throw std::logic_error("rows: arrays and symbols do not match");
    }
    sequences = static_cast<std::int64_t>(given.offsets.size()) - 1;
    rows = given.offsets.back();
    if (given.offsets.front() != 0) throw RequestError("the first sequence must start at row 0");
    longest = 0;
    even = sequences > 0;
    for (std::int64_t s = 0; s < sequences; ++s) {
      const std::int64_t steps = given.offsets[s + 1] - given.offsets[s];
      if (steps < 0) throw RequestError(fmt::format("sequence {} ends before it starts", s));
      longest = std::max(longest, steps);
      even = even && steps == given.offsets[1];
    }
    const auto need = [](GpuAddress address, std::int64_t count, const std::string& name) {
      if (!address && count > 0) throw RequestError(fmt::format("{} is not given", name));
    };
    need(given.device_offsets, sequences, "the array of offsets");
    for (std::size_t s = 0; s < cell().symbols.size(); ++s) {
      const Symbol& symbol = cell().symbols[s];
      const std::int64_t n = entries(symbol.axes);
      if (symbol.kind == SymbolKind::Param) need(given.symbols[s].data, n, symbol.name);
      if (symbol.kind == SymbolKind::Input) need(given.symbols[s].data, n * rows, symbol.name);
      if (symbol.kind == SymbolKind::Input && symbol.max_lag != 0) {
        need(given.symbols[s].history, n * rows, symbol.name + ".lag");
      }
    }
    for (std::size_t i = 0; i < cell().updates.size(); ++i) {
      const Symbol& symbol = cell().symbols[cell().updates[i].symbol];
      need(given.states[i], entries(symbol.index) * rows, symbol.name);
      need(given.finals[i], entries(symbol.index) * sequences, symbol.name + ".final");
    }
    for (std::size_t i = 0; i < cell().outs.size(); ++i) {
      need(given.outs[i], entries(cell().outs[i].index) * rows, cell().outs[i].name);
    }
  }

  // Launches ---------------------------------------------------------------------------------------

  int resident_blocks(const GpuFunction& function, int threads, std::int64_t shared) {
    const auto [it, is_new] = resident.try_emplace({function.handle, threads, shared});
    if (is_new) it->second = std::max(1, gpu.resident_blocks(function, threads, shared));
    return it->second;
  }

  /// Positions that a nest gives threads to.
  std::int64_t positions(const Nest& nest) const {
    std::int64_t n = entries(nest.axes);
    if (nest.is_reduction())
      n *= std::min<std::int64_t>(
          32, std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(1, entries(nest.bound)))));
    return n;
  }

  std::int64_t local_entries(const RowsSlot& slot, std::int64_t part_length) const {
    std::vector<AxisId> dims;
    std::int64_t times = 1;
    switch (slot.kind) {
      case RowsSlotKind::LocalTemp:
        dims = plan().temps[slot.id].dims;
        break;
      case RowsSlotKind::LocalState:
        dims = cell().symbols[cell().updates[slot.id].symbol].index, times = 2;
        break;
      default:
        return slot.id;
    }
    for (const AxisId a : dims) times *= part_length > 0 && a == plan().split_axis ? part_length : length(a);
    return times;
  }

  /// Shared memory for what is small, scratch for what does not fit. `rows` at a time: by Tile kernels.
  Block place(const RowsKernel& kernel, std::int64_t part_length, std::int64_t tile_rows, int threads) const {
    Block block;
    block.threads = threads;
    std::vector<std::pair<std::int64_t, const RowsSlot*>> locals;
    for (const RowsSlot& s : kernel.slots) {
      if (s.kind == RowsSlotKind::LocalTemp || s.kind == RowsSlotKind::LocalState ||
          s.kind == RowsSlotKind::LocalScalars) {
        locals.emplace_back(local_entries(s, part_length) * tile_rows, &s);
      }
    }
    std::stable_sort(locals.begin(), locals.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::int64_t shared = 0;
    const std::int64_t limit = gpu.facts().shared_per_block / real_bytes();
    for (const auto& [count, slot] : locals) {
      if (shared + count <= limit) {
        block.places[{slot->kind, slot->id}] = shared;
        shared += count;
      } else {
        block.places[{slot->kind, slot->id}] = -1 - block.scratch_entries;
        block.scratch_entries += count;
      }
    }
    block.shared_bytes = shared * real_bytes();
    return block;
  }

  std::uint64_t slot_value(const RowsSlot& slot, const Block& block) {
    const std::size_t id = static_cast<std::size_t>(slot.id);
    switch (slot.kind) {
      case RowsSlotKind::Length:
        return static_cast<std::uint64_t>(length(static_cast<AxisId>(slot.id)));
      case RowsSlotKind::Param:
      case RowsSlotKind::Input:
        return run->symbols[id].data;
      case RowsSlotKind::Start:
        return run->symbols[cell().updates[id].symbol].data;
      case RowsSlotKind::InputStride: {
        const std::int64_t stride = run->symbols[id].row_stride;
        return static_cast<std::uint64_t>(stride < 0 ? entries(cell().symbols[id].axes) : stride);
      }
      case RowsSlotKind::History:
        return run->symbols[id].history;
      case RowsSlotKind::HistoryDepth:
        return static_cast<std::uint64_t>(run->symbols[id].history_depth);
      case RowsSlotKind::Final:
        return run->finals[id];
      case RowsSlotKind::StateRow:
        return run->states[id];
      case RowsSlotKind::Out:
        return run->outs[id];
      case RowsSlotKind::Once:
        return once[id].buffer.address();
      case RowsSlotKind::Chunk:
        return chunks[id].buffer.address();
      case RowsSlotKind::LocalTemp:
      case RowsSlotKind::LocalState:
      case RowsSlotKind::LocalScalars: {
        const auto it = block.places.find({slot.kind, slot.id});
        if (it != block.places.end()) return static_cast<std::uint64_t>(it->second);
        return slot.kind == RowsSlotKind::LocalTemp ? once_temps[id].buffer.address()
                                                    : once_scalars.buffer.address();
      }
    }
    throw std::logic_error("rows: no such slot");
  }

  void launch(std::size_t k, RowsFrame frame, Block block) {
    if (block.scratch_entries > 0) {
      frame.scratch =
          reinterpret_cast<void*>(scratch.at_least(gpu, block.blocks * block.scratch_entries * real_bytes()));
      frame.scratch_stride = block.scratch_entries;
    }
    const std::vector<RowsSlot>& slots = emitted.kernels[k].slots;
    std::vector<std::uint64_t> values(sizeof(RowsFrame) / 8 + slots.size());
    std::memcpy(values.data(), &frame, sizeof frame);
    for (std::size_t i = 0; i < slots.size(); ++i)
      values[sizeof(RowsFrame) / 8 + i] = slot_value(slots[i], block);
    void* argument = values.data();
    GpuLaunch shape;
    shape.grid.x = static_cast<unsigned>(block.blocks);
    shape.block.x = static_cast<unsigned>(block.threads);
    shape.shared_bytes = block.shared_bytes;
    shape.stream = stream;
    gpu.launch(functions[k], shape, &argument);
  }

  static int whole_warps(std::int64_t threads) {
    return static_cast<int>(divide_up(std::clamp<std::int64_t>(threads, 1, kRowsThreads), 32) * 32);
  }

  void run_steps(std::size_t k, RowsFrame frame) {
    const RowsKernel& kernel = emitted.kernels[k];
    const std::int64_t cards = gpu.facts().multiprocessors;
    std::int64_t widest = 1;
    for (const Nest& n : plan().kernels[kernel.kernel].nests) widest = std::max(widest, positions(n));
    frame.parts = 1;
    frame.part_length = 1;
    std::int64_t lanes = 0;
    if (plan().split_axis != kNoAxis) {
      lanes = length(plan().split_axis);
      frame.part_length = std::max<std::int64_t>(1, lanes);
      if (lanes > 1) {
        const std::int64_t useful = divide_up(kPartPositions, std::max<std::int64_t>(1, widest / lanes));
        const std::int64_t wanted = divide_up(2 * cards, std::max<std::int64_t>(1, frame.sequences));
        frame.part_length =
            std::clamp<std::int64_t>(divide_up(lanes, wanted), std::min(useful, lanes), lanes);
        frame.parts = divide_up(lanes, frame.part_length);
        widest = widest / lanes * frame.part_length;
      }
    }
    const std::int64_t jobs = frame.sequences * frame.parts;
    if (jobs == 0) return;
    Block block = place(kernel, plan().split_axis != kNoAxis ? frame.part_length : 0, 1, whole_warps(widest));
    block.blocks = std::min<std::int64_t>(
        jobs, cards * resident_blocks(functions[k], block.threads, block.shared_bytes));
    launch(k, frame, block);
  }

  void run_tiles(std::size_t k, RowsFrame frame) {
    if (frame.rows == 0) return;
    const RowsKernel& kernel = emitted.kernels[k];
    const std::int64_t cards = gpu.facts().multiprocessors;
    std::int64_t widest = 1;
    for (const Nest& n : plan().kernels[kernel.kernel].nests) widest = std::max(widest, positions(n));
    // Rows enough to give every thread something, as long as every block finds some and they fit.
    frame.tile_rows =
        std::clamp<std::int64_t>(256 / widest, 1, std::max<std::int64_t>(1, frame.rows / cards));
    Block block = place(kernel, 0, frame.tile_rows, whole_warps(widest * frame.tile_rows));
    if (block.scratch_entries > 0 && frame.tile_rows > 1) {
      frame.tile_rows = 1;
      block = place(kernel, 0, 1, whole_warps(widest));
    }
    block.blocks =
        std::min<std::int64_t>(divide_up(frame.rows, frame.tile_rows),
                               cards * resident_blocks(functions[k], block.threads, block.shared_bytes));
    launch(k, frame, block);
  }

  void run_flat(std::size_t k, const RowsFrame& frame) {
    const RowsKernel& kernel = emitted.kernels[k];
    const std::int64_t work = positions(plan().kernels[kernel.kernel].nests[kernel.nest]) * frame.rows;
    if (work == 0) return;
    Block block;
    block.threads = whole_warps(std::min<std::int64_t>(work, 256));
    block.blocks = std::min<std::int64_t>(
        divide_up(work, block.threads),
        4 * gpu.facts().multiprocessors * resident_blocks(functions[k], block.threads, 0));
    launch(k, frame, block);
  }

  void run_kernel(int kernel, const RowsFrame& frame) {
    for (std::size_t k = 0; k < emitted.kernels.size(); ++k) {
      if (emitted.kernels[k].kernel != kernel) continue;
      switch (emitted.kernels[k].form) {
        case RowsForm::Steps:
          run_steps(k, frame);
          break;
        case RowsForm::Tile:
          run_tiles(k, frame);
          break;
        case RowsForm::Flat:
          run_flat(k, frame);
          break;
      }
    }
  }

  void run_product(const Product& p, const RowsFrame& frame) {
    ProductArguments a{};
    a.frame = frame;
    a.batch = entries(p.batch);
    a.width = entries(p.rows);
    a.depth = length(p.sum);
    const auto at = [](GpuAddress address) { return reinterpret_cast<void*>(address); };
    a.operand_stride = a.batch * a.depth;
    switch (p.operand.place) {
      case Place::Input:
        a.operand = at(run->symbols[p.operand.id].data);
        if (run->symbols[p.operand.id].row_stride >= 0)
          a.operand_stride = run->symbols[p.operand.id].row_stride;
        break;
      case Place::StateNew:
        a.operand = at(run->states[p.operand.id]);
        break;
      case Place::Out:
        a.operand = at(run->outs[p.operand.id]);
        break;
      case Place::Chunk:
        a.operand = at(chunks[p.operand.id].buffer.address());
        a.operand_is_chunk = 1;
        break;
      default:
        throw std::logic_error("rows: a product of something without rows");
    }
    a.matrix = at(p.matrix.place == Place::Param ? run->symbols[p.matrix.id].data
                                                 : once[p.matrix.id].buffer.address());
    a.sum_last = p.sum_last;
    a.result = at(chunks[p.chunk].buffer.address());
    const std::int64_t tiles =
        divide_up(a.width, kProductTile) * divide_up(frame.rows, kProductTile) * a.batch;
    if (tiles == 0) return;
    void* argument = &a;
    GpuLaunch launch;
    launch.grid.x = static_cast<unsigned>(std::min<std::int64_t>(
        tiles, 8 * gpu.facts().multiprocessors * resident_blocks(product, kProductThreads, 0)));
    launch.block.x = kProductThreads;
    launch.stream = stream;
    gpu.launch(product, launch, &argument);
  }

  // Phases -----------------------------------------------------------------------------------------

  void run_once() {
    for (std::size_t i = 0; i < plan().once.size(); ++i)
      once[i].at_least(gpu, entries(plan().once[i].dims) * real_bytes());
    if (plan().once_kernel < 0) return;
    for (const RowsKernel& kernel : emitted.kernels) {
      if (kernel.kernel != plan().once_kernel) continue;
      for (const RowsSlot& s : kernel.slots) {
        if (s.kind == RowsSlotKind::LocalTemp)
          once_temps[s.id].at_least(gpu, local_entries(s, 0) * real_bytes());
        if (s.kind == RowsSlotKind::LocalScalars) once_scalars.at_least(gpu, s.id * real_bytes());
      }
    }
    RowsFrame frame{};
    frame.rows = 1;
    run_kernel(plan().once_kernel, frame);
  }

  RowsFrame whole(std::int64_t first_sequence, std::int64_t count) const {
    RowsFrame frame{};
    frame.offsets = reinterpret_cast<const long long*>(run->device_offsets);
    frame.first_sequence = first_sequence;
    frame.sequences = count;
    frame.first_row = run->offsets[first_sequence];
    frame.rows = run->offsets[first_sequence + count] - frame.first_row;
    frame.steps_each = even ? longest : 0;
    frame.direction = run->reverse ? -1 : 1;
    return frame;
  }

  void run_window(const RowsFrame& frame) {
    for (const Phase& phase : plan().phases) {
      if (phase.product) {
        run_product(plan().products[phase.index], frame);
      } else {
        run_kernel(phase.index, frame);
      }
    }
  }

  /// Windows of `steps` of neighbouring sequences.
  void run_in_time(std::int64_t first_sequence, std::int64_t count, std::int64_t steps) {
    std::int64_t end = 0;
    for (std::int64_t s = first_sequence; s < first_sequence + count; ++s) {
      end = std::max(end, run->offsets[s + 1] - run->offsets[s]);
    }
    for (std::int64_t begin = 0; begin < end; begin += steps) {
      RowsFrame frame = whole(first_sequence, count);
      frame.window_begin = begin;
      frame.window = steps;
      frame.rows = count * steps;
      run_window(frame);
    }
  }

  /// All rows at once unless what passes between phases would take too much memory.
  void run_phases() {
    std::int64_t bytes = 0;
    for (const Buffer& c : plan().chunks) bytes += entries(c.dims) * real_bytes();
    std::int64_t most = std::numeric_limits<std::int64_t>::max();
    if (bytes > 0) {
      std::int64_t budget = options.chunk_bytes;
      if (budget <= 0)
        budget = std::clamp<std::int64_t>(gpu.facts().memory_bytes / 16, 64 << 20, std::int64_t{2} << 30);
      most = std::max<std::int64_t>(1, budget / bytes);
    }
    const bool in_time = sequences > 0 && most / sequences >= kShortestWindow;
    const std::int64_t steps = rows <= most ? 0 : in_time ? most / sequences : most;
    const std::int64_t chunk_rows = rows <= most ? rows : in_time ? steps * sequences : most;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      chunks[c].at_least(gpu, chunk_rows * entries(plan().chunks[c].dims) * real_bytes());
    }
    if (sequences == 0) return;
    if (rows <= most) return run_window(whole(0, sequences));
    if (in_time) return run_in_time(0, sequences, steps);
    for (std::int64_t s = 0; s < sequences;) {
      std::int64_t end = s + 1;
      while (end < sequences && run->offsets[end + 1] - run->offsets[s] <= most) ++end;
      if (run->offsets[end] - run->offsets[s] <= most) {
        run_window(whole(s, end - s));
      } else {
        run_in_time(s, 1, most);
      }
      s = end;
    }
  }
};

RowsProgram::RowsProgram(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RowsProgram::~RowsProgram() = default;
RowsProgram::RowsProgram(RowsProgram&&) noexcept = default;

GpuSource RowsProgram::emit(const CellGraph& cell, const Structure& structure, Dtype dtype,
                            const RowsOptions& options) {
  return emit_rows(cell, structure, dtype, options).source;
}

RowsProgram RowsProgram::compile(Gpu& gpu, const CellGraph& cell, const Structure& structure, Dtype dtype,
                                 const RowsOptions& options) {
  auto impl = std::make_unique<Impl>(gpu, dtype, options, emit_rows(cell, structure, dtype, options));
  impl->options.source = nullptr;
  impl->module = gpu.load(impl->emitted.source);
  for (const RowsKernel& kernel : impl->emitted.kernels) {
    impl->functions.push_back(gpu.function(impl->module, kernel.function));
  }
  if (!impl->plan().products.empty()) impl->product = gpu.function(impl->module, "cellc_product");
  impl->once.resize(impl->plan().once.size());
  impl->once_temps.resize(impl->plan().temps.size());
  impl->chunks.resize(impl->plan().chunks.size());
  return RowsProgram(std::move(impl));
}

void RowsProgram::run(const RowsRun& run, GpuStream stream) {
  impl_->begin(run, stream);
  impl_->run_once();
  impl_->run_phases();
}

double RowsProgram::compile_ms() const { return impl_->module.compile_ms; }
CacheState RowsProgram::cache() const { return impl_->module.cache; }
const GpuSource& RowsProgram::source() const { return impl_->emitted.source; }

}  // namespace cellc
