#pragma once
// Writes results: every file whole, and all files of one run or none, also when the disk is full
// or the run is interrupted.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/array.h"
#include "runtime/data/errors.h"

namespace cellc {

/// Writes each array to `directory`/`name`.npy; creates the directory if it is missing.
///
/// Everything goes to temporary files beside the targets first and is synced; only then are they
/// renamed, with interrupts held back. Where a rename fails, those before it are undone. Throws
/// DeviceError, which names the file; nothing of this call is left behind then. Nor is there where `keep`, which is
/// asked when all is in its place, says no. What stands there and is no file, such as a device, is not replaced.
using Keep = std::function<bool()>;
void write_arrays(const std::string& directory, const std::vector<std::pair<std::string, Array>>& arrays,
                  const Keep& keep = {});

/// The same for files of any kind, by name.
void write_files(const std::string& directory, const std::vector<std::pair<std::string, std::string>>& files,
                 const Keep& keep = {});

/// Removes the temporary files of a write in progress. May be called from a signal handler.
void remove_temporaries();

/// Makes SIGINT, SIGTERM and SIGHUP remove the temporary files of a write in progress before they
/// end the process. For programs; a library's host keeps its own handlers.
void remove_temporaries_on_signals();

}  // namespace cellc
