#include "runtime/data/find_sizes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "compiler/derive/default_cells.h"
#include "runtime/data/npy.h"
#include "runtime/data/offsets.h"

namespace cellc {
namespace {

/// A length, and who said so.
struct Known {
  std::int64_t value;
  std::string from;
};

class SizeFinder {
 public:
  SizeFinder(const CellGraph& cell, const CallLayout& layout, const BindRequest& request, const GivenArrays& given,
             Binding& binding)
      : cell_(cell), layout_(layout), request_(request), given_(given), binding_(binding) {}

  void find() {
    take_stated();
    // Rows first: they say whether there is a batch.
    bool any_batched = false, any_plain = false;
    for (const MatchedArray& m : given_.all()) {
      if (!m.field->is_rows()) continue;
      const bool plain = !binding_.packed && m.shape().size() == m.field->axes.size() + 1;
      (plain ? any_plain : any_batched) = true;
      take(m, !plain);
    }
    binding_.batched = any_batched || !any_plain;
    for (const MatchedArray& m : given_.all()) {
      if (m.field->is_rows()) continue;
      const bool one = m.field->kind == FieldKind::Start && m.shape().size() == m.field->axes.size();
      take(m, !one || binding_.batched || binding_.packed);
    }
    check_depths();
    report_missing();
    set_rows();
    set_sizes();
  }

 private:
  static void settle(std::optional<Known>& known, std::int64_t value, const std::string& from, const char* what) {
    if (!known)
      known = Known{value, from};
    else if (known->value != value)
      throw RequestError(
          fmt::format("{} has {} {}; expected {}, {} of {}", from, what, value, known->value, what, known->from));
  }

  void settle_axis(AxisId header, std::int64_t value, const std::string& from) {
    const std::string& name = cell_.graph.axis(header).name;
    if (value < 1) throw RequestError(fmt::format("{}: axis {} has length {}; expected at least 1", from, name, value));
    const auto [known, fresh] = sizes_.try_emplace(header, Known{value, from});
    if (!fresh && known->second.value != value)
      throw RequestError(fmt::format("{}: axis {} has length {}; expected {}, as {} has it", from, name, value,
                                     known->second.value, known->second.from));
  }

  /// What the cell fixes, what the request says, and what offsets say.
  void take_stated() {
    for (const AxisId a : cell_.header)
      if (cell_.graph.axis(a).fixed) sizes_[a] = {*cell_.graph.axis(a).fixed, fmt::format("cell {}", cell_.name)};
    for (const AxisId a : cell_.header)
      if (const auto dim = request_.dims.find(cell_.graph.axis(a).name); dim != request_.dims.end())
        settle_axis(a, dim->second, fmt::format("--dim {}={}", dim->first, dim->second));
    binding_.packed = request_.offsets.has_value();
    if (binding_.packed)
      read_offsets();
    else if (request_.length)
      length_ = Known{*request_.length, fmt::format("--length {}", *request_.length)};
    if (request_.batch) settle(batch_, *request_.batch, fmt::format("--batch {}", *request_.batch), "the batch size");
  }

  void read_offsets() {
    const GivenArray& given = *request_.offsets;
    if (request_.length)
      throw UsageError("--length has no meaning with --offsets, which state the length of every sequence");
    const std::string who = fmt::format("offsets ({})", given.source);
    if (given.array.dtype() != Dtype::I64)
      throw RequestError(fmt::format("{} are {}; expected int64", who, to_string(given.array.dtype())));
    if (given.array.shape().size() != 1 || given.array.count() < 1)
      throw RequestError(fmt::format("{} have the shape {}; expected [N+1], from 0 to the total number of steps", who,
                                     shape_text(given.array.shape())));
    const auto* values = static_cast<const std::int64_t*>(given.array.data());
    const std::int64_t count = given.array.count();
    if (const auto fault = fault_of_offsets({values, static_cast<std::size_t>(count)}))
      throw RequestError(who + ": " + *fault);
    binding_.run.offsets.assign(values, values + count);
    batch_ = Known{count - 1, who};
    length_ = Known{values[count - 1], who};
  }

  std::string axes_text(const CallField& field, const std::string& before) const {
    std::vector<std::string> names;
    if (!before.empty()) names.push_back(before);
    for (const AxisId a : cell_.symbols[static_cast<std::size_t>(field.id)].axes)
      names.push_back(cell_.graph.axis(a).name);
    return fmt::format("[{}]", fmt::join(names, ", "));
  }
  /// How the lengths before the entries are written.
  const char* leading_text(FieldLayout layout) const {
    switch (layout) {
      case FieldLayout::Once:
        return "";
      case FieldLayout::Rows:
        return binding_.packed ? "total" : "B, T";
      case FieldLayout::Sequences:
        return "B";
      case FieldLayout::History:
        return "B, n";
    }
    throw std::logic_error("no such layout of an array");
  }

