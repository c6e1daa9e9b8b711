#include "runtime/data/run_control.h"

namespace cellc {
namespace {

thread_local const RunControl* current = nullptr;

}  // namespace

const RunControl* run_control() { return current; }

UseRunControl::UseRunControl(const RunControl* control) : before_(current) { current = control; }
UseRunControl::~UseRunControl() { current = before_; }

void go_on_after(std::int64_t rows) {
  const RunControl* const control = current;
  if (!control) return;
  const std::int64_t all = control->rows.fetch_add(rows, std::memory_order_relaxed) + rows;
  if (control->cancel && *control->cancel) control->ended = true;
  if (control->goes_on && std::this_thread::get_id() == control->caller && !control->goes_on(control->host, all))
    control->ended = true;
  if (control->ended) throw Cancelled("the call was cancelled");
}

}  // namespace cellc
