#include "tests/engines/gradient_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compiler/graph/delay_lines.h"
#include "runtime/cpu/solve.h"
#include "runtime/cpu/sum_over_steps.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/reference.h"
#include "runtime/gradient/name_gradients.h"
#include "tests/engines/promises.h"
#include "tests/oracle/printed_jacobian.h"

namespace cellc {
namespace {

Array random_like(const Array& of, oracle::Random& random) {
  Array array(Dtype::F64, of.shape());
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, random.uniform(-1, 1));
  return array;
}

/// base + by * direction; where there is no direction, the base.
Array moved(const Array& base, const Array& direction, double by) {
  if (!is_given(direction)) return base;
  Array array(Dtype::F64, base.shape());
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, base.get(i) + by * direction.get(i));
  return array;
}

struct Dot {
  double sum = 0, size = 0;
  void add(const Array& a, const Array& b) {
    if (!is_given(a) || !is_given(b)) return;
    for (std::int64_t i = 0; i < a.count(); ++i) {
      sum += a.get(i) * b.get(i);
      size += std::fabs(a.get(i) * b.get(i));
    }
  }
};

// How far differences reach, in the direction; and a quarter of it.
constexpr double kReach = 1e-3;

/// The derivative from values at 0, ±r, ±r/2, ±r/4; nullopt: it is not smooth within the reach.
std::optional<double> slope(double centre, const double (&plus)[3], const double (&minus)[3], double tolerance) {
  double second[3], first[3];
  for (int i = 0; i < 3; ++i) {
    second[i] = plus[i] - 2 * centre + minus[i];
    first[i] = (plus[i] - minus[i]) / (2 * kReach / (1 << i));
  }
  if (!std::isfinite(first[0] + first[1] + first[2])) return std::nullopt;
  // Second differences of a smooth function are as 16 : 4 : 1.
  const double noise = 2e-9 * (1 + std::fabs(centre));
  if (std::fabs(second[0] - 4 * second[1]) > noise || std::fabs(second[0] - 16 * second[2]) > noise)
    return std::nullopt;
  const double wide = (4 * first[1] - first[0]) / 3, narrow = (4 * first[2] - first[1]) / 3;
  if (std::fabs(wide - narrow) > 0.3 * tolerance * (1 + std::fabs(narrow))) return std::nullopt;
  return narrow;
}

bool has_declared_slopes(const CellGraph& cell) {
  for (NodeId id = 0; id < cell.graph.size(); ++id)
    if (cell.graph[id].op == Op::Surrogate || cell.graph[id].op == Op::StopGradient) return true;
  return false;
}

using Group = std::map<std::string, std::vector<double>> oracle::Data::*;
constexpr Group kGroups[] = {&oracle::Data::inputs, &oracle::Data::params, &oracle::Data::starts,
                             &oracle::Data::histories};

/// One sequence of the oracle's data as the arrays of a request.
struct Arrays {
  BindRequest request;
  std::map<std::string, GivenArray> all;  ///< by name, "h.lag" too
};
Arrays arrays_of(const oracle::Cell& cell, const oracle::Data& data) {
  Arrays result;
  BindRequest& r = result.request;
  r.dtype = Dtype::F64;
  r.threads = 1;
  r.batch = 1;
  r.length = data.steps;
  for (const HeaderAxis& axis : cell.tree().axes) r.dims[axis.name] = cell.length(axis.name, data);
  for (const Group group : kGroups)
    for (const auto& [name, values] : data.*group) {
      const Declaration& d = *cell.find(name);
      const bool history = group == &oracle::Data::histories;
      std::vector<std::int64_t> shape = cell.shape(d, data);
      const std::int64_t n = cell.count(d, data);
      if (group != &oracle::Data::params) {
        if (group != &oracle::Data::starts)
          shape.insert(shape.begin(), n ? static_cast<std::int64_t>(values.size()) / n : 0);
        shape.insert(shape.begin(), 1);
      }
      Array array(Dtype::F64, shape);
      for (std::size_t i = 0; i < values.size(); ++i) array.set(static_cast<std::int64_t>(i), values[i]);
      const GivenArray given{"test", array};
      (d.kind == SymbolKind::Param   ? r.params
       : d.kind == SymbolKind::Input ? r.inputs
                                     : r.states)[name + (history ? ".lag" : "")] = given;
      result.all[name + (history ? ".lag" : "")] = given;
    }
  return result;
}

}  // namespace

