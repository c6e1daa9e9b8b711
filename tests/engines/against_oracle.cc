#include "tests/engines/against_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/oracle/printed_jacobian.h"

namespace cellc {
namespace {

void round_to(Dtype dtype, std::vector<double>& values) {
  if (values.empty()) return;
  Array array(dtype, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) {
    array.set(static_cast<std::int64_t>(i), values[i]);
    values[i] = array.get(static_cast<std::int64_t>(i));
  }
}

std::vector<double> part(const std::vector<double>& values, std::int64_t from, std::int64_t count) {
  return {values.begin() + from, values.begin() + from + count};
}

/// Steps in opposite order.
std::vector<double> backwards(const std::vector<double>& values, std::int64_t steps) {
  std::vector<double> result;
  const std::int64_t n = steps ? static_cast<std::int64_t>(values.size()) / steps : 0;
  for (std::int64_t t = steps; t-- > 0;)
    result.insert(result.end(), values.begin() + t * n, values.begin() + (t + 1) * n);
  return result;
}

}  // namespace

Trial::Trial(const CellGraph& graph, const oracle::Cell& cell, const oracle::Ranges& ranges, oracle::Random& random,
             const Options& options)
    : graph_(graph), cell_(cell), options_(options) {
  const Dtype arithmetic = arithmetic_of(options.dtype);
  for (int i = 0; i < options.sequences; ++i) {
    Sequence s;
    s.data = oracle::draw_data(cell, options.sizes, options.steps, ranges, random, options.starts_given);
    if (i > 0) s.data.params = sequences_[0].data.params;
    if (options.starts_given)
      for (const auto& [name, depth] : oracle::history_depths(graph)) {
        const Declaration& d = *cell.find(name);
        s.data.histories[name] = oracle::draw_values(d, depth * cell.count(d, s.data), 1, ranges, random);
      }
    for (auto& [name, values] : s.data.inputs) round_to(options.dtype, values);
    for (auto& [name, values] : s.data.params) round_to(options.dtype, values);
    for (auto& [name, values] : s.data.starts) round_to(arithmetic, values);
    for (auto& [name, values] : s.data.histories)
      round_to(cell.find(name)->kind == SymbolKind::State ? arithmetic : options.dtype, values);
    if (!options.step_by_step) s.truth = oracle::run(cell, s.data);
    sequences_.push_back(std::move(s));
  }
}

GivenArray Trial::gather(const std::string& name, const std::vector<std::int64_t>& lengths, bool packed) const {
  const Declaration& d = *cell_.find(name);
  const std::vector<std::int64_t> tail = cell_.shape(d, sequences_[0].data);
  const std::int64_t n = cell_.count(d, sequences_[0].data);
  std::vector<double> values;
  std::vector<std::int64_t> shape;
  if (packed) {
    shape = {0};
    for (std::int64_t length : lengths) shape[0] += length;
  } else {
    shape = {static_cast<std::int64_t>(lengths.size()), lengths.empty() ? 5 : lengths[0]};
  }
  shape.insert(shape.end(), tail.begin(), tail.end());
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    std::vector<double> prefix = part(sequences_[b].data.inputs.at(name), 0, lengths[b] * n);
    if (options_.reverse) prefix = backwards(prefix, lengths[b]);
    values.insert(values.end(), prefix.begin(), prefix.end());
  }
  Array array(options_.dtype, shape);
  for (std::size_t i = 0; i < values.size(); ++i) array.set(static_cast<std::int64_t>(i), values[i]);
  return {"test", array};
}

BindRequest Trial::request(const std::vector<std::int64_t>& lengths, bool packed, int threads) const {
  BindRequest r;
  r.dtype = options_.dtype;
  r.threads = threads;
  r.reverse = options_.reverse;
  for (const HeaderAxis& axis : cell_.tree().axes) r.dims[axis.name] = cell_.length(axis.name, sequences_[0].data);
  const std::int64_t count = static_cast<std::int64_t>(lengths.size());
  if (packed) {
    Array offsets(Dtype::I64, {count + 1});
    std::int64_t at = 0;
    for (std::int64_t b = 0; b <= count; ++b) {
      static_cast<std::int64_t*>(offsets.data())[b] = at;
      if (b < count) at += lengths[b];
    }
    r.offsets = GivenArray{"offsets", offsets};
  } else {
    r.batch = count;
    r.length = lengths.empty() ? 5 : lengths[0];
  }
  const auto per_sequence = [&](const std::string& name, std::vector<std::int64_t> shape,
                                std::map<std::string, std::vector<double>> oracle::Data::*member, Dtype dtype) {
    shape.insert(shape.begin(), count);
    Array array(dtype, shape);
    std::int64_t at = 0;
    for (std::int64_t b = 0; b < count; ++b)
      for (double v : (sequences_[b].data.*member).at(name)) array.set(at++, v);
    return GivenArray{"test", array};
  };
  const Dtype arithmetic = arithmetic_of(options_.dtype);
  const oracle::Data& first = sequences_[0].data;
  for (const auto& [name, values] : first.inputs) r.inputs[name] = gather(name, lengths, packed);
  for (const auto& [name, values] : first.params) {
    Array array(options_.dtype, cell_.shape(*cell_.find(name), first));
    for (std::size_t i = 0; i < values.size(); ++i) array.set(static_cast<std::int64_t>(i), values[i]);
    r.params[name] = {"test", array};
  }
  for (const auto& [name, values] : first.starts)
    r.states[name] = per_sequence(name, cell_.shape(*cell_.find(name), first), &oracle::Data::starts, arithmetic);
  for (const auto& [name, values] : first.histories) {
    const Declaration& d = *cell_.find(name);
    const bool state = d.kind == SymbolKind::State;
    std::vector<std::int64_t> shape = cell_.shape(d, first);
    const std::int64_t n = cell_.count(d, first);
    shape.insert(shape.begin(), static_cast<std::int64_t>(values.size()) / n);
    (state ? r.states : r.inputs)[name + ".lag"] =
        per_sequence(name, shape, &oracle::Data::histories, state ? arithmetic : options_.dtype);
  }
  return r;
}

