#include "compiler/syntax/diagnostic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <tuple>
#include <utility>

namespace cellc {
namespace {

// A file of a million stray characters must not cost a million strings; nobody reads past the
// first page anyway.
constexpr std::size_t kMaxKept = 1000;
constexpr std::size_t kMaxShown = 50;
// A generated line may be as long as the file. Only a window around the caret is shown.
constexpr std::size_t kWindow = 150;

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// One printed cell per character: a tab or a control byte becomes one space, so that the caret
// line, which only counts characters, stands under the right one.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F ? ' ' : c;
  }
  return out;
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

struct Excerpt {
  std::string line;
  std::string marks;
};

Excerpt excerpt(std::string_view line, std::size_t column, std::size_t length) {
  const std::size_t at = std::min(column - 1, line.size());
  std::size_t begin = 0;
  std::size_t end = line.size();
  if (line.size() > kWindow) {
    begin = at > kWindow / 2 ? at - kWindow / 2 : 0;
    while (begin > 0 && is_continuation(line[begin])) --begin;
    end = std::min(line.size(), begin + kWindow);
    while (end < line.size() && is_continuation(line[end])) ++end;
  }
  const std::string_view head = begin > 0 ? "..." : "";
  const std::string_view tail = end < line.size() ? "..." : "";
  const std::size_t marked_end = std::min(end, at + length);
  const std::size_t width = marked_end > at ? characters(line.substr(at, marked_end - at)) : 0;
  Excerpt result;
  result.line = fmt::format("{}{}{}", head, printable(line.substr(begin, end - begin)), tail);
  result.marks = std::string(head.size() + characters(line.substr(begin, at - begin)), ' ') + '^' +
                 std::string(width > 1 ? width - 1 : 0, '~');
  return result;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// Edits are insert, delete, replace and swap of neighbours: `tahn` is one slip away from `tanh`.
std::size_t edit_distance(const std::string& a, const std::string& b) {
  const std::size_t width = b.size() + 1;
  std::vector<std::size_t> before(width), above(width), row(width);
  for (std::size_t j = 0; j < width; ++j) above[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j < width; ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

}  // namespace

void Diagnostics::error(Span span, std::string message, std::string note, std::optional<Span> related) {
  if (list_.size() < kMaxKept) list_.push_back({span, std::move(message), std::move(note), related});
}

std::string Diagnostics::format(const SourceText& source) const {
  std::vector<const Diagnostic*> order;
  for (const Diagnostic& d : list_) order.push_back(&d);
  const auto key = [](const Diagnostic* d) { return std::tie(d->span.offset, d->span.length, d->message, d->note); };
  std::stable_sort(order.begin(), order.end(), [&](auto* a, auto* b) { return key(a) < key(b); });
  order.erase(std::unique(order.begin(), order.end(), [&](auto* a, auto* b) { return key(a) == key(b); }), order.end());

  std::string out;
  for (std::size_t i = 0; i < order.size() && i < kMaxShown; ++i) {
    const Diagnostic& d = *order[i];
    const Position at = source.position(d.span.offset);
    const Excerpt shown = excerpt(source.line(at.line), at.column, d.span.length);
    out += fmt::format("{}:{}:{}: error: {}\n", source.path(), at.line, at.column, d.message);
    out += fmt::format("  {}\n  {}\n", shown.line, shown.marks);
    if (d.note.empty()) continue;
    if (d.related) {
      const Position other = source.position(d.related->offset);
      out += fmt::format("{}:{}:{}: ", source.path(), other.line, other.column);
    }
    out += fmt::format("note: {}\n", d.note);
  }
  if (order.size() > kMaxShown) {
    const std::size_t rest = order.size() - kMaxShown;
    const bool exact = list_.size() < kMaxKept;
    out += fmt::format("note: {}{} more error{} not shown\n", exact ? "" : "at least ", rest, rest == 1 ? "" : "s");
  }
  return out;
}

std::string closest_name(const std::string& name, const std::vector<std::string>& known) {
  const std::string wanted = lower_case(name);
  // Short names are all near each other (`xz`, `xr`, `xc`): for them only the case may differ.
  const std::size_t allowed = wanted.size() < 3 ? 0 : wanted.size() < 6 ? 1 : wanted.size() < 9 ? 2 : 3;
  std::string best;
  std::size_t best_distance = allowed + 1;
  for (const std::string& candidate : known) {
    // The table of distances is quadratic: names that differ more in length cannot be near.
    if (candidate.size() > wanted.size() + allowed || wanted.size() > candidate.size() + allowed) continue;
    const std::size_t distance = edit_distance(wanted, lower_case(candidate));
    if (distance < best_distance && candidate != name) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty() || wanted.size() < 3) return best;
  // `sig` for `sigmoid`, `parameter` for `param`: the beginning is right, and nothing else has it.
  for (const std::string& candidate : known) {
    const std::string other = lower_case(candidate);
    const bool begins = other.size() >= 3 && (other.starts_with(wanted) || wanted.starts_with(other));
    if (!begins || candidate == name) continue;
    if (!best.empty()) return {};
    best = candidate;
  }
  return best;
}

}  // namespace cellc