RunCell run_by(By by) {
  if (by == By::Reference)
    return [](const CellGraph& cell, const Structure&, const BoundRun& run) { return reference_run(cell, run); };
  return [](const CellGraph& cell, const Structure& structure, const BoundRun& run) {
    SolveReport report;
    Solver solver(cell, structure, {.dtype = Dtype::F64});
    SolveOptions options;
    options.tolerance = 1e-14;
    return solver.run(run, options, report);
  };
}

std::string tangent_failure(const LoweredCell& cell, const oracle::Ranges& ranges, By by, oracle::Random& random,
                            GradientCounts& counts) {
  if (has_declared_slopes(cell.graph)) {
    ++counts.left_out;
    return {};
  }
  constexpr double kTolerance = 1e-6;
  const std::int64_t steps = 4;
  const bool starts_given = random.chance(0.6);
  oracle::Data data =
      oracle::draw_data(cell.oracle, oracle::axis_lengths(cell.oracle, {3, 2, 4}), steps, ranges, random, starts_given);
  if (starts_given)
    for (const auto& [name, depth] : oracle::history_depths(cell.graph)) {
      const Declaration& d = *cell.oracle.find(name);
      data.histories[name] = oracle::draw_values(d, depth * cell.oracle.count(d, data), 1, ranges, random);
    }
  oracle::Data direction = data;
  for (const Group group : kGroups)
    for (auto& [name, values] : direction.*group)
      for (double& v : values) v = random.uniform(-1, 1);
  const auto at = [&](double by_much) {
    oracle::Data there = data;
    for (const Group group : kGroups)
      for (auto& [name, values] : there.*group)
        for (std::size_t i = 0; i < values.size(); ++i) values[i] += by_much * (direction.*group).at(name)[i];
    return oracle::run(cell.oracle, there);
  };
  const oracle::Trajectory centre = at(0);
  std::vector<oracle::Trajectory> plus, minus;
  for (int i = 0; i < 3; ++i) plus.push_back(at(kReach / (1 << i))), minus.push_back(at(-kReach / (1 << i)));

  const Arrays given = arrays_of(cell.oracle, data);
  const Binding binding = bind(cell.graph, given.request);
  const RunCell run = run_by(by);
  const RunOutput output = run(cell.graph, cell.structure, binding.run);
  Tangents tangents = bind_tangents(cell.graph, binding, arrays_of(cell.oracle, direction).all);
  tangents_through_defaults(cell.graph, binding.run, given_symbols(cell.graph, given.request, binding), tangents);
  const TangentRun tangent(cell.graph, moved_symbols(tangents));
  const auto found =
      tangent_arrays(cell.graph, binding,
                     run(tangent.cell(), tangent.structure(), tangent.bind(binding.run, output, tangents, Dtype::F64)));
  ++counts.cells;
  for (const auto& [file, array] : found) {
    const std::string name = file.substr(std::string("tangent.").size());
    if (name.ends_with(".final")) continue;  // the last row
    const bool state = centre.states.contains(name);
    const auto values = [&](const oracle::Trajectory& t) -> const std::vector<double>& {
      return state ? t.states.at(name) : t.outs.at(name);
    };
    for (std::size_t i = 0; i < values(centre).size(); ++i) {
      const double up[3] = {values(plus[0])[i], values(plus[1])[i], values(plus[2])[i]};
      const double down[3] = {values(minus[0])[i], values(minus[1])[i], values(minus[2])[i]};
      const std::optional<double> want = slope(values(centre)[i], up, down, kTolerance);
      if (!want) {
        ++counts.kinked;
        continue;
      }
      ++counts.compared;
      const double got = array.get(static_cast<std::int64_t>(i));
      if (!(std::fabs(got - *want) <= kTolerance * (1 + std::fabs(*want))))
        return fmt::format("tangent of {}, entry {}: {:.12g}, differences say {:.12g}", name, i, got, *want);
    }
  }
  return {};
}

