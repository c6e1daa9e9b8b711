#pragma once
// A backward call of shipped code: what it is given, and the gradients that it wrote.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/plan/call_directions.h"
#include "runtime/build/compile_driver.h"
#include "tests/gradients/gradient_trial.h"

namespace cellc {

/// A backward call, with memory for all gradients.
class ShippedCall {
 public:
  ShippedCall(const CellGraph& cell, const CompiledDriver& driver, const Binding& binding, std::int64_t gap)
      : cell_(cell),
        driver_(driver),
        binding_(binding),
        gap_(gap),
        directed_(directed_call(cell, call_layout(cell), CallDirection::Backward)) {
    const CallLayout& layout = driver.module.layout;
    for (const AxisId a : layout.lengths) lengths_.push_back(static_cast<std::uint64_t>(run().sizes.at(a)));
    lengths_.push_back(static_cast<std::uint64_t>(binding.batch));
    lengths_.push_back(binding.packed ? 0 : static_cast<std::uint64_t>(binding.length));
    lengths_.push_back(binding.packed ? std::bit_cast<std::uint64_t>(run().offsets.data()) : 0);
    lengths_.push_back(run().reverse);
    arrays_.assign(static_cast<std::size_t>(layout.words), 0);
  }

  void give(const RunOutput& forward, const Cotangents& cotangents) {
    for (std::size_t i = 0; i < directed_.fields.size(); ++i) {
      const CallField& f = driver_.module.layout.fields[i];
      if (f.is_written()) continue;
      const Array array = read(directed_.fields[i], forward, cotangents);
      const bool given = directed_.fields[i].quantity == Quantity::Value || !array.shape().empty();
      if (given) place(f, spread(f, convert(array, f.is_storage() ? binding_.dtype : arithmetic_of(binding_.dtype))));
    }
  }
  void want() {
    for (const CallField& f : driver_.module.layout.fields) {
      if (!f.is_written()) continue;
      const std::int64_t count = f.is_rows() ? run().offsets.back() * (entries(f) + gap_) : whole(f);
      Array array(arithmetic_of(binding_.dtype), {count});
      for (std::int64_t k = 0; k < count; ++k) array.set(k, 77);
      written_.emplace_back(&f, place(f, std::move(array)));
    }
  }
  void forget(const CallField& f) { arrays_[static_cast<std::size_t>(f.word)] = 0; }

  /// What the driver asks for; for `sequences` of them, if that is not -1.
  std::int64_t room(std::int64_t sequences = -1) const {
    std::vector<std::uint64_t> lengths = lengths_;
    if (sequences >= 0) lengths[lengths.size() - 4] = static_cast<std::uint64_t>(sequences);
    std::int64_t bytes = -1;
    EXPECT_EQ(driver_.workspace(lengths.data(), &bytes), 0);
    return bytes;
  }
  int operator()() { return run_in(room()); }
  int run_in(std::int64_t bytes) {
    std::vector<std::byte> workspace(static_cast<std::size_t>(bytes) + 64, std::byte{0x5a});
    const int result = driver_.forward(lengths_.data(), arrays_.data(), workspace.data(), bytes, nullptr);
    for (std::size_t k = static_cast<std::size_t>(bytes); k < workspace.size(); ++k)
      EXPECT_EQ(workspace[k], std::byte{0x5a}) << "past the workspace";
    return result;
  }

  /// Under the names of gradient_arrays.
  NamedArrays gradients() const {
    NamedArrays all;
    for (const auto& [field, array] : written_) {
      const std::string& name = cell_.symbols[static_cast<std::size_t>(field->id)].name;
      const char* suffix = field->kind == FieldKind::Start ? ".initial" : field->is_history() ? ".lag" : "";
      all.emplace_back("grad." + name + suffix, packed(*field, *array));
    }
    return all;
  }

