#include "tests/gpu/nests_on_device.h"

#include <cstring>
#include <limits>

#include "runtime/data/bind.h"

namespace cellc {
namespace {

bool is_set(const std::vector<char>& flags, std::size_t i) { return i < flags.size() && flags[i]; }

}  // namespace

RunOutput run_on_device(Gpu& gpu, NestProgram& program, const CellGraph& cell, const BoundRun& run, Dtype dtype,
                        const NestOptions& options) {
  const Dtype arithmetic = arithmetic_of(dtype);
  std::vector<GpuBuffer> kept;
  const auto allocate = [&](const Array& like) {
    kept.emplace_back(gpu, std::max<std::size_t>(1, like.count() * size_of(like.dtype())));
    return kept.back().address();
  };
  const auto upload = [&](const Array& given, Dtype as) {
    const Array array = convert(given, as);
    const GpuAddress to = allocate(array);
    if (array.count() > 0) gpu.copy_in(to, array.data(), array.count() * size_of(as), 0);
    return to;
  };
  NestRun on_device;
  on_device.sizes = run.sizes;
  on_device.offsets = run.offsets;
  on_device.reverse = run.reverse;
  Array offsets(Dtype::I64, {static_cast<std::int64_t>(run.offsets.size())});
  std::memcpy(offsets.data(), run.offsets.data(), run.offsets.size() * 8);
  on_device.device_offsets = upload(offsets, Dtype::I64);
  const std::int64_t rows = run.offsets.back(), sequences = static_cast<std::int64_t>(run.offsets.size()) - 1;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    NestArray array;
    if (symbol.kind != SymbolKind::Input) {
      if (run.symbols[s].data()) array.data = upload(run.symbols[s], arithmetic);
    } else if (symbol.line_of >= 0) {  // its rows are those that are written
      array.history = upload(run.histories[s], dtype);
      array.history_depth = run.histories[s].shape()[1];
    } else {
      const Array from = convert(run.symbols[s], is_set(options.wide_inputs, s) ? arithmetic : dtype);
      const std::int64_t n = rows ? from.count() / rows : 0;
      array.row_stride = n + 3;
      Array apart(from.dtype(), {rows * array.row_stride});
      for (std::int64_t i = 0; i < apart.count(); ++i) apart.set(i, std::numeric_limits<double>::quiet_NaN());
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t i = 0; i < n; ++i) apart.set(r * array.row_stride + i, from.get(r * n + i));
      }
      array.data = upload(apart, apart.dtype());
      if (s < run.histories.size() && run.histories[s].data()) {
        array.history = upload(run.histories[s], is_set(options.wide_histories, s) ? arithmetic : dtype);
        array.history_depth = run.histories[s].shape()[1];
      }
    }
    on_device.symbols.push_back(array);
  }
  RunOutput output;
  const auto written = [&](std::int64_t count, const std::vector<AxisId>& axes, Dtype as, std::vector<Array>& list,
                           std::vector<GpuAddress>& addresses) {
    std::vector<std::int64_t> shape = lengths(cell, run, axes);
    shape.insert(shape.begin(), count);
    list.emplace_back(as, shape);
    addresses.push_back(allocate(list.back()));
  };
  for (std::size_t i = 0; i < cell.updates.size(); ++i) {
    const Symbol& symbol = cell.symbols[cell.updates[i].symbol];
    written(rows, symbol.index, is_set(options.wide_states, i) ? arithmetic : dtype, output.states, on_device.states);
    written(sequences, symbol.index, arithmetic, output.finals, on_device.finals);
    for (std::size_t s = 0; s < cell.symbols.size(); ++s)
      if (cell.symbols[s].line_of == cell.updates[i].symbol) on_device.symbols[s].data = on_device.states.back();
  }
  for (std::size_t i = 0; i < cell.outs.size(); ++i) {
    written(rows, cell.outs[i].index, is_set(options.wide_outs, i) ? arithmetic : dtype, output.outs, on_device.outs);
  }
  program.run(on_device, 0);
  const auto download = [&](std::vector<Array>& list, const std::vector<GpuAddress>& addresses) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].count() > 0)
        gpu.copy_out(list[i].data(), addresses[i], list[i].count() * size_of(list[i].dtype()), 0);
    }
  };
  download(output.states, on_device.states);
  download(output.finals, on_device.finals);
  download(output.outs, on_device.outs);
  return output;
}

}  // namespace cellc
