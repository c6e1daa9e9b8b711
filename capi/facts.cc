// What there is to be known of devices, of a text, and of a kernel and the arrays of its calls.
#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <thread>

#include "capi/guard.h"
#include "capi/kernel.h"
#include "compiler/graph/print_expression.h"
#include "compiler/syntax/parse.h"
#include "runtime/build/compile_orc.h"
#include "runtime/data/find_sizes.h"

namespace cellc::capi {

const char* CompiledCell::declared(int symbol) {
  const std::lock_guard lock(mutex);
  std::string& text = declarations[symbol];
  if (text.empty())
    text = ExpressionPrinter(cell(), Notation::Language, false)
               .print(cell().symbols[static_cast<std::size_t>(symbol)].initial);
  return text.c_str();
}

CallDirection direction_named(cellc_direction direction) {
  switch (direction) {
    case CELLC_FORWARD:
      return CallDirection::Forward;
    case CELLC_BACKWARD:
      return CallDirection::Backward;
    case CELLC_TANGENT:
      return CallDirection::Tangent;
    default:
      throw Misuse(fmt::format("direction {}: there is none of that number", direction));
  }
}

namespace {

cellc_quantity c_quantity(Quantity quantity) {
  switch (quantity) {
    case Quantity::Value:
      return CELLC_IS_VALUE;
    case Quantity::Cotangent:
      return CELLC_IS_COTANGENT;
    case Quantity::Gradient:
      return CELLC_IS_GRADIENT;
    case Quantity::Tangent:
      return CELLC_IS_TANGENT;
  }
  throw std::logic_error("no such quantity");
}

cellc_role c_role(FieldKind kind) {
  switch (kind) {
    case FieldKind::Input:
      return CELLC_ROLE_INPUT;
    case FieldKind::Param:
      return CELLC_ROLE_PARAM;
    case FieldKind::State:
      return CELLC_ROLE_STATE;
    case FieldKind::Out:
      return CELLC_ROLE_OUT;
    case FieldKind::Start:
      return CELLC_ROLE_START;
    case FieldKind::Final:
      return CELLC_ROLE_FINAL;
    case FieldKind::StateHistory:
    case FieldKind::InputHistory:
      return CELLC_ROLE_HISTORY;
    case FieldKind::FinalStateHistory:
    case FieldKind::FinalInputHistory:
      return CELLC_ROLE_FINAL_HISTORY;
  }
  throw std::logic_error("no such kind of array");
}

cellc_null c_null(FieldAbsent absent) {
  switch (absent) {
    case FieldAbsent::Nothing:
      return CELLC_NULL_IS_REFUSED;
    case FieldAbsent::Declared:
      return CELLC_NULL_IS_DECLARED;
    case FieldAbsent::Zeros:
      return CELLC_NULL_IS_ZERO;
    case FieldAbsent::Start:
      return CELLC_NULL_IS_START;
    case FieldAbsent::Unwanted:
      return CELLC_NULL_IS_UNWANTED;
  }
  throw std::logic_error("an array is absent in no known way");
}

const DirectedCall& call_of(cellc_kernel* kernel, cellc_direction direction) {
  return opened(kernel).call(direction_named(direction));
}
const DirectedField& field_of(cellc_kernel* kernel, cellc_direction direction, int number) {
  const DirectedCall& call = call_of(kernel, direction);
  if (number < 0 || number >= static_cast<int>(call.fields.size()))
    throw Misuse(fmt::format("there is no array number {}", number));
  return call.fields[static_cast<std::size_t>(number)];
}

const char* owner_of(const CellGraph& cell, const CallField& field) {
  const auto id = static_cast<std::size_t>(field.id);
  return (field.traits().owner == FieldOwner::Out ? cell.outs[id].name : cell.symbols[id].name).c_str();
}

/// Whether the direction reads array `number` where all that it may read of derivatives is given.
bool read_at_most(CompiledCell& kernel, CallDirection direction, std::size_t number) {
  const std::vector<bool> all(kernel.call(direction).fields.size(), true);
  if (direction == CallDirection::Backward) return kernel.derivatives->adjoint(all).reads[number];
  return direction == CallDirection::Forward || kernel.derivatives->tangent(all).reads[number];
}

}  // namespace
}  // namespace cellc::capi

using namespace cellc;
using namespace cellc::capi;

