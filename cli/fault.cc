#include "cli/fault.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <vector>

#include "runtime/data/fault_points.h"
#include "runtime/data/write_files.h"

namespace cellc {
namespace {

std::string stage = "start";
std::string source;
std::vector<std::string> arguments;

// Crashes ------------------------------------------------------------------------------------------

void (*tell_of_crash)(const std::string& what) = nullptr;
int crash_status = 0;
constexpr int kPatience = 500;           // hundredths of a second that a report may take
alignas(16) char crash_stack[64 << 10];  // that of the thread may be what overflowed

extern "C" void crashed(int number) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int s : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) signal(s, SIG_DFL);
    tell_of_crash(fmt::format("signal {}, {}", number, strsignal(number)));
    _exit(0);
  }
  int status = -1;
  bool ended = false;
  for (int waited = 0; child > 0 && !ended && waited < kPatience; ++waited) {
    ended = waitpid(child, &status, WNOHANG) == child;
    const timespec hundredth{0, 10'000'000};
    if (!ended) nanosleep(&hundredth, nullptr);
  }
  if (child > 0 && !ended) kill(child, SIGKILL);
  if (!ended || status != 0) {
    constexpr char kLeast[] =
        "cellc: error: internal fault: a crash, of which no more can be said; this is a mistake in cellc, not in your "
        "cell\n";
    if (write(STDERR_FILENO, kLeast, sizeof kLeast - 1) < 0) _exit(crash_status);
  }
  remove_temporaries();
  _exit(crash_status);
}

/// An argument as a shell reads it back.
std::string quoted(const std::string& text) {
  if (!text.empty() && text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                              "_-+=./,:@%") == std::string::npos)
    return text;
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

}  // namespace

void enter_stage(const char* name) {
  stage = name;
  const char* wanted = std::getenv("CELLC_FAULT");
  if (!wanted) return;
  if (stage == wanted) throw std::logic_error(fmt::format("fault asked for by CELLC_FAULT={}", wanted));
  if ("crash:" + stage == wanted) raise(SIGSEGV);
}

DeriveHooks derive_hooks() {
  DeriveHooks hooks;
  const auto before = std::make_shared<std::vector<std::string>>();
  hooks.entering = [before](Derivation derivation) {
    before->push_back(stage);
    enter_stage(fmt::format("derive {}", to_string(derivation)).c_str());
  };
  hooks.made = [](Derivation derivation, DerivedCell& derived) {
    const char* wanted = std::getenv("CELLC_FAULT");
    if (!wanted || fmt::format("break:{}", to_string(derivation)) != wanted) return;
    const NodeId nowhere = static_cast<NodeId>(derived.cell.graph.size());
    for (StateUpdate& u : derived.cell.updates) u.value = nowhere;
    for (Out& o : derived.cell.outs) o.value = nowhere;
  };
  // Where one went wrong, the stage stays: it is reported.
  hooks.done = [before](Derivation, double) {
    if (std::uncaught_exceptions() == 0) stage = before->back();
    before->pop_back();
  };
  return hooks;
}

const std::string& current_stage() { return stage; }

void remember_arguments(int count, char** values) {
  arguments.assign(values, values + count);
  if (const char* wanted = std::getenv("CELLC_FAULT")) fail_at(std::string(wanted));
}
void remember_source(const std::string& text) { source = text; }

void report_crashes(void (*report)(const std::string& what), int status) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they tell more
  tell_of_crash = report;
  crash_status = status;
  stack_t stack{};
  stack.ss_sp = crash_stack;
  stack.ss_size = sizeof crash_stack;
  sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = crashed;
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  for (const int s : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigaction(s, &action, nullptr);
#endif
}

std::string dump_fault(const std::string& what) {
  std::vector<std::string> words;
  for (const std::string& a : arguments) words.push_back(quoted(a));
  const std::string directory_now = [] {
    std::error_code error;
    return std::filesystem::current_path(error).string();
  }();
  const std::string replay = fmt::format("cd {} && {}", quoted(directory_now), fmt::join(words, " "));

  const char* base = std::getenv("TMPDIR");
  std::string directory = std::string(base && *base ? base : "/tmp") + "/cellc-fault-XXXXXX";
  std::string where = "could not be written";
  if (mkdtemp(directory.data())) {
    std::ofstream(directory + "/cell.cell") << source;
    std::ofstream(directory + "/fault.txt")
        << "stage: " << stage << "\nwhat: " << what << "\nreplay: " << replay << "\n";
    where = directory;
  }
  return fmt::format(
      "internal fault in stage '{}': {}\n"
      "  this is a mistake in cellc, not in your cell\n"
      "  dump:   {}\n"
      "  replay: {}",
      stage, what, where, replay);
}

}  // namespace cellc
