#include "tests/engines/known_recurrences.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/data/bind.h"

namespace cellc {

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void gru(const double* h, const double* x, const double* p, double* to) {
  const double z = sigmoid(p[0] * h[0] + x[0]), r = sigmoid(p[1] * h[0] + x[1]);
  to[0] = (1 - z) * h[0] + z * std::tanh(p[2] * (r * h[0]) + x[2]);
}
void elman(const double* h, const double* x, const double* p, double* to) { to[0] = std::tanh(p[0] * h[0] + x[0]); }
void linear(const double* h, const double* x, const double* p, double* to) { to[0] = 0.35 * p[0] * h[0] + x[0]; }
void gated(const double* h, const double* x, const double*, double* to) {
  const double a = sigmoid(x[0]);
  to[0] = a * h[0] + (1 - a) * x[1];
}
void two_wells(const double* h, const double* x, const double*, double* to) {
  to[0] = h[0] + 0.1 * (h[0] - h[0] * h[0] * h[0] + 2 * std::tanh(x[0]));
}
void waves(const double* h, const double* x, const double* p, double* to) {
  to[0] = std::sin(p[0] * h[0] + 0.1 * x[0]);
}
void fire(const double* h, const double* x, const double* p, double* to) {
  to[0] = h[0] > 1 ? h[0] - 1 : 0.3 * p[0] * h[0] + x[0];
}
void clip(const double* h, const double* x, const double* p, double* to) {
  const double y = p[0] * h[0] + x[0], low = y < 1 ? y : 1;
  to[0] = std::isnan(y) ? y : low > -1 ? low : -1;
}
void routes(const double* h, const double* x, const double* p, double* to) {
  const double a = h[0] + p[0], b = h[1] + x[0], c = h[0] - x[1];
  to[0] = std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
  to[1] = std::isnan(c) || std::isnan(h[1]) || std::isnan(x[1]) ? NAN : std::max({c, h[1] - 1, x[1]});
}
void lstm(const double* h, const double* x, const double* p, double* to) {
  const double f = sigmoid(p[0] * h[1] + x[0]);
  to[0] = f * h[0] + (1 - f) * std::tanh(p[1] * h[1] + x[1]);
  to[1] = sigmoid(p[2] * h[1] + x[2]) * std::tanh(to[0]);
}
void turning(const double* h, const double* x, const double* p, double* to) {
  to[0] = std::tanh(p[0] * h[0] - p[1] * h[1] + x[0]);
  to[1] = std::tanh(p[1] * h[0] + p[0] * h[1] + x[1]);
}

/// About which numbers a channel's data lie, and how far.
struct Nature {
  const char* name;
  double weights, inputs, first_lowered;  ///< |p| and |x| at most; by how much the first input is lowered
};
const Nature kNatures[] = {{"forgetful", 1, 1.2, 0},  {"slow", 1, 1.2, 6},        {"slower", 1, 0.3, 12},
                           {"stiff", 3, 2.4, 0},      {"stiff, slow", 3, 2.4, 6}, {"still", 1.5, 0, 0},
                           {"still, stiff", 3, 0, 3}, {"wild", 6, 4, 0},          {"large", 2, 50, 0}};

}  // namespace

