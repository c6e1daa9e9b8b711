#include "compiler/codegen_llvm/backward_layout.h"

#include <set>
#include <stdexcept>

#include "compiler/graph/axes.h"
#include "compiler/graph/delay_lines.h"
#include "compiler/plan/call_directions.h"

namespace cellc {
namespace {

const char* suffix_of(Quantity quantity) {
  return quantity == Quantity::Cotangent ? "_cotangent" : quantity == Quantity::Gradient ? "_gradient" : "";
}

CallLayout layout_of(const DirectedCall& call, const std::vector<AxisId>& lengths) {
  CallLayout layout;
  layout.lengths = lengths;
  std::set<std::string> members;
  for (const DirectedField& directed : call.fields) {
    CallField field = directed.of;
    field.written = directed.written;
    field.stored = directed.of.stored && directed.quantity != Quantity::Gradient;
    // A default is a value of other params, whose gradients would lack what it hands on: so it is given.
    field.absent = directed.absent == FieldAbsent::Declared ? FieldAbsent::Nothing : directed.absent;
    field.name = c_name(directed.of.name + suffix_of(directed.quantity));
    while (members.count(field.name) || (field.is_rows() && members.count(field.name + "_strides"))) field.name += "_";
    field.member = field.name;
    members.insert(field.member);
    if (field.is_rows()) members.insert(field.member + "_strides");
    field.word = layout.words;
    layout.words += field.is_rows() ? 3 : 1;
    layout.fields.push_back(std::move(field));
  }
  return layout;
}

class LayoutOfBackward {
 public:
  LayoutOfBackward(const CellGraph& whole, const AdjointCell& adjoint, bool narrow)
      : whole_(whole),
        adjoint_(adjoint),
        narrow_(narrow),
        forward_(call_layout(whole)),
        call_(directed_call(whole, forward_, CallDirection::Backward)),
        result_{layout_of(call_, forward_.lengths), {}, {}, {}, {}, {}, {}, {}} {}

  BackwardLayout run() {
    const CellGraph& cell = adjoint_.adjoint.cell;
    for (int s = 0; s < static_cast<int>(cell.symbols.size()); ++s)
      if (cell.symbols[static_cast<std::size_t>(s)].kind == SymbolKind::State)
        add_state(s);
      else if (cell.symbols[static_cast<std::size_t>(s)].line_of < 0)
        add_read(s);
    for (int s = 0; s < static_cast<int>(whole_.symbols.size()); ++s) {
      const Symbol& symbol = whole_.symbols[static_cast<std::size_t>(s)];
      if (symbol.kind == SymbolKind::Param)
        result_.gradients[s] = field(Quantity::Gradient, FieldKind::Param, s);
      else if (is_given_input(symbol))
        result_.untouched[s] = field(Quantity::Gradient, FieldKind::Input, s);
    }
    add_gradients();
    return std::move(result_);
  }

 private:
  int field(Quantity quantity, FieldKind kind, int id) const {
    return static_cast<int>(call_.number(quantity, kind, id));
  }
  int field_or_none(Quantity quantity, FieldKind kind, int id) const {
    const auto found = call_.find(quantity, kind, id);
    return found ? static_cast<int>(*found) : -1;
  }
  const Symbol& symbol(int s) const { return whole_.symbols[static_cast<std::size_t>(s)]; }
  int state_of(int update) const { return whole_.updates[static_cast<std::size_t>(update)].symbol; }
  /// The state whose rows an update or a delay line stands for.
  int owner(int s) const {
    return symbol(s).lag_of >= 0 ? symbol(s).lag_of : symbol(s).line_of >= 0 ? symbol(s).line_of : s;
  }

  /// Rows of a state as they were `back` steps before, counted from the end of the step.
  ShiftedRows of_state(int state, int back) const {
    ShiftedRows rows{field(Quantity::Value, FieldKind::State, state), back};
    rows.is_state = true;
    rows.start = field(Quantity::Value, FieldKind::Start, state);
    rows.history = field_or_none(Quantity::Value, FieldKind::StateHistory, state);
    if (rows.history >= 0) rows.reaches = reaches(whole_, state);
    return rows;
  }
  ShiftedRows of_input(Quantity quantity, const ArrayRead& read) const {
    ShiftedRows rows{field(quantity, FieldKind::Input, read.symbol), read.lag};
    if (read.lag_axis != kNoAxis) rows.along = header_position(adjoint_.adjoint.cell, read.lag_axis);
    rows.history = field_or_none(quantity, FieldKind::InputHistory, read.symbol);
    if (rows.history >= 0) rows.reaches = reaches(whole_, read.symbol);
    return rows;
  }

