#include "call_sizes.h"

#include <nanobind/stl/string.h>

#include "faults.h"

namespace cellc::python {
namespace {

/// Axes before those of the cell, where there is a batch.
int leading(cellc_layout layout, bool packed) {
  switch (layout) {
    case CELLC_CONTIGUOUS:
      return packed ? 1 : 2;
    case CELLC_SEQUENCES:
      return 1;
    case CELLC_HISTORY:
      return 2;
    case CELLC_ONCE:
      return 0;
  }
  return 0;
}

std::int64_t integer(nb::handle value, const char* argument) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  const std::int64_t number = index.is_valid() ? PyLong_AsLongLong(index.ptr()) : -1;
  if (PyErr_Occurred()) {
    PyErr_Clear();
    throw ArgumentFault{"DTypeError", argument,
                        std::string("argument '") + argument + "': expected a whole number" +
                            (index.is_valid() ? " of at most 64 bits" : "")};
  }
  return number;
}

/// Of a name that is an option of calls, and of this cell, too.
std::string hint(const Kernel& kernel, const std::string& name) {
  for (const ArrayInfo& info : kernel.arrays())
    if (!info.written && info.key == name)
      return "; the array of the cell that is called so goes in a mapping: cell({'" + name + "': …})";
  return "";
}

}  // namespace

AskedSizes asked_sizes(const Kernel& kernel, const nb::tuple& given) {
  AskedSizes asked;
  const auto number = [&](std::size_t i, const char* argument) -> std::optional<std::int64_t> {
    if (given[i].is_none()) return std::nullopt;
    try {
      return integer(given[i], argument);
    } catch (ArgumentFault& fault) {
      fault.text += hint(kernel, argument);
      throw;
    }
  };
  asked.batch = number(0, "batch");
  asked.length = number(1, "length");
  asked.sizes = given[2];
  if (!asked.sizes.is_none() && !nb::hasattr(asked.sizes, "items"))
    throw ArgumentFault{"DTypeError", "sizes",
                        "argument 'sizes': expected a mapping from axes to their lengths" + hint(kernel, "sizes")};
  asked.offsets = given[3];
  const nb::object reverse = given[4];
  if (reverse.ptr() != Py_True && reverse.ptr() != Py_False)
    throw ArgumentFault{"DTypeError", "reverse",
                        "argument 'reverse': expected True or False" + hint(kernel, "reverse")};
  asked.reverse = reverse.ptr() == Py_True;
  return asked;
}

CallSizes::CallSizes(const Kernel& kernel, const std::vector<Given>& given, const AskedSizes& asked)
    : kernel_(kernel), lengths_(kernel.axes().size(), -1), sources_(lengths_.size()), reverse_(asked.reverse) {
  for (std::size_t a = 0; a < lengths_.size(); ++a)
    if (kernel.axes()[a].length >= 0) {
      lengths_[a] = kernel.axes()[a].length;
      sources_[a] = "the cell";
    }
  if (!asked.offsets.is_none()) read_offsets(asked.offsets);
  read_asked(asked);
  for (const Given& g : given) read(g);
  finish();
}

void CallSizes::read_offsets(nb::handle offsets) {
  packed_ = batched_ = true;
  if (nb::hasattr(offsets, "is_cuda") && nb::cast<bool>(offsets.attr("is_cuda")))  // nobody waits for a GPU unasked
    throw ArgumentFault{"DeviceMismatchError", "offsets", "argument 'offsets' is on a GPU; expected it on the CPU"};
  const nb::object numbers =
      nb::hasattr(offsets, "tolist") ? nb::object(offsets.attr("tolist")()) : nb::borrow(offsets);
  if (!nb::hasattr(numbers, "__iter__"))
    throw ArgumentFault{
        "DTypeError", "offsets",
        "argument 'offsets': expected whole numbers, the first row of each sequence and the number of all rows"};
  for (const nb::handle number : numbers) offsets_.push_back(integer(number, "offsets"));
  if (offsets_.empty() || offsets_.front() != 0)
    throw ArgumentFault{"ShapeError", "offsets", "argument 'offsets': the first is 0, the last the number of all rows"};
  for (std::size_t i = 1; i < offsets_.size(); ++i)
    if (offsets_[i] < offsets_[i - 1])
      throw ArgumentFault{"ShapeError", "offsets",
                          "argument 'offsets': " + std::to_string(offsets_[i]) + " comes after " +
                              std::to_string(offsets_[i - 1]) + "; expected numbers that do not fall"};
  sequences_ = static_cast<std::int64_t>(offsets_.size()) - 1;
  sequences_source_ = "offsets";
}