const std::vector<KnownRecurrence>& known_recurrences() {
  static const std::vector<KnownRecurrence> all = {{"gru", R"(cell gru[d] {
  state h0[d]
  input x0[d], x1[d], x2[d]
  param p0[d], p1[d], p2[d]
  z = sigmoid(p0*h0 + x0)
  r = sigmoid(p1*h0 + x1)
  h0' = (1 - z)*h0 + z*tanh(p2*(r*h0) + x2)
}
)",
                                                    1, 3, 3, gru, false},
                                                   {"elman", R"(cell elman[d] {
  state h0[d]
  input x0[d]
  param p0[d]
  h0' = tanh(p0*h0 + x0)
}
)",
                                                    1, 1, 1, elman, false},
                                                   {"linear", R"(cell linear[d] {
  state h0[d]
  input x0[d]
  param p0[d]
  h0' = 0.35*p0*h0 + x0
}
)",
                                                    1, 1, 1, linear, true},
                                                   {"gated", R"(cell gated[d] {
  state h0[d]
  input x0[d], x1[d]
  a = sigmoid(x0)
  h0' = a*h0 + (1 - a)*x1
}
)",
                                                    1, 2, 0, gated, true},
                                                   {"two_wells", R"(cell two_wells[d] {
  state h0[d]
  input x0[d]
  h0' = h0 + 0.1*(h0 - h0*h0*h0 + 2*tanh(x0))
}
)",
                                                    1, 1, 0, two_wells, false},
                                                   {"waves", R"(cell waves[d] {
  state h0[d]
  input x0[d]
  param p0[d]
  h0' = sin(p0*h0 + 0.1*x0)
}
)",
                                                    1, 1, 1, waves, false},
                                                   {"fire", R"(cell fire[d] {
  state h0[d]
  input x0[d]
  param p0[d]
  h0' = where(h0 > 1, h0 - 1, 0.3*p0*h0 + x0)
}
)",
                                                    1, 1, 1, fire, false},
                                                   {"clip", R"(cell clip[d] {
  state h0[d]
  input x0[d]
  param p0[d]
  h0' = max(min(p0*h0 + x0, 1), -1)
}
)",
                                                    1, 1, 1, clip, true},
                                                   {"routes", R"(cell routes[d] {
  state h0[d], h1[d]
  input x0[d], x1[d]
  param p0[d]
  h0' = max(h0 + p0, h1 + x0)
  h1' = max(max(h0 - x1, h1 - 1), x1)
}
)",
                                                    2, 2, 1, routes, true},
                                                   {"lstm", R"(cell lstm[d] {
  state h0[d], h1[d]
  input x0[d], x1[d], x2[d]
  param p0[d], p1[d], p2[d]
  f = sigmoid(p0*h1 + x0)
  c = f*h0 + (1 - f)*tanh(p1*h1 + x1)
  h0' = c
  h1' = sigmoid(p2*h1 + x2)*tanh(c)
}
)",
                                                    2, 3, 3, lstm, false},
                                                   {"turning", R"(cell turning[d] {
  state h0[d], h1[d]
  input x0[d], x1[d]
  param p0[d], p1[d]
  h0' = tanh(p0*h0 - p1*h1 + x0)
  h1' = tanh(p1*h0 + p0*h1 + x1)
}
)",
                                                    2, 2, 2, turning, false}};
  return all;
}

std::string KnownShape::text() const {
  return fmt::format("{} channels, lengths {}{}", channels, fmt::join(lengths, ", "), reverse ? ", reversed" : "");
}

KnownShape random_shape(oracle::Random& random, int numbers) {
  KnownShape shape;
  const int widths[] = {1, 3, 16, 32, 37, 64, 128};
  shape.channels = widths[random.below(7)];
  const int sequences = 1 + random.below(random.chance(0.5) ? 1 : 4),
            longest = numbers / static_cast<int>(shape.channels) / sequences;
  for (int s = 0; s < sequences; ++s)
    shape.lengths.push_back(random.chance(0.1) ? random.below(3) : 1 + random.below(longest));
  if (random.chance(0.4)) shape.lengths.assign(shape.lengths.size(), shape.lengths[0]);
  shape.reverse = random.chance(0.2);
  return shape;
}

SolveOptions random_options(oracle::Random& random, const KnownRecurrence& recurrence) {
  SolveOptions options;
  if (random.chance(0.3)) {
    const Strategy cuts[] = {Strategy::Segmented, Strategy::Shooting, Strategy::Segmented, Strategy::Scan};
    options.solver = cuts[random.below(recurrence.along_a_scan ? 4 : 3)];
    if (options.solver != Strategy::Scan && random.chance(0.5)) {
      const bool early = options.solver == Strategy::Segmented;
      options.plan = {
          {options.solver, 1 + random.below(random.chance(0.2) ? 20 : 400), early ? random.below(70) : 0, "test"}};
    }
  }
  options.max_iterations = random.chance(0.5) ? 50 : 1 + random.below(6);
  return options;
}

std::string text(const SolveOptions& options) {
  std::string words = to_string(options.solver);
  if (!options.plan.empty())
    words += fmt::format(" in segments of {} after {}", options.plan[0].segment, options.plan[0].burn_in);
  return words + fmt::format(", {} rounds", options.max_iterations);
}

