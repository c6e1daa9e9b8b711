#include "tests/engines/promises.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <optional>

#include "compiler/graph/delay_lines.h"
#include "compiler/plan/call_layout.h"

namespace cellc {
namespace {

/// Outs are promised nothing of their own. They belong to rows that are within the tolerance, so that one which misses
/// by so many tolerances was made of something else. Unless it amplifies: of a row and of what the sequential kernel
/// makes in its place spike(h') may be 0 and 1. Then it is held to the rows as they were written.
constexpr double kOutSlack = 1e4;

double normal(oracle::Random& random) {
  const double u = random.uniform(0, 1);
  return std::sqrt(-2 * std::log(u > 0 ? u : 0.5)) * std::cos(2 * std::numbers::pi * random.uniform(0, 1));
}

const char* pick(oracle::Random& random, const std::vector<const char*>& of) {
  return of[static_cast<std::size_t>(random.below(static_cast<int>(of.size())))];
}

}  // namespace

std::string promise_cell(std::uint64_t seed) {
  oracle::Random random(seed ^ 0x9e1d);
  const bool wide = random.chance(0.4);  // a second axis, which outs sum over
  const std::string axes = wide ? "[d,n]" : "[d]";
  const int states = 1 + random.below(3);
  std::string declared, lines;
  for (int i = 0; i < states; ++i) {
    declared += fmt::format("{}s{}{}", i ? ", " : "", i, axes);
    const std::string s = fmt::format("s{}", i), u = fmt::format("u{}", i), p = fmt::format("p{}", i);
    // What the others feed into it.
    std::string fed = u;
    if (random.chance(0.3)) fed += fmt::format(" - 0.3*lag({}, {})", u, 1 + random.below(2));
    if (i > 0) {
      const std::string from = fmt::format("s{}", random.below(i));
      const std::string read = pick(random, {"FROM'", "FROM", "lag(FROM, 1)", "tanh(FROM')", "sin(20*FROM')"});
      fed += " + 0.4*" + std::string(read).replace(read.find("FROM"), 4, from);
    }
    std::string value = pick(
        random, {"sigmoid(P)*S + FED", "0.95*S + FED", "tanh(P*S + FED)", "S - 0.1*S^3 + 0.2*tanh(FED)",
                 "clip(0.9*S + FED, -1, 1)", "relu(0.8*S + FED)", "(0.5*S + abs(FED))/(1 + 0.2*abs(S))",
                 "where(FED > 0, 0.7, 0.3)*S + U", "0.6*S + 0.3*lag(S, 1) + 0.2*FED", "tanh(0.5*lag(S, 2) + FED)"});
    for (const auto& [mark, text] :
         {std::pair<std::string, std::string>{"FED", "(" + fed + ")"}, {"P", p}, {"S", s}, {"U", u}})
      for (std::size_t at = 0; (at = value.find(mark, at)) != std::string::npos; at += text.size())
        value.replace(at, mark.size(), text);
    lines += fmt::format("  {}' = {}\n", s, value);
  }
  std::string inputs, params;
  for (int i = 0; i < states; ++i) {
    inputs += fmt::format("{}u{}{}", i ? ", " : "", i, axes);
    params += fmt::format("{}p{}{}", i ? ", " : "", i, axes);
  }
  if (wide) {
    inputs += ", C[n]";
    lines += fmt::format("  out y = s{}'@C\n", random.below(states));
  } else if (random.chance(0.3)) {
    lines += fmt::format("  out y = tanh(s{}')\n", random.below(states));
  }
  return fmt::format("cell promised{} {{\n  state {}\n  input {}\n  param {}\n{}}}\n", wide ? "[d, n]" : "[d]",
                     declared, inputs, params, lines);
}

std::string amplifying_cell(std::uint64_t seed) {
  oracle::Random random(seed ^ 0xa3b1);
  const std::string axes = random.chance(0.4) ? "[d,n]" : "[d]";
  std::vector<const char*> products = {"0.3*a",     "a*b",       "p*b",         "0.4*g",       "sigmoid(a)*g",
                                       "tanh(p)*g", "q*p",       "a^2",         "0.2*g^2",     "(a*b)*p",
                                       "-(a*b)",    "c*tanh(b)", "lag(a, 1)*b", "p*lag(g, 1)", "(0.3*a + b)*0.5"};
  std::vector<const char*> others = {"c", "b", "max[d](c)", "max[d](a + p)", "tanh(c)", "mean[d](c)", "max[d](0.3*a)"};
  std::vector<std::string> terms, shared;
  for (int i = 2 + random.below(3); i > 0; --i) {
    terms.push_back(pick(random, products));
    if (random.chance(0.5)) shared.push_back(terms.back());
  }
  if (random.chance(0.6)) terms.insert(terms.begin() + random.below(2), pick(random, others));
  if (axes != "[d]") terms.push_back("0.1*c");
  std::string sum;
  for (const std::string& term : terms)
    sum = sum.empty() ? term : fmt::format("({}) {} {}", sum, random.chance(0.7) ? "+" : "-", term);
  std::string lines = "  g'" + axes + " = tanh(" + sum + ")\n";
  if (random.chance(0.5)) lines = "  g'" + axes + " = 0.2*(" + sum + ")\n";
  lines += fmt::format("  h'{} = 0.5*h + sin(1000*{})\n", axes,
                       pick(random, {"g'", "(g' - 0.2*g)", "mean[d](g' - mean[d](g'))"}));
  if (!shared.empty() && random.chance(0.5)) lines += "  e'" + axes + " = 0.5*e + tanh(" + shared[0] + ")\n";
  if (!shared.empty()) lines += "  out y" + axes + " = " + shared.back() + "\n";
  const bool more = lines.find("  e'") != std::string::npos;
  return fmt::format("cell amplifying{} {{\n  state g{}, h{}{}\n  input a[d], b[d], c{}\n  param p[d], q[d]\n{}}}\n",
                     axes == "[d]" ? "[d]" : "[d, n]", axes, axes, more ? ", e" + axes : "", axes, lines);
}

namespace {

/// A delay line begins with the start of its state and of the copies that lag behind it, and has no rows of its own.
void begin_lines(const CellGraph& cell, BoundRun& run, std::int64_t sequences) {
  for (const DelayLine& line : delay_lines(cell)) {
    run.symbols[static_cast<std::size_t>(line.symbol)] = {};
    Array& history = run.histories[static_cast<std::size_t>(line.symbol)];
    for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
      const Symbol& symbol = cell.symbols[s];
      if (static_cast<int>(s) != line.state && symbol.lag_of != line.state) continue;
      const std::int64_t depth = history.shape()[1], n = sequences ? run.symbols[s].count() / sequences : 0;
      for (std::int64_t b = 0; b < sequences; ++b)
        for (std::int64_t i = 0; i < n; ++i)
          history.set((b * depth + symbol.lag) * n + i, run.symbols[s].get(b * n + i));
    }
  }
}

}  // namespace