void CallSizes::read_asked(const AskedSizes& asked) {
  const auto refuse_negative = [](std::int64_t value, const char* name) {
    if (value < 0)
      throw ArgumentFault{"ShapeError", name,
                          std::string("argument '") + name + "': " + std::to_string(value) + "; expected 0 or more"};
  };
  if (asked.batch) {
    refuse_negative(*asked.batch, "batch");
    if (packed_)
      throw ArgumentFault{"ArgumentError", "batch",
                          "argument 'batch': offsets say already how many sequences there are"};
    sequences_ = *asked.batch;
    sequences_source_ = "batch";
    batched_ = true;
  }
  if (asked.length) {
    refuse_negative(*asked.length, "length");
    if (packed_)
      throw ArgumentFault{"ArgumentError", "length", "argument 'length': offsets say already how long sequences are"};
    steps_ = *asked.length;
    steps_source_ = "length";
  }
  if (asked.sizes.is_none()) return;
  for (const nb::handle item : asked.sizes.attr("items")()) {
    const std::string axis = nb::str(nb::handle(item[0])).c_str();
    const std::int64_t length = integer(item[1], "sizes");
    refuse_negative(length, "sizes");
    bool found = false;
    for (std::size_t a = 0; a < lengths_.size(); ++a) {
      if (kernel_.axes()[a].name != axis) continue;
      found = true;
      if (lengths_[a] >= 0 && lengths_[a] != length)
        throw ArgumentFault{"ShapeError", "sizes",
                            "argument 'sizes': axis " + axis + " of length " + std::to_string(length) +
                                "; the cell fixes " + std::to_string(lengths_[a])};
      lengths_[a] = length;
      sources_[a] = "sizes";
    }
    if (!found) throw ArgumentFault{"ArgumentError", "sizes", "argument 'sizes': the cell has no axis " + axis};
  }
}

void CallSizes::set(std::int64_t& length, std::int64_t value, const std::string& what, const Given& given) {
  if (length < 0) {
    length = value;
    return;
  }
  if (length == value) return;
  std::string from;
  if (&length == &sequences_) from = sequences_source_;
  if (&length == &steps_) from = steps_source_;
  for (std::size_t a = 0; a < lengths_.size(); ++a)
    if (&length == &lengths_[a]) from = sources_[a];
  throw ArgumentFault{"ShapeError", given.info->key,
                      given.info->label() + " has shape " + shape_text(given.held.view.shape, given.held.view.rank) +
                          ", so " + what + " = " + std::to_string(value) + "; " + from + " has " + what + " = " +
                          std::to_string(length)};
}

void CallSizes::read(const Given& given) {
  const ArrayInfo& info = *given.info;
  const View& view = given.held.view;
  const int axes = static_cast<int>(info.axes.size()), before = leading(info.layout, packed_);
  if (given.is_scalar || (view.rank == 0 && axes + before > 0)) return;
  const bool may_lack = before > 0 && !(packed_ && info.layout == CELLC_CONTIGUOUS);
  if (view.rank != axes + before && !(may_lack && view.rank == axes + before - 1)) {
    std::string expected = names(info);
    if (may_lack) {
      const bool was = batched_;
      batched_ = !was;
      const std::string other = names(info);
      batched_ = was;
      expected = was ? expected + " or " + other : other + " or " + expected;
    }
    throw ArgumentFault{"ShapeError", info.key,
                        info.label() + " has shape " + shape_text(view.shape, view.rank) + "; expected " + expected};
  }
  int at = 0;
  const auto note = [&](std::int64_t& length, std::string& source, const std::string& what) {
    set(length, view.shape[at++], what, given);
    if (source.empty()) source = info.label();
  };
  if (before > 0 && view.rank == axes + before) {
    if (packed_ && info.layout == CELLC_CONTIGUOUS) {
      if (view.shape[0] != offsets_.back())
        throw ArgumentFault{"ShapeError", info.key,
                            info.label() + " has " + std::to_string(view.shape[0]) + " rows; offsets end at " +
                                std::to_string(offsets_.back())};
      ++at;
    } else {
      note(sequences_, sequences_source_, "B");
      batched_ = true;
    }
  }
  if (info.layout == CELLC_CONTIGUOUS && !packed_) note(steps_, steps_source_, "T");
  if (info.layout == CELLC_HISTORY) ++at;  // how deep it is follows from the axes
  for (const int axis : info.axes)
    note(lengths_[static_cast<std::size_t>(axis)], sources_[static_cast<std::size_t>(axis)],
         kernel_.axes()[static_cast<std::size_t>(axis)].name);
}

