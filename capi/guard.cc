#include "capi/guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <vector>

#include "compiler/front_end.h"
#include "compiler/syntax/version.h"
#include "runtime/cpu/engine.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"
#include "runtime/data/run_control.h"

namespace cellc::capi {
namespace {

struct LastError {
  std::string text;
  const char* fixed = "";  ///< where there was no memory for a text, or none was needed
  int line = 0, column = 0;
  cellc_error kind = CELLC_ERROR_NONE;
  struct Part {
    Position at;
    std::size_t offset, length;
    std::string message, note;
  };
  std::vector<Part> parts;  ///< what is wrong with a text
};
thread_local LastError last;

cellc_status keep(cellc_status status, cellc_error kind, const char* text) noexcept {
  last.line = last.column = 0;
  last.kind = kind;
  last.parts.clear();
  try {
    last.text = text;
    last.fixed = nullptr;
  } catch (...) {
    last.fixed = "out of memory, also for saying more";
  }
  return status;
}

cellc_status keep_all(const CellFileError& e) noexcept {
  keep(CELLC_WRONG_INPUT, CELLC_ERROR_CELL, e.what());
  try {
    for (const Diagnostic& d : e.diagnostics.list())
      last.parts.push_back({e.source.position(d.span.offset), d.span.offset, d.span.length, d.message, d.note});
    std::stable_sort(last.parts.begin(), last.parts.end(),
                     [](const LastError::Part& a, const LastError::Part& b) { return a.offset < b.offset; });
  } catch (...) {  // the text has them all
    last.parts.clear();
  }
  if (last.parts.empty()) return CELLC_WRONG_INPUT;
  last.line = static_cast<int>(last.parts[0].at.line);
  last.column = static_cast<int>(last.parts[0].at.column);
  return CELLC_WRONG_INPUT;
}

cellc_error kind_of(cellc_status status) {
  switch (status) {
    case CELLC_NOT_CONVERGED:
      return CELLC_ERROR_NOT_CONVERGED;
    case CELLC_DEVICE_FAILED:  // with a text of its own: where nothing may be allocated
      return CELLC_ERROR_MEMORY;
    case CELLC_INTERNAL_FAULT:
      return CELLC_ERROR_INTERNAL;
    default:
      return CELLC_ERROR_REQUEST;
  }
}

}  // namespace

cellc_status failed(cellc_status status, const char* text) noexcept {
  last.fixed = text;
  last.line = last.column = 0;
  last.kind = kind_of(status);
  last.parts.clear();
  return status;
}

cellc_status failed() noexcept {
  try {
    throw;
  } catch (const CellFileError& e) {
    return keep_all(e);
  } catch (const CellChoiceError& e) {
    return keep(e.names.empty() ? CELLC_WRONG_INPUT : CELLC_WRONG_USAGE, CELLC_ERROR_CELL, e.what());
  } catch (const Misuse& e) {
    return keep(CELLC_WRONG_USAGE, CELLC_ERROR_REQUEST, e.what());
  } catch (const Cancelled& e) {
    return keep(CELLC_CANCELLED, CELLC_ERROR_CANCELLED, e.what());
  } catch (const NotConverged& e) {
    return keep(CELLC_NOT_CONVERGED, CELLC_ERROR_NOT_CONVERGED, e.what());
  } catch (const UsageError& e) {
    return keep(CELLC_WRONG_USAGE, CELLC_ERROR_REQUEST, e.what());
  } catch (const SolverError& e) {
    return keep(CELLC_WRONG_USAGE, CELLC_ERROR_SOLVER, e.what());
  } catch (const RequestError& e) {
    return keep(CELLC_WRONG_INPUT, CELLC_ERROR_ARRAY, e.what());
  } catch (const NoCompiler& e) {
    return keep(CELLC_DEVICE_FAILED, CELLC_ERROR_NO_NVRTC, e.what());
  } catch (const NoDevice& e) {
    return keep(CELLC_DEVICE_FAILED, CELLC_ERROR_NO_DEVICE, e.what());
  } catch (const MemoryError& e) {
    return keep(CELLC_DEVICE_FAILED, CELLC_ERROR_MEMORY, e.what());
  } catch (const DeviceError& e) {
    return keep(CELLC_DEVICE_FAILED, CELLC_ERROR_DEVICE, e.what());
  } catch (const std::bad_alloc&) {
    return failed(CELLC_DEVICE_FAILED, "out of memory");
  } catch (const std::exception& e) {
    return keep(CELLC_INTERNAL_FAULT, CELLC_ERROR_INTERNAL, e.what());
  } catch (...) {
    return failed(CELLC_INTERNAL_FAULT, "an exception of unknown type");
  }
}

}  // namespace cellc::capi

extern "C" {

int cellc_api_version(void) { return CELLC_API_VERSION; }
const char* cellc_version(void) { return cellc::kVersion; }

cellc_status cellc_api_require(int version, int minor) {
  using cellc::capi::Misuse;
  return cellc::capi::guarded([&] {
    if (version != CELLC_API_VERSION || minor > CELLC_API_MINOR || minor < 0)
      throw Misuse(fmt::format("the program needs version {}.{} of the C API, and this library, cellc {}, has {}.{}",
                               version, minor, cellc::kVersion, CELLC_API_VERSION, CELLC_API_MINOR));
  });
}

const char* cellc_last_error(void) {
  const auto& last = cellc::capi::last;
  return last.fixed ? last.fixed : last.text.c_str();
}

void cellc_last_error_position(int* line, int* column) {
  if (line) *line = cellc::capi::last.line;
  if (column) *column = cellc::capi::last.column;
}

cellc_error cellc_last_error_kind(void) { return cellc::capi::last.kind; }

int cellc_last_error_diagnostics(void) { return static_cast<int>(cellc::capi::last.parts.size()); }

cellc_status cellc_last_error_diagnostic(int number, cellc_diagnostic* diagnostic) {
  // The last error stays what it is, also where this is refused.
  const auto& parts = cellc::capi::last.parts;
  if (!diagnostic || diagnostic->size < sizeof *diagnostic || number < 0 || number >= static_cast<int>(parts.size()))
    return CELLC_WRONG_USAGE;
  const auto& part = parts[static_cast<std::size_t>(number)];
  *diagnostic = {diagnostic->size,
                 static_cast<int>(part.at.line),
                 static_cast<int>(part.at.column),
                 part.offset,
                 part.length,
                 part.message.c_str(),
                 part.note.c_str()};
  return CELLC_OK;
}

}  // extern "C"