KnownRun::KnownRun(const KnownRecurrence& recurrence, Dtype dtype, KnownShape shape)
    : recurrence_(recurrence),
      dtype_(dtype),
      shape_(std::move(shape)),
      cell_(analyse_text(SourceText(fmt::format("{}.cell", recurrence.name), recurrence.text))) {
  run_.sizes[cell_.cell.header[0]] = shape_.channels;
  run_.offsets = {0};
  for (const std::int64_t n : shape_.lengths) run_.offsets.push_back(run_.offsets.back() + n);
  run_.reverse = shape_.reverse;
}

std::string KnownRun::draw(oracle::Random& random) {
  const int count = static_cast<int>(std::size(kNatures));
  const std::int64_t d = shape_.channels, rows = run_.offsets.back();
  const int common = random.below(count), other = random.below(count);
  const double apart = random.chance(0.4) ? 0 : random.chance(0.5) ? 0.1 : 0.9;  // so many are of another nature
  std::vector<const Nature*> natures;
  for (std::int64_t c = 0; c < d; ++c) natures.push_back(&kNatures[random.chance(apart) ? other : common]);
  const double centre = random.chance(0.5) ? 0 : random.uniform(-1, 1);
  const auto drawn = [&](std::vector<std::int64_t> extents, auto number) {
    Array a(dtype_, extents);
    for (std::int64_t i = 0; i < a.count(); ++i) a.set(i, number(*natures[static_cast<std::size_t>(i % d)]));
    return a;
  };
  run_.symbols.clear();
  for (int i = 0; i < recurrence_.states; ++i) {
    Array start(arithmetic_of(dtype_), {static_cast<std::int64_t>(shape_.lengths.size()), d});
    for (std::int64_t e = 0; e < start.count(); ++e) start.set(e, random.uniform(-0.5, 0.5));
    run_.symbols.push_back(start);
  }
  for (int i = 0; i < recurrence_.inputs; ++i)
    run_.symbols.push_back(drawn({rows, d}, [&](const Nature& n) {
      return centre * n.inputs + n.inputs * (random.uniform(-1, 1) + random.uniform(-1, 1)) / 2 * 1.4 -
             (i ? 0 : n.first_lowered);
    }));
  for (int i = 0; i < recurrence_.params; ++i)
    run_.symbols.push_back(drawn({d}, [&](const Nature& n) { return n.weights * random.uniform(-1, 1); }));
  std::string words = fmt::format("{}{}", kNatures[common].name,
                                  apart > 0 ? fmt::format(", {:g} of them {}", apart, kNatures[other].name) : "");
  // A few inputs that are no numbers, or beyond all: what they touch follows them, and nothing else does.
  if (rows > 0 && random.chance(0.15)) {
    constexpr double kInfinite = std::numeric_limits<double>::infinity();
    const int many = 1 + random.below(4);
    for (int i = 0; i < many; ++i) {
      const int symbol = recurrence_.states + random.below(recurrence_.inputs);
      run_.symbols[static_cast<std::size_t>(symbol)].set(
          static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(rows * d)),
          random.chance(0.4)   ? std::numeric_limits<double>::quiet_NaN()
          : random.chance(0.5) ? kInfinite
                               : -kInfinite);
    }
    words += fmt::format(", {} inputs not finite", many);
  }
  return words;
}

