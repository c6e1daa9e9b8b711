#pragma once
// Compiles a cell ahead of time: an object file or a shared library that needs nothing of ours, and its
// header.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/codegen_llvm/print_header.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"

namespace cellc {

struct BuildRequest {
  bool shared = false;  ///< a library, otherwise an object file
  std::string file;     ///< name of the library, as programs will look for it
  std::string name;     ///< what every name begins with; empty: build_name
  /// Of several, a call takes the last that the machine can run.
  std::vector<std::string> cpus = {"x86-64-v3"};
  Dtype dtype = Dtype::F32;
  std::map<std::string, std::int64_t> dims;  ///< lengths of axes that are the same in every call
  std::optional<std::int64_t> length;        ///< steps, if they are
  bool backward = false;                     ///< also NAME_backward
};

struct BuiltObject {
  std::string bytes, header;
  std::string about;
  std::vector<std::string> functions;
  std::vector<ArrayFacts> forward, backward;  ///< arrays of calls
  std::vector<std::string> lengths;           ///< members of their struct
};

/// Throws DeviceError, RequestError or UsageError.
BuiltObject build_object(const CellGraph& cell, const Structure& structure, const BuildRequest& request);

}  // namespace cellc