namespace {

/// A run over ragged sequences, of which some symbols count as computed, and a direction.
struct Trial {
  BoundRun run;
  GivenSymbols given;
  Tangents direction;
  Trial(const CellGraph& cell, const oracle::Ranges& ranges, oracle::Random& random, std::vector<std::int64_t> lengths)
      : direction(cell) {
    PromiseShape shape{std::move(lengths), 2 + random.below(3)};
    shape.reverse = random.chance(0.4);
    shape.ranges = ranges;
    run = promise_run(cell, Dtype::F64, shape, random);
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      given.symbols.push_back(random.chance(0.5));
      given.histories.push_back(random.chance(0.5));
      direction.symbols[s] = random_like(run.symbols[s], random);
      if (!run.histories[s].shape().empty()) direction.histories[s] = random_like(run.histories[s], random);
    }
    // A delay line begins with its state's start and with what lags behind that; the rest is the state's history.
    for (const DelayLine& line : delay_lines(cell)) {
      Array& of = direction.histories[static_cast<std::size_t>(line.symbol)];
      direction.symbols[static_cast<std::size_t>(line.symbol)] = {};
      for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
        if (static_cast<int>(s) != line.state && cell.symbols[s].lag_of != line.state) continue;
        const std::int64_t depth = of.shape()[1], entries = of.count() / (of.shape()[0] * depth);
        for (std::int64_t i = 0; i < direction.symbols[s].count(); ++i)
          of.set((i / entries * depth + cell.symbols[s].lag) * entries + i % entries, direction.symbols[s].get(i));
      }
      std::vector<std::int64_t> lengths = of.shape();
      const std::int64_t depth = --lengths[1], parts = lengths[0], entries = of.count() / (parts * (depth + 1));
      Array history(of.dtype(), lengths);
      for (std::int64_t i = 0; i < history.count(); ++i)
        history.set(i, of.get(i + (i / (depth * entries) + 1) * entries));
      for (std::size_t s = 0; s < cell.symbols.size(); ++s)
        for (std::int64_t i = 0; cell.symbols[s].lag_of == line.state && i < parts * entries; ++i)
          history.set((i / entries * depth + cell.symbols[s].lag - 1) * entries + i % entries,
                      direction.symbols[s].get(i));
      direction.histories[static_cast<std::size_t>(line.state)] = history;
    }
  }
};

/// What of a state's history no copy has that lags behind it.
Array beyond_copies(const CellGraph& cell, const DelayLine& line, const Array& history) {
  Array part(history.dtype(), history.shape());
  const std::int64_t depth = history.shape()[1], entries = history.count() / (history.shape()[0] * depth);
  const auto copies =
      std::count_if(cell.symbols.begin(), cell.symbols.end(), [&](const Symbol& s) { return s.lag_of == line.state; });
  for (std::int64_t i = 0; i < part.count(); ++i) part.set(i, i / entries % depth < copies ? 0 : history.get(i));
  return part;
}

}  // namespace

