#include "tests/gradients/gradient_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/evaluate/reference.h"
#include "runtime/evaluate/reference_gradients.h"
#include "runtime/evaluate/rounding.h"
#include "runtime/gradient/name_gradients.h"
#include "runtime/strategy/solve_options.h"
#include "tests/oracle/printed_jacobian.h"

namespace cellc {
namespace {

void round_to(Dtype dtype, std::vector<double>& values) {
  Array one(dtype, {1});
  for (double& v : values) {
    one.set(0, v);
    v = one.get(0);
  }
}

Array array_of(Dtype dtype, const std::vector<std::int64_t>& shape, const std::vector<double>& values) {
  Array array(dtype, shape);
  for (std::size_t i = 0; i < values.size(); ++i) array.set(static_cast<std::int64_t>(i), values[i]);
  return array;
}

std::vector<std::int64_t> with(std::vector<std::int64_t> before, const std::vector<std::int64_t>& more) {
  before.insert(before.end(), more.begin(), more.end());
  return before;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i] != 0) sum += a[i] * b.at(i);
  return sum;
}

}  // namespace

void sum_plainly(const StepSum& sum) {
  struct Walk {
    const std::vector<AxisId>* index;
    std::int64_t offset(const std::map<AxisId, std::int64_t>& at, const std::map<AxisId, std::int64_t>& lengths) const {
      std::int64_t flat = 0;
      for (const AxisId a : *index) flat = flat * lengths.at(a) + at.at(a);
      return flat;
    }
  };
  std::map<AxisId, std::int64_t> at, lengths;
  const Walk into{&sum.result}, left{&sum.product.left.index},
      right{sum.product.right ? &sum.product.right->index : nullptr};
  std::vector<AxisId> axes;
  std::int64_t count = 1;
  for (const auto* index : {into.index, left.index, right.index})
    if (index)
      for (const AxisId a : *index)
        if (at.emplace(a, 0).second) {
          const Axis& axis = sum.adjoint.graph.axis(a);
          axes.push_back(a);
          lengths[a] = sum.adjoint.graph.axis(axis.extent_of).fixed.value_or(0);
          if (const auto size = sum.sizes.find(axis.extent_of); size != sum.sizes.end()) lengths[a] = size->second;
          count *= lengths[a];
        }
  const std::int64_t rows = sum.left.shape()[0], of_left = rows ? sum.left.count() / rows : 0,
                     of_right = rows && sum.right ? sum.right->count() / rows : 0;
  std::vector<double> totals(static_cast<std::size_t>(sum.into.count()));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t l = left.offset(at, lengths), r = sum.right ? right.offset(at, lengths) : 0;
    double total = 0;
    for (std::int64_t row = 0; row < rows; ++row)
      total += sum.left.get(row * of_left + l) * (sum.right ? sum.right->get(row * of_right + r) : 1.0);
    totals[static_cast<std::size_t>(into.offset(at, lengths))] += total;
    for (std::size_t k = axes.size(); k-- > 0 && ++at[axes[k]] == lengths[axes[k]];) at[axes[k]] = 0;
  }
  for (std::size_t i = 0; i < totals.size(); ++i)
    sum.into.set(static_cast<std::int64_t>(i), sum.into.get(static_cast<std::int64_t>(i)) + totals[i]);
}

GradientTrial::GradientTrial(const CellGraph& graph, const oracle::Cell& cell, const oracle::Ranges& ranges,
                             oracle::Random& random, const Options& options)
    : graph_(graph), cell_(cell), options_(options) {
  std::vector<bool> left_out;
  for (std::size_t i = 0; i < 2 * graph.updates.size() + graph.outs.size(); ++i)
    left_out.push_back(random.chance(options.without));
  std::map<std::string, int> depths = oracle::history_depths(graph);
  for (const Symbol& symbol : graph.symbols) {
    if (symbol.max_lag >= 0) continue;
    // Along an axis whose length the run knows: the deepest of its reads.
    int& depth = depths[symbol.name];
    for (NodeId id = 0; id < graph.graph.size(); ++id)
      if (const Node& n = graph.graph[id];
          n.op == Op::Read && &graph.symbols[static_cast<std::size_t>(n.symbol)] == &symbol) {
        int along = 1;
        if (n.lag_axis != kNoAxis) {
          const Axis& header = graph.graph.axis(graph.graph.axis(n.lag_axis).extent_of);
          along = static_cast<int>(header.fixed ? *header.fixed : options.sizes.at(header.name));
        }
        depth = std::max(depth, n.lag + along - 1);
      }
  }
  const std::size_t count = std::max<std::size_t>(1, options.lengths.size());  // params come with a sequence
  for (std::size_t b = 0; b < count; ++b) {
    Sequence s;
    const std::int64_t steps = b < options.lengths.size() ? options.lengths[b] : 0;
    s.data = oracle::draw_data(cell, options.sizes, steps, ranges, random, options.starts_given);
    if (options.defaults_given)
      for (const Declaration& d : cell.tree().declarations)
        if (d.kind == SymbolKind::Param && d.initial)
          s.data.params[d.name] = oracle::draw_values(d, cell.count(d, s.data), 1, ranges, random);
    if (b > 0) s.data.params = sequences_[0].data.params;
    if (options.starts_given)
      for (const auto& [name, depth] : depths) {
        const Declaration& d = *cell.find(name);
        s.data.histories[name] = oracle::draw_values(d, depth * cell.count(d, s.data), 1, ranges, random);
      }
    for (auto* group : {&s.data.inputs, &s.data.params, &s.data.starts, &s.data.histories})
      for (auto& [name, values] : *group) round_to(options.dtype, values);
    draw_cotangents(s, random, left_out);
    sequences_.push_back(std::move(s));
  }
}

