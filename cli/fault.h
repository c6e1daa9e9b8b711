#pragma once
// What is known when something inside cellc goes wrong: the stage, the cell and the command, kept
// so that a report can replay it.
#include <string>
#include <vector>

#include "compiler/derive/derive_hooks.h"

namespace cellc {

/// Notes which stage runs. The environment variable CELLC_FAULT=STAGE makes that stage fail, and
/// CELLC_FAULT=crash:STAGE crash, so that tests can see what a fault leaves behind.
void enter_stage(const char* stage);
const std::string& current_stage();

/// Names what is derived of the cell while it is: the stage is then `derive NAME` (compiler/derive/derivations.def).
/// CELLC_FAULT=derive NAME makes that fail, and CELLC_FAULT=break:NAME spoils each cell that it makes, which must be
/// found before any code is made of it.
DeriveHooks derive_hooks();

void remember_arguments(int count, char** arguments);
void remember_source(const std::string& text);

/// What follows a crash (SIGSEGV, SIGABRT and the like): `report(what)` in a process of its own, since memory
/// may be damaged and locks held; then this one ends with `status`, and leaves no temporary files.
void report_crashes(void (*report)(const std::string& what), int status);

/// Writes the cell, the command and `what` to a fresh directory under TMPDIR; the text to show.
std::string dump_fault(const std::string& what);

}  // namespace cellc