std::string dot_failure(const LoweredCell& cell, const oracle::Ranges& ranges, By by, oracle::Random& random,
                        GradientCounts& counts) {
  const CellGraph& graph = cell.graph;
  const Trial trial(graph, ranges, random, {7, static_cast<std::int64_t>(random.below(4)), 4});
  const RunCell run = run_by(by);
  const RunOutput output = run(graph, cell.structure, trial.run);
  Cotangents cotangents;
  for (std::size_t u = 0; u < graph.updates.size(); ++u) {
    const bool copy = graph.symbol_of(graph.updates[u]).lag_of >= 0;
    cotangents.states.push_back(copy ? Array() : random_like(output.states[u], random));
    cotangents.finals.push_back(random.chance(0.5) ? random_like(output.finals[u], random) : Array());
  }
  for (const Array& out : output.outs) cotangents.outs.push_back(random_like(out, random));

  Tangents all = trial.direction;
  tangents_through_defaults(graph, trial.run, trial.given, all);
  const TangentRun tangent(graph, moved_symbols(all));
  const RunOutput moved = run(tangent.cell(), tangent.structure(), tangent.bind(trial.run, output, all, Dtype::F64));
  Dot forwards;
  for (std::size_t u = 0; u < graph.updates.size(); ++u) {
    forwards.add(cotangents.states[u], moved.states[u]);
    forwards.add(cotangents.finals[u], moved.finals[u]);
  }
  for (std::size_t o = 0; o < graph.outs.size(); ++o) forwards.add(cotangents.outs[o], moved.outs[o]);

  const AdjointRun adjoint(graph, results_with(cotangents));
  const BoundRun bound = adjoint.bind(trial.run, output, cotangents, Dtype::F64);
  Gradients gradients =
      adjoint.gather(trial.run, bound, run(adjoint.cell(), adjoint.structure(), bound), sum_over_steps);
  through_defaults(graph, trial.run, trial.given, gradients);
  Dot backwards;
  for (std::size_t s = 0; s < graph.symbols.size(); ++s) {
    const Symbol& symbol = graph.symbols[s];
    backwards.add(gradients.symbols[s], trial.direction.symbols[s]);
    if (symbol.kind == SymbolKind::Input) backwards.add(gradients.histories[s], trial.direction.histories[s]);
    if (symbol.lag_of < 0) continue;
    // The start of a copy is an entry of its state's history.
    const Array& history = gradients.histories[static_cast<std::size_t>(symbol.lag_of)];
    const Array& start = trial.direction.symbols[s];
    const std::int64_t depth = history.shape()[1], entries = start.count() / start.shape()[0];
    Array part(Dtype::F64, start.shape());
    for (std::int64_t i = 0; i < part.count(); ++i)
      part.set(i, history.get((i / entries * depth + symbol.lag - 1) * entries + i % entries));
    backwards.add(part, start);
  }
  for (const DelayLine& line : delay_lines(graph)) {
    const auto state = static_cast<std::size_t>(line.state);
    backwards.add(beyond_copies(graph, line, gradients.histories[state]), trial.direction.histories[state]);
  }
  if (!std::isfinite(forwards.size) || !std::isfinite(backwards.size)) {
    ++counts.kinked;
    return {};
  }
  ++counts.cells, ++counts.compared;
  const double size = 1e-300 + std::max(forwards.size, backwards.size);
  if (std::fabs(forwards.sum - backwards.sum) <= 1e-10 * size) return {};
  return fmt::format("<v, J u> is {:.15g}, <J'v, u> is {:.15g}; what is added up is {:.3g}", forwards.sum,
                     backwards.sum, size);
}

namespace {

BoundRun moved_by(const BoundRun& run, const Tangents& direction, double by) {
  BoundRun there = run;
  for (std::size_t s = 0; s < run.symbols.size(); ++s) {
    there.symbols[s] = moved(run.symbols[s], direction.symbols[s], by);
    if (is_given(run.histories[s])) there.histories[s] = moved(run.histories[s], direction.histories[s], by);
  }
  return there;
}

/// Gradients of ½ Σ y² + Σ c·y.
Cotangents of_loss(const RunOutput& output, const Cotangents& constant) {
  Cotangents result;
  const auto plus = [](const std::vector<Array>& of, const std::vector<Array>& more, std::vector<Array>& into) {
    for (std::size_t i = 0; i < of.size(); ++i)
      into.push_back(more[i].shape().empty() ? Array() : moved(more[i], of[i], 1));
  };
  plus(output.states, constant.states, result.states);
  plus(output.finals, constant.finals, result.finals);
  plus(output.outs, constant.outs, result.outs);
  return result;
}

}  // namespace

