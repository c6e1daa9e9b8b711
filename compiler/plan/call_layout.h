#pragma once
// The layout in memory of one call of a cell, for code that is shipped without us: two structs of
// 8-byte words, the lengths and the arrays. The emitted driver reads them, the C header declares them and
// the C API fills them, all three by this table.
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

enum class FieldKind : std::uint8_t {
  Param,              ///< [a…], arithmetic precision
  Input,              ///< rows, storage type
  InputHistory,       ///< [sequences, n, a…], storage type, newest first
  Start,              ///< [sequences, a…], arithmetic precision
  StateHistory,       ///< [sequences, n, a…], arithmetic precision
  State,              ///< rows that are written, storage type
  Out,                ///< the same
  Final,              ///< [sequences, a…], arithmetic precision, written
  FinalStateHistory,  ///< [sequences, n, a…], arithmetic precision, written
  FinalInputHistory,  ///< [sequences, n, a…], storage type, written
};

/// An array of a call. Rows take three words: the address, and the strides from sequence to sequence and
/// from step to step in entries, where 0 stands for rows one after another. All others take the address.
struct CallField {
  FieldKind kind;
  int id;              ///< symbol, or out
  std::string name;    ///< for the C API: "x", "h_start", "h_final", "x_lag", "x_lag_final"
  std::string member;  ///< of the C struct: the name, or another where C or C++ has no room for that
  int word;            ///< offset in the struct of arrays
  bool required;       ///< may not be null; the others have a default, or are not wanted

  static bool is_rows(FieldKind kind) {
    return kind == FieldKind::Input || kind == FieldKind::State || kind == FieldKind::Out;
  }
  bool is_rows() const { return is_rows(kind); }
  bool is_written() const { return kind >= FieldKind::State; }
  bool is_storage() const {
    return is_rows() || kind == FieldKind::InputHistory || kind == FieldKind::FinalInputHistory;
  }
};

struct CallLayout {
  std::vector<AxisId> lengths;  ///< header axes of open length, a word each; four words follow:
  std::vector<CallField> fields;
  int words = 0;  ///< of the struct of arrays

  // Words of the struct of lengths, after the axes.
  int sequences() const { return static_cast<int>(lengths.size()); }
  int steps() const { return sequences() + 1; }    ///< of each sequence, where there are no offsets
  int offsets() const { return sequences() + 2; }  ///< address of [sequences + 1] rows, or null
  int reverse() const { return sequences() + 3; }  ///< not 0: from the last step to the first
  int length_words() const { return sequences() + 4; }

  const CallField* find(FieldKind kind, int id) const;
};

CallLayout call_layout(const CellGraph& cell);

/// The axes of a field's entries, and whether an axis of sequences or a history comes before them.
const std::vector<AxisId>& field_axes(const CellGraph& cell, const CallField& field);

/// Reads of an input that reach furthest back: the history has the largest of `lag` + (length of `axis`) - 1,
/// or `lag` where there is no axis.
struct Reach {
  std::int64_t lag = 0;
  AxisId axis = kNoAxis;
  bool operator==(const Reach&) const = default;
};
std::vector<Reach> reaches(const CellGraph& cell, int symbol);
/// Steps of history of an input or state; `lengths` by position in the header.
std::int64_t history_depth(const CellGraph& cell, const std::vector<std::int64_t>& lengths, int symbol);

/// `name`, or another that C and C++ accept as an identifier.
std::string c_name(const std::string& name);
/// What the names of a shipped cell begin with: its own name, behind which stands an underscore where it is
/// one of ours (`cellc`, `cellc_run`): the host's part of GPU code and the C API have such names. Nor does
/// LLVM let anybody define `llvm.step`.
std::string c_prefix(const std::string& cell);

}  // namespace cellc
