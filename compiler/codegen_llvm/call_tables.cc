#include "compiler/codegen_llvm/call_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <bit>
#include <stdexcept>

namespace cellc {
namespace {

/// A row of ints as ints: they stand one behind another in C, so they may in LLVM.
template <typename Row>
auto ints_of(const Row& row) {
  static_assert(alignof(Row) == alignof(int));
  return std::bit_cast<std::array<int, sizeof(Row) / sizeof(int)>>(row);
}

class TablePrinter {
 public:
  explicit TablePrinter(const std::string& prefix) : prefix_(prefix) {}

  /// A field of the cell's struct.
  void field(const char* type, const std::string& value) {
    const std::size_t size = type == std::string_view("i32") ? 4 : 8;
    bytes_ = (bytes_ + size - 1) / size * size + size;
    types_.emplace_back(type);
    values_.push_back(fmt::format("{} {}", type, value));
  }
  void number(std::int64_t n, const char* type = "i32") { field(type, std::to_string(n)); }

  template <typename Row>
  void table(const char* name, const std::vector<Row>& rows) {
    std::vector<int> all;
    for (const Row& row : rows)
      for (const int n : ints_of(row)) all.push_back(n);
    array(name, "i32", all);
  }
  template <typename Item>
  void array(const char* name, const char* type, const std::vector<Item>& items) {
    const std::string list = fmt::format("[{} {}]", type, fmt::join(items, fmt::format(", {} ", type)));
    field("ptr", items.empty() ? "null" : constant(name, fmt::format("[{} x {}] {}", items.size(), type, list)));
  }
  std::string words(const std::string& name, const std::string& text) {
    return constant(name, fmt::format("[{} x i8] c\"{}\\00\"", text.size() + 1, text));
  }

  std::string done(const std::string& run) const {
    if ((bytes_ + 7) / 8 * 8 != sizeof(cellc_cpu_cell)) throw std::logic_error("tables of a call: a field is missing");
    return fmt::format(
        "{}@cellc_cell = constant {{{}}} {{{}}}\n"
        "!cellc.prefix = !{{!0}}\n!0 = !{{!\"{}\", !\"{}\"}}\n",
        text_, fmt::join(types_, ", "), fmt::join(values_, ", "), prefix_, run);
  }

 private:
  std::string constant(const std::string& name, const std::string& value) {
    text_ += fmt::format("@{}.{} = private unnamed_addr constant {}\n", prefix_, name, value);
    return fmt::format("@{}.{}", prefix_, name);
  }

  const std::string& prefix_;
  std::string text_;
  std::size_t bytes_ = 0;
  std::vector<std::string> types_, values_;
};

}  // namespace

std::string print_call_tables(CallTables t, const std::string& prefix, const std::string& run,
                              const std::string& about) {
  TablePrinter to(prefix);
  to.number(static_cast<std::int64_t>(t.fixed.size()));
  to.array("fixed", "i64", t.fixed);
  to.array("least", "i64", t.least);
  to.table("axis_word", t.axis_words);
  to.number(t.first_word);
  to.number(t.fixed_steps, "i64");
  to.table("axes", t.axes);
  to.table("fields", t.fields);
  to.number(static_cast<std::int64_t>(t.fields.size()));
#define CELLC_TABLE(Row, name)                            \
  t.numbers.count.name = static_cast<int>(t.name.size()); \
  to.table(#name, t.name);
  CELLC_CPU_TABLES(CELLC_TABLE)
#undef CELLC_TABLE
  to.array("codes", "ptr", t.codes);
  std::vector<std::string> words;
  for (const auto& [result, text] : t.words)
    words.push_back(fmt::format("{{i32 {}, ptr {}}}", result, to.words(fmt::format("word.{}", words.size()), text)));
  t.numbers.count.words = static_cast<int>(words.size());
  to.array("words", "{i32, ptr}", words);
  to.field("ptr", to.words("about", about));
  to.number(t.layout, "i64");
  for (const int n : ints_of(t.numbers)) to.number(n);
  return to.done(run);
}

}  // namespace cellc