std::string hessian_failure(const LoweredCell& cell, const oracle::Ranges& ranges, By by, oracle::Random& random,
                            GradientCounts& counts) {
  constexpr double kTolerance = 1e-6;
  const CellGraph& graph = cell.graph;
  if (has_declared_slopes(graph)) {
    ++counts.left_out;
    return {};
  }
  Trial trial(graph, ranges, random, {3, 2});
  // What counts as given here is what differences move; starts that follow from params are a test of their own.
  trial.given.symbols.assign(graph.symbols.size(), true);
  trial.given.histories.assign(graph.symbols.size(), true);
  const RunCell run = run_by(by);
  const RunOutput output = run(graph, cell.structure, trial.run);
  Cotangents constant;
  for (std::size_t u = 0; u < graph.updates.size(); ++u) {
    const bool copy = graph.symbol_of(graph.updates[u]).lag_of >= 0;
    constant.states.push_back(copy ? Array() : random_like(output.states[u], random));
    constant.finals.push_back(random_like(output.finals[u], random));
  }
  for (const Array& out : output.outs) constant.outs.push_back(random_like(out, random));
  const Curvature curvature = [&](const RunOutput& tangents) {  // the identity
    Cotangents bent = constant;
    for (std::size_t u = 0; u < bent.states.size(); ++u) {
      if (!bent.states[u].shape().empty()) bent.states[u] = tangents.states[u];
      bent.finals[u] = tangents.finals[u];
    }
    bent.outs = tangents.outs;
    return bent;
  };
  const HessianProduct found = hessian_vector_product(graph, trial.run, output, trial.given, of_loss(output, constant),
                                                      trial.direction, curvature, Dtype::F64, run, sum_over_steps);

  const AdjointRun adjoint(graph, results_with(constant));
  const auto gradients_at = [&](double by_much) {
    const BoundRun there = moved_by(trial.run, trial.direction, by_much);
    const RunOutput out = run(graph, cell.structure, there);
    const BoundRun bound = adjoint.bind(there, out, of_loss(out, constant), Dtype::F64);
    return adjoint.gather(there, bound, run(adjoint.cell(), adjoint.structure(), bound), sum_over_steps);
  };
  const Gradients centre = gradients_at(0);
  std::vector<Gradients> plus, minus;
  for (int i = 0; i < 3; ++i)
    plus.push_back(gradients_at(kReach / (1 << i))), minus.push_back(gradients_at(-kReach / (1 << i)));
  ++counts.cells;
  for (std::size_t s = 0; s < graph.symbols.size(); ++s)
    for (const auto member : {&Gradients::symbols, &Gradients::histories}) {
      const Array& base = (centre.*member)[s];
      double largest = 0;  // a difference of large numbers has their error
      for (std::int64_t i = 0; i < (is_given(base) ? base.count() : 0); ++i)
        largest = std::max(largest, std::fabs(base.get(i)));
      for (std::int64_t i = 0; i < (is_given(base) ? base.count() : 0); ++i) {
        double up[3], down[3];
        for (std::size_t k = 0; k < 3; ++k) up[k] = (plus[k].*member)[s].get(i), down[k] = (minus[k].*member)[s].get(i);
        const std::optional<double> want = slope(base.get(i), up, down, kTolerance);
        if (!want) {
          ++counts.kinked;
          continue;
        }
        ++counts.compared;
        const double got = (found.product.*member)[s].get(i);
        if (!(std::fabs(got - *want) <= kTolerance * (1 + std::fabs(*want) + 1e-3 * largest)))
          return fmt::format("H v by {}{}, entry {}: {:.12g}, differences say {:.12g}", graph.symbols[s].name,
                             member == &Gradients::histories ? ".lag" : "", i, got, *want);
      }
    }
  return {};
}

}  // namespace cellc