bool Trial::close(double got, double want, bool rounded) const {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  const double size = 1 + std::fabs(want), error = std::fabs(got - want);
  switch (options_.dtype) {
    case Dtype::F64:
      return error <= options_.f64_tolerance * size;
    case Dtype::F32:
      return error <= 1e-5 * size;
    default:
      break;
  }
  // What was carried errs as f32 does. A row is that, rounded once: by at most half the spacing of 16-bit
  // numbers there, which is the unit roundoff (2^-11 of f16, 2^-8 of bf16) of the power of two below.
  const double carried = options_.narrow_tolerance * size;
  if (!rounded) return error <= carried;
  const bool half = options_.dtype == Dtype::F16;
  const int exponent = std::max(std::ilogb(std::fabs(want) + carried), half ? -14 : -126);
  return error <= carried + std::ldexp(1.0, exponent - (half ? 11 : 8));
}

std::string Trial::check(const std::string& what, std::size_t sequence, std::int64_t step, const Array& got,
                         std::int64_t row, const std::vector<double>& want, bool rounded) const {
  const std::int64_t n = static_cast<std::int64_t>(want.size());
  if (got.count() < (row + 1) * n)
    return fmt::format("{} has {} numbers, row {} of {} is missing", what, got.count(), row, n);
  compared_ += n;
  for (std::int64_t i = 0; i < n; ++i) {
    const double have = got.get(row * n + i);
    if (!close(have, want[i], rounded))
      return fmt::format("{}, sequence {}, step {}, entry {}: {:.17g}, the oracle says {:.17g}", what, sequence, step,
                         i, have, want[i]);
  }
  return {};
}

std::vector<double> Trial::state_at(const Sequence& s, int update, std::int64_t step) const {
  const oracle::Source source = oracle::source_of(graph_, update);
  const std::int64_t at = step - source.second;  // a lagged copy holds what the state was so long ago
  const std::int64_t n = cell_.count(*cell_.find(source.first), s.data);
  if (at >= 0) return part(s.truth.states.at(source.first), at * n, n);
  const auto history = s.data.histories.find(source.first);
  if (at < -1 && history != s.data.histories.end()) return part(history->second, (-2 - at) * n, n);
  return oracle::initial_value(cell_, s.data, source.first);
}

std::string Trial::compare(const BoundRun& run, const RunOutput& output,
                           const std::vector<std::int64_t>& lengths) const {
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const Sequence& s = sequences_[b];
    for (int u = 0; u < static_cast<int>(graph_.updates.size()); ++u) {
      const std::string name = graph_.symbol_of(graph_.updates[u]).name;
      for (std::int64_t t = 0; t < lengths[b]; ++t) {
        const std::int64_t row = run.offsets[b] + (options_.reverse ? lengths[b] - 1 - t : t);
        if (std::string wrong = check(name, b, t, output.states[u], row, state_at(s, u, t), true); !wrong.empty())
          return wrong;
      }
      if (std::string wrong = check(name + ".final", b, lengths[b], output.finals[u], static_cast<std::int64_t>(b),
                                    state_at(s, u, lengths[b] - 1), false);
          !wrong.empty())
        return wrong;
    }
    for (std::size_t o = 0; o < graph_.outs.size(); ++o) {
      const std::vector<double>* truth = lengths[b] ? &s.truth.outs.at(graph_.outs[o].name) : nullptr;
      for (std::int64_t t = 0; t < lengths[b]; ++t) {
        const std::int64_t n = static_cast<std::int64_t>(truth->size()) / options_.steps;
        const std::int64_t row = run.offsets[b] + (options_.reverse ? lengths[b] - 1 - t : t);
        if (std::string wrong = check(graph_.outs[o].name, b, t, output.outs[o], row, part(*truth, t * n, n), true);
            !wrong.empty())
          return wrong;
      }
    }
  }
  return {};
}

