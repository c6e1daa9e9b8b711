#include "runtime/evaluate/row_difference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/data/threads.h"

namespace cellc {

namespace {

template <typename Number>
bool is_number(Number size) {
  return size <= std::numeric_limits<Number>::max();
}

/// The largest |entry| of each lane, with one row more.
template <typename Number>
void grow(const Number* row, std::int64_t entries, Number* sizes) {
  for (std::int64_t e = 0; e < entries; ++e) {
    const Number here = std::fabs(row[e]);
    sizes[e] = (here > sizes[e]) & is_number(here) ? here : sizes[e];
  }
}

/// What is further than `far`, and all that is no number. In double, where what is made of an f32 neither vanishes nor
/// is beyond the largest number; as two products, since of f64 the sum of both sizes may be.
template <typename Number>
bool is_beyond(Number from, Number to, Number size, double far) {
  const Number here = std::fabs(to);
  const double apart = std::fabs(static_cast<double>(from) - static_cast<double>(to));
  return !(apart <= far * static_cast<double>(here) + far * static_cast<double>(size)) | !is_number(here);
}

/// Looks at a row for what is further than `far`, and lets far_of(entry) say how far. Few rows have such an entry, so
/// all are looked at without a branch, in vectors, and by products, which are cheaper than quotients.
template <typename Number, typename FarOf>
void raise(const Number* from, const Number* to, std::int64_t entries, const Number* sizes, double& far,
           FarOf&& far_of) {
  // A little less: a quotient may round to more than the product does.
  const double near = std::min(far, std::numeric_limits<double>::max()) * (1 - 1e-15);
  int any = 0;
  for (std::int64_t e = 0; e < entries; ++e) any |= is_beyond(from[e], to[e], sizes[e], near);
  if (any == 0) return;
  for (std::int64_t e = 0; e < entries; ++e)
    if (is_beyond(from[e], to[e], sizes[e], near)) far = std::max(far, far_of(e));
}

/// The largest change of an entry over the largest of its rows.
template <typename Number>
double change_of(const Array& a, const Array& b, std::int64_t begin, std::int64_t end) {
  const std::int64_t entries = a.count() / a.shape()[0];
  const Number *x = static_cast<const Number*>(a.data()), *y = static_cast<const Number*>(b.data());
  std::vector<Number> sizes(static_cast<std::size_t>(entries), Number{0});
  for (std::int64_t r = begin; r < end; ++r) grow(y + r * entries, entries, sizes.data());
  double most = 0;
  for (std::int64_t r = begin; r < end; ++r) {
    const Number *const from = x + r * entries, *const to = y + r * entries;
    raise(from, to, entries, sizes.data(), most, [&](std::int64_t e) {
      return relative_difference(from[e], to[e], static_cast<double>(sizes[static_cast<std::size_t>(e)]));
    });
  }
  return most;
}

/// Entries of a state that one thread looks at together: a few lines of a cache from each row, in parts that do not
/// depend on the number of threads.
constexpr std::int64_t kEntriesOfPart = 256;

/// Some entries of a sequence's rows [begin, end).
struct Part {
  std::int64_t sequence, begin, end, entry, entries;
};

struct Furthest {
  double far = 0;
  std::int64_t step = -1;  ///< the first that is beyond the tolerance, in the order of the run; -1: none
};

/// The entries of a part, row by row in the order of the run: what was made from what was written, over |written| and
/// the largest |written| so far. The first rows of a sequence may be over the largest of them.
template <typename Number>
class PartCheck {
 public:
  PartCheck(const Array& written, const Array& made, const Part& part, const Allowed& allowed, bool reverse)
      : written_(static_cast<const Number*>(written.data()) + part.entry),
        made_(static_cast<const Number*>(made.data()) + part.entry),
        stride_(written.count() / written.shape()[0]),
        part_(part),
        allowed_(allowed),
        reverse_(reverse) {}

  /// `sizes`: of the part's entries, in rows before; grow by these rows.
  Furthest operator()(double* sizes) {
    sizes_.resize(static_cast<std::size_t>(part_.entries));
    for (std::int64_t e = 0; e < part_.entries; ++e)
      sizes_[static_cast<std::size_t>(e)] = static_cast<Number>(sizes[e]);
    Furthest result;
    for (std::int64_t step = 0; step < part_.end - part_.begin; ++step) {
      const Number *const to = written_ + row(step), *const from = made_ + row(step);
      grow(to, part_.entries, sizes_.data());
      raise(from, to, part_.entries, sizes_.data(), result.far,
            [&](std::int64_t e) { return residual(from[e], to[e], step, e); });
      if (!(result.far <= allowed_.tolerance) && result.step < 0) result.step = step;
    }
    for (std::int64_t e = 0; e < part_.entries; ++e)
      sizes[e] = static_cast<double>(sizes_[static_cast<std::size_t>(e)]);
    return result;
  }

 private:
  std::int64_t row(std::int64_t step) const { return (reverse_ ? part_.end - 1 - step : part_.begin + step) * stride_; }

