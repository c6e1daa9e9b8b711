#include "compiler/front_end.h"

#include <fmt/format.h>

#include "compiler/graph/lower.h"
#include "compiler/graph/verify.h"
#include "compiler/syntax/parse.h"

namespace cellc {
namespace {

std::string choice_message(const SourceText& source, const std::string& asked, const std::vector<std::string>& names) {
  if (names.empty()) return fmt::format("{}: holds no cell", source.path());
  if (asked.empty())
    return fmt::format("{} holds {} cells: say which ({})", source.path(), names.size(), fmt::join(names, ", "));
  const std::string near = closest_name(asked, names);
  return fmt::format(
      "{} has no cell '{}'{}", source.path(), asked,
      near.empty() ? fmt::format("; it has {}", fmt::join(names, ", ")) : fmt::format("; did you mean '{}'?", near));
}

}  // namespace

CellFileError::CellFileError(const SourceText& source, Diagnostics diagnostics)
    : runtime_error(diagnostics.format(source)), text(what()), source(source), diagnostics(std::move(diagnostics)) {}

CellChoiceError::CellChoiceError(const SourceText& source, const std::string& asked, std::vector<std::string> names)
    : runtime_error(choice_message(source, asked, names)), names(std::move(names)) {}

AnalysedCell analyse_text(SourceText source, const std::string& name,
                          const std::function<void(const char*)>& entering) {
  const auto enter = [&](const char* stage) {
    if (entering) entering(stage);
  };
  AnalysedCell result;
  result.source = std::move(source);

  // A syntax error must not hide the semantic errors of the cells that did parse.
  enter("parse");
  Diagnostics diagnostics;
  const File file = parse(result.source, diagnostics);
  enter("lower");
  std::vector<CellGraph> cells = lower_all(file, diagnostics);
  if (!diagnostics.empty()) throw CellFileError(result.source, std::move(diagnostics));

  std::vector<std::string> names;
  std::size_t chosen = cells.size();
  for (std::size_t i = 0; i < cells.size(); ++i) {
    names.push_back(cells[i].name);
    if (cells[i].name == name) chosen = i;
  }
  if (name.empty() && cells.size() == 1) chosen = 0;
  if (chosen == cells.size()) throw CellChoiceError(result.source, name, std::move(names));
  result.cell = std::move(cells[chosen]);
  verify(result.cell);
  enter("differentiate");
  result.jacobian = differentiate(result.cell);
  enter("structure");
  result.structure = analyse(result.cell, result.jacobian);
  return result;
}

}  // namespace cellc
