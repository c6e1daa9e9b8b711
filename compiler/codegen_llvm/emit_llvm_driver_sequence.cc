// One sequence of a call: blocks of steps, and what is left after the last.

#include <algorithm>
#include <stdexcept>

#include "compiler/codegen_llvm/driver_emitter.h"

namespace cellc {

void DriverEmitter::sequence(const std::string& s) {
  DriverText& text = *text_;
  const std::string begin = text.variable(), steps = text.variable();
  text.set(begin, "0");
  text.set(steps, steps_);
  text.when(packed_, [&] {
    const std::string here = text.value("getelementptr i64, ptr {}, i64 {}", offsets_, s);
    text.set(begin, text.number_at(here, 0));
    text.set(steps, text.sub(text.number_at(here, 1), text.number_at(here, 0)));
  });
  const std::string n = text.get(steps), first_row = text.get(begin);
  const std::string last = text.sub(n, "1");
  std::string some_absent = "false";
  for (auto& [word, rows] : rows_) {
    const std::string start = text.pick(packed_, text.mul(first_row, rows.step), text.mul(s, rows.sequence));
    const std::string ahead = text.pick(reversed_, text.mul(last, rows.step), "0");
    rows.first = text.at(rows.data, text.add(start, ahead));
    const CallField& field = *std::find_if(layout().fields.begin(), layout().fields.end(),
                                           [&](const CallField& f) { return f.word == word; });
    if (field.kind != FieldKind::Input) some_absent = text.either(some_absent, rows.absent);
  }
  for (const State& state : states_)
    if (!state.rows) some_absent = "true";
  std::vector<std::string> starts;
  for (const State& state : states_) starts.push_back(start_of(state, s));
  const std::string block = text.pick(some_absent, std::to_string(kBlockSteps), n), done = text.variable();
  text.set(done, "0");
  std::string t;
  text.loop(
      [&] {
        t = text.get(done);
        return text.is("slt", t, n);
      },
      [&] {
        const std::string now = text.lesser(block, text.sub(n, t));
        for (const Phase& phase : step_.plan.phases)
          call(step_, phase.index, now, [&](const Slot& slot) { return slot_value(slot, s, t, starts); });
        if (!narrow_)
          for (const State& state : states_) keep(state, now);
        text.set(done, text.add(t, now));
      });
  for (std::size_t i = 0; i < states_.size(); ++i) write_final(states_[i], s, n, starts[i]);
  for (const CallField& field : layout().fields)
    if (field.kind == FieldKind::FinalInputHistory) write_final_history(field, s, n);
  text.when(text.negated(text.is_null("%status")), [&] {
    text.line("store i32 0, ptr {}, align 4", text.value("getelementptr i32, ptr %status, i64 {}", s));
  });
}

std::string DriverEmitter::start_of(const State& state, const std::string& s) {
  const std::string size = bytes(axes_of(state.symbol), false);
  const auto plain = [&](int symbol, const std::string& otherwise) {
    const std::string& given = address(FieldKind::Start, symbol);
    return text_->pick_address(text_->is_null(given), otherwise, text_->at(given, text_->mul(s, size)));
  };
  if (state.parent < 0) return plain(state.symbol, state.start);
  const auto parent =
      std::find_if(states_.begin(), states_.end(), [&](const State& p) { return p.symbol == state.parent; });
  const std::string& history = address(FieldKind::StateHistory, state.parent);
  const std::string entry = text_->add(text_->mul(s, depth(state.parent)), std::to_string(state.lag - 1));
  return text_->pick_address(text_->is_null(history), plain(state.parent, parent->start),
                             text_->at(history, text_->mul(entry, size)));
}

std::string DriverEmitter::signed_step(const Rows& rows) {
  return text_->pick(reversed_, text_->sub("0", rows.step), rows.step);
}

std::string DriverEmitter::row_at(const Rows& rows, const std::string& t) {
  return text_->at(rows.first, text_->mul(t, signed_step(rows)));
}

std::string DriverEmitter::slot_value(const Slot& slot, const std::string& s, const std::string& t,
                                      const std::vector<std::string>& starts) {
  const auto id = static_cast<std::size_t>(slot.id);
  const auto rows_of = [&](FieldKind kind, int owner) -> const Rows& {
    return rows_.at(layout().find(kind, owner)->word);
  };
  const auto written = [&](const Rows* rows, const std::string& area) {
    return rows ? text_->pick_address(rows->absent, area, row_at(*rows, t)) : area;
  };
  const auto stride = [&](const Rows* rows, const std::string& size) {
    return rows ? text_->pick(rows->absent, size, signed_step(*rows)) : size;
  };
  const auto state_rows = [&](const State& state) {
    return state.rows ? &rows_of(FieldKind::State, state.symbol) : nullptr;
  };
  switch (slot.kind) {
    case SlotKind::Time:
      return t;
    case SlotKind::InputRow:
      return row_at(rows_of(FieldKind::Input, slot.id), t);
    case SlotKind::InputStep:
      return signed_step(rows_of(FieldKind::Input, slot.id));
    case SlotKind::History: {
      // An axis of one lag, which is none, reads no history.
      if (!layout().find(FieldKind::InputHistory, slot.id)) return row_at(rows_of(FieldKind::Input, slot.id), t);
      const std::string& given = address(FieldKind::InputHistory, slot.id);
      const std::string size = text_->mul(depth(slot.id), bytes(axes_of(slot.id), true));
      return text_->pick_address(text_->is_null(given), histories_.at(slot.id), text_->at(given, text_->mul(s, size)));
    }
    case SlotKind::OutRow:
      return written(&rows_of(FieldKind::Out, slot.id), outs_[id]);
    case SlotKind::OutStep:
      return stride(&rows_of(FieldKind::Out, slot.id), bytes(cell().outs[id].index, true));
    case SlotKind::StateRow:
      return written(state_rows(states_[id]), states_[id].area);
    case SlotKind::StateStep:
      return stride(state_rows(states_[id]), bytes(axes_of(states_[id].symbol), true));
    // A block begins at an even step.
    case SlotKind::StateNew:
      return states_[id].carried[0];
    case SlotKind::StateSpare:
      return states_[id].carried[1];
    case SlotKind::StateOld: {
      const State& state = states_[id];
      std::string before = narrow_ ? state.carried[1] : state.carried[0];
      if (const Rows* rows = state_rows(state); rows && !narrow_)
        before = text_->pick_address(rows->absent, before, row_at(*rows, text_->sub(t, "1")));
      return text_->pick_address(text_->is("eq", t, "0"), starts[id], before);
    }
    default:
      throw std::logic_error("driver: no such slot");
  }
}

void DriverEmitter::keep(const State& state, const std::string& steps) {
  const std::string size = bytes(axes_of(state.symbol), false);
  const auto copy = [&] {
    text_->move(state.carried[0], text_->at(state.area, text_->mul(text_->sub(steps, "1"), size)), size);
  };
  if (!state.rows)
    copy();
  else
    text_->when(rows_.at(state.rows->word).absent, copy);
}

void DriverEmitter::write_final(const State& state, const std::string& s, const std::string& n,
                                const std::string& start) {
  const bool lagged = state.parent >= 0;
  const std::string& to =
      address(lagged ? FieldKind::FinalStateHistory : FieldKind::Final, lagged ? state.parent : state.symbol);
  const std::string size = bytes(axes_of(state.symbol), false);
  text_->when(text_->negated(text_->is_null(to)), [&] {
    std::string last = state.carried[0];
    if (narrow_)
      last = text_->pick_address(text_->is("eq", text_->value("and i64 {}, 1", n), "0"), state.carried[1],
                                 state.carried[0]);
    else if (state.rows)
      last = text_->pick_address(rows_.at(state.rows->word).absent, last,
                                 row_at(rows_.at(state.rows->word), text_->sub(n, "1")));
    const std::string from = text_->pick_address(text_->is("eq", n, "0"), start, last);
    const std::string entry =
        lagged ? text_->add(text_->mul(s, depth(state.parent)), std::to_string(state.lag - 1)) : s;
    text_->move(text_->at(to, text_->mul(entry, size)), from, size);
  });
}

void DriverEmitter::write_final_history(const CallField& field, const std::string& s, const std::string& n) {
  const std::string& to = address(field.kind, field.id);
  const std::string& given = address(FieldKind::InputHistory, field.id);
  const Rows& rows = rows_.at(layout().find(FieldKind::Input, field.id)->word);
  const std::string size = bytes(axes_of(field.id), true);
  text_->when(text_->negated(text_->is_null(to)), [&] {
    const std::string all = depth(field.id), offset = text_->mul(text_->mul(s, all), size);
    const std::string before =
        text_->pick_address(text_->is_null(given), histories_.at(field.id), text_->at(given, offset));
    text_->count(all, [&](const std::string& i) {
      const std::string j = text_->sub(text_->sub(all, "1"), i);
      const std::string from =
          text_->pick_address(text_->is("sge", j, n), text_->at(before, text_->mul(text_->sub(j, n), size)),
                              row_at(rows, text_->sub(text_->sub(n, "1"), j)));
      text_->move(text_->at(text_->at(to, offset), text_->mul(j, size)), from, size);
    });
  });
}

}  // namespace cellc
