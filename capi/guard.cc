#include "capi/guard.h"

#include <new>

#include "compiler/front_end.h"
#include "compiler/syntax/version.h"
#include "runtime/cpu/engine.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"

namespace cellc::capi {
namespace {

struct LastError {
  std::string text;
  const char* fixed = "";  ///< where there was no memory for a text, or none was needed
  int line = 0, column = 0;
};
thread_local LastError last;

cellc_status keep(cellc_status status, const char* text, int line = 0, int column = 0) noexcept {
  last.line = line;
  last.column = column;
  try {
    last.text = text;
    last.fixed = nullptr;
  } catch (...) {
    last.fixed = "out of memory, also for saying more";
  }
  return status;
}

}  // namespace

cellc_status failed(cellc_status status, const char* text) noexcept {
  last.fixed = text;
  last.line = last.column = 0;
  return status;
}

cellc_status failed() noexcept {
  try {
    throw;
  } catch (const CellFileError& e) {
    int line = 0, column = 0;
    // Reports are sorted by place, as the text is.
    for (const Diagnostic& d : e.diagnostics.list()) {
      const Position at = e.source.position(d.span.offset);
      const int l = static_cast<int>(at.line), c = static_cast<int>(at.column);
      if (line == 0 || l < line || (l == line && c < column)) {
        line = l;
        column = c;
      }
    }
    return keep(CELLC_WRONG_INPUT, e.what(), line, column);
  } catch (const CellChoiceError& e) {
    return keep(e.names.empty() ? CELLC_WRONG_INPUT : CELLC_WRONG_USAGE, e.what());
  } catch (const Misuse& e) {
    return keep(CELLC_WRONG_USAGE, e.what());
  } catch (const NotConverged& e) {
    return keep(CELLC_NOT_CONVERGED, e.what());
  } catch (const UsageError& e) {
    return keep(CELLC_WRONG_USAGE, e.what());
  } catch (const SolverError& e) {
    return keep(CELLC_WRONG_USAGE, e.what());
  } catch (const RequestError& e) {
    return keep(CELLC_WRONG_INPUT, e.what());
  } catch (const DeviceError& e) {
    return keep(CELLC_DEVICE_FAILED, e.what());
  } catch (const std::bad_alloc&) {
    return failed(CELLC_DEVICE_FAILED, "out of memory");
  } catch (const std::exception& e) {
    return keep(CELLC_INTERNAL_FAULT, e.what());
  } catch (...) {
    return failed(CELLC_INTERNAL_FAULT, "an exception of unknown type");
  }
}

}  // namespace cellc::capi

extern "C" {

int cellc_api_version(void) { return CELLC_API_VERSION; }
const char* cellc_version(void) { return cellc::kVersion; }

const char* cellc_last_error(void) {
  const auto& last = cellc::capi::last;
  return last.fixed ? last.fixed : last.text.c_str();
}

void cellc_last_error_position(int* line, int* column) {
  if (line) *line = cellc::capi::last.line;
  if (column) *column = cellc::capi::last.column;
}

}  // extern "C"