bool Trial::at_jump(const oracle::Data& data, const oracle::Trajectory& exact) const {
  oracle::Random random(1);
  const auto jumps = [&](const std::map<std::string, std::vector<double>>& a,
                         const std::map<std::string, std::vector<double>>& b) {
    for (const auto& [name, values] : a)
      for (std::size_t i = 0; i < values.size(); ++i)
        if (!(std::fabs(values[i] - b.at(name)[i]) <= 1e-9 * (1 + std::fabs(values[i])))) return true;
    return false;
  };
  for (int i = 0; i < 12; ++i) {
    oracle::Data near = data;
    for (auto* group : {&near.inputs, &near.params, &near.starts, &near.histories})
      for (auto& [name, values] : *group)
        for (double& v : values) v += 1e-13 * random.uniform(-1, 1) * (1 + std::fabs(v));
    const oracle::Trajectory moved = oracle::run(cell_, near);
    if (jumps(exact.states, moved.states) || jumps(exact.outs, moved.outs)) return true;
  }
  return false;
}

// Each step from what was written one step before: the errors of earlier steps do not count.
std::string Trial::compare_steps(const BoundRun& run, const RunOutput& output,
                                 const std::vector<std::int64_t>& lengths) const {
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    const Sequence& s = sequences_[b];
    for (std::int64_t t = 0; t < lengths[b]; ++t) {
      oracle::Data data = s.data;
      data.steps = 1;
      for (auto& [name, values] : data.inputs) {
        const std::int64_t n = cell_.count(*cell_.find(name), data);
        values = part(s.data.inputs.at(name), t * n, n);
      }
      for (const auto& [name, depth] : oracle::history_depths(graph_)) {
        const Declaration& d = *cell_.find(name);
        if (d.kind == SymbolKind::State) continue;  // below, as states
        const std::int64_t n = cell_.count(d, data);
        std::vector<double> before;
        for (std::int64_t j = 1; j <= depth; ++j) {
          std::vector<double> row(n, 0.0);
          const auto given = s.data.histories.find(name);
          if (t - j >= 0)
            row = part(s.data.inputs.at(name), (t - j) * n, n);
          else if (given != s.data.histories.end())
            row = part(given->second, (j - t - 1) * n, n);
          before.insert(before.end(), row.begin(), row.end());
        }
        data.histories[name] = before;
      }
      if (t > 0)
        for (int u = 0; u < static_cast<int>(graph_.updates.size()); ++u) {
          const oracle::Source source = oracle::source_of(graph_, u);
          const std::int64_t n = cell_.count(*cell_.find(source.first), data);
          std::vector<double> written(n);
          const std::int64_t row = run.offsets[b] + (options_.reverse ? lengths[b] - t : t - 1);
          for (std::int64_t i = 0; i < n; ++i) written[i] = output.states[u].get(row * n + i);
          if (source.second == 0) {
            data.starts[source.first] = written;
          } else {
            std::vector<double>& history = data.histories[source.first];
            history.resize(std::max<std::size_t>(history.size(), source.second * n));
            std::copy(written.begin(), written.end(), history.begin() + (source.second - 1) * n);
          }
        }
      const oracle::Trajectory one = oracle::run(cell_, data);
      const std::int64_t row = run.offsets[b] + (options_.reverse ? lengths[b] - 1 - t : t);
      for (int u = 0; u < static_cast<int>(graph_.updates.size()); ++u) {
        const oracle::Source source = oracle::source_of(graph_, u);
        if (source.second > 0) continue;
        const std::vector<double>& want = one.states.at(source.first);
        std::string wrong = check(source.first, b, t, output.states[u], row, want, true);
        if (wrong.empty() && t + 1 == lengths[b])
          wrong = check(source.first + ".final", b, t, output.finals[u], static_cast<std::int64_t>(b), want, false);
        if (!wrong.empty() && options_.skip_jumps && at_jump(data, one)) {
          ++skipped_;
          continue;
        }
        if (!wrong.empty()) return wrong + " (from the step before it)";
      }
      for (std::size_t o = 0; o < graph_.outs.size(); ++o)
        if (std::string wrong =
                check(graph_.outs[o].name, b, t, output.outs[o], row, one.outs.at(graph_.outs[o].name), true);
            !wrong.empty()) {
          if (!options_.skip_jumps || !at_jump(data, one)) return wrong + " (from the step before it)";
          ++skipped_;
        }
    }
  }
  return {};
}

Binding Trial::bound(const std::vector<std::int64_t>& lengths, bool packed, int threads) const {
  return bind(graph_, request(lengths, packed, threads));
}

std::string Trial::verify(const BoundRun& run, const RunOutput& output,
                          const std::vector<std::int64_t>& lengths) const {
  if (output.states.size() != graph_.updates.size() || output.finals.size() != graph_.updates.size() ||
      output.outs.size() != graph_.outs.size())
    return "the run wrote too few arrays";
  return options_.step_by_step ? compare_steps(run, output, lengths) : compare(run, output, lengths);
}

}  // namespace cellc