void GradientTrial::draw_cotangents(Sequence& s, oracle::Random& random, const std::vector<bool>& left_out) {
  const auto draw = [&](const std::string& name, std::int64_t count, bool none) {
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& v : values) v = random.uniform(-1, 1);
    round_to(options_.dtype, values);
    if (!none) s.cotangents[name] = std::move(values);
  };
  std::size_t number = 0;
  for (const StateUpdate& u : graph_.updates) {
    const Symbol& state = graph_.symbol_of(u);
    const bool none = left_out[number++], no_final = left_out[number++];
    if (state.lag_of >= 0) continue;
    const std::int64_t n = cell_.count(*cell_.find(state.name), s.data);
    draw(state.name, s.data.steps * n, none);
    draw(state.name + ".final", n, no_final);
  }
  for (const Out& o : graph_.outs) {
    std::int64_t n = s.data.steps;
    for (const AxisId a : o.index) n *= cell_.length(graph_.graph.axis(graph_.graph.axis(a).extent_of).name, s.data);
    draw(o.name, n, left_out[number++]);
  }
}

BindRequest GradientTrial::request(Dtype dtype, int threads) const {
  BindRequest r;
  r.dtype = dtype;
  r.threads = threads;
  r.reverse = options_.reverse;
  for (const HeaderAxis& axis : cell_.tree().axes) r.dims[axis.name] = options_.sizes.at(axis.name);
  const std::vector<std::int64_t>& lengths = options_.lengths;
  const std::int64_t count = static_cast<std::int64_t>(lengths.size());
  std::int64_t rows = 0;
  for (const std::int64_t n : lengths) rows += n;
  if (options_.packed) {
    Array offsets(Dtype::I64, {count + 1});
    std::int64_t at = 0;
    for (std::int64_t b = 0; b <= count; ++b) {
      static_cast<std::int64_t*>(offsets.data())[b] = at;
      if (b < count) at += lengths[static_cast<std::size_t>(b)];
    }
    r.offsets = GivenArray{"offsets", offsets};
  } else {
    r.batch = count;
    r.length = count ? lengths[0] : 5;
  }
  using Member = std::map<std::string, std::vector<double>> oracle::Data::*;
  const auto gather = [&](const std::string& name, Member member, std::vector<std::int64_t> shape, Dtype of) {
    std::vector<double> values;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      std::vector<double> part = (sequences_[b].data.*member).at(name);
      const std::int64_t n = member == &oracle::Data::inputs ? cell_.count(*cell_.find(name), sequences_[b].data) : 0;
      for (std::int64_t t = 0; n > 0 && options_.reverse && t < lengths[b] / 2; ++t)
        std::swap_ranges(part.begin() + t * n, part.begin() + (t + 1) * n, part.begin() + (lengths[b] - 1 - t) * n);
      values.insert(values.end(), part.begin(), part.end());
    }
    return GivenArray{"test", array_of(of, shape, values)};
  };
  const Dtype arithmetic = arithmetic_of(dtype);
  const oracle::Data& first = sequences_[0].data;
  const auto shape_of = [&](const std::string& name) { return cell_.shape(*cell_.find(name), first); };
  for (const auto& [name, values] : first.inputs)
    r.inputs[name] = gather(name, &oracle::Data::inputs,
                            with(options_.packed ? std::vector<std::int64_t>{rows}
                                                 : std::vector<std::int64_t>{count, count ? lengths[0] : 5},
                                 shape_of(name)),
                            dtype);
  for (const auto& [name, values] : first.params) r.params[name] = {"test", array_of(dtype, shape_of(name), values)};
  for (const auto& [name, values] : first.starts)
    r.states[name] = gather(name, &oracle::Data::starts, with({count}, shape_of(name)), arithmetic);
  for (const auto& [name, values] : first.histories) {
    const bool state = cell_.find(name)->kind == SymbolKind::State;
    const std::int64_t n = cell_.count(*cell_.find(name), first);
    const std::int64_t depth = static_cast<std::int64_t>(values.size()) / n;
    (state ? r.states : r.inputs)[name + ".lag"] =
        gather(name, &oracle::Data::histories, with({count, depth}, shape_of(name)), state ? arithmetic : dtype);
  }
  return r;
}

