#pragma once
// The layout in memory of one call of a cell, for code that is shipped without us: two structs of
// 8-byte words, the lengths and the arrays. The emitted driver reads them, the C header declares them and
// the C API fills them, all three by this table.
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/graph/graph.h"
#include "kernels-templates/abi/field_kinds.h"

namespace cellc {

/// CELLC_FIELD_KINDS: its list says what each is.
enum class FieldKind : std::uint8_t {
#define CELLC_KIND(Name, ...) Name,
  CELLC_FIELD_KINDS(CELLC_KIND)
#undef CELLC_KIND
};

/// The columns of that list.
struct FieldTraits {
  bool rows, written, storage, history;
};
constexpr FieldTraits kFieldTraits[] = {
#define CELLC_KIND(Name, NAME, rows, written, storage, history) {rows != 0, written != 0, storage != 0, history != 0},
    CELLC_FIELD_KINDS(CELLC_KIND)
#undef CELLC_KIND
};
constexpr FieldTraits traits_of(FieldKind kind) { return kFieldTraits[static_cast<std::size_t>(kind)]; }

/// An array of a call. Rows take three words: the address, and the strides from sequence to sequence and
/// from step to step in entries, where 0 stands for rows one after another. All others take the address.
struct CallField {
  FieldKind kind;
  int id;              ///< symbol, or out
  std::string name;    ///< for the C API: "x", "h_start", "h_final", "x_lag", "x_lag_final"
  std::string member;  ///< of the C struct: the name, or another where C or C++ has no room for that
  int word;            ///< offset in the struct of arrays
  bool required;       ///< may not be null; the others have a default, or are not wanted

  bool is_rows() const { return traits_of(kind).rows; }
  bool is_written() const { return traits_of(kind).written; }
  bool is_storage() const { return traits_of(kind).storage; }
  bool is_history() const { return traits_of(kind).history; }
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

/// What sets one build of a cell apart from others of it, of which a program may link several.
struct BuildForm {
  std::string_view dtype = "f32";
  bool on_gpu = false;
  std::map<AxisId, std::int64_t> lengths{};  ///< of header axes, the same in every call
  std::optional<std::int64_t> steps{};       ///< likewise
};
/// What the names of that build begin with, where the user does not say: c_prefix, and behind it whatever is not as in
/// the plain form, "gru_f64_cuda_d64_steps100".
std::string build_name(const CellGraph& cell, const BuildForm& form);

}  // namespace cellc
