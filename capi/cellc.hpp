/* cellc from C++20: cellc.h with owners, spans and exceptions, and nothing to link but the library itself.
 *
 *   cellc::c::Kernel kernel(text);
 *   cellc::c::Call call(kernel, CELLC_FORWARD, kernel.shape({{"d", 64}}, sequences, steps));
 *   call.set("x", std::span(x)).set("h", std::span(h));
 *   call.run();
 *
 * Arrays are named as cellc_call_array_describe names them: "x", "h.start", "cotangent.y". What cellc.h says of threads
 * and of memory holds here; a Call is for one thread at a time. */
#ifndef CELLC_HPP
#define CELLC_HPP

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cellc.h"

namespace cellc::c {

struct Diagnostic {
  int line = 0, column = 0;
  std::size_t offset = 0, length = 0; /* bytes of the text */
  std::string message, note;
};

/* What a call was refused for, or failed of. */
class Error : public std::runtime_error {
 public:
  /* The thread's last error. */
  explicit Error(cellc_status status)
      : std::runtime_error(cellc_last_error()), status(status), kind(cellc_last_error_kind()) {
    cellc_last_error_position(&line, &column);
    for (int i = 0; i < cellc_last_error_diagnostics(); ++i) {
      cellc_diagnostic d{};
      d.size = sizeof d;
      if (cellc_last_error_diagnostic(i, &d) == CELLC_OK)
        diagnostics.push_back({d.line, d.column, d.offset, d.length, d.message, d.note});
    }
  }
  Error(cellc_status status, cellc_error kind, const std::string& text)
      : std::runtime_error(text), status(status), kind(kind) {}

  cellc_status status;
  cellc_error kind;
  int line = 0, column = 0;
  std::vector<Diagnostic> diagnostics; /* of a text, all that is wrong with it */
};

inline void check(cellc_status status) {
  if (status != CELLC_OK) throw Error(status);
}

struct Options : cellc_options {
  Options() { cellc_options_init(this); }
};

struct Report : cellc_report {
  Report() { cellc_report_init(this); }
};

/* Owns what a cellc_shape points at. */
struct Shape {
  std::vector<std::int64_t> lengths; /* of every axis */
  std::int64_t sequences = 1, steps = 1;
  std::vector<std::int64_t> offsets; /* [sequences + 1]; empty: every sequence has `steps` */
  bool reverse = false;

  cellc_shape get() const {
    cellc_shape shape;
    cellc_shape_init(&shape);
    shape.lengths = lengths.data();
    shape.sequences = offsets.empty() ? sequences : static_cast<std::int64_t>(offsets.size()) - 1;
    shape.steps = steps;
    shape.offsets = offsets.empty() ? nullptr : offsets.data();
    shape.reverse = reverse;
    return shape;
  }
};

/* A cell, derived and compiled. Copies are the same kernel, which lives as long as any of them, or a call. */
class Kernel {
 public:
  explicit Kernel(std::string_view text, const cellc_options& options = Options()) {
    cellc_kernel* made = nullptr;
    check(cellc_compile_text(text.data() ? text.data() : "", text.size(), &options, &made));
    handle_.reset(made, cellc_kernel_free);
  }
  static Kernel from_file(const std::string& path, const cellc_options& options = Options()) {
    cellc_kernel* made = nullptr;
    check(cellc_compile_file(path.c_str(), &options, &made));
    Kernel kernel;
    kernel.handle_.reset(made, cellc_kernel_free);
    return kernel;
  }
  cellc_kernel* get() const { return handle_.get(); }

  /* Axes that the cell fixes need not be named. */
  Shape shape(std::initializer_list<std::pair<std::string_view, std::int64_t>> lengths, std::int64_t sequences = 1,
              std::int64_t steps = 1) const {
    Shape shape{{}, sequences, steps, {}, false};
    for (int a = 0; a < cellc_axis_count(get()); ++a) {
      cellc_axis axis{};
      check(cellc_axis_describe(get(), a, &axis));
      for (const auto& [name, length] : lengths)
        if (name == axis.name) axis.length = length;
      if (axis.length < 0)
        throw Error(CELLC_WRONG_USAGE, CELLC_ERROR_REQUEST,
                    std::string("the length of axis ") + axis.name + " is open");
      shape.lengths.push_back(axis.length);
    }
    return shape;
  }