Binding GradientTrial::bound(Dtype dtype, int threads) const { return bind(graph_, request(dtype, threads)); }

GivenSymbols GradientTrial::given(const Binding& binding) const {
  return given_symbols(graph_, request(binding.dtype, 1), binding);
}

Cotangents GradientTrial::cotangents(const Binding& binding) const {
  std::map<std::string, GivenArray> given;
  const std::vector<std::int64_t>& lengths = options_.lengths;
  const auto gather = [&](const std::string& name, std::vector<std::int64_t> shape, bool steps) {
    if (!sequences_[0].cotangents.contains(name)) return;
    std::vector<double> values;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      std::vector<double> part = sequences_[b].cotangents.at(name);
      const std::int64_t n = steps && lengths[b] ? static_cast<std::int64_t>(part.size()) / lengths[b] : 0;
      for (std::int64_t t = 0; n > 0 && options_.reverse && t < lengths[b] / 2; ++t)
        std::swap_ranges(part.begin() + t * n, part.begin() + (t + 1) * n, part.begin() + (lengths[b] - 1 - t) * n);
      values.insert(values.end(), part.begin(), part.end());
    }
    given[name] = {"test", array_of(Dtype::F64, shape, values)};
  };
  const auto rows = [&](const std::vector<AxisId>& axes) {
    const std::vector<std::int64_t> leading = options_.packed
                                                  ? std::vector<std::int64_t>{binding.length}
                                                  : std::vector<std::int64_t>{binding.batch, binding.length};
    return with(leading, cellc::lengths(graph_, binding.run, axes));
  };
  for (const StateUpdate& u : graph_.updates) {
    const Symbol& state = graph_.symbol_of(u);
    if (state.lag_of >= 0) continue;
    gather(state.name, rows(state.axes), true);
    gather(state.name + ".final", with({binding.batch}, cellc::lengths(graph_, binding.run, state.axes)), false);
  }
  for (const Out& o : graph_.outs) gather(o.name, rows(o.index), true);
  return bind_cotangents(graph_, binding, given);
}

void GradientTrial::set_cotangent(const std::string& name, std::size_t sequence, const std::vector<double>& values) {
  sequences_.at(sequence).cotangents[name] = values;
}

std::string GradientTrial::Entries::gradient() const {
  return "grad." + name + (kind == Kind::Start ? ".initial" : kind == Kind::History ? ".lag" : "");
}

std::vector<GradientTrial::Entries> GradientTrial::arrays() const {
  std::vector<Entries> all;
  for (std::size_t b = 0; b < options_.lengths.size(); ++b) {
    const oracle::Data& data = sequences_[b].data;
    for (const auto& [name, values] : data.inputs) all.push_back({Kind::Input, name, b});
    for (const auto& [name, values] : data.starts) all.push_back({Kind::Start, name, b});
    for (const auto& [name, values] : data.histories) all.push_back({Kind::History, name, b});
  }
  for (const auto& [name, values] : sequences_[0].data.params) all.push_back({Kind::Param, name, 0});
  return all;
}

std::vector<double>& GradientTrial::values(const Entries& of) {
  oracle::Data& data = sequences_.at(of.sequence).data;
  switch (of.kind) {
    case Kind::Input:
      return data.inputs.at(of.name);
    case Kind::Param:
      return data.params.at(of.name);
    case Kind::Start:
      return data.starts.at(of.name);
    default:
      return data.histories.at(of.name);
  }
}

