#include "known_calls.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace cellc::python {
namespace {

/// By key: one for each dtype and device that such a call was made of.
using Calls = std::unordered_map<std::string, std::vector<nb::object>>;

Calls& calls() {
  static Calls* calls = new Calls;  // never freed: the interpreter may be gone by then
  return *calls;
}

std::string key_of(const OperatorCall& asked) {
  std::string key(asked.names, asked.names_length);
  key += asked.write ? '>' : '*';
  if (asked.write) key.append(asked.write, asked.write_length);
  for (const std::int64_t number : {asked.function, asked.length, asked.batch})
    key.append(reinterpret_cast<const char*>(&number), sizeof number);
  key.append({asked.finals ? 'f' : '-', asked.reverse ? 'r' : '-'});
  return key;
}

thread_local std::string last_error;
thread_local bool failed = false;

bool repeat(const OperatorCall* asked, const OperatorResults* results) {
  if (!Py_IsInitialized()) return false;
  const nb::gil_scoped_acquire mine;
  try {
    const auto found = calls().find(key_of(*asked));
    if (found == calls().end()) return false;
    const std::vector<nb::object> known = found->second;  // others may change the table while this one runs
    for (const nb::object& call : known) {
      const Repeated repeated = nb::inst_ptr<TensorCall>(call)->repeat_operator(*asked, *results);
      if (repeated != Repeated::Unknown) return repeated == Repeated::Done;
    }
  } catch (...) {  // the same call in Python says what of
  }
  return false;
}

const char* take_error() { return std::exchange(failed, false) ? last_error.c_str() : nullptr; }

}  // namespace

void know_call(std::int64_t function, const std::string& names, bool finals, bool reverse,
               std::optional<std::int64_t> length, std::optional<std::int64_t> batch,
               const std::optional<std::string>& write, nb::object call) {
  constexpr std::size_t kMost = 256, kMostAlike = 8;  // of lengths that are told, there may be many
  OperatorCall asked = {};
  asked.function = function;
  asked.names = names.data();
  asked.names_length = names.size();
  asked.length = length.value_or(-1);
  asked.batch = batch.value_or(-1);
  asked.write = write ? write->data() : nullptr;
  asked.write_length = write ? write->size() : 0;
  asked.finals = finals;
  asked.reverse = reverse;
  const std::string key = key_of(asked);
  if (calls().size() >= kMost && !calls().count(key)) calls().clear();
  std::vector<nb::object>& known = calls()[key];
  if (std::none_of(known.begin(), known.end(), [&](const nb::object& one) { return one.is(call); }))
    known.insert(known.begin(), std::move(call));
  if (known.size() > kMostAlike) known.pop_back();
}

void keep_operator_error(const std::string& text) {
  last_error = text;
  failed = true;
}

const OperatorTable& operator_table() {
  static constexpr OperatorTable table{kOperatorTableVersion, &repeat, &take_error};
  return table;
}

}  // namespace cellc::python
