#pragma once
// What is known when something inside cellc goes wrong: the stage, the cell and the command, kept
// so that a report can replay it.
#include <string>
#include <vector>

namespace cellc {

/// Notes which stage runs. The environment variable CELLC_FAULT=STAGE makes that stage fail, so
/// that tests can see what a fault leaves behind.
void enter_stage(const char* stage);
const std::string& current_stage();

void remember_arguments(int count, char** arguments);
void remember_source(const std::string& text);

/// Writes the cell, the command and `what` to a fresh directory under TMPDIR; the text to show.
std::string dump_fault(const std::string& what);

}  // namespace cellc