BoundRun promise_run(const CellGraph& cell, Dtype dtype, const PromiseShape& shape, oracle::Random& random) {
  const Graph& graph = cell.graph;
  BoundRun run;
  run.threads = 1;
  run.reverse = shape.reverse;
  run.offsets = {0};
  for (const std::int64_t n : shape.lengths) run.offsets.push_back(run.offsets.back() + n);
  const std::int64_t sequences = static_cast<std::int64_t>(shape.lengths.size());
  for (const AxisId a : cell.header) run.sizes[a] = graph.axis(a).fixed.value_or(shape.axis);
  std::vector<std::int64_t> extents_of_axes;
  for (const AxisId a : cell.header) extents_of_axes.push_back(run.sizes[a]);
  run.histories.resize(cell.symbols.size());
  for (std::size_t s = 0; s < cell.symbols.size(); ++s) {
    const Symbol& symbol = cell.symbols[s];
    std::vector<std::int64_t> dims;
    if (symbol.kind != SymbolKind::Param)
      dims.push_back(symbol.kind == SymbolKind::Input ? run.offsets.back() : sequences);
    for (const AxisId a : symbol.axes) dims.push_back(run.sizes.at(graph.axis(a).extent_of));
    std::optional<Range> range = symbol.range;
    if (const auto at = shape.ranges.find(symbol.name); at != shape.ranges.end()) range = at->second;
    const auto fill = [&](const std::vector<std::int64_t>& extents) {
      Array array(dtype, extents);
      for (std::int64_t i = 0; i < array.count(); ++i) {
        double value = symbol.kind == SymbolKind::Input ? shape.inputs * normal(random) : random.uniform(-1, 1);
        if (range) value = random.uniform(range->low, range->high);
        array.set(i, value);
      }
      return array;
    };
    run.symbols.push_back(fill(dims));
    if (symbol.kind != SymbolKind::Input || symbol.max_lag == 0) continue;
    dims.erase(dims.begin());
    dims.insert(dims.begin(), {sequences, history_depth(reaches(cell, static_cast<int>(s)), extents_of_axes)});
    run.histories[s] = fill(dims);
  }
  begin_lines(cell, run, sequences);
  return run;
}

