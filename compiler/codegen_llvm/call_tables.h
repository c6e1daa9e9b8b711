#pragma once
// The tables by which a cell's calls on a CPU run (kernels-templates/cpu/cpu_cell.h), and these as constants of LLVM
// IR. Private to emit_llvm_driver.cc.
#include <string>
#include <utility>
#include <vector>

#include "kernels-templates/cpu/cpu_cell.h"

namespace cellc {

struct CallTables {
#define CELLC_TABLE(Row, name) std::vector<Row> name;
  CELLC_CPU_TABLES(CELLC_TABLE)
#undef CELLC_TABLE
  std::vector<std::string> codes;                  ///< by kernel: its function
  std::vector<std::pair<int, std::string>> words;  ///< by result
  cellc_numbers numbers{};                         ///< counts are filled in when tables are printed
  // The outline.
  std::vector<std::int64_t> fixed, least;  ///< by axis
  std::vector<int> axis_words, axes;
  std::vector<cellc_field> fields;
  int first_word = 0;
  std::int64_t fixed_steps = -1;
  std::int64_t layout = 0;  ///< layout_number of the call's structs
};

/// Of a cell whose functions begin with `prefix`; the one that runs a call ends with `run`. link_call.h finds all
/// three. `about`: what one of them says.
std::string print_call_tables(CallTables tables, const std::string& prefix, const std::string& run,
                              const std::string& about);

}  // namespace cellc
