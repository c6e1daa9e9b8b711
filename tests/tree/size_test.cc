// What is read at one sitting: files up to 600 lines, classes up to 300, functions up to 100. What is larger is named
// in the comment at the file's head, with the reason, and has to go from there once it is no longer so: "Larger than
// most", in brackets "the file" and names of classes and functions, a colon, the reason.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace cellc {
namespace {

namespace fs = std::filesystem;

constexpr int kLinesOfFile = 600, kLinesOfClass = 300, kLinesOfFunction = 100;

using Lines = std::vector<std::string>;

Lines lines_of(std::istream& in) {
  Lines lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

constexpr int kNoCode = 1000;  // blank lines, directives, labels, the inside of raw strings

std::vector<int> indentations(const Lines& lines) {
  static const std::regex label(R"( *(public|private|protected):.*)");
  std::vector<int> result;
  std::string raw_end;  // of the raw string that a line is in
  bool directive = false;
  for (const std::string& line : lines) {
    const std::size_t first = line.find_first_not_of(' ');
    const bool none = !raw_end.empty() || directive || first == std::string::npos || line[first] == '#' ||
                      line.compare(first, 2, "//") == 0 || std::regex_match(line, label);
    result.push_back(none ? kNoCode : static_cast<int>(first));
    if (!raw_end.empty()) {
      if (line.find(raw_end) != std::string::npos) raw_end.clear();
      continue;
    }
    directive = (directive || (first != std::string::npos && line[first] == '#')) && line.ends_with('\\');
    const std::size_t raw = line.find("R\"");
    const std::size_t open = raw == std::string::npos ? raw : line.find('(', raw);
    if (open == std::string::npos) continue;
    const std::string end = ")" + line.substr(raw + 2, open - raw - 2) + "\"";
    if (line.find(end, open) == std::string::npos) raw_end = end;
  }
  return result;
}

struct Extent {
  std::string name;
  bool is_class;
  int lines;
};

/// Classes, and the functions that stand in them and in namespaces.
std::vector<Extent> extents(const Lines& lines) {
  static const std::regex class_head(R"(^ *(?:template <.*> )?(?:class|struct|union) (?:\w+\(\w+\) )?([\w:]+).*)");
  static const std::regex function_name(R"((~?\w+)\()");
  const std::vector<int> indentation = indentations(lines);
  const auto earlier = [&](int line, const auto& wanted) {
    while (--line >= 0 && (indentation[line] == kNoCode || !wanted(indentation[line]))) continue;
    return line;
  };
  const auto is_class = [&](int line, std::smatch& match) { return std::regex_match(lines[line], match, class_head); };
  std::vector<Extent> found;
  for (int last = 0; last < static_cast<int>(lines.size()); ++last) {
    const int depth = indentation[last];
    if (depth == kNoCode) continue;
    const std::string_view closing = std::string_view(lines[last]).substr(static_cast<std::size_t>(depth));
    if (closing != "}" && closing != "};") continue;
    const int first = earlier(last, [&](int other) { return other <= depth; });
    if (first < 0 || indentation[first] != depth) continue;
    std::smatch match;
    if (closing == "};") {
      if (is_class(first, match)) found.push_back({match[1], true, last - first + 1});
      continue;
    }
    const int around = earlier(first, [&](int other) { return other < depth; });
    std::smatch of_class;
    if (depth > 0 && (around < 0 || !is_class(around, of_class))) continue;
    std::regex_search(lines[first], match, function_name);
    found.push_back({match[1], false, last - first + 1});
  }
  return found;
}

/// What the comment at a file's head names as larger than most, where it gives a reason.
std::set<std::string> named_at_head(const Lines& lines) {
  static const std::regex larger(R"(Larger than most \(([^)]*)\): *\w+[^.]*\w+ .*)");
  std::string head;
  for (const std::string& line : lines) {
    // What is shipped is C, and its heads are comments of C.
    if (!line.starts_with("//") && !line.starts_with("/*") && !line.starts_with(" *")) break;
    head += line.substr(2);
  }
  std::smatch match;
  std::set<std::string> names;
  if (!std::regex_search(head, match, larger)) return names;
  std::istringstream list(match[1]);
  for (std::string name; std::getline(list, name, ',');) names.insert(name.substr(name.find_first_not_of(' ')));
  return names;
}

TEST(Size, ReasonsAreReadFromTheHead) {
  const auto named = [](const char* text) {
    std::istringstream in(text);
    return named_at_head(lines_of(in));
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(
      named("// A scan.\n//\n// Larger than most (the file, A::B,\n// run): one loop, which is\n// whole.\n#pragma"),
      (Names{"the file", "A::B", "run"}));
  EXPECT_EQ(named("/* A scan.\n *\n * Larger than most (run): one loop. */\n#ifndef"), Names{"run"});
  EXPECT_EQ(named("// A scan.\n// Larger than most (run):\n#pragma once\n"), Names()) << "no reason";
  EXPECT_EQ(named("// A scan.\n#pragma once\n// Larger than most (run): one loop of steps\n"), Names()) << "no head";
  EXPECT_EQ(named(""), Names());
}

TEST(Size, IsReadFromTheLayout) {
  std::stringstream text(R"text(namespace cellc {

struct Small {
  int a = 0;
};

template <int N>
class Outer : public Small,
              public std::vector<int> {
 public:
  explicit Outer(int a)
      : a_(a) {
    for (;;) {
      break;
    }
  }

 private:
  struct Outer::Inner {
    void f() {
#if 1
      text = R"(
}
)";
#endif
    }
  };
  int a_;
};

const int table[] = {
    1,
};

int free_function(int a) {
  const auto lambda = [&] {
    return a;
  };
  return lambda();
}

}  // namespace cellc
)text");
  std::vector<std::string> found;
  for (const Extent& e : extents(lines_of(text)))
    found.push_back(e.name + (e.is_class ? " class " : " function ") + std::to_string(e.lines));
  EXPECT_EQ(found, (std::vector<std::string>{"Small class 3", "Outer function 6", "f function 7",
                                             "Outer::Inner class 9", "Outer class 22", "free_function function 6"}));
}