  int array_count(cellc_direction direction) const {
    const int count = cellc_call_array_count(get(), direction);
    if (count < 0) throw Error(CELLC_WRONG_USAGE);
    return count;
  }
  cellc_call_array_info array(cellc_direction direction, int number) const {
    cellc_call_array_info info;
    cellc_call_array_info_init(&info);
    check(cellc_call_array_describe(get(), direction, number, &info));
    return info;
  }
  int find(cellc_direction direction, std::string_view name) const {
    for (int i = 0, count = array_count(direction); i < count; ++i)
      if (array(direction, i).name == name) return i;
    throw Error(CELLC_WRONG_USAGE, CELLC_ERROR_REQUEST, "there is no array " + std::string(name));
  }
  /* Of an array without gaps. */
  std::vector<std::int64_t> lengths(cellc_direction direction, const Shape& shape, int number) const {
    const cellc_shape of = shape.get();
    int rank = 0;
    check(cellc_call_array_shape(get(), direction, &of, number, nullptr, 0, &rank));
    std::vector<std::int64_t> all(static_cast<std::size_t>(rank));
    check(cellc_call_array_shape(get(), direction, &of, number, all.data(), rank, &rank));
    return all;
  }
  /* As cellc_compile_ahead and cellc_kernel_trim. */
  void compile_ahead(const Shape& shape, bool prepared = false) const {
    const cellc_shape of = shape.get();
    check(cellc_compile_ahead(get(), &of, prepared));
  }
  void trim() const { check(cellc_kernel_trim(get())); }
  std::string inspect_json() const {
    const char* text = cellc_inspect_json(get());
    if (!text) throw Error(CELLC_WRONG_USAGE);
    return text;
  }

 private:
  Kernel() = default;
  std::shared_ptr<cellc_kernel> handle_;
};

/* 16-bit types are the caller's own; they are set with a cellc_dtype. */
template <typename T>
inline constexpr cellc_dtype dtype_of = std::is_same_v<std::remove_const_t<T>, double> ? CELLC_F64 : CELLC_F32;
template <typename T>
concept Number = std::is_same_v < std::remove_const_t<T>,
float > || std::is_same_v<std::remove_const_t<T>, double>;

/* The arrays of one call in one direction, by name. What is not set is null. */
class Call {
 public:
  Call(Kernel kernel, cellc_direction direction, Shape shape)
      : kernel_(std::move(kernel)),
        direction_(direction),
        shape_(std::move(shape)),
        views_(static_cast<std::size_t>(kernel_.array_count(direction))),
        places_(views_.size()) {}
  /* Of the same arrays, each with its own strides. */
  Call(const Call& other)
      : kernel_(other.kernel_),
        direction_(other.direction_),
        shape_(other.shape_),
        views_(other.views_),
        places_(other.places_),
        options_(other.options_),
        on_host_(other.on_host_) {
    for (std::size_t i = 0; i < views_.size(); ++i)
      if (views_[i].lengths) point(i);
  }
  Call(Call&&) = default; /* places of vectors stay where they are */
  Call& operator=(Call other) {
    std::swap(kernel_, other.kernel_);
    std::swap(direction_, other.direction_);
    std::swap(shape_, other.shape_);
    std::swap(views_, other.views_);
    std::swap(places_, other.places_);
    std::swap(options_, other.options_);
    std::swap(on_host_, other.on_host_);
    return *this;
  }

