#include "runtime/data/fault_points.h"

#include <atomic>
#include <charconv>

namespace cellc {

namespace {

struct Countdown {
  const char* name;
  std::atomic<std::int64_t> left{0};
};
Countdown countdowns[] = {{"allocate"}, {"compile"}};

Countdown& countdown(FaultPoint point) { return countdowns[static_cast<int>(point)]; }

}  // namespace

void fail_at(FaultPoint point, std::int64_t nth) { countdown(point).left = nth; }

bool fails_now(FaultPoint point) {
  std::atomic<std::int64_t>& left = countdown(point).left;
  return left.load(std::memory_order_relaxed) > 0 && left.fetch_sub(1) == 1;
}

bool fail_at(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return false;
  std::int64_t nth = 0;
  const char* const end = text.data() + text.size();
  if (std::from_chars(text.data() + colon + 1, end, nth).ptr != end) return false;
  for (Countdown& c : countdowns) {
    if (text.substr(0, colon) != c.name) continue;
    c.left = nth;
    return true;
  }
  return false;
}

}  // namespace cellc
