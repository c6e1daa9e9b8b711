#pragma once
// A kernel of cellc.h, and what Python asks of it again and again.
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "arrays.h"
#include "capi/cellc.h"

namespace cellc::python {

enum class Role { Input, Param, State, Out, Start, History, Final, FinalHistory };

/// An array of a call.
struct ArrayInfo {
  int number;
  std::string name;  ///< of cellc.h: "h_start"
  std::string key;   ///< of Python: "h" for a start; a final is under the key of the start that resumes from it
  Role role;
  cellc_layout layout;
  int dtype;
  bool written, required;
  std::vector<int> axes;  ///< numbers of axes
};

struct AxisInfo {
  std::string name;
  std::int64_t length;  ///< -1: open
};

struct KernelOptions {
  std::string cell, device, cpu, solver, cache;  ///< empty: not given
  int dtype = CELLC_F32, threads = 0, max_iterations = 0;
  double tolerance = 0;
  bool repair = true;
};

class Kernel {
 public:
  /// Of a text, or of the file at that path.
  Kernel(const std::string& source, bool is_file, const KernelOptions& options);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() { cellc_kernel_free(handle_); }

  cellc_kernel* handle() const { return handle_; }
  const std::vector<ArrayInfo>& arrays() const { return arrays_; }
  const std::vector<AxisInfo>& axes() const { return axes_; }
  int dtype() const { return dtype_; }
  bool on_gpu() const { return on_gpu_; }
  int gpu() const { return gpu_; }
  /// Number of what is given under this key; -1: there is none.
  int find(std::string_view key) const;
  std::string inspect(bool json) const;

  /// A prepared call of that shape, which costs 0.1 µs where cellc_forward costs 40, and runs step by step on the
  /// calling thread: for shapes so small that nothing else would be faster. Null where the shape is none of them, or
  /// the solver is one that was asked for. The last few shapes are kept. Needs the GIL.
  std::shared_ptr<cellc_call> prepared(const cellc_shape& shape) const;

 private:
  struct Prepared {
    std::vector<std::int64_t> key;
    std::shared_ptr<cellc_call> call;
  };

  bool is_small(const cellc_shape& shape) const;
  void describe();

  cellc_kernel* handle_ = nullptr;
  int dtype_ = CELLC_F32;
  bool on_gpu_ = false;
  int gpu_ = 0;
  std::vector<ArrayInfo> arrays_;
  std::vector<AxisInfo> axes_;
  std::unordered_map<std::string, int> given_;
  bool steps_suffice_ = false;            ///< the solver may go step by step
  mutable std::list<Prepared> prepared_;  ///< the latest first
};

}  // namespace cellc::python
