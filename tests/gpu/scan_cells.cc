#include "tests/gpu/scan_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>

#include "compiler/analysis/jacobian.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/lower.h"
#include "compiler/syntax/parse.h"
#include "tests/gpu/fixtures.h"
#include "tests/oracle/examples.h"

namespace cellc {

namespace {

/// A cell of one stage through the compiler. Its inputs are read in the order in which the struct lists them.
ScanCell emitted(
    const std::string& text, Scannable kind, Storage storage, std::map<std::string, std::pair<double, double>> ranges,
    const std::function<void(const std::map<std::string, double>&, std::map<std::string, double>&)>& step) {
  const SourceText source("test.cell", text);
  const File file = oracle::parse_or_throw(source);
  Diagnostics diagnostics;
  std::optional<CellGraph> graph = lower(file, file.cells.at(0), diagnostics);
  if (!graph) throw std::runtime_error(diagnostics.format(source));
  const Structure structure = analyse(*graph, differentiate(*graph));
  const StagedCell staged = split_stages(*graph, structure);
  if (staged.stages.size() != 1) throw std::runtime_error("the cell has several stages");
  if (structure.stages[0].scannable != kind) throw std::runtime_error("the cell is of another kind");
  const StageCells& stage = staged.stages[0];
  CudaLaneOptions options;
  options.storage = storage;
  options.sizes = sizes_to_show(stage.lanes.cell, stage.lane);
  const CudaLaneCode own = emit_cuda_lane(stage.lanes.cell, stage.lane, options);
  const TransitionCell transitions = with_transition(stage.lanes, stage.lane, kind);
  options.name = "StepWithTransition";
  ScanCell cell;
  cell.text = own.text + emit_cuda_step_with_transition(transitions, stage.lane, options).text;
  cell.states = static_cast<int>(own.states.size());
  cell.arrays = static_cast<int>(stage.lanes.cell.symbols.size());
  const auto name = [&](const SymbolEntry& e) {
    const std::string& symbol = stage.lanes.cell.symbols[e.symbol].name;
    return e.entry ? fmt::format("{}{}", symbol, e.entry) : symbol;
  };
  std::vector<std::string> state_names, input_names;
  cell.state_arrays.clear();
  cell.state_entries.clear();
  cell.inputs.clear();
  cell.ranges.clear();
  for (const SymbolEntry& e : own.states) {
    cell.state_arrays.push_back(e.symbol);
    cell.state_entries.push_back(static_cast<int>(e.entry));
    state_names.push_back(name(e));
  }
  for (const SymbolEntry& e : own.inputs) {
    cell.inputs.push_back(e.symbol);
    input_names.push_back(name(e));
    cell.ranges.push_back(ranges.at(name(e)));
  }
  cell.step = [=](const double* in, double* s) {
    std::map<std::string, double> values, next;
    for (std::size_t i = 0; i < input_names.size(); ++i) values[input_names[i]] = in[i];
    for (std::size_t i = 0; i < state_names.size(); ++i) values[state_names[i]] = s[i];
    step(values, next);
    for (std::size_t i = 0; i < state_names.size(); ++i) s[i] = next.at(state_names[i]);
  };
  return cell;
}

}  // namespace

ScanCell linear_cell() {
  ScanCell cell;
  cell.text = text_of(CELLC_SOURCE_DIR "/tests/gpu/linear_cell.cuh");
  cell.step = [](const double* in, double* s) { s[0] = in[0] * s[0] + in[1]; };
  return cell;
}

ScanCell clip_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input a[d], x[d]\n  h' = clip(a*h + x, -0.75, 1)\n}\n", Scannable::Clip,
                 Storage::F32, {{"a", {-1.2, 1.2}}, {"x", {-1, 1}}}, [](const auto& v, auto& next) {
                   next["h"] = std::clamp(v.at("a") * v.at("h") + v.at("x"), -0.75, 1.0);
                 });
}

ScanCell moebius_cell() {
  return emitted("cell c[d] {\n  state P[d]\n  input a[d], b[d], c[d], e[d]\n  P' = (a*P + b)/(c*P + e)\n}\n",
                 Scannable::Moebius, Storage::F32, {{"a", {0, 1}}, {"b", {0, 1}}, {"c", {0, 1}}, {"e", {1, 2}}},
                 [](const auto& v, auto& next) {
                   next["P"] = (v.at("a") * v.at("P") + v.at("b")) / (v.at("c") * v.at("P") + v.at("e"));
                 });
}

