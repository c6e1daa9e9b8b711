#include "cli/request.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "cli/names.h"
#include "runtime/data/errors.h"
#include "runtime/data/npy.h"

namespace cellc {

namespace {

/// `what`: the option that named the file. A number where a file is expected, or a word where either is, is no path
/// that whoever typed it would know again.
GivenArray read_given(const std::string& what, const std::string& path, Int16 int16) {
  try {
    return {path, read_npy(path, int16)};
  } catch (const RequestError& e) {
    throw RequestError(fmt::format("{}: {}", what, e.what()));
  }
}

void read_arrays(const std::string& option, const std::vector<std::string>& given, Int16 int16,
                 std::map<std::string, GivenArray>& arrays) {
  for (const std::string& text : given) {
    const auto [name, path] = split_assignment(option, text);
    if (arrays.count(name)) throw UsageError(fmt::format("{} {} is given twice", option, name));
    arrays[name] = read_given(option + " " + name, path, int16);
  }
}

bool is_number(const std::string& text, double& value) {
  char* end = nullptr;
  value = std::strtod(text.c_str(), &end);
  struct stat status {};
  // A file that is called "2" is a file.
  return end == text.c_str() + text.size() && stat(text.c_str(), &status) != 0;
}

/// Beyond all numbers, as opposed to an infinity that is written as one.
bool overflows(const std::string& text, double value) {
  return std::isinf(value) && std::any_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

}  // namespace

BindRequest read_request(const DataOptions& options) {
  BindRequest request;
  if (!options.dtype.empty()) request.dtype = dtype_named(options.dtype);
  request.dims = dims_named(options.dims);
  std::vector<std::string> param_files;
  for (const std::string& text : options.params) {
    const auto [name, value] = split_assignment("--param", text);
    double number = 0;
    if (!is_number(value, number))
      param_files.push_back(text);
    else if (overflows(value, number))
      throw UsageError(fmt::format("--param {}: the number {} is out of range", name, value));
    else if (!request.param_numbers.emplace(name, number).second)
      throw UsageError(fmt::format("--param {} is given twice", name));
  }
  request.batch = options.batch;
  request.length = options.length;
  request.random_seed = options.random;
  request.reverse = options.reverse;
  request.threads = options.threads;
  const Int16 int16 = request.dtype == Dtype::BF16 ? Int16::RawBits : Int16::Integers;
  read_arrays("--input", options.inputs, int16, request.inputs);
  read_arrays("--param", param_files, int16, request.params);
  read_arrays("--state", options.states, int16, request.states);
  if (!options.offsets.empty()) request.offsets = read_given("--offsets", options.offsets, Int16::Integers);
  return request;
}

std::map<std::string, GivenArray> read_cotangents(const RunOptions& options) {
  std::map<std::string, GivenArray> arrays;
  read_arrays("--cotangent", options.cotangents, options.dtype == "bf16" ? Int16::RawBits : Int16::Integers, arrays);
  return arrays;
}

std::map<std::string, GivenArray> read_tangents(const RunOptions& options) {
  std::map<std::string, GivenArray> arrays;
  read_arrays("--tangent", options.tangents, options.dtype == "bf16" ? Int16::RawBits : Int16::Integers, arrays);
  return arrays;
}

namespace {

/// Arrays of a measurement that nobody gave sizes for stay below this.
constexpr double kManyBytes = 256 << 20;
constexpr std::int64_t kAxis = 256, kSteps = 4096, kShortestAxis = 2;

/// Entries of all arrays that have a row for every step.
double entries_a_step(const CellGraph& cell, const std::map<std::string, std::int64_t>& dims) {
  double sum = 0;
  const auto add = [&](const std::vector<AxisId>& axes) {
    double n = 1;
    for (const AxisId a : axes) {
      const Axis& axis = cell.graph.axis(cell.graph.axis(a).extent_of);
      n *= static_cast<double>(axis.fixed ? *axis.fixed : dims.at(axis.name));
    }
    sum += n;
  };
  for (const Symbol& s : cell.symbols)
    if (s.kind != SymbolKind::Param) add(s.axes);
  for (const Out& o : cell.outs) add(o.index);
  return sum;
}

}  // namespace

BindRequest measured_request(const CellGraph& cell, const DataOptions& options) {
  BindRequest request = read_request(options);
  if (!request.random_seed) request.random_seed = 1;
  // Arrays say sizes themselves, and whoever gives some knows the others.
  if (!request.inputs.empty() || !request.params.empty() || !request.states.empty() || request.offsets) return request;
  if (!request.batch) request.batch = 1;
  if (!request.length) request.length = kSteps;
  const std::map<std::string, std::int64_t> said = request.dims;
  const double rows = std::max(1.0, static_cast<double>(*request.batch) * static_cast<double>(*request.length));
  for (std::int64_t n = kAxis;; n /= 2) {
    for (const AxisId a : cell.header) {
      const Axis& axis = cell.graph.axis(a);
      if (!axis.fixed && !said.count(axis.name)) request.dims[axis.name] = n;
    }
    if (n <= kShortestAxis || rows * entries_a_step(cell, request.dims) * 4 <= kManyBytes) return request;
  }
}

void check_device(const std::string& device) {
  if (device != "auto" && device != "cpu" && device != "cuda")
    throw UsageError(fmt::format("--device {}: expected auto, cpu or cuda", device));
}

Strategy strategy_asked(const std::string& solver, std::vector<std::string> before, const char* option) {
  const auto strategy = strategy_named(solver);
  if (!strategy) throw UsageError(fmt::format("{} {}: expected {}", option, solver, strategy_names(std::move(before))));
  return *strategy;
}

Wanted wanted_asked(const std::vector<std::string>& names, const CellGraph& cell) {
  if (names.empty() || std::find(names.begin(), names.end(), "all") != names.end()) return {};
  try {
    return wanted_results(cell, names);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("--write: {}", e.what()));
  }
}

FoundGpu gpu_for(const std::string& device, const std::string& cache_directory) {
  FoundGpu found;
  if (device == "cpu") return found;
  found.gpu = open_gpu(cache_directory, found.reason);
  // Where there is a card, whoever left the choice to us expects it to be used.
  if (!found.gpu && device == "auto" && !is_gpu_missing(found.reason))
    std::fputs(fmt::format("cellc: note: --device auto takes the CPU: {}\n", found.reason).c_str(), stderr);
  if (!found.gpu && device == "cuda")
    throw DeviceError(fmt::format("--device cuda: {}; use --device cpu", found.reason));
  return found;
}

Products products_asked(const std::string& name) {
  if (const auto products = products_named(name)) return *products;
  throw UsageError(fmt::format("--products {}: expected {}", name, products_names()));
}

std::string products_of(Products asked, Dtype dtype, bool on_gpu) {
  if (dtype == Dtype::F64) return "f64";
  if (!on_gpu) return "f32";
  return asked == Products::Storage ? to_string(dtype) : to_string(asked);
}

void take_absolute_tolerances(const std::vector<std::string>& given, const CellGraph& cell, SolveOptions& solve) {
  for (const std::string& one : given) {
    try {
      take_absolute_tolerance(one, cell, solve);
    } catch (const RequestError& e) {
      throw UsageError(fmt::format("--absolute-tolerance {}: {}", one, e.what()));
    }
  }
}

}  // namespace cellc
