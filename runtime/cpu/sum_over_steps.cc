#include "runtime/cpu/sum_over_steps.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "runtime/cpu/blas.h"
#include "runtime/data/threads.h"
#include "runtime/gradient/sum_axes.h"

namespace cellc {
namespace {

/// Rows that are added up in one go; sums of such parts are added in order.
constexpr std::int64_t kPartRows = 4096;
/// Entries that single precision adds up before f64 takes them.
constexpr std::int64_t kColumnRows = 64;
/// Columns of the left factor that one call of the BLAS takes: work for threads, however few rows there are.
constexpr std::int64_t kTileColumns = 128;

/// Whether the positions lie side by side.
bool is_dense(const std::vector<std::int64_t>& places) {
  for (std::size_t i = 0; i < places.size(); ++i)
    if (places[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

void gemm(blasint m, blasint n, blasint k, const float* a, blasint lda, const float* b, blasint ldb, float* c) {
  blas().sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 1, c, n);
}
void gemm(blasint m, blasint n, blasint k, const double* a, blasint lda, const double* b, blasint ldb, double* c) {
  blas().dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, m, n, k, 1, a, lda, b, ldb, 1, c, n);
}

/// Some columns of an array over steps as a matrix that the BLAS reads: as they lie, or copied.
template <typename T>
struct Columns {
  const T* data;
  std::int64_t stride;
};
template <typename T>
Columns<T> columns(const T* rows, std::int64_t row_entries, std::int64_t count, const std::vector<std::int64_t>& places,
                   std::size_t begin, std::size_t end, std::vector<T>& copy) {
  bool dense = true;
  for (std::size_t i = begin; i < end; ++i) dense = dense && places[i] - places[begin] == std::int64_t(i - begin);
  if (dense) return {rows + places[begin], row_entries};
  const std::size_t width = end - begin;
  copy.resize(static_cast<std::size_t>(count) * width);
  for (std::int64_t r = 0; r < count; ++r)
    for (std::size_t i = 0; i < width; ++i)
      copy[static_cast<std::size_t>(r) * width + i] = rows[r * row_entries + places[begin + i]];
  return {copy.data(), static_cast<std::int64_t>(width)};
}

template <typename T>
class Sum {
 public:
  explicit Sum(const StepSum& sum)
      : sum_(sum),
        axes_(sum_axes(sum)),
        rows_(sum.left.shape().empty() ? 0 : sum.left.shape()[0]),
        left_entries_(rows_ > 0 ? sum.left.count() / rows_ : 0),
        right_entries_(rows_ > 0 && sum.right ? sum.right->count() / rows_ : 0) {}

  void run() {
    if (rows_ == 0 || sum_.into.count() == 0) return;
    if (sum_.right && !axes_.left.empty() && !axes_.right.empty())
      multiply();
    else
      add_columns();
  }

 private:
  const T* left() const { return static_cast<const T*>(sum_.left.data()); }
  const T* right() const { return sum_.right ? static_cast<const T*>(sum_.right->data()) : nullptr; }

  /// A task is a tile of the result; each thread adds up all rows of its tiles.
  void multiply() {
    const std::vector<std::int64_t> m = offsets(axes_.left, &AxisStrides::left),
                                    m_into = offsets(axes_.left, &AxisStrides::into),
                                    n = offsets(axes_.right, &AxisStrides::right),
                                    n_into = offsets(axes_.right, &AxisStrides::into);
    struct Task {
      std::int64_t left, right, into;
      std::size_t begin, end;
    };
    std::vector<Task> tasks;
    each_position(axes_.shared, [&](std::int64_t l, std::int64_t r, std::int64_t into) {
      for (std::size_t begin = 0; begin < m.size(); begin += kTileColumns)
        tasks.push_back({l, r, into, begin, std::min(m.size(), begin + kTileColumns)});
    });
    const BlasCall call;
    on_threads(tasks.size(), [&](std::size_t number) {
      const Task& task = tasks[number];
      std::vector<T> tile((task.end - task.begin) * n.size()), copy_left, copy_right;
      each_position(axes_.summed, [&](std::int64_t l, std::int64_t r, std::int64_t) {
        for (std::int64_t row = 0; row < rows_; row += kPartRows) {
          const std::int64_t count = std::min(kPartRows, rows_ - row);
          const Columns<T> a = columns(left() + row * left_entries_ + task.left + l, left_entries_, count, m,
                                       task.begin, task.end, copy_left);
          const Columns<T> b = columns(right() + row * right_entries_ + task.right + r, right_entries_, count, n, 0,
                                       n.size(), copy_right);
          gemm(static_cast<blasint>(task.end - task.begin), static_cast<blasint>(n.size()), static_cast<blasint>(count),
               a.data, static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), tile.data());
        }
      });
      for (std::size_t i = task.begin; i < task.end; ++i)
        for (std::size_t j = 0; j < n.size(); ++j)
          each_position(axes_.repeated, [&](std::int64_t, std::int64_t, std::int64_t at) {
            put(task.into + m_into[i] + n_into[j] + at, tile[(i - task.begin) * n.size() + j]);
          });
    });
  }

  /// Sums of columns: of one factor, or of two entry by entry. One number a part and column, added up part by part.
  void add_columns() {
    std::vector<AxisStrides> kept = axes_.shared;
    kept.insert(kept.end(), axes_.left.begin(), axes_.left.end());
    kept.insert(kept.end(), axes_.right.begin(), axes_.right.end());
    std::vector<AxisStrides> all = kept;
    all.insert(all.end(), axes_.summed.begin(), axes_.summed.end());
    const std::vector<std::int64_t> l = offsets(all, &AxisStrides::left), r = offsets(all, &AxisStrides::right),
                                    into = offsets(all, &AxisStrides::into);
    const bool dense = is_dense(l) && (!sum_.right || l == r);
    const std::int64_t parts = (rows_ + kPartRows - 1) / kPartRows;
    const std::size_t width = l.size();
    std::vector<double> totals(static_cast<std::size_t>(parts) * width);
    on_threads(static_cast<std::size_t>(parts), [&](std::size_t part) {
      double* total = totals.data() + part * width;
      std::vector<T> some(width);
      const std::int64_t end = std::min(rows_, (std::int64_t(part) + 1) * kPartRows);
      for (std::int64_t row = std::int64_t(part) * kPartRows; row < end; row += kColumnRows) {
        std::fill(some.begin(), some.end(), T(0));
        for (std::int64_t i = row; i < std::min(end, row + kColumnRows); ++i)
          add_row(left() + i * left_entries_, right() ? right() + i * right_entries_ : nullptr, l, r, dense, some);
        for (std::size_t i = 0; i < width; ++i) total[i] += some[i];
      }
    });
    std::vector<double> whole(width);
    for (std::int64_t part = 0; part < parts; ++part)
      for (std::size_t i = 0; i < width; ++i) whole[i] += totals[static_cast<std::size_t>(part) * width + i];
    // Summed axes are the inner ones.
    const std::int64_t inner = count_of(axes_.summed);
    for (std::size_t i = 0; inner > 0 && i < width; i += static_cast<std::size_t>(inner)) {
      double entry = 0;
      for (std::int64_t k = 0; k < inner; ++k) entry += whole[i + static_cast<std::size_t>(k)];
      each_position(axes_.repeated, [&](std::int64_t, std::int64_t, std::int64_t at) { put(into[i] + at, entry); });
    }
  }

  static void add_row(const T* left, const T* right, const std::vector<std::int64_t>& l,
                      const std::vector<std::int64_t>& r, bool dense, std::vector<T>& some) {
    const std::size_t width = some.size();
    if (dense && right) {
      for (std::size_t i = 0; i < width; ++i) some[i] += left[i] * right[i];
    } else if (dense) {
      for (std::size_t i = 0; i < width; ++i) some[i] += left[i];
    } else {
      for (std::size_t i = 0; i < width; ++i) some[i] += right ? left[l[i]] * right[r[i]] : left[l[i]];
    }
  }

  void put(std::int64_t at, double value) {
    T& entry = static_cast<T*>(sum_.into.data())[at];
    entry = static_cast<T>(entry + value);
  }

  void on_threads(std::size_t tasks, const std::function<void(std::size_t)>& work) const {
    std::atomic<std::size_t> next{0};
    const auto count = std::min<std::size_t>(static_cast<std::size_t>(thread_count(sum_.threads)), tasks);
    run_on_threads(static_cast<int>(count), [&](int) {
      for (std::size_t i; (i = next.fetch_add(1)) < tasks;) work(i);
    });
  }

  const StepSum& sum_;
  const SumAxes axes_;
  const std::int64_t rows_, left_entries_, right_entries_;
};

}  // namespace

void sum_over_steps(const StepSum& sum) {
  if (sum.into.dtype() == Dtype::F64)
    Sum<double>(sum).run();
  else
    Sum<float>(sum).run();
}

}  // namespace cellc
