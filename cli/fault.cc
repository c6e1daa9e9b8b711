#include "cli/fault.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "runtime/fault_points.h"

namespace cellc {
namespace {

std::string stage = "start";
std::string source;
std::vector<std::string> arguments;

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
  if (const char* wanted = std::getenv("CELLC_FAULT"); wanted && stage == wanted)
    throw std::logic_error(fmt::format("fault asked for by CELLC_FAULT={}", wanted));
}

const std::string& current_stage() { return stage; }

void remember_arguments(int count, char** values) {
  arguments.assign(values, values + count);
  if (const char* wanted = std::getenv("CELLC_FAULT")) fail_at(std::string(wanted));
}
void remember_source(const std::string& text) { source = text; }

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
