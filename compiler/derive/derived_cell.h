#pragma once
// A cell made of a cell: an ordinary graph, and of each of its arrays where it comes from or goes to. What strategies
// run are such cells; whoever runs one reads here which arrays to put under which symbol, and knows no more of it.
// Made by pipeline.h; precedes plan.
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"

namespace cellc {

/// Which array a symbol of a derived cell stands for. "The stage" is the one that the cell was derived of.
struct ArraySource {
  enum class Kind : std::uint8_t {
    Symbol,        ///< id: the whole cell's own input or param
    Trajectory,    ///< id: position in updates; all steps of that state, as an input; its history is the start
    Remade,        ///< id: position in updates; that state's new value at each step, as the row before gives it, where
                   ///< the stage that has it was scanned; else its trajectory (StageCells::remade)
    Before,        ///< id: out of the stage's `before`; of a relaxed stage, of `fixed`
    Once,          ///< id: out of the stage's `once`
    Mixing,        ///< id: mixing term of a relaxed stage (relaxed_cell.h)
    Sum,           ///< id: sum of the stage, or, read by `after`, a part of one (fused_reductions.h)
    Out,           ///< id: the whole cell's out, which the lanes of a stage write (fused_outs.h)
    Guess,         ///< id: state of the stage; its trajectory one step before, as it stands
    Value,         ///< id: state of the stage; its trajectory at this step, as it stands
    Tolerance,     ///< of the run
    Previous,      ///< id: position in updates; that state's trajectory one step before, as an input without history
    Lagged,        ///< id: array of earlier steps of an input (adjoint_cell.h)
    Cotangent,     ///< id: position in updates; of that state's trajectory
    OutCotangent,  ///< id: the whole cell's out
    Adjoint,       ///< id: position in updates; starts as the cotangent of that state's final value
    Tangent,       ///< id: the whole cell's symbol; its tangent, of a state that of its start
    Tap,           ///< id: what a delay line brings, known for all steps of a block (block_cell.h)
    Start,         ///< a state that starts as whoever runs the cell has it: a map as identity, a count as zero
  };
  Kind kind = Kind::Symbol;
  int id = -1;
  bool operator==(const ArraySource&) const = default;
};

/// Which array a state or an out of a derived cell is.
struct ArraySink {
  enum class Kind : std::uint8_t {
    Trajectory,  ///< id: position in the whole cell's updates
    Out,         ///< id: the whole cell's out
    Step,        ///< id: position in updates; f of the trajectories, which residuals are taken of
    Before,      ///< id: the out's number, by which sources know it; so the next two
    Once,
    Mixing,
    Sum,             ///< id: sum of the stage; what is written is the term of a lane
    Transition,      ///< id, of: states of the stage; how `id` moves with the start of `of`
    Map,             ///< id: 0 to 3 of a, b, low, high (clip) or a, b, c, d (Möbius)
    Residual,        ///< id: 0 the largest one, 1 steps before the first bad one, 2 steps since the last; then sizes of
                     ///< states
    Default,         ///< id: symbol whose start or default it is
    Adjoint,         ///< id: position in updates; after its last step the gradient by that state's start
    Gradient,        ///< id: the whole cell's input
    LaggedGradient,  ///< id: as ArraySource::Lagged
    Factor,          ///< id: its number; of params' gradients
    Tangent,         ///< id: position in updates; of that state's trajectory
    OutTangent,      ///< id: the whole cell's out
  };
  Kind kind = Kind::Out;
  int id = -1;
  int of = -1;
  bool operator==(const ArraySink&) const = default;
};

/// What a derived cell is for.
enum class Role : std::uint8_t {
  None,  ///< there is no such cell: nothing to compute
#define CELLC_ROLE(Name, text) Name,
#include "compiler/derive/roles.def"
#undef CELLC_ROLE
};
const char* to_string(Role role);

struct DerivedCell {
  CellGraph cell = {};
  std::vector<ArraySource> sources = {};  ///< by symbol
  std::vector<ArraySink> sinks = {};      ///< by update, and behind them by out
  Role role = Role::None;
  bool reverse = false;  ///< its steps are those of the whole cell from the last to the first

  /// The symbol that stands for an array. Throws std::logic_error where none does.
  std::size_t symbol_from(const ArraySource& source) const;
};

/// Throws std::logic_error where the graph is none (verify.h), or where a symbol, state or out has no array.
void verify(const DerivedCell& derived);

/// A line for each symbol, state and out: where it comes from and goes to. `whole`: the cell it was derived of.
std::string print_arrays(const CellGraph& whole, const DerivedCell& derived);

}  // namespace cellc
