#pragma once
// Calls of a driver beside runs of the engine: what both are given, and whether they wrote the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "compiler/graph/delay_lines.h"
#include "runtime/build/compile_driver.h"
#include "runtime/data/bind.h"

namespace cellc {

/// A call of a driver, with memory for everything that it writes.
struct Call {
  const CompiledDriver& driver;
  const Binding& binding;
  std::vector<std::uint64_t> lengths, arrays;
  std::vector<std::pair<const CallField*, Array>> written;
  std::vector<Array> held;
  std::vector<std::byte> workspace;
  std::vector<std::int32_t> status;
  std::int64_t gap = 0;        ///< entries between rows
  bool steps_outside = false;  ///< rows of a step lie one behind another, sequence by sequence
  std::int64_t room = -1;      ///< of the workspace; -1: as much as the driver asks for

  Call(const CompiledDriver& driver, const Binding& binding) : driver(driver), binding(binding) {}

  const CellGraph& cell() const { return driver.module.cell; }
  std::int64_t length(int axis) const { return binding.run.sizes.at(cell().header[static_cast<std::size_t>(axis)]); }
  std::int64_t depth(int symbol) const {
    std::int64_t deepest = 0;
    for (const Reach& r : reaches(cell(), symbol))
      deepest = std::max(deepest, r.lag + (r.axis < 0 ? 0 : length(r.axis) - 1));
    return deepest;
  }
  std::int64_t entries(const CallField& f) const {
    std::int64_t n = 1;
    for (const int a : f.axes) n *= length(a);
    return n;
  }
  std::uint64_t hold(Array array) {
    held.push_back(std::move(array));
    return std::bit_cast<std::uint64_t>(held.back().data());
  }
  /// Rows with gaps between them, in the order in which the call has them.
  Array spread(const Array& from, std::int64_t row) const {
    const std::int64_t rows = row ? from.count() / row : 0;
    const auto place = [&](std::int64_t r) {
      return steps_outside ? r % binding.length * binding.batch + r / binding.length : r;
    };
    Array to(from.dtype(), {rows * (row + gap)});
    const std::size_t size = size_of(from.dtype());
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(static_cast<std::byte*>(to.data()) + place(r) * (row + gap) * static_cast<std::int64_t>(size),
                  static_cast<const std::byte*>(from.data()) + r * row * static_cast<std::int64_t>(size),
                  static_cast<std::size_t>(row) * size);
    return to;
  }