ScanCell viterbi_cell() {
  return emitted(
      "cell c[d] {\n  state p[d], q[d]\n  input a[d], b[d]\n  p' = max(p + a, q + b)\n  q' = max(q - a, p + 0.3)\n}\n",
      Scannable::MaxPlus, Storage::F32, {{"a", {-1, 0.4}}, {"b", {-1, 0.4}}}, [](const auto& v, auto& next) {
        next["p"] = std::max(v.at("p") + v.at("a"), v.at("q") + v.at("b"));
        next["q"] = std::max(v.at("q") - v.at("a"), v.at("p") + 0.3);
      });
}

ScanCell shortest_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input a[d], b[d]\n  h' = min(min(h + a, h - b), a*b)\n}\n",
                 Scannable::MinPlus, Storage::F32, {{"a", {-0.2, 1}}, {"b", {-1, 0.2}}}, [](const auto& v, auto& next) {
                   next["h"] = std::min({v.at("h") + v.at("a"), v.at("h") - v.at("b"), v.at("a") * v.at("b")});
                 });
}

ScanCell forward_cell(Storage storage) {
  return emitted(
      "cell c[d] {\n  state p[d], q[d]\n  input a[d], b[d]\n  p' = p - 1 + softplus(q - p + 0.5 + a) + b\n  q' = q + "
      "softplus(p - q + a) - 0.7\n}\n",
      Scannable::LogPlus, storage, {{"a", {-1, 0.5}}, {"b", {-0.5, 0.5}}}, [](const auto& v, auto& next) {
        next["p"] = std::log(std::exp(v.at("p") - 1) + std::exp(v.at("q") - 0.5 + v.at("a"))) + v.at("b");
        next["q"] = std::log(std::exp(v.at("q")) + std::exp(v.at("p") + v.at("a"))) - 0.7;
      });
}

ScanCell rotation_cell(Storage storage) {
  return emitted(
      "cell c[d] {\n  state h[d], g[d]\n  input a[d], b[d], x[d]\n  h' = a*h - b*g + x\n  g' = b*h + "
      "a*g\n}\n",
      Scannable::Affine, storage, {{"a", {-0.7, 0.7}}, {"b", {-0.7, 0.7}}, {"x", {-1, 1}}},
      [](const auto& v, auto& next) {
        next["h"] = v.at("a") * v.at("h") - v.at("b") * v.at("g") + v.at("x");
        next["g"] = v.at("b") * v.at("h") + v.at("a") * v.at("g");
      });
}

ScanCell ring_cell() {
  return emitted(
      "cell c[d] {\n  state h[d], p[d], q[d], r[d]\n  input a[d], x[d]\n  h' = a*h + 0.3*r + x\n  p' = h\n  "
      "q' = 0.9*p\n  r' = q\n}\n",
      Scannable::Affine, Storage::F32, {{"a", {-0.6, 0.6}}, {"x", {-1, 1}}}, [](const auto& v, auto& next) {
        next["h"] = v.at("a") * v.at("h") + 0.3 * v.at("r") + v.at("x");
        next["p"] = v.at("h");
        next["q"] = 0.9 * v.at("p");
        next["r"] = v.at("q");
      });
}

ScanCell latch_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = clip(1.5*h + x, -1, 1)\n}\n", Scannable::Clip,
                 Storage::F32, {{"x", {-0.1, 0.1}}},
                 [](const auto& v, auto& next) { next["h"] = std::clamp(1.5 * v.at("h") + v.at("x"), -1.0, 1.0); });
}

ScanCell ramp_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = max(1.25*h + x, 0)\n}\n", Scannable::Clip,
                 Storage::F32, {{"x", {-0.9, -0.4}}},
                 [](const auto& v, auto& next) { next["h"] = std::max(1.25 * v.at("h") + v.at("x"), 0.0); });
}

ScanCell forgetful_cell() {
  return emitted("cell c[d] {\n  state h[d]\n  input x[d]\n  h' = x + 1\n}\n", Scannable::Affine, Storage::F32,
                 {{"x", {-1, 1}}}, [](const auto& v, auto& next) { next["h"] = v.at("x") + 1; });
}

}  // namespace cellc