  void add_state(int s) {
    const ArraySource& source = adjoint_.adjoint.sources[static_cast<std::size_t>(s)];
    if (source.kind == ArraySource::Kind::Start) return add_line(s);
    if (source.kind != ArraySource::Kind::Adjoint) throw std::logic_error("backward call: a state of no array");
    const int state = state_of(source.id);
    if (const Symbol& copy = symbol(state); copy.lag_of >= 0) {
      PastState past = past_of(copy.lag_of);
      past.lag = copy.lag;
      past.cotangent = field_or_none(Quantity::Cotangent, FieldKind::FinalStateHistory, copy.lag_of);
      result_.past[s] = past;
      return;
    }
    result_.of_adjoint[{FieldKind::Start, s}] = field(Quantity::Cotangent, FieldKind::Final, state);
    result_.of_adjoint[{FieldKind::Final, s}] = field(Quantity::Gradient, FieldKind::Start, state);
  }

  PastState past_of(int state) const {
    PastState past;
    past.start = field(Quantity::Gradient, FieldKind::Start, state);
    past.history = field(Quantity::Gradient, FieldKind::StateHistory, state);
    past.value = field(Quantity::Value, FieldKind::StateHistory, state);
    past.reaches = reaches(whole_, state);
    return past;
  }

  void add_line(int s) {
    const auto update = static_cast<std::size_t>(s);  // states come first, in the order of updates
    const ArrayRead& read = adjoint_.lagged[static_cast<std::size_t>(adjoint_.adjoint.sinks[update].id)];
    PastState past = past_of(owner(read.symbol));
    past.lag = read.lag;
    past.is_line = true;
    result_.past[s] = past;
  }

  void add_read(int s) {
    const ArraySource& source = adjoint_.adjoint.sources[static_cast<std::size_t>(s)];
    const auto plain = [&](int field) {
      if (narrow_)
        result_.earlier[s] = ShiftedRows{field};
      else
        result_.of_adjoint[{FieldKind::Input, s}] = field;
    };
    switch (source.kind) {
      case ArraySource::Kind::Symbol:
        if (symbol(source.id).kind == SymbolKind::Param)
          result_.of_adjoint[{FieldKind::Param, s}] = field(Quantity::Value, FieldKind::Param, source.id);
        else
          plain(field(Quantity::Value, FieldKind::Input, source.id));
        return;
      case ArraySource::Kind::Previous: {
        const Symbol& state = symbol(state_of(source.id));
        const int whole = owner(state_of(source.id));
        if (narrow_ || state.lag_of >= 0) {
          result_.earlier[s] = of_state(whole, 1 + (state.lag_of >= 0 ? state.lag : 0));
          return;
        }
        plain(field(Quantity::Value, FieldKind::State, whole));
        result_.starts[s] = field(Quantity::Value, FieldKind::Start, whole);
        return;
      }
      case ArraySource::Kind::Lagged: {
        const ArrayRead& read = adjoint_.lagged[static_cast<std::size_t>(source.id)];
        const bool in_line = symbol(read.symbol).line_of >= 0;
        result_.earlier[s] = in_line ? of_state(owner(read.symbol), read.lag) : of_input(Quantity::Value, read);
        result_.earlier[s].in_line = in_line;
        return;
      }
      case ArraySource::Kind::Cotangent:
        return plain(field(Quantity::Cotangent, FieldKind::State, state_of(source.id)));
      case ArraySource::Kind::OutCotangent:
        return plain(field(Quantity::Cotangent, FieldKind::Out, source.id));
      default:
        throw std::logic_error("backward call: an array that the adjoint does not read");
    }
  }

  /// The gradient of an input that is read at a lag is a sum of what several steps contribute.
  void add_gradients() {
    const CellGraph& cell = adjoint_.adjoint.cell;
    const auto sink_of = [&](std::size_t out) { return adjoint_.adjoint.sinks[cell.updates.size() + out]; };
    std::set<int> sums;
    for (std::size_t o = 0; o < cell.outs.size(); ++o)
      if (const ArraySink sink = sink_of(o); sink.kind == ArraySink::Kind::LaggedGradient) {
        const ArrayRead& read = adjoint_.lagged[static_cast<std::size_t>(sink.id)];
        sums.insert(read.symbol);
        result_.later[static_cast<int>(o)] = of_input(Quantity::Gradient, read);
      }
    for (std::size_t o = 0; o < cell.outs.size(); ++o)
      if (const ArraySink sink = sink_of(o); sink.kind == ArraySink::Kind::Gradient) {
        if (sums.count(sink.id)) {
          result_.later[static_cast<int>(o)] = of_input(Quantity::Gradient, {sink.id, 0, kNoAxis});
          continue;
        }
        result_.of_adjoint[{FieldKind::Out, static_cast<int>(o)}] = result_.untouched.at(sink.id);
        result_.untouched.erase(sink.id);
      }
  }

  const CellGraph& whole_;
  const AdjointCell& adjoint_;
  const bool narrow_;
  const CallLayout forward_;
  const DirectedCall call_;
  BackwardLayout result_;
};

}  // namespace

BackwardLayout backward_layout(const CellGraph& whole, const AdjointCell& adjoint, bool narrow) {
  return LayoutOfBackward(whole, adjoint, narrow).run();
}

}  // namespace cellc
