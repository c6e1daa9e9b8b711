// The main() of every test program: the tests that have their turn (turns.h), a limit for each of them where
// CELLC_TEST_LIMIT states one, for many tests share a process, and what each costs where CELLC_TEST_COSTS is set.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "tests/main/turns.h"

namespace {

using namespace cellc;

/// Ends the process at the first test that takes longer: what hangs would not come back.
class Limit : public testing::EmptyTestEventListener {
 public:
  explicit Limit(unsigned seconds) : seconds_(seconds) { std::signal(SIGALRM, end); }
  void OnTestStart(const testing::TestInfo&) override { alarm(seconds_); }
  void OnTestEnd(const testing::TestInfo&) override { alarm(0); }

 private:
  static void end(int) {
    static const char text[] = "[  FAILED  ] the test above ran into its limit (CELLC_TEST_LIMIT)\n";
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) _exit(4);
    _exit(3);
  }
  unsigned seconds_;
};

/// Prints how much of a processor's time a test took, with the programs that it started, compilers mostly. Unlike the
/// time that went by it says the same on a machine that does other things.
class Costs : public testing::EmptyTestEventListener {
 public:
  void OnTestStart(const testing::TestInfo&) override { start_ = spent(); }
  void OnTestEnd(const testing::TestInfo& test) override {
    std::printf("[ COSTS    ] %s.%s (%.0f ms)\n", test.test_suite_name(), test.name(), 1e3 * (spent() - start_));
  }

 private:
  static double spent() {
    double seconds = 0;
    for (const int whose : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
      rusage use{};
      getrusage(whose, &use);
      for (const timeval& time : {use.ru_utime, use.ru_stime})
        seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
    return seconds;
  }
  double start_ = 0;
};

/// What whoever started this ignores is ignored here too, and in what tests start: a shell's jobs in the background
/// ignore interrupts, of which tests say how programs end by them.
void meet_signals() {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGCHLD}) std::signal(signal, SIG_DFL);
}

/// gtest prints its filter when tests begin, which were chosen by then: let it print the one that was given.
class GivenFilter : public testing::EmptyTestEventListener {
 public:
  explicit GivenFilter(std::string filter) : filter_(std::move(filter)) {}
  void OnTestProgramStart(const testing::UnitTest&) override { testing::GTEST_FLAG(filter) = filter_; }

 private:
  std::string filter_;
};

/// Leaves out of the filter, as it was given, the tests that have no turn.
void take_turns(std::uint64_t seed) {
  const std::vector<std::string> without = turns::tests_without_turn(seed);
  if (without.empty()) return;
  std::string filter = testing::GTEST_FLAG(filter);
  testing::UnitTest::GetInstance()->listeners().Append(new GivenFilter(filter));
  if (filter.find('-') == std::string::npos) filter += '-';
  for (const std::string& name : without) filter += ':' + name;
  testing::GTEST_FLAG(filter) = filter;
}

/// A name that no suite has would leave a suite without turns, and nobody would see it.
bool know_their_suites() {
  bool known = true;
  const testing::UnitTest& unit = *testing::UnitTest::GetInstance();
  for (const turns::Suite& one : turns::suites_in_turns()) {
    bool found = false;
    for (int s = 0; s < unit.total_test_suite_count(); ++s) found = found || one.name == unit.GetTestSuite(s)->name();
    if (!found) std::fprintf(stderr, "CELLC_ONE_IN: there is no suite %s\n", one.name.c_str());
    known = known && found;
  }
  return known;
}

}  // namespace

int main(int count, char** arguments) try {
  meet_signals();
  testing::InitGoogleTest(&count, arguments);
  if (!know_their_suites()) return 1;
  if (const auto seed = turns::seed_of_run()) {
    take_turns(*seed);
    if (!testing::GTEST_FLAG(list_tests))
      std::printf("the part of seed %llu: CELLC_TEST_SEED=%llu makes it again\n",
                  static_cast<unsigned long long>(*seed), static_cast<unsigned long long>(*seed));
  }
  if (const char* seconds = std::getenv("CELLC_TEST_LIMIT"))
    testing::UnitTest::GetInstance()->listeners().Append(
        new Limit(static_cast<unsigned>(std::strtoul(seconds, nullptr, 10))));
  if (std::getenv("CELLC_TEST_COSTS")) testing::UnitTest::GetInstance()->listeners().Append(new Costs);
  return RUN_ALL_TESTS();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
