// The tree keeps its shape: a folder is a stage, and includes point one way between stages.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace cellc {
namespace {

namespace fs = std::filesystem;

const std::string kRoot = CELLC_SOURCE_DIR;

/// Folders in the order in which data flows. A file may include from its own folder and from those above it here.
/// A folder's own files stand after the folders inside it: "compiler" is the front end and what prints for people.
const std::vector<std::string> kFolders = {
    "kernels-templates/abi",
    "kernels-templates/cpu",
    "compiler/syntax",
    "compiler/graph",
    "compiler/analysis",
    "compiler/derive",
    "compiler/plan",
    "compiler/codegen_llvm",
    "compiler/codegen_cuda",
    "compiler",
    "kernels-templates/device",
    "kernels-templates/sequential",
    "kernels-templates/persistent",
    "kernels-templates/relaxation",
    "kernels-templates/segments",
    "kernels-templates/scan",
    "kernels-templates/gradient",
    "kernels-templates/host",
    "runtime/data",
    "runtime/strategy",
    "runtime/gradient",
    "runtime/evaluate",
    "runtime/build",
    "runtime/cpu",
    "runtime/check",
    "runtime/cuda/device",
    "runtime/cuda/build",
    "runtime/cuda/launch",
    "runtime/cuda/ship",
    "runtime/cuda/call",
    "capi",
    "cli",
    "demo",
};

/// What stands above a folder and may not be included all the same: what links LLVM does not come to the GPU, and
/// the two ends of the GPU's path do not know each other.
const std::map<std::string, std::set<std::string>> kApart = {
    {"compiler/codegen_cuda", {"compiler/codegen_llvm"}},
    {"runtime/cuda/device", {"runtime/build", "runtime/cpu", "runtime/check"}},
    {"runtime/cuda/build", {"runtime/build", "runtime/cpu", "runtime/check"}},
    {"runtime/cuda/launch", {"runtime/build", "runtime/cpu", "runtime/check"}},
    {"runtime/cuda/ship", {"runtime/build", "runtime/cpu", "runtime/check"}},
    {"runtime/cuda/call", {"runtime/build", "runtime/cpu", "runtime/check", "runtime/cuda/ship"}},
};

std::string read(const fs::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

int position(const std::string& folder) {
  const auto at = std::find(kFolders.begin(), kFolders.end(), folder);
  return at == kFolders.end() ? -1 : static_cast<int>(at - kFolders.begin());
}

/// Sources below the folders of the product, relative to the root.
std::vector<fs::path> sources() {
  std::vector<fs::path> found;
  for (const char* top : {"compiler", "kernels-templates", "runtime", "capi", "cli", "demo"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot + "/" + top)) {
      const std::string kind = entry.path().extension();
      if (kind == ".cc" || kind == ".h" || kind == ".cuh" || kind == ".def")
        found.push_back(fs::relative(entry.path(), kRoot));
    }
  return found;
}

/// Why `from` may not include `to`; empty: it may.
std::string refusal(const std::string& from, const std::string& to) {
  if (from == to) return "";
  if (position(to) < 0) return to + " is no folder of the list in " __FILE__;
  if (position(to) > position(from)) return to + " comes after " + from;
  const auto apart = kApart.find(from);
  if (apart != kApart.end() && apart->second.contains(to)) return from + " and " + to + " are kept apart";
  return "";
}

TEST(Layout, IncludesPointOneWay) {
  static const std::regex include(R"re(#include "([^"]+/)([^"/]+)")re");
  int seen = 0;
  for (const fs::path& path : sources()) {
    const std::string from = path.parent_path();
    EXPECT_GE(position(from), 0) << from << ": a folder that the list in " << __FILE__ << " does not have";
    const std::string text = read(kRoot / path);
    for (std::sregex_iterator it(text.begin(), text.end(), include), end; it != end; ++it) {
      std::string to = (*it)[1];
      to.pop_back();
      if (!fs::exists(kRoot + "/" + to + "/" + (*it)[2].str())) continue;  // of a library
      ++seen;
      EXPECT_EQ(refusal(from, to), "") << path << " includes " << to << "/" << (*it)[2];
    }
  }
  EXPECT_GT(seen, 500);
}

TEST(Layout, ARefusalSaysWhy) {
  EXPECT_EQ(refusal("compiler/plan", "compiler/graph"), "");
  EXPECT_EQ(refusal("compiler/graph", "compiler/plan"), "compiler/plan comes after compiler/graph");
  EXPECT_EQ(refusal("runtime/cuda/launch", "runtime/cpu"), "runtime/cuda/launch and runtime/cpu are kept apart");
}

TEST(Layout, EveryFolderSaysWhatItIs) {
  std::set<std::string> folders;
  for (const fs::path& path : sources())
    for (fs::path folder = path.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
      folders.insert(folder);
  for (const std::string& folder : folders) {
    const std::string text = read(kRoot + "/" + folder + "/README.md");
    EXPECT_FALSE(text.empty()) << folder << " has no README.md";
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40) << folder << "/README.md is for ten lines";
  }
}

/// Whether a README's word names a file: "bind", "emit_llvm.h", "strategy_*".
bool names(const std::string& word, const fs::path& file) {
  const std::string stem = file.stem(), whole = file.filename();
  if (word.ends_with('*')) return stem.starts_with(word.substr(0, word.size() - 1));
  return word == stem || word == whole;
}

// A tour that leaves rooms out is believed all the same: this found fifteen files that came with one change.
TEST(Layout, EveryFileIsInItsFoldersReadme) {
  static const std::regex quoted("`([^`]+)`");
  for (const fs::path& path : sources()) {
    const std::string text = read(kRoot / path.parent_path() / "README.md");
    bool found = false;
    for (std::sregex_iterator it(text.begin(), text.end(), quoted), end; it != end && !found; ++it)
      found = names((*it)[1], path);
    EXPECT_TRUE(found) << path.parent_path() << "/README.md does not name " << path.filename();
  }
}

TEST(Layout, EveryFolderIsOnTheTour) {
  const std::string tour = read(kRoot + "/docs/pipeline.md");
  for (const fs::path folder : kFolders) {
    const std::string name = folder.filename();
    if (!folder.has_parent_path()) {
      EXPECT_TRUE(std::regex_search(tour, std::regex("\n## (\\w+/, )*" + name + "/"))) << name << " has no section";
      continue;
    }
    EXPECT_NE(tour.find("| `" + name + "`"), std::string::npos) << "docs/pipeline.md does not name " << folder;
    const std::string above = read(kRoot / folder.parent_path() / "README.md");
    EXPECT_NE(above.find("`" + name + "/`"), std::string::npos) << folder.parent_path() << "/README.md: " << name;
  }
}

// Two types of one name in two headers are one to the linker, which takes either's destructor for both.
TEST(Layout, NoTypeIsDefinedTwice) {
  const std::regex definition(R"(^(?:struct|class) (\w+)(?: final)?(?: :[^;]*)? \{$)");
  std::map<std::string, std::string> defined;
  int count = 0;
  for (const char* folder : {"compiler", "runtime", "capi", "cli"})
    for (const auto& entry : fs::recursive_directory_iterator(kRoot + "/" + folder)) {
      if (entry.path().extension() != ".h") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        std::smatch match;
        if (!std::regex_match(line, match, definition)) continue;
        const std::string where = fs::relative(entry.path(), kRoot).string();
        const auto [it, fresh] = defined.emplace(match[1].str(), where);
        EXPECT_TRUE(fresh) << match[1].str() << " in " << it->second << " and in " << where;
        ++count;
      }
    }
  EXPECT_GT(count, 200);
}

}  // namespace
}  // namespace cellc
