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

// What the columns of that list say.
enum class FieldOwner : std::uint8_t { Input, Param, State, Out };
enum class FieldLayout : std::uint8_t { Once, Rows, Sequences, History };
enum class FieldAbsent : std::uint8_t { Nothing, Declared, Zeros, Start, Unwanted };

struct FieldTraits {
  FieldOwner owner;
  FieldLayout layout;
  bool stored, written;
  FieldAbsent absent;
  const char *suffix, *file;
};
constexpr FieldTraits kFieldTraits[] = {
#define CELLC_KIND(Name, NAME, owner, layout, stored, written, absent, suffix, file) \
  {FieldOwner::owner, FieldLayout::layout, stored != 0, written != 0, FieldAbsent::absent, suffix, file},
    CELLC_FIELD_KINDS(CELLC_KIND)
#undef CELLC_KIND
};
constexpr FieldTraits traits_of(FieldKind kind) { return kFieldTraits[static_cast<std::size_t>(kind)]; }

/// Reads of an input or state that reach furthest back: the history has the largest of `lag` + (length of `axis`) - 1,
/// or `lag` where there is no axis.
struct Reach {
  std::int64_t lag = 0;
  int axis = -1;  ///< position in the header
  bool operator==(const Reach&) const = default;
};

/// An array of a call. Rows take three words: the address, and the strides from sequence to sequence and
/// from step to step in entries, where 0 stands for rows one after another. All others take the address.
struct CallField {
  FieldKind kind;
  int id;                      ///< symbol, or out
  FieldAbsent absent;          ///< Declared: the cell does declare a value
  bool written;                ///< by the call; as its kind is in a forward call
  bool stored;                 ///< entries of the storage type; likewise
  std::string name;            ///< for the C API: "x", "h_start", "h_final", "x_lag", "x_lag_final"
  std::string member;          ///< of the C struct: the name, or another where C or C++ has no room for that
  std::string file;            ///< "x", "h", "h.final", "x.lag": one that is read may be called as one that is written
  int word;                    ///< offset in the struct of arrays
  std::vector<int> axes;       ///< of its entries: positions in the header
  std::vector<Reach> reaches;  ///< of a history

  FieldTraits traits() const { return traits_of(kind); }
  bool is_rows() const { return traits().layout == FieldLayout::Rows; }
  bool is_written() const { return written; }
  bool is_storage() const { return stored; }
  bool is_history() const { return traits().layout == FieldLayout::History; }
  bool required() const { return absent == FieldAbsent::Nothing; }  ///< unless it has no rows
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

std::vector<Reach> reaches(const CellGraph& cell, int symbol);
/// Steps of a history of such reaches; `lengths` by position in the header.
std::int64_t history_depth(const std::vector<Reach>& reaches, const std::vector<std::int64_t>& lengths);

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