TEST(Size, IsReadAtOneSitting) {
  int seen = 0;
  const auto check = [&](const std::string& file) {
    std::ifstream in(std::string(CELLC_SOURCE_DIR) + "/" + file);
    const Lines lines = lines_of(in);
    const std::set<std::string> named = named_at_head(lines);
    std::set<std::string> larger;
    const auto hold = [&](const std::string& what, int size, int most) {
      ++seen;
      if (size <= most) return;
      larger.insert(what);
      EXPECT_TRUE(named.contains(what)) << file << ": " << what << " has " << size << " lines, more than " << most
                                        << ", and the file's head does not say why";
    };
    hold("the file", static_cast<int>(lines.size()), kLinesOfFile);
    for (const Extent& e : extents(lines)) hold(e.name, e.lines, e.is_class ? kLinesOfClass : kLinesOfFunction);
    for (const std::string& what : named)
      EXPECT_TRUE(larger.contains(what)) << file << ": " << what << " is no longer so large";
  };
  for (const char* top :
       {"compiler", "kernels-templates", "runtime", "capi", "cli", "demo", "tests", "bench", "python", "examples"})
    for (const auto& entry : fs::recursive_directory_iterator(std::string(CELLC_SOURCE_DIR) + "/" + top)) {
      const std::string kind = entry.path().extension();
      if (kind == ".cc" || kind == ".h" || kind == ".cuh" || kind == ".c" || kind == ".cu")
        check(fs::relative(entry.path(), CELLC_SOURCE_DIR).string());
    }
  EXPECT_GT(seen, 3000);
}

}  // namespace
}  // namespace cellc