std::string broken_promise(const StepRecheck& recheck, const BoundRun& run, const RunOutput& output,
                           const SolveReport& report, double tolerance) {
  if (!report.converged || !report.unconverged.empty()) return "reported as not converged";
  if (!(report.max_residual <= tolerance)) return fmt::format("reported a residual of {:.3g}", report.max_residual);
  const StepRecheck::Found found = recheck(run, output, tolerance);
  if (!found.wrong.empty()) return found.wrong;
  if (!(found.promised <= tolerance))
    return fmt::format("{} sequences, the first {}, from step {} on, is off by {:.3g}; {:.3g} was reported",
                       found.beyond.size(), found.beyond[0].sequence, found.beyond[0].first_bad_step, found.promised,
                       report.max_residual);
  if (found.outs <= kOutSlack * tolerance) return {};
  const double outs = recheck.outs_of_rows(run, output);
  if (!(outs <= kOutSlack * tolerance))
    return fmt::format("an out is off by {:.3g} from the rows, by {:.3g} from steps made anew", outs, found.outs);
  return {};
}

const BrokenPromise kLagOfAGuess = {
    "lag_of_a_guess",
    R"(cell follows[d] {
  state h[d] = 1, g[d]
  input x[d], u[d]
  h' = 0.9*h + 0.1 + 0.0001*(x + g)
  g' = where(u > 1, 1000, 0)*(lag(h, 1) - 1)
}
)",
    "a segment's second step reads, through lag(), the h that the segment guessed for its "
    "start; the first step is checked, which here seldom looks at a lag",
    {{1000}, 3}};
const BrokenPromise kSumInAnotherOrder = {"sum_in_another_order",
                                          R"(cell turned[d, k=3] {
  state h[d,k]
  input x[d,k]
  param M[k,k]
  h' = M@h + x
}
)",
                                          "steps and residuals sum in another order than the sequential kernel does, "
                                          "and terms that cancel leave more than the tolerance",
                                          {{4000}, 3, 1000}};
const BrokenPromise kStateIsRounding = {"state_is_rounding",
                                        R"(cell centred[k=7] {
  state h[k]
  input x
  v = x + 0.000001*h
  h' = v - mean[k](v)
}
)",
                                        "the sequential kernel adds up a mean by vectors, lanes term by term, and "
                                        "each is sure of its own",
                                        {{2000}, 3}};
const BrokenPromise kProductReadTwice = {"product_read_twice",
                                         R"(cell amplified[d] {
  state g[d], h[d]
  input a[d] in (0, 0.9), b[d]
  g' = a*g + b
  h' = 0.5*h + sin(1000*g')
  out y = a*g
}
)",
                                         "LLVM fuses a product with a sum only where nobody else reads it: here in "
                                         "lanes, which make no outs, and not in the sequential kernel",
                                         {{300}, 7}};
const BrokenPromise kProductOfFewerAxes = {"product_of_fewer_axes",
                                           R"(cell amplified[d, n] {
  state g[d,n], h[d,n]
  input a[d], b[d], c[d,n]
  g' = 0.5*g + (c + a*b)
  h' = 0.5*h + sin(1000*g')
}
)",
                                           "the sequential kernel makes a product of fewer axes in a nest of its own, "
                                           "lanes make it beside its sum and round once",
                                           {{300}, 7}};
const BrokenPromise kSumByBlas = {"sum_by_blas",
                                  R"(cell cancels[d] {
  state h[d]
  input x[d]
  param W[d,d]
  h' = tanh(sum[j](W[j,d]*(0.1*h[j] + 10*x[j])) - 10*sum[j](W[j,d]*x[j]) + x)
}
)",
                                  "the sequential kernel adds up term by term, as lanes do, but relaxation takes its "
                                  "residuals by a BLAS",
                                  {{300}, 33}};
const BrokenPromise kScanFeedsStage = {
    "scan_feeds_stage",
    R"(cell fed[d] {
  state g[d], h[d]
  input a[d] in (0, 0.9), b[d]
  g' = a*g + b
  h' = 0.9*h + sin(1000*g')
}
)",
    "nobody looks at what a later stage makes of a scan that is within the tolerance",
    {{257}, 32}};

}  // namespace cellc