std::vector<double> GradientTrial::found(const NamedArrays& gradients, const Entries& of) const {
  for (const auto& [name, array] : gradients) {
    if (name != of.gradient()) continue;
    std::vector<double> all(static_cast<std::size_t>(array.count()));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = array.get(static_cast<std::int64_t>(i));
    if (of.kind == Kind::Param) return all;
    std::int64_t n = cell_.count(*cell_.find(of.name), sequences_[0].data), begin = 0;
    const auto& lengths = options_.lengths;
    if (of.kind != Kind::Input) {
      const auto per = static_cast<std::ptrdiff_t>(all.size() / lengths.size()),
                 first = static_cast<std::ptrdiff_t>(of.sequence) * per;
      return {all.begin() + first, all.begin() + first + per};
    }
    for (std::size_t b = 0; b < of.sequence; ++b) begin += lengths[b];
    std::vector<double> part(all.begin() + begin * n, all.begin() + (begin + lengths[of.sequence]) * n);
    const std::int64_t steps = lengths[of.sequence];
    for (std::int64_t t = 0; options_.reverse && t < steps / 2; ++t)
      std::swap_ranges(part.begin() + t * n, part.begin() + (t + 1) * n, part.begin() + (steps - 1 - t) * n);
    return part;
  }
  throw std::runtime_error("there is no " + of.gradient());
}

double GradientTrial::loss(std::size_t sequence) const {
  const Sequence& s = sequences_[sequence];
  const oracle::Trajectory run = oracle::run(cell_, s.data);
  double sum = 0;
  for (const auto& [name, c] : s.cotangents) {
    if (const auto out = run.outs.find(name); out != run.outs.end()) {
      sum += dot(c, out->second);
    } else if (const auto state = run.states.find(name); state != run.states.end()) {
      sum += dot(c, state->second);
    } else if (name.ends_with(".final")) {
      const std::string of = name.substr(0, name.size() - 6);
      const std::vector<double>& rows = run.states.at(of);
      sum += s.data.steps ? dot(c, {rows.end() - static_cast<std::ptrdiff_t>(c.size()), rows.end()})
                          : dot(c, oracle::initial_value(cell_, s.data, of));
    }
  }
  return sum;
}

double GradientTrial::slope(const Entries& of, const std::vector<std::pair<std::size_t, double>>& along, double reach) {
  const std::size_t begin = of.kind == Kind::Param ? 0 : of.sequence,
                    end = of.kind == Kind::Param ? options_.lengths.size() : of.sequence + 1;
  const auto at = [&](double by) {
    std::vector<std::vector<double>> kept;
    for (std::size_t b = begin; b < end; ++b) {
      std::vector<double>& here = values({of.kind, of.name, b});
      kept.push_back(here);
      for (const auto& [entry, weight] : along) here[entry] += by * weight;
    }
    double sum = 0;
    for (std::size_t b = begin; b < end; ++b) sum += loss(b);
    for (std::size_t b = begin; b < end; ++b) values({of.kind, of.name, b}) = kept[b - begin];
    return sum;
  };
  return (8 * (at(reach) - at(-reach)) - (at(2 * reach) - at(-2 * reach))) / (12 * reach);
}

GradientTrial::Slopes GradientTrial::differences(std::size_t entries, oracle::Random& random) {
  Slopes slopes;
  for (const Entries& of : arrays()) {
    const std::size_t count = values(of).size();
    if (count == 0) continue;
    std::vector<std::vector<std::pair<std::size_t, double>>> ways(1);
    for (std::size_t i = 0; i < count; ++i) ways[0].emplace_back(i, random.uniform(-1, 1));
    std::vector<std::size_t> some(count);
    for (std::size_t i = 0; i < count; ++i) some[i] = i;
    for (std::size_t i = 0; i < std::min(entries, count); ++i) {
      std::swap(some[i], some[i + static_cast<std::size_t>(random.below(static_cast<int>(count - i)))]);
      ways.push_back({{some[i], 1.0}});
    }
    for (auto& way : ways) {
      // Two reaches that are no multiples: at a kink or a jump they do not agree.
      const double wide = slope(of, way, 4e-4), narrow = slope(of, way, 1.3e-4);
      if (std::fabs(wide - narrow) <= 2e-7 * (1e-2 + std::fabs(narrow)))
        slopes.all.push_back({of, std::move(way), narrow});
      else
        ++slopes.kinks;
    }
  }
  return slopes;
}

