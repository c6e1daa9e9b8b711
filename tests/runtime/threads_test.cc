// Threads of one run: what one of them throws comes out, and nobody waits for it.
#include "runtime/data/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace cellc {
namespace {

TEST(Threads, EachRunsOnceAndTheFirstErrorComesOut) {
  std::atomic<int> sum{0};
  run_on_threads(5, [&](int i) { sum += 1 << i; });
  EXPECT_EQ(sum, 31);
  sum = 0;
  try {
    run_on_threads(5, [&](int i) {
      sum += 1 << i;
      if (i == 2 || i == 4) throw std::runtime_error(i == 2 ? "two" : "four");
    });
    FAIL() << "the error is lost";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "two");
  }
  EXPECT_EQ(sum, 31);
}

TEST(Threads, OnCoresEachRunsOnceAndTheFirstErrorComesOut) {
  std::atomic<int> sum{0};
  run_on_cores(20, [&](int i) { sum += 1 << i; });
  EXPECT_EQ(sum, (1 << 20) - 1);
  run_on_cores(0, [&](int) { sum = 0; });
  EXPECT_NE(sum, 0);
  sum = 0;
  try {
    run_on_cores(20, [&](int i) {
      sum += 1 << i;
      if (i == 7 || i == 11) throw std::runtime_error(std::to_string(i));
    });
    FAIL() << "the error is lost";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "7");
  }
  EXPECT_EQ(sum, (1 << 20) - 1) << "one that fails ends no other";
}

TEST(Threads, WhoThrowsKeepsNobodyWaiting) {
  for (const int bad : {0, 1, 3})
    for (const int round : {0, 1, 50}) {
      std::atomic<int> met{0};
      EXPECT_THROW(run_in_step(4,
                               [&](int thread, std::barrier<>& meeting) {
                                 for (int i = 0; i < 100; ++i) {
                                   if (thread == bad && i == round) throw std::runtime_error("bad");
                                   meeting.arrive_and_wait();
                                   ++met;
                                 }
                               }),
                   std::runtime_error);
      EXPECT_EQ(met, 300 + round);
    }
}

TEST(Threads, InStepNobodyIsAhead) {
  std::atomic<int> begun{0};
  run_in_step(3, [&](int, std::barrier<>& meeting) {
    for (int i = 1; i <= 100; ++i) {
      ++begun;
      meeting.arrive_and_wait();
      EXPECT_EQ(begun, 3 * i);
      meeting.arrive_and_wait();
    }
  });
}

}  // namespace
}  // namespace cellc