  /* An array without gaps, which has at least as many entries as the call needs. */
  template <Number T, std::size_t N>
  Call& set(std::string_view name, std::span<T, N> entries) {
    return set(name, entries.data(), dtype_of<T>, {}, static_cast<std::int64_t>(entries.size()), std::is_const_v<T>);
  }
  /* Strides in entries, of any sign, for every axis; `first` is the entry whose indices are all 0. A param with one
   * stride more, the first, has numbers of its own for each sequence. */
  template <Number T>
  Call& set(std::string_view name, T* first, std::vector<std::int64_t> strides) {
    return set(name, first, dtype_of<T>, std::move(strides), INT64_MAX, std::is_const_v<T>);
  }
  Call& set(std::string_view name, void* first, cellc_dtype dtype, std::vector<std::int64_t> strides = {}) {
    return set(name, first, dtype, std::move(strides), INT64_MAX, false);
  }
  Call& unset(std::string_view name) {
    views_[static_cast<std::size_t>(kernel_.find(direction_, name))] = {};
    return *this;
  }

  const Kernel& kernel() const { return kernel_; }
  const Shape& shape() const { return shape_; }
  std::span<const cellc_view> views() const { return views_; }
  std::vector<std::int64_t> lengths(std::string_view name) const {
    return kernel_.lengths(direction_, shape_, kernel_.find(direction_, name));
  }

  /* How runs of this call go, in the place of what the kernel was compiled with. */
  Call& with(const cellc_call_options& options) {
    options_ = options;
    return *this;
  }
  const cellc_call_options* options() const { return options_ ? &*options_ : nullptr; }
  /* Arrays and statuses are of the host, of a kernel of a GPU, too: copied there and back, and the call waits. */
  Call& on_host(bool are = true) {
    on_host_ = are;
    return *this;
  }
  bool is_on_host() const { return on_host_; }
  /* `forward_status` as in cellc_backward. */
  Report run(std::span<const std::int32_t> forward_status = {}) {
    Report report;
    run(report, forward_status);
    return report;
  }
  /* The same into a report of the caller's, with its arrays by sequence (`status`, `first_bad`). Results and report are
   * also there where this throws CELLC_NOT_CONVERGED of a forward call, as with `fixed_iterations`. */
  void run(Report& report, std::span<const std::int32_t> forward_status = {}) {
    const cellc_shape shape = shape_.get();
    if (!forward_status.empty() && static_cast<std::int64_t>(forward_status.size()) < shape.sequences)
      throw Error(CELLC_WRONG_USAGE, CELLC_ERROR_REQUEST, "the status of the forward run is of fewer sequences");
    cellc_request request = request_of(shape);
    request.forward_status = forward_status.empty() ? nullptr : forward_status.data();
    request.report = &report;
    check(cellc_apply(kernel_.get(), &request));
  }
  /* On arrays of the kernel's GPU: queued on a stream of the caller's, and nobody waits. `status`, of a forward call,
   * and `forward_status`, of the others, are memory of the GPU, or null. A kernel of the CPU takes a null stream, and
   * makes the call at once. */
  void queue(void* stream, std::int32_t* status = nullptr, const std::int32_t* forward_status = nullptr) {
    const cellc_shape shape = shape_.get();
    cellc_request request = request_of(shape);
    request.on_stream = 1;
    request.stream = stream;
    request.status = status;
    request.forward_status = forward_status;
    check(cellc_apply(kernel_.get(), &request));
  }
  /* What such calls need is compiled, and of a GPU allocated (cellc_compile_request). */
  Call& compile() {
    const cellc_shape shape = shape_.get();
    const cellc_request request = request_of(shape);
    check(cellc_compile_request(kernel_.get(), &request));
    return *this;
  }

 private:
  cellc_request request_of(const cellc_shape& shape) const {
    cellc_request request;
    cellc_request_init(&request);
    request.direction = direction_;
    request.shape = &shape;
    request.arrays = views_.data();
    request.count = static_cast<int>(views_.size());
    request.options = options();
    request.on_host = on_host_;
    return request;
  }
  struct Place {
    std::vector<std::int64_t> lengths, strides;
  };