extern "C" {

#undef cellc_call_array_info_init  // the function of this name writes the struct of the first version
void cellc_call_array_info_init_sized(cellc_call_array_info* info, size_t size) { initialise(info, {}, size); }
void cellc_call_array_info_init(cellc_call_array_info* info) { cellc_call_array_info_init_sized(info, sizeof *info); }

int cellc_call_array_count(cellc_kernel* kernel, cellc_direction direction) {
  int count = -1;
  guarded([&] { count = static_cast<int>(call_of(kernel, direction).fields.size()); });
  return count;
}

cellc_status cellc_call_array_describe(cellc_kernel* kernel, cellc_direction direction, int number,
                                       cellc_call_array_info* info) {
  return guarded([&] {
    const DirectedField& field = field_of(kernel, direction, number);
    CompiledCell& k = *kernel->body;
    cellc_call_array_info found{};
    found.name = field.name.c_str();
    found.owner = owner_of(k.cell(), field.of);
    found.role = c_role(field.of.kind);
    found.quantity = c_quantity(field.quantity);
    found.layout = c_layout(field.of);
    found.dtype = c_dtype(dtype_of(field, k.compile.dtype));
    found.written = field.written;
    found.null = c_null(field.absent);
    found.required = is_required(field, read_at_most(k, direction_named(direction), static_cast<std::size_t>(number)));
    found.axis_count = static_cast<int>(field.of.axes.size());
    found.axes = field.of.axes.data();
    found.low = -std::numeric_limits<double>::infinity();
    found.high = std::numeric_limits<double>::infinity();
    if (field.quantity == Quantity::Value && field.of.traits().owner != FieldOwner::Out) {
      const Symbol& symbol = k.cell().symbols[static_cast<std::size_t>(field.of.id)];
      if (symbol.range) found.low = symbol.range->low, found.high = symbol.range->high;
      if (field.absent == FieldAbsent::Declared) found.declared = k.declared(field.of.id);
    }
    describe(info, found, offsetof(cellc_call_array_info, low), "the description");
  });
}

int cellc_call_array_find(cellc_kernel* kernel, cellc_direction direction, cellc_quantity quantity, cellc_role role,
                          const char* owner) {
  int found = -1;
  guarded([&] {
    const DirectedCall& call = call_of(kernel, direction);
    if (!owner) throw Misuse("the owner is a null pointer");
    for (std::size_t i = 0; i < call.fields.size(); ++i) {
      const DirectedField& field = call.fields[i];
      if (c_quantity(field.quantity) == quantity && c_role(field.of.kind) == role &&
          std::strcmp(owner_of(kernel->body->cell(), field.of), owner) == 0)
        found = static_cast<int>(i);
    }
  });
  return found;
}

cellc_status cellc_call_array_shape(cellc_kernel* kernel, cellc_direction direction, const cellc_shape* shape,
                                    int number, int64_t* lengths, int most, int* rank) {
  return guarded([&] {
    const DirectedField& field = field_of(kernel, direction, number);
    if (!rank || (!lengths && most > 0)) throw Misuse("the place for the lengths or the rank is a null pointer");
    const std::vector<std::int64_t> found = array_shape(field.of, read_shape(*kernel->body, shape));
    *rank = static_cast<int>(found.size());
    for (int i = 0; i < std::min(*rank, most); ++i) lengths[i] = found[static_cast<std::size_t>(i)];
  });
}

cellc_status cellc_device_describe(const char* device, cellc_device_info* info) {
  return guarded([&] {
    if (!device) throw Misuse("the device is a null pointer");
    cellc_device_info found{};
    std::string name;
    if (std::string(device) == "cpu") {
      name = host_cpu_name();
      found.multiprocessors = static_cast<int>(std::thread::hardware_concurrency());
      found.memory_bytes = physical_memory();
    } else {
      const std::shared_ptr<Gpu> gpu = gpu_named(device, "");  // which nobody else may hold
      const GpuFacts& facts = gpu->facts();
      name = facts.name;
      found.major = facts.major;
      found.minor = facts.minor;
      found.multiprocessors = facts.multiprocessors;
      found.memory_bytes = facts.memory_bytes;
    }
    name.copy(found.name, sizeof found.name - 1);
    describe(info, found, sizeof found, "the description");
  });
}

cellc_status cellc_text_cell(const char* text, size_t length, int number, const char** name) {
  return guarded([&] {
    if (!text || !name) throw Misuse("the text or the place for the name is a null pointer");
    *name = nullptr;
    if (number < 0) throw Misuse(fmt::format("there is no cell number {}", number));
    if (length > kMaxFileBytes)
      throw RequestError(fmt::format("the text has {} bytes; a cell file has at most {}", length, kMaxFileBytes));
    const SourceText source("text", std::string(text, length));
    Diagnostics diagnostics;
    const File file = parse(source, diagnostics);
    if (!diagnostics.empty()) throw CellFileError(source, std::move(diagnostics));
    if (number >= static_cast<int>(file.cells.size())) return;
    thread_local std::string kept;
    kept = file.cells[static_cast<std::size_t>(number)].name;
    *name = kept.c_str();
  });
}

cellc_status cellc_kernel_options(cellc_kernel* kernel, cellc_options* options) {
  return guarded(
      [&] { describe(options, opened(kernel).options, offsetof(cellc_options, plan), "the place for the options"); });
}

cellc_status cellc_kernel_describe(cellc_kernel* kernel, cellc_kernel_info* info) {
  return guarded([&] {
    CompiledCell& k = opened(kernel);
    cellc_kernel_info found{};
    found.cell = k.cell().name.c_str();
    found.dtype = c_dtype(k.compile.dtype);
    found.arithmetic = c_dtype(arithmetic_of(k.compile.dtype));
    found.device = k.device.c_str();
    found.text = k.analysed.source.text().data();
    found.hash = k.hash.c_str();
    describe(info, found, offsetof(cellc_kernel_info, hash), "the description");
  });
}

}  // extern "C"