  int operator()(bool defaults, bool rows_wanted) {
    const CallLayout& layout = driver.module.layout;
    const BoundRun& run = binding.run;
    const Dtype arithmetic = arithmetic_of(binding.dtype);
    lengths.clear();
    for (const AxisId a : layout.lengths) lengths.push_back(static_cast<std::uint64_t>(run.sizes.at(a)));
    lengths.push_back(static_cast<std::uint64_t>(binding.batch));
    lengths.push_back(binding.packed ? 0 : static_cast<std::uint64_t>(binding.length));
    lengths.push_back(binding.packed ? std::bit_cast<std::uint64_t>(run.offsets.data()) : 0);
    lengths.push_back(run.reverse);
    arrays.assign(static_cast<std::size_t>(layout.words), 0);
    held.reserve(layout.fields.size());
    written.reserve(layout.fields.size());
    const std::int64_t rows = run.offsets.back();
    for (const CallField& f : layout.fields) {
      const auto word = static_cast<std::size_t>(f.word);
      const std::int64_t n = entries(f);
      const Dtype dtype = f.is_storage() ? binding.dtype : arithmetic;
      if (f.is_written()) {
        if (!rows_wanted && (f.kind == FieldKind::State || f.kind == FieldKind::Out) && f.id % 2 == 0) continue;
        const bool lagged = f.kind == FieldKind::FinalStateHistory || f.kind == FieldKind::FinalInputHistory;
        const std::int64_t count = f.is_rows() ? rows * (n + gap) : binding.batch * n * (lagged ? depth(f.id) : 1);
        written.emplace_back(&f, Array(dtype, {count}));
        arrays[word] = std::bit_cast<std::uint64_t>(written.back().second.data());
      } else {
        const Symbol& symbol = cell().symbols[static_cast<std::size_t>(f.id)];
        const Array& array = run.symbols[static_cast<std::size_t>(f.id)];
        switch (f.kind) {
          case FieldKind::Input:
            arrays[word] = hold(spread(array, n));
            break;
          case FieldKind::Param:
            if (!defaults || symbol.initial == kNoNode) arrays[word] = hold(convert(array, arithmetic));
            break;
          case FieldKind::Start:
            if (!defaults) arrays[word] = hold(convert(array, arithmetic));
            break;
          case FieldKind::InputHistory:
            if (!defaults) arrays[word] = hold(run.histories[static_cast<std::size_t>(f.id)]);
            break;
          default: {  // of a state: its lagged copies side by side
            if (defaults) break;
            Array all(arithmetic, {binding.batch * depth(f.id) * n});
            for (const DelayLine& line : delay_lines(cell()))  // begins with the start; what copies have is not rounded
              for (std::int64_t i = 0; line.state == f.id && i < all.count(); ++i)
                all.set(i, run.histories[static_cast<std::size_t>(line.symbol)].get(i + (i / n / depth(f.id) + 1) * n));
            for (std::size_t s = 0; s < cell().symbols.size(); ++s)
              if (const Symbol& copy = cell().symbols[s]; copy.lag_of == f.id)
                for (std::int64_t b = 0; b < binding.batch; ++b)
                  for (std::int64_t i = 0; i < n; ++i)
                    all.set((b * depth(f.id) + copy.lag - 1) * n + i, run.symbols[s].get(b * n + i));
            arrays[word] = hold(all);
          }
        }
      }
      if (f.is_rows() && steps_outside) arrays[word + 1] = static_cast<std::uint64_t>(n + gap);
      if (f.is_rows())
        arrays[word + 2] = static_cast<std::uint64_t>(steps_outside ? binding.batch * (n + gap) : gap ? n + gap : 0);
    }
    std::int64_t bytes = -1;
    if (const int failed = driver.workspace(lengths.data(), &bytes)) return failed;
    if (room >= 0) bytes = room;
    constexpr std::size_t kGuard = 64;
    workspace.assign(static_cast<std::size_t>(bytes) + 8 + kGuard, std::byte{0x5a});
    status.assign(static_cast<std::size_t>(binding.batch) + 1, 77);
    // Anywhere, and not a byte beyond.
    const int result = driver.forward(lengths.data(), arrays.data(), workspace.data() + 8, bytes, status.data());
    EXPECT_TRUE(
        std::all_of(workspace.begin(), workspace.begin() + 8, [](std::byte b) { return b == std::byte{0x5a}; }));
    EXPECT_TRUE(
        std::all_of(workspace.end() - kGuard, workspace.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
    return result;
  }

  /// `within`: over 1 + |value|; 0 asks for the same bits.
  std::string differences(const RunOutput& output, double within) const {
    std::string wrong;
    const auto apart = [&](double a, double b) {
      return within > 0 ? !(std::abs(a - b) <= within * (1 + std::abs(b))) : std::memcmp(&a, &b, sizeof a) != 0;
    };
    const auto expected = written_arrays(cell(), binding, output);
    for (const auto& [field, array] : written) {
      const FieldKind kind = field->kind;
      std::string name = kind == FieldKind::Out ? cell().outs[static_cast<std::size_t>(field->id)].name
                                                : cell().symbols[static_cast<std::size_t>(field->id)].name;
      if (kind == FieldKind::Final) name += ".final";
      if (kind == FieldKind::FinalStateHistory || kind == FieldKind::FinalInputHistory) name += ".lag";
      const auto found = std::find_if(expected.begin(), expected.end(), [&](const auto& e) { return e.first == name; });
      if (found == expected.end()) return "nothing is called " + name;
      const Array want = field->is_rows() ? spread(found->second, entries(*field)) : found->second;
      if (array.dtype() != want.dtype() || array.count() != want.count())
        wrong += fmt::format("{}: {} entries, expected {}; ", name, array.count(), want.count());
      else
        for (std::int64_t i = 0; i < want.count(); ++i)
          if (apart(array.get(i), want.get(i))) {
            wrong += fmt::format("{}[{}] is {}, expected {}; ", name, i, array.get(i), want.get(i));
            break;
          }
    }
    for (std::size_t s = 0; s + 1 < status.size(); ++s)
      if (status[s] != 0) wrong += fmt::format("status of sequence {} is {}; ", s, status[s]);
    if (status.back() != 77) wrong += "wrote past the statuses; ";
    return wrong;
  }
};

inline BindRequest request_for(const CellGraph& cell, Dtype dtype, std::int64_t batch, std::int64_t length) {
  BindRequest request;
  std::int64_t n = 3;
  for (const AxisId a : cell.header)
    if (!cell.graph.axis(a).fixed) request.dims[cell.graph.axis(a).name] = n += 6;
  request.dtype = dtype;
  request.batch = batch;
  request.length = length;
  request.random_seed = 5;
  request.threads = 1;
  return request;
}

inline void give_starts(const CellGraph& cell, const Binding& binding, BindRequest& request) {
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    if (symbol.lag_of >= 0) continue;
    if (symbol.kind == SymbolKind::State) {
      Array start(arithmetic_of(binding.dtype), binding.run.symbols[s].shape());
      for (std::int64_t i = 0; i < start.count(); ++i) start.set(i, 0.3 + 0.01 * static_cast<double>(i % 17));
      request.states[symbol.name] = {"start", start};
      if (symbol.max_lag > 0) {
        std::vector<std::int64_t> shape = start.shape();
        shape.insert(shape.begin() + 1, symbol.max_lag);
        Array history(start.dtype(), shape);
        for (std::int64_t i = 0; i < history.count(); ++i) history.set(i, 0.2 - 0.01 * static_cast<double>(i % 13));
        request.states[symbol.name + ".lag"] = {"history", history};
      }
    } else if (is_given_input(symbol) && symbol.max_lag != 0) {
      Array history(binding.dtype, binding.run.histories[s].shape());
      for (std::int64_t i = 0; i < history.count(); ++i) history.set(i, 0.125 * static_cast<double>(i % 11) - 0.5);
      request.inputs[symbol.name + ".lag"] = {"history", history};
    }
  }
}

}  // namespace cellc
