#include "tests/oracle/examples.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/parse.h"

namespace cellc::oracle {
namespace {

void read_head(Example& example) {
  std::istringstream lines(example.source.text());
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("# expect: ")) {
      std::istringstream words(line.substr(10));
      std::map<std::string, std::string> facts;
      std::string word;
      while (words >> word) {
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos) throw OracleError(example.name + ": '" + word + "' has no '='");
        facts[word.substr(0, equals)] = word.substr(equals + 1);
      }
      example.expectations.push_back(facts);
    } else if (line.starts_with("# amplifies: ")) {
      example.amplifies.insert(line.substr(13));
    } else if (line.starts_with("# data: ")) {
      char name[64];
      Range range{};
      if (std::sscanf(line.c_str(), "# data: %63s in (%lf, %lf)", name, &range.low, &range.high) != 3)
        throw OracleError(example.name + ": cannot read '" + line + "'");
      example.ranges[name] = range;
    }
  }
}

std::vector<Example> load_examples(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".cell") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Example> examples;
  for (const auto& path : paths) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    Example example;
    example.name = path.stem().string();
    example.source = SourceText(path.filename().string(), text.str());
    example.tree = parse_or_throw(example.source);
    read_head(example);
    examples.push_back(std::move(example));
  }
  return examples;
}

}  // namespace

File parse_or_throw(const SourceText& source) {
  Diagnostics diagnostics;
  File file = parse(source, diagnostics);
  if (!diagnostics.empty()) throw OracleError(diagnostics.format(source));
  return file;
}

const std::vector<Example>& dsl_examples() {
  static const std::vector<Example> all = load_examples(CELLC_SOURCE_DIR "/dsl-examples");
  return all;
}

const std::vector<Example>& all_cells() {
  static const std::vector<Example> all = [] {
    std::vector<Example> examples = load_examples(CELLC_SOURCE_DIR "/dsl-examples");
    for (Example& awkward : load_examples(CELLC_SOURCE_DIR "/tests/cells")) examples.push_back(std::move(awkward));
    return examples;
  }();
  return all;
}

const Example& example_named(const std::string& name) {
  const auto found =
      std::find_if(all_cells().begin(), all_cells().end(), [&](const Example& e) { return e.name == name; });
  if (found == all_cells().end()) throw OracleError("there is no example " + name);
  return *found;
}

std::vector<std::string> names_of(const std::vector<Example>& examples) {
  std::vector<std::string> names;
  for (const Example& e : examples) names.push_back(e.name);
  return names;
}

std::vector<double> draw_values(const Declaration& d, std::int64_t count, std::int64_t columns, const Ranges& ranges,
                                Random& random) {
  double low = -2, high = 2;
  if (d.kind == SymbolKind::State) low = -1, high = 1;
  if (d.kind == SymbolKind::Param) {
    high = 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(columns, 1)));
    low = -high;
  }
  if (d.range) low = d.range->low, high = d.range->high;
  if (const auto stated = ranges.find(d.name); stated != ranges.end())
    low = stated->second.low, high = stated->second.high;
  std::vector<double> values(count);
  for (double& v : values) v = random.uniform(low, high);
  return values;
}

Data draw_data(const Cell& cell, const std::map<std::string, std::int64_t>& sizes, std::int64_t steps,
               const Ranges& ranges, Random& random, bool random_starts) {
  Data data;
  data.sizes = sizes;
  data.steps = steps;
  for (const Declaration& d : cell.tree().declarations) {
    const std::vector<std::int64_t> shape = cell.shape(d, data);
    const std::int64_t columns = shape.size() >= 2 ? shape.back() : 1, n = cell.count(d, data);
    if (d.kind == SymbolKind::Input) data.inputs[d.name] = draw_values(d, steps * n, columns, ranges, random);
    if (d.kind == SymbolKind::Param && !d.initial) data.params[d.name] = draw_values(d, n, columns, ranges, random);
    if (d.kind == SymbolKind::State && random_starts) data.starts[d.name] = draw_values(d, n, columns, ranges, random);
  }
  return data;
}

std::map<std::string, std::int64_t> axis_lengths(const Cell& cell, const std::vector<std::int64_t>& lengths) {
  std::map<std::string, std::int64_t> sizes;
  std::size_t next = 0;
  for (const HeaderAxis& a : cell.tree().axes) sizes[a.name] = a.length ? *a.length : lengths[next++ % lengths.size()];
  return sizes;
}

}  // namespace cellc::oracle