void CallSizes::finish() {
  if (sequences_ < 0) sequences_ = 1;
  if (!packed_ && steps_ < 0) {
    bool has_inputs = false;
    for (const ArrayInfo& info : kernel_.arrays()) has_inputs = has_inputs || info.role == CELLC_ROLE_INPUT;
    throw ArgumentFault{"ArgumentError", "length",
                        has_inputs ? "no input has a length of time: give length=, or an input with its steps"
                                   : "the cell has no inputs, so the number of steps must be given: length="};
  }
  for (std::size_t a = 0; a < lengths_.size(); ++a) {
    if (lengths_[a] >= 0) continue;
    const std::string& axis = kernel_.axes()[a].name;
    std::string has;
    for (const ArrayInfo& info : kernel_.arrays())
      for (const int of : info.axes)
        if (!info.written && of == static_cast<int>(a) && has.find("'" + info.key + "'") == std::string::npos)
          has += (has.empty() ? "" : ", ") + ("'" + info.key + "'");
    throw ArgumentFault{"ArgumentError", "sizes",
                        "the length of axis " + axis + " is not known: give sizes={'" + axis + "': …}" +
                            (has.empty() ? "" : ", or an array that has it (" + has + ")")};
  }
}

cellc_shape CallSizes::shape() const {
  cellc_shape shape;
  cellc_shape_init(&shape);
  shape.lengths = lengths_.data();
  shape.sequences = sequences_;
  shape.steps = packed_ ? 0 : steps_;
  shape.offsets = packed_ ? offsets_.data() : nullptr;
  shape.reverse = reverse_;
  return shape;
}

bool CallSizes::has_batch(const ArrayInfo& info) const {
  return batched_ && info.layout != CELLC_ONCE && !(packed_ && info.layout == CELLC_CONTIGUOUS);
}

std::int64_t CallSizes::part(const ArrayInfo& info) const {
  std::int64_t entries = 1;
  for (const int axis : info.axes) entries *= lengths_[static_cast<std::size_t>(axis)];
  return entries;
}

std::vector<std::int64_t> CallSizes::expected(const ArrayInfo& info) const {
  std::vector<std::int64_t> shape;
  if (has_batch(info)) shape.push_back(sequences_);
  if (info.layout == CELLC_CONTIGUOUS) shape.push_back(packed_ ? offsets_.back() : steps_);
  if (info.layout == CELLC_HISTORY) {
    const cellc_shape of_call = this->shape();
    std::int64_t lengths[kMostAxes];
    int rank = 0;
    check(cellc_call_array_shape(kernel_.handle(), info.direction, &of_call, info.number, lengths, kMostAxes, &rank));
    shape.push_back(rank > 1 ? lengths[1] : 0);
  }
  for (const int axis : info.axes) shape.push_back(lengths_[static_cast<std::size_t>(axis)]);
  return shape;
}

std::string CallSizes::names(const ArrayInfo& info) const {
  std::string text;
  const auto add = [&](const std::string& name) { text += (text.empty() ? "[" : ", ") + name; };
  if (has_batch(info)) add("B");
  if (info.layout == CELLC_CONTIGUOUS) add(packed_ ? "all steps" : "T");
  if (info.layout == CELLC_HISTORY) add("n");
  for (const int axis : info.axes) add(kernel_.axes()[static_cast<std::size_t>(axis)].name);
  return text.empty() ? "[]" : text + "]";
}

}  // namespace cellc::python