  double residual(Number from, Number to, std::int64_t step, std::int64_t entry) {
    Number& size = sizes_[static_cast<std::size_t>(entry)];
    const double far = relative_difference(from, to, static_cast<double>(size), allowed_.absolute);
    if (far <= allowed_.tolerance || step >= kBeginning) return far;
    // A sequence that begins with numbers that nearly cancel has rows of its size soon.
    if (soon_.empty()) {
      soon_.assign(static_cast<std::size_t>(part_.entries), Number{0});
      for (std::int64_t i = 0; i < std::min(part_.end - part_.begin, kBeginning); ++i)
        grow(written_ + row(i), part_.entries, soon_.data());
    }
    size = std::max(size, soon_[static_cast<std::size_t>(entry)]);
    return relative_difference(from, to, static_cast<double>(size), allowed_.absolute);
  }

  const Number *written_, *made_;
  const std::int64_t stride_;
  const Part& part_;
  const Allowed& allowed_;
  const bool reverse_;
  std::vector<Number> sizes_, soon_;
};

}  // namespace

void merge(std::vector<Unconverged>& all, const Unconverged& one) {
  const auto it = std::lower_bound(all.begin(), all.end(), one,
                                   [](const Unconverged& a, const Unconverged& b) { return a.sequence < b.sequence; });
  if (it == all.end() || it->sequence != one.sequence) {
    all.insert(it, one);
    return;
  }
  it->first_bad_step = std::min(it->first_bad_step, one.first_bad_step);
  it->residual = std::max(it->residual, one.residual);
}

double check_steps(const Array& written, const Array& made, const std::vector<std::int64_t>& offsets,
                   const Allowed& allowed, bool reverse, std::vector<Unconverged>& unconverged, int threads,
                   std::vector<double>* sizes) {
  const std::int64_t entries = written.shape()[0] > 0 ? written.count() / written.shape()[0] : 0;
  std::vector<Part> parts;
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
    for (std::int64_t e = 0; e < entries && offsets[s] < offsets[s + 1]; e += kEntriesOfPart)
      parts.push_back(
          {static_cast<std::int64_t>(s), offsets[s], offsets[s + 1], e, std::min(entries - e, kEntriesOfPart)});
  std::vector<Furthest> found(parts.size());
  std::atomic<std::size_t> next{0};
  const auto take = [&](int) {
    std::vector<double> none;
    for (std::size_t p; (p = next++) < parts.size();) {
      const Part& part = parts[p];
      if (!sizes) none.assign(static_cast<std::size_t>(part.entries), 0);
      double* const before = sizes ? sizes->data() + part.sequence * entries + part.entry : none.data();
      found[p] = written.dtype() == Dtype::F64 ? PartCheck<double>(written, made, part, allowed, reverse)(before)
                                               : PartCheck<float>(written, made, part, allowed, reverse)(before);
    }
  };
  constexpr std::int64_t kEntriesOfThread = 1 << 16;  // below which starting one takes longer
  const std::int64_t useful =
      std::min<std::int64_t>(written.count() / kEntriesOfThread, static_cast<std::int64_t>(parts.size()));
  run_on_threads(static_cast<int>(std::clamp<std::int64_t>(useful, 1, threads)), take);
  double most = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    most = std::max(most, found[p].far);
    if (found[p].step >= 0) merge(unconverged, {parts[p].sequence, found[p].step, found[p].far});
  }
  return most;
}

std::vector<double> lane_sizes(const Array& rows, const std::vector<std::int64_t>& offsets) {
  const std::int64_t count = rows.shape()[0] > 0 ? rows.count() / rows.shape()[0] : 0;
  std::vector<double> sizes((offsets.size() - 1) * static_cast<std::size_t>(count), 0);
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
    for (std::int64_t i = offsets[s] * count; i < offsets[s + 1] * count; ++i) {
      double& size = sizes[s * static_cast<std::size_t>(count) + static_cast<std::size_t>(i % count)];
      if (const double value = std::abs(rows.get(i)); std::isfinite(value)) size = std::max(size, value);
    }
  return sizes;
}

double largest_change(const Array& a, const Array& b, int threads) {
  // Of parts that do not depend on the number of threads, and so is what follows from it.
  constexpr std::int64_t kRows = 1024;
  const std::int64_t rows = a.shape()[0], parts = (rows + kRows - 1) / kRows;
  std::vector<double> each(static_cast<std::size_t>(threads), 0);
  run_on_threads(threads, [&](int t) {
    double& most = each[static_cast<std::size_t>(t)];
    for (std::int64_t p = parts * t / threads; p < parts * (t + 1) / threads; ++p)
      most =
          std::max(most, a.dtype() == Dtype::F64 ? change_of<double>(a, b, p * kRows, std::min(rows, (p + 1) * kRows))
                                                 : change_of<float>(a, b, p * kRows, std::min(rows, (p + 1) * kRows)));
  });
  return *std::max_element(each.begin(), each.end());
}

}  // namespace cellc