 private:
  const BoundRun& run() const { return binding_.run; }
  std::int64_t entries(const CallField& f) const {
    std::int64_t n = 1;
    for (const int a : f.axes) n *= run().sizes.at(cell_.header[static_cast<std::size_t>(a)]);
    return n;
  }
  std::int64_t whole(const CallField& f) const {
    return entries(f) * (f.traits().layout == FieldLayout::Once ? 1 : binding_.batch) * depth(f);
  }
  std::int64_t depth(const CallField& f) const {
    if (!f.is_history()) return 1;
    std::vector<std::int64_t> lengths;
    for (const AxisId a : cell_.header) lengths.push_back(run().sizes.at(a));
    return history_depth(f.reaches, lengths);
  }
  /// [N, n, a…] of a state, from what `of` has of its copies that lag and, behind them, from its delay line; without a
  /// shape where `of` has nothing.
  Array history(const CallField& f, const std::function<const Array&(int symbol)>& of) const {
    const std::int64_t n = depth(f), size = entries(f);
    Array all(Dtype::F64, {binding_.batch, n, size});
    bool any = false;
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
      const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(s)];
      if (symbol.line_of == f.id && f.kind == FieldKind::StateHistory) {
        const Array& line = run().histories[static_cast<std::size_t>(s)];
        for (std::int64_t b = 0; b < binding_.batch; ++b)
          for (std::int64_t k = 0; k < n * size; ++k) all.set(b * n * size + k, line.get((b * (n + 1) + 1) * size + k));
        any = true;
      }
    }
    for (int s = 0; s < static_cast<int>(cell_.symbols.size()); ++s) {
      const Symbol& symbol = cell_.symbols[static_cast<std::size_t>(s)];
      if (symbol.lag_of != f.id || of(s).shape().empty()) continue;
      for (std::int64_t b = 0; b < binding_.batch; ++b)
        for (std::int64_t k = 0; k < size; ++k) all.set((b * n + symbol.lag - 1) * size + k, of(s).get(b * size + k));
      any = true;
    }
    return any ? all : Array();
  }
  std::size_t update_of(int symbol) const {
    std::size_t update = 0;
    while (update < cell_.updates.size() && cell_.updates[update].symbol != symbol) ++update;
    return update;
  }
  Array read(const DirectedField& field, const RunOutput& forward, const Cotangents& cotangents) const {
    static const Array none;
    const auto id = static_cast<std::size_t>(field.of.id);
    const auto of = [](const std::vector<Array>& list, std::size_t i) -> const Array& {
      return i < list.size() ? list[i] : none;
    };
    if (field.of.kind == FieldKind::Out) return of(cotangents.outs, id);
    if (field.of.kind == FieldKind::InputHistory) return run().histories[id];
    if (field.of.kind == FieldKind::StateHistory)
      return history(field.of, [&](int s) -> const Array& { return run().symbols[static_cast<std::size_t>(s)]; });
    if (field.of.kind == FieldKind::FinalStateHistory)
      return history(field.of, [&](int s) -> const Array& { return of(cotangents.finals, update_of(s)); });
    const std::size_t update = update_of(field.of.id);
    if (field.of.kind == FieldKind::Final) return of(cotangents.finals, update);
    if (field.of.kind == FieldKind::State)
      return of(field.quantity == Quantity::Cotangent ? cotangents.states : forward.states, update);
    return run().symbols[id];
  }
  /// Rows with gaps between them, and back.
  Array spread(const CallField& f, const Array& from) const {
    if (!f.is_rows() || gap_ == 0) return from;
    const std::int64_t n = entries(f), rows = run().offsets.back();
    Array to(from.dtype(), {rows * (n + gap_)});
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t k = 0; k < n; ++k) to.set(r * (n + gap_) + k, from.get(r * n + k));
    return to;
  }
  Array packed(const CallField& f, const Array& from) const {
    const std::int64_t n = entries(f), gap = f.is_rows() ? gap_ : 0,
                       rows = f.is_rows() ? run().offsets.back()
                              : n         ? whole(f) / n
                                          : 0;
    std::vector<std::int64_t> shape;
    if (f.is_rows() && binding_.packed)
      shape = {rows};
    else if (f.is_rows())
      shape = {binding_.batch, binding_.length};
    else if (f.traits().layout != FieldLayout::Once)
      shape = {binding_.batch};
    if (f.is_history()) shape.push_back(depth(f));
    for (const int a : f.axes) shape.push_back(run().sizes.at(cell_.header[static_cast<std::size_t>(a)]));
    Array to(from.dtype(), shape);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t k = 0; k < n; ++k) to.set(r * n + k, from.get(r * (n + gap) + k));
      for (std::int64_t k = n; k < n + gap; ++k) EXPECT_EQ(from.get(r * (n + gap) + k), 77) << f.member << ": a gap";
    }
    return to;
  }
  const Array* place(const CallField& f, Array array) {
    held_.push_back(std::make_unique<Array>(std::move(array)));
    arrays_[static_cast<std::size_t>(f.word)] = std::bit_cast<std::uint64_t>(held_.back()->data());
    if (f.is_rows())
      arrays_[static_cast<std::size_t>(f.word) + 2] = static_cast<std::uint64_t>(gap_ ? entries(f) + gap_ : 0);
    return held_.back().get();
  }

  const CellGraph& cell_;
  const CompiledDriver& driver_;
  const Binding& binding_;
  std::int64_t gap_;
  DirectedCall directed_;
  std::vector<std::uint64_t> lengths_, arrays_;
  std::vector<std::unique_ptr<Array>> held_;
  std::vector<std::pair<const CallField*, const Array*>> written_;
};

}  // namespace cellc
