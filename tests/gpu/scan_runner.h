#pragma once
// A cell through scan.cuh, scan_stream.cuh and scan_cluster.cuh on the emulator, compared with a plain loop in f64.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/emulator.h"
#include "tests/gpu/scan_cells.h"

namespace cellc {

/// Rows as they are stored, and how near to the plain loop that lets them be.
struct ScanFormat {
  std::string name = "F32";
  int bytes = 4;
  double rounding = 0;  ///< of a written row, relative
  double tolerance = 2e-5;
  void put(char* to, double value) const;
  double get(const char* from) const;
  int real_bytes() const { return name == "F64" ? 8 : 4; }
};
inline const ScanFormat kF64{"F64", 8, 0, 1e-12}, kBF16{"BF16", 2, 4e-3, 2e-5}, kF16{"F16", 2, 5e-4, 2e-5};

/// A run: how the kernel is compiled and launched, and what its arrays are.
struct ScanCase {
  const char* copy = "Each";
  int channels = 32, steps = 8, warps = 2;  ///< of the kernel
  std::int64_t width = 37;                  ///< channels of the cell
  std::vector<std::int64_t> lengths{100};
  bool packed = false, reverse = false, time_inner = false;
  int grid = 5, look = 1 << 20, calls = 1;
  int misalign = 0;     ///< entries that all arrays begin later
  int buffers = 0;      ///< of scan_stream.cuh; 0: scan.cuh
  int carried = 0;      ///< channels of a transition; 0: the template's
  unsigned before = 0;  ///< the number of the last call
  int cluster = 0;      ///< blocks of scan_cluster.cuh; 0: another
  bool whole = false;   ///< the same, for whole tiles and groups
  bool checks = false;  ///< whether starts were right (scan_repair.cuh)
  bool by_rows =
      false;  ///< rows are held against a step from the row before them, to within 1e-6, and not against a plain loop
  int infinite = 0;  ///< every so many entries of the last input are infinite
  /// Of h' = a*h + b: states stay about 1 while a grows what maps are made of 800-fold, and takes it back, so that a
  /// composed map is a small difference of large numbers.
  bool cancels = false;
  std::string label() const;
};

class ScanRunner {
 public:
  ScanRunner(ScanCell cell, ScanFormat format, const EmulatorOptions& options = {})
      : cell_(std::move(cell)), format_(format), gpu_(open_emulator(options)) {}

  /// By all kernels that suit it, unless the case names one.
  void check(ScanCase c);
  /// Shares of channels that the calls since the last question walked in the end.
  unsigned repaired() { return std::exchange(repaired_, 0); }

 private:
  void check_kernel(const ScanCase& c);

  ScanCell cell_;
  ScanFormat format_;
  std::unique_ptr<Emulator> gpu_;
  unsigned repaired_ = 0;
};

}  // namespace cellc
