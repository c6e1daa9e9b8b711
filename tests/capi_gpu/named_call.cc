#include "tests/capi_gpu/named_call.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>

#include "runtime/data/lagged_arrays.h"

namespace cellc {
namespace {

Dtype dtype_of(cellc_dtype dtype) {
  return dtype == CELLC_F64   ? Dtype::F64
         : dtype == CELLC_F32 ? Dtype::F32
         : dtype == CELLC_F16 ? Dtype::F16
                              : Dtype::BF16;
}

/// Memory of one array of a call.
class Placed {
 public:
  Placed(const NamedCall& call, const cellc_call_array_info& info, std::vector<std::int64_t> shape)
      : gpu_(call.gpu), dtype_(dtype_of(info.dtype)), shape_(std::move(shape)) {
    rows_ = info.layout == CELLC_CONTIGUOUS;
    const bool packed = call.shape.offsets != nullptr;
    const std::size_t leading = rows_ ? (packed ? 1 : 2) : 0;
    for (std::size_t i = leading; i < shape_.size(); ++i) part_ *= shape_[i];
    if (rows_) {
      steps_ = packed ? shape_[0] : shape_[1];
      sequences_ = packed ? 1 : shape_[0];
    }
    gap_ = rows_ && call.gaps ? 3 : 0;
    host_.assign(static_cast<std::size_t>((part_ + gap_) * steps_ * sequences_) * size_of(dtype_) + 1, std::byte{0x55});
    if (gap_) array_.step_stride = (part_ + gap_) * (packed ? 1 : sequences_), array_.sequence_stride = part_ + gap_;
    array_.entries = (part_ + gap_) * steps_ * sequences_;
    array_.dtype = info.dtype;
    array_.data = host_.data();
    if (gpu_) {
      device_ = std::make_unique<GpuBuffer>(*gpu_, host_.size());
      array_.data = reinterpret_cast<void*>(device_->address());
    }
  }

  void put(const Array& values) {
    const Array converted = convert(values, dtype_);
    EXPECT_EQ(converted.count(), part_ * steps_ * sequences_);
    each_part([&](std::size_t at, std::size_t flat, std::size_t bytes) {
      std::memcpy(host_.data() + at, static_cast<const std::byte*>(converted.data()) + flat, bytes);
    });
  }
  void upload() {
    if (gpu_) gpu_->copy_in(device_->address(), host_.data(), host_.size(), 0);
  }
  Array take() {
    if (gpu_) gpu_->copy_out(host_.data(), device_->address(), host_.size(), 0);
    Array result(dtype_, shape_);
    each_part([&](std::size_t at, std::size_t flat, std::size_t bytes) {
      std::memcpy(static_cast<std::byte*>(result.data()) + flat, host_.data() + at, bytes);
    });
    return result;
  }
  bool gaps_are_whole() {
    std::vector<std::byte> kept = host_;
    each_part([&](std::size_t at, std::size_t, std::size_t bytes) { std::memset(kept.data() + at, 0x55, bytes); });
    for (const std::byte b : kept)
      if (b != std::byte{0x55}) return false;
    return true;
  }
  cellc_array array() const { return array_; }

 private:
  template <typename Visit>
  void each_part(Visit visit) const {
    const std::size_t size = size_of(dtype_);
    for (std::int64_t s = 0; s < sequences_; ++s)
      for (std::int64_t t = 0; t < steps_; ++t) {
        const std::int64_t at = gap_ ? t * array_.step_stride + s * array_.sequence_stride : (s * steps_ + t) * part_;
        visit(static_cast<std::size_t>(at) * size, static_cast<std::size_t>((s * steps_ + t) * part_) * size,
              static_cast<std::size_t>(part_) * size);
      }
  }

