#include "tests/oracle/printed_jacobian.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler/inspect.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/tensor.h"

namespace cellc::oracle {
namespace {

std::int64_t count(const std::vector<std::int64_t>& shape) { return element_count(shape); }

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ",") + name;
  return names.empty() ? "" : "[" + text + "]";
}

}  // namespace

Source source_of(const CellGraph& cell, int update) {
  const Symbol& s = cell.symbol_of(cell.updates[update]);
  return s.lag_of < 0 ? Source{s.name, 0} : Source{cell.symbols[s.lag_of].name, s.lag};
}

std::map<std::string, int> history_depths(const CellGraph& cell) {
  std::map<std::string, int> depths;
  for (const Symbol& s : cell.symbols)
    if (s.lag_of < 0 && s.line_of < 0 && s.max_lag > 0) depths[s.name] = s.max_lag;
  return depths;
}

PrintedJacobian::PrintedJacobian(CellGraph& cell, const SourceText& source) : cell_(cell) {
  const Jacobian jacobian = differentiate(cell);
  const Structure structure = analyse(cell, jacobian);
  const nlohmann::json json = nlohmann::json::parse(inspect_json(cell, jacobian, structure, source));

  std::map<std::string, int> update_of;
  for (int u = 0; u < static_cast<int>(cell.updates.size()); ++u) update_of[cell.symbol_of(cell.updates[u]).name] = u;
  std::string added;
  for (const auto& definition : json.at("definitions"))
    added += "  " + definition.at("name").get<std::string>() + " = " + definition.at("text").get<std::string>() + "\n";
  for (const auto& printed : json.at("jacobian")) {
    Block block;
    block.row = update_of.at(printed.at("row").get<std::string>());
    block.column = update_of.at(printed.at("col").get<std::string>());
    block.out = "jacobian_block_" + std::to_string(blocks_.size());
    const auto axes = printed.at("axes").get<std::vector<std::string>>();
    const Symbol &row = cell.symbol_of(cell.updates[block.row]), &column = cell.symbol_of(cell.updates[block.column]);
    block.straight = axes.size() == row.index.size();
    if (!block.straight && axes.size() != row.index.size() + column.index.size())
      throw OracleError("a printed block has neither the row's axes nor both");
    std::string value = printed.at("text").get<std::string>();
    if (value.empty()) throw OracleError("a block has no text");
    // A block may be the same for every entry of the column, for example a mean: then nothing in
    // its text says how long the column is.
    if (!block.straight && !column.index.empty())
      value = "(" + value + ") + 0*" + source_of(cell, block.column).first +
              listed({axes.begin() + static_cast<std::ptrdiff_t>(row.index.size()), axes.end()});
    // Nor does it say how long the row is where an axis stands in it twice: W'[d,d3].
    if (std::set<AxisId>(row.axes.begin(), row.axes.end()).size() < row.axes.size())
      value = "(" + value + ") + 0*" + source_of(cell, block.row).first +
              listed({axes.begin(), axes.begin() + static_cast<std::ptrdiff_t>(row.index.size())});
    added += "  out " + block.out + listed(axes) + " = " + value + "\n";
    blocks_.push_back(block);
  }
  text_ = source.text();
  // The brace that ends the cell stands on a line of its own in every cell of the tests.
  const std::size_t close = text_.find("\n}", cell.span.offset);
  if (close == std::string::npos) throw OracleError("the cell has no end");
  text_.insert(close + 1, added);
}

std::map<std::pair<Source, Source>, Difference> PrintedJacobian::evaluate(const Data& point) const {
  const SourceText source("printed", text_);
  const File file = parse_or_throw(source);
  const Cell cell(file, cell_.name);
  Data data = point;
  data.steps = 1;
  const Trajectory trajectory = run(cell, data);
  std::map<std::pair<Source, Source>, Difference> result;
  for (const Block& block : blocks_) {
    const Source row = source_of(cell_, block.row), column = source_of(cell_, block.column);
    const std::vector<std::int64_t> row_shape = cell.shape(*cell.find(row.first), data),
                                    column_shape = cell.shape(*cell.find(column.first), data);
    Difference d;
    d.rows = count(row_shape);
    d.columns = count(column_shape);
    const std::vector<double>& printed = trajectory.outs.at(block.out);
    if (!block.straight) {
      d.values = printed;
    } else {
      // Entry (i, j) is printed[i] where j is i's position on the column's axes, else zero.
      d.values.assign(d.rows * d.columns, 0.0);
      const auto& row_index = cell_.symbol_of(cell_.updates[block.row]).index;
      const auto& column_index = cell_.symbol_of(cell_.updates[block.column]).index;
      for (std::int64_t i = 0; i < d.rows; ++i) {
        std::vector<std::int64_t> at(row_shape.size());
        std::int64_t rest = i;
        for (std::size_t p = row_shape.size(); p-- > 0; rest /= row_shape[p]) at[p] = rest % row_shape[p];
        std::int64_t j = 0;
        for (std::size_t p = 0; p < column_index.size(); ++p) {
          const auto place = std::find(row_index.begin(), row_index.end(), column_index[p]);
          if (place == row_index.end()) throw OracleError("a diagonal block without the column's axis");
          j = j * column_shape[p] + at[place - row_index.begin()];
        }
        d.values[i * d.columns + j] = printed.at(i);
      }
    }
    if (static_cast<std::int64_t>(d.values.size()) != d.rows * d.columns)
      throw OracleError("a printed block has the wrong size");
    result[{row, column}] = std::move(d);
  }
  return result;
}

}  // namespace cellc::oracle
