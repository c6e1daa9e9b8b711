#pragma once
// A kernel of cellc.h, and what Python asks of it again and again.
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "arrays.h"
#include "capi/cellc.h"

namespace cellc::python {

/// Which of a call's arrays a name may stand for: what a run reads, the rows that it writes, its finals.
enum class Group { Read, Rows, Finals };

/// An array of a call in some direction.
struct ArrayInfo {
  cellc_direction direction;
  int number;
  std::string owner;
  std::string key;  ///< of Python: "h" for a start; a final is under the key of the start that resumes from it
  cellc_role role;
  cellc_quantity quantity;
  cellc_layout layout;
  int dtype;
  bool written, required, declared;  ///< declared: where it is not given, the cell says what it is
  std::vector<int> axes;             ///< numbers of axes

  Group group() const;
  std::string label() const;  ///< in messages: "argument 'x'", "cotangent 'h'"
};

struct AxisInfo {
  std::string name;
  std::int64_t length;  ///< -1: open
};

struct KernelOptions {
  std::string cell, device, cpu, solver, products, cache;  ///< empty: not given
  int dtype = CELLC_F32, threads = 0, max_iterations = 0;
  std::optional<double> tolerance;
  bool repair = true, deterministic = false;
};

class Recipes;

class Kernel {
 public:
  /// Of a text, or of the file at that path.
  Kernel(const std::string& source, bool is_file, const KernelOptions& options);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel();

  cellc_kernel* handle() const { return handle_; }
  const std::vector<ArrayInfo>& arrays(cellc_direction direction = CELLC_FORWARD) const { return arrays_[direction]; }
  const std::vector<AxisInfo>& axes() const { return axes_; }
  int dtype() const { return dtype_; }
  bool on_gpu() const { return on_gpu_; }
  int gpu() const { return gpu_; }
  /// Null: there is none of that name.
  const ArrayInfo* find(cellc_direction direction, cellc_quantity quantity, Group group, std::string_view key) const;
  std::string inspect(bool json) const;
  const Recipes& recipes() const { return *recipes_; }

  /// A prepared call of that shape, forward or backward, which costs 0.1 µs (0.3) where cellc_forward costs 40, and
  /// runs step by step on the calling thread: for shapes so small that nothing else would be faster. Null where the
  /// shape is none of them, the solver is one that was asked for, or the kernel has no such backward calls. The last
  /// few shapes are kept. Needs the GIL.
  std::shared_ptr<cellc_call> prepared(cellc_direction direction, const cellc_shape& shape) const;

 private:
  struct Prepared {
    std::vector<std::int64_t> key;
    std::shared_ptr<cellc_call> call;
  };

  bool is_small(cellc_direction direction, const cellc_shape& shape) const;
  void describe();
  void describe(cellc_direction direction);

  cellc_kernel* handle_ = nullptr;
  int dtype_ = CELLC_F32;
  bool on_gpu_ = false;
  int gpu_ = 0;
  std::vector<ArrayInfo> arrays_[3];  ///< by direction
  std::unordered_map<std::string, int> numbers_[3];
  std::vector<AxisInfo> axes_;
  std::unique_ptr<Recipes> recipes_;
  bool steps_suffice_ = false;               ///< the solver may go step by step
  mutable std::list<Prepared> prepared_[2];  ///< forward and backward, the latest first
};

}  // namespace cellc::python