  Call& set(std::string_view name, const void* first, cellc_dtype dtype, std::vector<std::int64_t> strides,
            std::int64_t entries, bool is_const) {
    const auto fail = [&](const std::string& what) {
      throw Error(CELLC_WRONG_INPUT, CELLC_ERROR_ARRAY, "array " + std::string(name) + ": " + what);
    };
    const int number = kernel_.find(direction_, name);
    Place place{kernel_.lengths(direction_, shape_, number), std::move(strides)};
    if (place.strides.size() == place.lengths.size() + 1 && kernel_.array(direction_, number).layout == CELLC_ONCE)
      place.lengths.insert(place.lengths.begin(), shape_.get().sequences);
    std::int64_t needed = 1;
    for (const std::int64_t n : place.lengths) needed *= n;
    if (is_const && kernel_.array(direction_, number).written) fail("is written, and given as const");
    if (entries < needed)
      fail("has " + std::to_string(entries) + " entries; expected " + std::to_string(needed) + " or more");
    if (!place.strides.empty() && place.strides.size() != place.lengths.size())
      fail("has " + std::to_string(place.strides.size()) + " strides; expected " +
           std::to_string(place.lengths.size()));
    const auto i = static_cast<std::size_t>(number);
    places_[i] = std::move(place);
    views_[i] = {const_cast<void*>(first), dtype, static_cast<int>(places_[i].lengths.size()), nullptr, nullptr};
    point(i);
    return *this;
  }
  void point(std::size_t i) {
    views_[i].lengths = places_[i].lengths.empty() ? nullptr : places_[i].lengths.data();
    views_[i].strides = places_[i].strides.empty() ? nullptr : places_[i].strides.data();
  }

  Kernel kernel_;
  cellc_direction direction_;
  Shape shape_;
  std::vector<cellc_view> views_;
  std::vector<Place> places_; /* what the views point at */
  std::optional<cellc_call_options> options_;
  bool on_host_ = false;
};

/* A forward or backward call for one shape, many times: cellc_prepare, cellc_prepare_backward and cellc_run. Any number
 * of threads may run it at once. */
class PreparedCall {
 public:
  PreparedCall(const Kernel& kernel, const Shape& shape, cellc_direction direction = CELLC_FORWARD) {
    if (direction != CELLC_FORWARD && direction != CELLC_BACKWARD)
      throw Error(CELLC_WRONG_USAGE, CELLC_ERROR_REQUEST, "only forward and backward calls are prepared");
    const cellc_shape of = shape.get();
    cellc_call* made = nullptr;
    check((direction == CELLC_FORWARD ? cellc_prepare : cellc_prepare_backward)(kernel.get(), &of, &made));
    handle_.reset(made);
  }
  cellc_call* get() const { return handle_.get(); }
  std::int64_t workspace() const { /* as cellc_call_workspace */
    std::int64_t bytes = 0;
    check(cellc_call_workspace(get(), &bytes));
    return bytes;
  }
  void trim() const { check(cellc_call_trim(get())); }
  /* On the arrays of a call of the same kernel and shape. */
  void run(const Call& arrays) const {
    if (!arrays.is_on_host())
      return check(cellc_run_views(get(), arrays.views().data(), static_cast<int>(arrays.views().size())));
    apply(arrays, nullptr);
  }
  /* The same with the options of that call, and how it went. */
  Report run_reported(const Call& arrays) const {
    Report report;
    run(arrays, report);
    return report;
  }
  /* Into a report of the caller's, as of a Call. */
  void run(const Call& arrays, Report& report) const { apply(arrays, &report); }

 private:
  void apply(const Call& arrays, Report* report) const {
    cellc_request request;
    cellc_request_init(&request);
    request.arrays = arrays.views().data();
    request.count = static_cast<int>(arrays.views().size());
    request.report = report;
    request.options = report ? arrays.options() : nullptr;
    request.on_host = arrays.is_on_host();
    check(cellc_apply_prepared(get(), &request));
  }
  struct Free {
    void operator()(cellc_call* call) const { cellc_call_free(call); }
  };
  std::unique_ptr<cellc_call, Free> handle_;
};

}  // namespace cellc::c
#endif