std::string KnownRun::wrong(const RunOutput& output, double tolerance) const {
  const int n = recurrence_.states;
  const std::int64_t d = shape_.channels;
  const auto symbol = [&](int i) -> const Array& { return run_.symbols[static_cast<std::size_t>(i)]; };
  // What overflows in f32 need not in f64.
  const auto rounded = [&](double x) { return dtype_ == Dtype::F64 ? x : static_cast<double>(static_cast<float>(x)); };
  // Half the spacing of numbers over their size, and that of the smallest.
  const double rounding = dtype_ == Dtype::BF16 ? 0x1.01p-8 : dtype_ == Dtype::F16 ? 0x1.01p-11 : 0;
  const double smallest = rounding > 0 ? 0x1p-25 : 0;
  // From about here on a number may be infinite when it is written.
  const double largest = dtype_ == Dtype::BF16 ? 3.38e38 : dtype_ == Dtype::F16 ? 65e3 : HUGE_VAL;
  const double epsilon = dtype_ == Dtype::F64 ? 1.2e-16 : 6e-8;
  double h[4], x[4], p[4], to[4];
  for (std::size_t s = 0; s + 1 < run_.offsets.size(); ++s)
    for (std::int64_t c = 0; c < d; ++c) {
      for (int i = 0; i < n; ++i) h[i] = symbol(i).get(static_cast<std::int64_t>(s) * d + c);
      for (int i = 0; i < recurrence_.params; ++i) p[i] = symbol(n + recurrence_.inputs + i).get(c);
      bool beyond = false;  // something infinite has been met
      double size[4] = {};  // the largest row so far
      for (std::int64_t t = run_.offsets[s]; t < run_.offsets[s + 1]; ++t) {
        const std::int64_t at = (run_.reverse ? run_.offsets[s] + run_.offsets[s + 1] - 1 - t : t) * d + c;
        // What the step code rounds goes with the size of what it adds. Where it calls tanh in f32 it is off by as much
        // near 0 as elsewhere (docs/notes/math-functions.md).
        double noise = dtype_ == Dtype::F64 || recurrence_.along_a_scan ? 0 : 2.4e-7;
        for (int i = 0; i < recurrence_.inputs; ++i) {
          x[i] = symbol(n + i).get(at);
          noise += std::isfinite(x[i]) ? 2 * epsilon * std::abs(x[i]) : 0;
        }
        for (int i = 0; i < recurrence_.inputs; ++i) beyond = beyond || std::isinf(x[i]);
        for (int i = 0; i < n; ++i) beyond = beyond || std::isinf(h[i]);
        for (int i = 0; i < n; ++i) noise += std::isfinite(h[i]) ? 2 * epsilon * std::abs(h[i]) : 0;
        recurrence_.step(h, x, p, to);
        double spread[4] = {};  // of the new state, over what rounding leaves open of the old one
        for (int j = 0; j < n && rounding > 0 && t > run_.offsets[s]; ++j)
          // Next to it as well: where a jump is there, what follows is found on neither side further away.
          for (const double side : {-1.0, -0x1p-10, 0x1p-10, 1.0}) {
            double near[4], then[4];
            std::copy(h, h + n, near);
            near[j] += side * rounding * std::abs(h[j]);
            recurrence_.step(near, x, p, then);
            // Twice, for a jump between here and there may go further than both ends.
            for (int i = 0; i < n; ++i) spread[i] += 2 * std::abs(then[i] - to[i]);
          }
        for (int i = 0; i < n; ++i) beyond = beyond || std::isinf(rounded(to[i]));
        for (int i = 0; i < n; ++i) {
          h[i] = output.states[static_cast<std::size_t>(i)].get(at);
          const double want = rounded(to[i]);
          const double over = std::max(size[i], std::abs(want)) + std::abs(want);
          if (std::isfinite(h[i])) size[i] = std::max(size[i], std::abs(h[i]));
          if (h[i] == want || (std::isnan(h[i]) && std::isnan(want))) continue;
          if (std::isinf(h[i]) && std::abs(want) > largest && std::signbit(h[i]) == std::signbit(want)) continue;
          if (std::abs(h[i] - want) <= tolerance * over + noise + spread[i] + rounding * std::abs(want) + smallest &&
              std::isfinite(want))
            continue;
          // Composed maps make NaN of what is infinite: 0 times it.
          if (beyond && !std::isfinite(h[i]) && (recurrence_.along_a_scan || !std::isfinite(want))) continue;
          return fmt::format(
              "h{} of sequence {}, channel {}, step {} is {:.9g}, a step from the row before it {:.9g}: {:.2e} off", i,
              s, c, t - run_.offsets[s], h[i], want, std::abs(h[i] - want) / over);
        }
      }
      for (int i = 0; i < n; ++i) {
        const double final = output.finals[static_cast<std::size_t>(i)].get(static_cast<std::int64_t>(s) * d + c);
        if (final == h[i] || (std::isnan(final) && std::isnan(h[i]))) continue;
        if (std::isinf(h[i]) && std::abs(final) > largest && std::signbit(h[i]) == std::signbit(final)) continue;
        if (!(std::abs(final - h[i]) <= smallest + rounding * std::abs(final)))
          return fmt::format("h{} of sequence {}, channel {} ends at {:.9g}, its final is {:.9g}", i, s, c, h[i],
                             final);
      }
    }
  return {};
}

}  // namespace cellc