  /// Every length that an array has. `batched`: it has a batch where its layout has one.
  void take(const MatchedArray& m, bool batched) {
    const FieldLayout layout = m.field->traits().layout;
    const bool rows = layout == FieldLayout::Rows;
    const bool counts = batched && layout != FieldLayout::Once && !(rows && binding_.packed);
    const std::size_t before = std::size_t{counts} + std::size_t{rows || layout == FieldLayout::History};
    const auto& shape = m.shape();
    if (shape.size() != before + m.field->axes.size()) {
      std::string expected = axes_text(*m.field, leading_text(layout));
      if (rows) expected += binding_.packed ? ", packed as the offsets say" : " or " + axes_text(*m.field, "T");
      throw RequestError(fmt::format("{} has the shape {}; expected {}", m.label, shape_text(shape), expected));
    }
    if (counts) settle(batch_, shape[0], m.label, "the batch size");
    if (rows && !batched) settle(batch_, 1, m.label, "the batch size");
    if (rows) settle(length_, shape[before - 1], m.label, binding_.packed ? "the number of steps" : "the length");
    for (std::size_t i = 0; i < m.field->axes.size(); ++i)
      settle_axis(cell_.header[static_cast<std::size_t>(m.field->axes[i])], shape[before + i], m.label);
  }

  /// Steps of a history are those that the cell reads, as far as lengths are known.
  void check_depths() const {
    std::vector<std::int64_t> lengths;
    for (const AxisId a : cell_.header) lengths.push_back(sizes_.count(a) ? sizes_.at(a).value : 1);
    for (const MatchedArray& m : given_.all()) {
      if (!m.field->is_history()) continue;
      const std::int64_t depth = history_depth(m.field->reaches, lengths);
      if (m.shape()[1] != depth)
        throw RequestError(
            fmt::format("{} has {} steps of history; the cell reads {} (newest first)", m.label, m.shape()[1], depth));
    }
  }

  /// All that is missing is said at once, before any size is found missing: a forgotten array is
  /// the likelier mistake, and it would have brought the size.
  void report_missing() const {
    if (request_.random_seed) return;
    std::vector<std::string> missing;
    for (const CallField& field : layout_.fields) {
      if (!field.required() || given_.find(field.kind, field.id) || request_.param_numbers.count(field.file)) continue;
      const char* kind = to_string(cell_.symbols[static_cast<std::size_t>(field.id)].kind);
      missing.push_back(fmt::format("{} {}{} (--{} {}=FILE.npy)", kind, field.file,
                                    axes_text(field, leading_text(field.traits().layout)), kind, field.file));
    }
    if (missing.empty()) return;
    throw RequestError(fmt::format("cell {} needs {} more array{}: {}; or --random SEED fills what is missing",
                                   cell_.name, missing.size(), missing.size() == 1 ? "" : "s",
                                   fmt::join(missing, ", ")));
  }

  void set_rows() {
    if (!length_) throw RequestError("the number of steps is not known: no input is given; state it with --length");
    binding_.batch = batch_ ? batch_->value : 1;
    binding_.length = length_->value;
    if (binding_.packed) return;
    std::int64_t product = 0;
    if (__builtin_mul_overflow(binding_.batch, binding_.length, &product))
      throw DeviceError(
          fmt::format("{} sequences of {} steps are more than can be counted", binding_.batch, binding_.length));
    if (__builtin_mul_overflow(binding_.batch, std::int64_t{8}, &product) || product > physical_memory())
      throw DeviceError(fmt::format("a batch of {} does not fit this machine's memory", binding_.batch));
    for (std::int64_t b = 0; b <= binding_.batch; ++b) binding_.run.offsets.push_back(b * binding_.length);
  }

  void set_sizes() {
    for (const AxisId a : cell_.header) {
      const auto known = sizes_.find(a);
      if (known == sizes_.end()) {
        const std::string& name = cell_.graph.axis(a).name;
        throw RequestError(fmt::format(
            "the length of axis {} is not known: no given array has it; state it with --dim {}=N", name, name));
      }
      binding_.run.sizes[a] = known->second.value;
    }
    // Entries picked by an integer: the compiler has checked those of axes whose length the header fixes.
    each_picked_entry(cell_, [&](AxisId header, std::int64_t entry, const std::string& of) {
      const Known& known = sizes_.at(header);
      if (entry >= known.value)
        throw RequestError(fmt::format("cell {} reads entry {} of axis {}{}, which has {} (0 to {}), as {} has it",
                                       cell_.name, entry, cell_.graph.axis(header).name, of, known.value,
                                       known.value - 1, known.from));
    });
  }

  const CellGraph& cell_;
  const CallLayout& layout_;
  const BindRequest& request_;
  const GivenArrays& given_;
  Binding& binding_;
  std::map<AxisId, Known> sizes_;  ///< by header axis
  std::optional<Known> batch_, length_;
};

}  // namespace

std::int64_t physical_memory() { return static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE); }

void find_sizes(const CellGraph& cell, const CallLayout& layout, const BindRequest& request, const GivenArrays& given,
                Binding& binding) {
  SizeFinder(cell, layout, request, given, binding).find();
}

}  // namespace cellc
