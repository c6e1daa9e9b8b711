// Every type that a library is compiled with has a name of its own. Where two have one name, functions that templates
// make of both, as std::vector does, are one function to the linker: whichever it met first, for either size.
#include <gtest/gtest.h>

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

/// Of C++ and C text as it is formatted: types outside of functions, under the names of their namespaces; not those of
/// namespaces without a name.
std::vector<std::string> types_in(std::istream& text) {
  static const std::regex opens(R"(^namespace ?([\w:]*) ?\{.*)"), closes(R"(^\}  // namespace.*)"),
      type(
          R"(^(?:typedef )?(?:struct|class|union|enum class|enum) (?:alignas\(\w+\) )?(\w+)(?: final)?(?: :[^:].*)? ?\{.*)");
  std::vector<std::string> within, found;
  std::smatch match;
  for (std::string line; std::getline(text, line);) {
    if (std::regex_match(line, match, opens)) {
      within.push_back(match[1]);
    } else if (std::regex_match(line, closes)) {
      if (!within.empty()) within.pop_back();
    } else if (std::regex_match(line, match, type)) {
      std::string name;
      bool is_private = false;
      for (const std::string& space : within) {
        is_private = is_private || space.empty();
        name += space + "::";
      }
      if (!is_private) found.push_back(name + match[1].str());
    }
  }
  return found;
}

TEST(Names, OfTypesAreReadFromText) {
  std::istringstream text(
      "namespace a {\nstruct One {\n  struct Inner {\n};\nnamespace {\nclass Two final : public One {\n"
      "}  // namespace\nenum class Three : int { X };\n}  // namespace a\ntypedef struct four {\nstruct five;\n");
  EXPECT_EQ(types_in(text), (std::vector<std::string>{"a::One", "a::Three", "four"}));
}

TEST(Names, OfTypesAreOneTypesEach) {
  const fs::path root = CELLC_SOURCE_DIR;
  std::vector<fs::path> files;
  std::set<fs::path> templates;  // of CUDA, that the library includes too
  static const std::regex includes(R"re(^#include "(kernels-templates/.*\.cuh)".*)re");
  for (const char* folder : {"compiler", "runtime", "capi", "kernels-templates"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const fs::path& path = entry.path();
      if (path.extension() != ".h" && path.extension() != ".cc") continue;
      files.push_back(path);
      std::ifstream in(path);
      std::smatch match;
      for (std::string line; std::getline(in, line);)
        if (std::regex_match(line, match, includes)) templates.insert(root / match[1].str());
    }
  files.insert(files.end(), templates.begin(), templates.end());
  EXPECT_GT(files.size(), 500u);
  EXPECT_FALSE(templates.empty());
  std::map<std::string, fs::path> where;
  for (const fs::path& path : files) {
    std::ifstream in(path);
    for (const std::string& name : types_in(in)) {
      const auto [found, fresh] = where.emplace(name, path);
      EXPECT_TRUE(fresh) << name << " is in " << found->second << " and in " << path;
    }
  }
}

}  // namespace
}  // namespace cellc