std::string GradientTrial::compare(const NamedArrays& gradients, const Slopes& slopes, double tolerance) const {
  for (const Slope& s : slopes.all) {
    const std::vector<double> found = this->found(gradients, s.of);
    double got = 0, size = 0, largest = 0;
    for (const auto& [entry, weight] : s.along) {
      got += found.at(entry) * weight;
      size += std::fabs(found[entry] * weight);
    }
    for (const double g : found) largest = std::max(largest, std::fabs(g));
    // What differences of a loss near 1 can tell, besides.
    if (std::fabs(got - s.value) <= tolerance * (size + std::fabs(s.value) + largest) + 2e-10) continue;
    return fmt::format("{} of sequence {}, {}: {:.12g}, differences say {:.12g}", s.of.gradient(), s.of.sequence,
                       s.along.size() == 1 ? fmt::format("entry {}", s.along[0].first) : "along a direction", got,
                       s.value);
  }
  return {};
}

NamedArrays GradientTrial::gradients(const AdjointRun& adjoint, const Binding& binding,
                                     const std::function<RunOutput(const BoundRun&)>& run,
                                     const std::function<void(const StepSum&)>& sum) const {
  return gradients_after(reference_run(graph_, binding.run), adjoint, binding, run, sum);
}

NamedArrays GradientTrial::gradients_after(const RunOutput& forward, const AdjointRun& adjoint, const Binding& binding,
                                           const std::function<RunOutput(const BoundRun&)>& run,
                                           const std::function<void(const StepSum&)>& sum) const {
  const BoundRun bound = adjoint.bind(binding.run, forward, cotangents(binding), arithmetic_of(binding.dtype));
  Gradients gradients = adjoint.gather(binding.run, bound, run(bound), sum);
  through_defaults(graph_, binding.run, given(binding), gradients);
  return gradient_arrays(graph_, binding, gradients);
}

NamedArrays GradientTrial::reference(const AdjointRun& adjoint) const {
  const Binding binding = bound(Dtype::F64);
  return gradients(adjoint, binding, [&](const BoundRun& run) { return reference_run(adjoint.cell(), run); });
}

NamedArrays GradientTrial::swept() const {
  const Binding binding = bound(Dtype::F64);
  return gradient_arrays(graph_, binding,
                         reference_gradients(graph_, binding.run, given(binding), cotangents(binding)));
}

NamedArrays GradientTrial::spread(const AdjointRun& adjoint, const NamedArrays& plain, Dtype dtype) const {
  const Binding binding = bound(Dtype::F64);
  const RunOutput forward = reference_run(graph_, binding.run);
  NamedArrays most;
  for (const auto& [name, array] : plain) most.emplace_back(name, Array(Dtype::F64, array.shape()));
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const auto moved = rounding_of(dtype, default_tolerance(dtype), seed);
    const NamedArrays other = gradients_after(
        forward, adjoint, binding,
        [&](const BoundRun& as_they_are) {
          BoundRun run = as_they_are;
          for (auto* arrays : {&run.symbols, &run.histories})
            for (Array& array : *arrays) {
              if (array.count() == 0) continue;
              Array copy(Dtype::F64, array.shape());
              for (std::int64_t i = 0; i < array.count(); ++i) copy.set(i, moved(array.get(i)));
              array = copy;
            }
          return reference_run(adjoint.cell(), run, moved);
        },
        sum_plainly);
    for (std::size_t a = 0; a < most.size(); ++a)
      for (std::int64_t i = 0; i < most[a].second.count(); ++i) {
        const double apart = std::fabs(other[a].second.get(i) - plain[a].second.get(i));
        if (!(apart <= most[a].second.get(i))) most[a].second.set(i, std::isnan(apart) ? INFINITY : apart);
      }
  }
  return most;
}

double times_allowed(const NamedArrays& got, const NamedArrays& want, double tolerance, const NamedArrays& spread) {
  double worst = 0;
  for (std::size_t a = 0; a < want.size(); ++a) {
    const Array &g = got.at(a).second, &w = want[a].second;
    if (got[a].first != want[a].first || g.shape() != w.shape()) return std::nan("");
    double largest = 0;
    for (std::int64_t i = 0; i < w.count(); ++i)
      if (std::isfinite(w.get(i))) largest = std::max(largest, std::fabs(w.get(i)));
    for (std::int64_t i = 0; i < w.count(); ++i) {
      const double x = g.get(i), y = w.get(i);
      if ((std::isnan(x) && std::isnan(y)) || x == y) continue;
      const double moved = spread.empty() ? 0 : spread.at(a).second.get(i);
      const double error = std::fabs(x - y) / (tolerance * (std::fabs(y) + largest) + 4 * moved);
      if (!(error <= worst)) worst = error;
      if (std::isnan(error)) return error;
    }
  }
  return worst;
}

double largest_error(const NamedArrays& got, const NamedArrays& want) { return times_allowed(got, want, 1, {}); }

}  // namespace cellc
