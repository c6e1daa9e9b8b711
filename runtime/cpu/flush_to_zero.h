#pragma once
// Results too small for a normal number become zero on this thread while this object lives.
//
// This serves transitions of contractive cells: P' = J·P falls below the smallest normal number within some
// hundred steps, and stays at the smallest denormal one (0.7 of it rounds to itself). Each such
// product costs a trap into microcode, some 80 cycles a vector. The loss is 1e-38 of a
// start's change; a start that is off by more than the tolerance would be found and repaired.
#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace cellc {

class FlushToZero {
 public:
#ifdef __SSE__
  explicit FlushToZero(bool wanted) : wanted_(wanted) {
    if (!wanted_) return;
    before_ = _mm_getcsr();
    _mm_setcsr(before_ | _MM_FLUSH_ZERO_ON);
  }
  ~FlushToZero() {
    if (wanted_) _mm_setcsr(before_);
  }

 private:
  const bool wanted_;
  unsigned before_ = 0;
#else
  explicit FlushToZero(bool) {}
  ~FlushToZero() {}
#endif
 public:
  FlushToZero(const FlushToZero&) = delete;
  FlushToZero& operator=(const FlushToZero&) = delete;
};

}  // namespace cellc