  Emulator* gpu_;
  Dtype dtype_;
  std::vector<std::int64_t> shape_;
  bool rows_ = false;
  std::int64_t part_ = 1, steps_ = 1, sequences_ = 1, gap_ = 0;
  cellc_array array_{};
  std::vector<std::byte> host_;
  std::unique_ptr<GpuBuffer> device_;
};

/// The arrays of a call in one direction, as cellc.h takes them.
class PlacedTable {
 public:
  PlacedTable(NamedCall& call, cellc_direction direction) : call_(call) {
    for (int i = 0; i < cellc_call_array_count(call.kernel, direction); ++i) {
      cellc_call_array_info info;
      cellc_call_array_info_init(&info);
      EXPECT_EQ(cellc_call_array_describe(call.kernel, direction, i, &info), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(cellc_call_array_find(call.kernel, direction, info.quantity, info.role, info.owner), i) << info.name;
      std::int64_t lengths[16];
      int rank = 0;
      EXPECT_EQ(cellc_call_array_shape(call.kernel, direction, &call.shape, i, lengths, 16, &rank), CELLC_OK)
          << cellc_last_error();
      const bool wanted = info.written ? !call.unwanted.contains(info.name) : call.arrays.contains(info.name);
      std::unique_ptr<Placed> memory;
      if (wanted) {
        memory = std::make_unique<Placed>(call, info, std::vector<std::int64_t>(lengths, lengths + rank));
        if (!info.written) memory->put(call.arrays.at(info.name));
        memory->upload();
      }
      table_.push_back(memory ? memory->array() : cellc_array{});
      placed_.push_back(std::move(memory));
      infos_.push_back(info);
    }
  }
  /// What was written, into the call.
  void take() {
    for (std::size_t i = 0; i < placed_.size(); ++i) {
      if (!placed_[i]) continue;
      const Array found = placed_[i]->take();
      if (!placed_[i]->gaps_are_whole()) call_.touched = infos_[i].name;
      if (infos_[i].written) call_.arrays[infos_[i].name] = found;
    }
  }
  const cellc_array* data() const { return table_.data(); }
  int count() const { return static_cast<int>(table_.size()); }

 private:
  NamedCall& call_;
  std::vector<std::unique_ptr<Placed>> placed_;
  std::vector<cellc_array> table_;
  std::vector<cellc_call_array_info> infos_;
};

}  // namespace

cellc_status NamedCall::run(cellc_direction direction, cellc_report* report, const std::int32_t* forward_status) {
  PlacedTable table(*this, direction);
  const int count = table.count();
  cellc_status status = CELLC_OK;
  if (gpu) gpu->set_capture(captured);
  void* const stream = stream_on_cpu ? this : nullptr;
  if (gpu || stream_on_cpu) {
    status = direction == CELLC_FORWARD ? cellc_forward_on(kernel, &shape, table.data(), count, stream, nullptr, report)
             : direction == CELLC_BACKWARD
                 ? cellc_backward_on(kernel, &shape, table.data(), count, stream, forward_status, report)
                 : cellc_tangent_on(kernel, &shape, table.data(), count, stream, forward_status, report);
  } else {
    status = direction == CELLC_FORWARD    ? cellc_forward(kernel, &shape, table.data(), count, report)
             : direction == CELLC_BACKWARD ? cellc_backward(kernel, &shape, table.data(), count, forward_status, report)
                                           : cellc_tangent(kernel, &shape, table.data(), count, forward_status, report);
  }
  if (gpu) gpu->set_capture(0);
  table.take();
  return status;
}

cellc_status curvature(NamedCall& backward, NamedCall& tangent, const std::int32_t* forward_status) {
  PlacedTable pulled(backward, CELLC_BACKWARD), pushed(tangent, CELLC_TANGENT);
  if (backward.gpu) backward.gpu->set_capture(backward.captured);
  const cellc_status status = cellc_curvature(backward.kernel, &backward.shape, pulled.data(), pulled.count(),
                                              pushed.data(), pushed.count(), forward_status);
  if (backward.gpu) backward.gpu->set_capture(0);
  pulled.take();
  pushed.take();
  return status;
}

OwnedShape::OwnedShape(const CellGraph& cell, const Binding& binding) {
  for (const AxisId a : cell.header) lengths.push_back(binding.run.sizes.at(a));
  cellc_shape_init(&shape);
  shape.lengths = lengths.data();
  shape.sequences = static_cast<std::int64_t>(binding.run.offsets.size()) - 1;
  shape.steps = binding.length;
  shape.reverse = binding.run.reverse;
  if (binding.packed) {
    offsets = binding.run.offsets;
    shape.offsets = offsets.data();
  }
}

namespace {

/// The history of a state that has a delay line, which begins with the state's start; nullopt: it has none.
std::optional<Array> line_history(const CellGraph& cell, const Binding& binding, int state) {
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    if (cell.symbols[s].line_of != state) continue;
    const Array& line = binding.run.histories[s];
    std::vector<std::int64_t> shape = line.shape();
    const std::int64_t depth = --shape[1], parts = shape[0] * (depth + 1), n = parts > 0 ? line.count() / parts : 0;
    Array history(arithmetic_of(binding.dtype), shape);
    for (std::int64_t i = 0; i < history.count(); ++i) history.set(i, line.get(i + (i / (depth * n) + 1) * n));
    return history;
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, Array> given_arrays(const CellGraph& cell, const Binding& binding, const GivenSymbols& given) {
  std::map<std::string, Array> all;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of >= 0 || symbol.line_of >= 0) continue;
    if (given.symbols[s])
      all[symbol.name + (symbol.kind == SymbolKind::State ? ".start" : "")] = binding.run.symbols[s];
    if (!given.histories[s]) continue;
    if (symbol.kind == SymbolKind::Input) {
      all[symbol.name + ".lag"] = binding.run.histories[s];
      continue;
    }
    if (const auto line = line_history(cell, binding, static_cast<int>(s))) {
      all[symbol.name + ".lag"] = *line;
      continue;
    }
    std::vector<const Array*> copies(static_cast<std::size_t>(symbol.max_lag));
    for (std::size_t c = 0; c < cell.symbols.size(); ++c)
      if (cell.symbols[c].lag_of == static_cast<int>(s))
        copies[static_cast<std::size_t>(cell.symbols[c].lag - 1)] = &binding.run.symbols[c];
    all[symbol.name + ".lag"] = history_of_lags(copies);
  }
  return all;
}

std::map<std::string, Array> cotangent_arrays(const CellGraph& cell, const Cotangents& cotangents, Dtype dtype) {
  std::map<std::string, Array> all;
  const auto add = [&](const std::string& name, const Array& array) {
    if (!array.shape().empty()) all["cotangent." + name] = convert(array, dtype);
  };
  for (std::size_t u = 0; u < cell.updates.size(); ++u) {
    add(cell.symbol_of(cell.updates[u]).name, cotangents.states[u]);
    add(cell.symbol_of(cell.updates[u]).name + ".final", cotangents.finals[u]);
  }
  for (std::size_t o = 0; o < cell.outs.size(); ++o) add(cell.outs[o].name, cotangents.outs[o]);
  return all;
}

NamedArrays named_gradients(const CellGraph& cell, const std::map<std::string, Array>& arrays) {
  NamedArrays result;
  for (const Symbol& symbol : cell.symbols) {
    if (symbol.lag_of >= 0 || symbol.line_of >= 0) continue;
    const bool state = symbol.kind == SymbolKind::State;
    result.emplace_back("grad." + symbol.name + (state ? ".initial" : ""),
                        arrays.at("gradient." + symbol.name + (state ? ".start" : "")));
    if (const auto history = arrays.find("gradient." + symbol.name + ".lag"); history != arrays.end())
      result.emplace_back("grad." + symbol.name + ".lag", history->second);
  }
  return result;
}

}  // namespace cellc
