#pragma once
// Plan: one step of a cell as a program of phases. A phase is a kernel (loop nests that run for every row
// of a chunk of time) or a matrix product over all rows of the chunk. Follows structure; precedes
// the emitters. It says where every value lies and in which loop it is computed; it knows no device.
//
//   once     values of params only, computed once a run
//   phases   kernel 0, products of level 1, kernel 1, products of level 2, …
//
// A product W@v may leave the recurrence if no stage that uses it feeds v. Everything that v needs
// then runs in kernels of lower level, for all rows of the chunk, before the product does.
//
// Within a kernel every value belongs to one nest: the loops over exactly its own axes. Values pass
// from nest to nest through memory (`Home`), inside a nest through registers. The new state never
// overwrites the old one within a step, so nests may run in any order that respects operands.
#include <string>
#include <vector>

#include "compiler/analysis/structure.h"
#include "compiler/graph/graph.h"

namespace cellc {

struct PlanOptions {
  bool narrow_storage = false;  ///< storage is narrower than arithmetic: states are carried apart from what is written
  AxisId split_axis = kNoAxis;  ///< the only axis whose range may be cut; kNoAxis: the first that can be
  bool hoist_products = true;   ///< false: products stay in the step, so that the plan needs no BLAS
  /// Of narrow storage: products read inputs where they lie, and (`rounds`) what is passed to products alone has the
  /// storage type, which they round it to anyway; in cells without states so has all that passes between kernels.
  bool reads_stored = false, rounds_operands = false;
  /// A product that is an out as it stands is written where that out lies, instead of to rows that a nest copies there.
  bool products_to_outs = false;
};

enum class Place : std::uint8_t {
  Param,     ///< id: symbol
  Input,     ///< id: symbol; storage type
  StateOld,  ///< id: position in updates
  StateNew,  ///< id: position; arithmetic precision. The written row itself unless storage is narrow
  StateRow,  ///< id: position; the written row, storage type
  Out,       ///< id: out; the written row, storage type
  Once,      ///< id: Plan::once
  Temp,      ///< id: Plan::temps; lives for one step
  Chunk,     ///< id: Plan::chunks; one row a step of the chunk, arithmetic precision unless the buffer says else
};

struct Home {
  Place place = Place::Temp;
  int id = -1;
  std::vector<AxisId> dims;  ///< row-major
};

/// A read of memory: one index a dimension of the home.
struct Access {
  NodeId node = kNoNode;  ///< the value that is read
  Home home;
  std::vector<Index> index;
  int lag = 0;
  AxisId lag_axis = kNoAxis;
};

/// A value written to its place, over exactly the place's dims.
struct Store {
  NodeId value = kNoNode;
  Home home;
};

/// Loops over `axes`. A map nest computes elementwise values that have exactly these axes; a
/// reduction nest (`bound` not empty) computes reductions over `bound`, evaluating `inlined` anew for
/// every position of axes and bound.
struct Nest {
  std::vector<AxisId> axes;
  std::vector<AxisId> bound;
  std::vector<NodeId> nodes;    ///< computed here, operands first
  std::vector<NodeId> inlined;  ///< reduction nests: evaluated inside the bound loops, operands first
  std::vector<Store> stores;
  std::vector<Access> loads;
  std::vector<std::vector<AxisId>> loops;  ///< over `axes`, outermost first; a group of several is one flat loop
  std::vector<AxisId> bound_loops;         ///< over `bound`, outermost first
  AxisId vector_axis = kNoAxis;  ///< walked in vectors: the last of the last group of `loops`, or of `bound_loops`
  bool is_reduction() const { return !bound.empty(); }
};

struct Kernel {
  int level = 0;
  bool once = false;  ///< runs once a run and has no rows
  std::vector<Nest> nests;
  std::vector<NodeId> exported;  ///< values that later phases read
};

/// Chunk rows = operand rows times a matrix of params: [batch…, shared…, sums…] by [batch…, rows…, sums…] give
/// [batch…, shared…, rows…]. Several axes beside each other are one.
struct Product {
  NodeId node = kNoNode;
  Home matrix;                ///< Param or Once
  bool sum_last = true;       ///< [batch…, rows…, sums…], otherwise [batch…, sums…, rows…]
  bool batch_inside = false;  ///< [rows…, batch…, sums…], or [sums…, batch…, rows…]
  Home operand;               ///< Input, StateNew, Out or Chunk: [batch…, shared…, sums…]
  std::vector<AxisId> batch, shared, rows, sums;  ///< shared: of the operand, for all of which the matrix is the same
  Home result;                                    ///< Chunk or Out
  int level = 0;
};

struct Buffer {
  NodeId node = kNoNode;
  std::vector<AxisId> dims;
  bool stored = false;  ///< of storage type, otherwise of arithmetic precision
};

struct Phase {
  bool product = false;
  int index = 0;  ///< in kernels or products
};

struct Plan {
  CellGraph cell;  ///< the cell with softmax spelled out and gradient-only operators removed
  PlanOptions options;
  std::vector<Buffer> once, temps, chunks;
  std::vector<Kernel> kernels;
  std::vector<Product> products;
  int once_kernel = -1;
  std::vector<Phase> phases;
  std::vector<int> state_kernel;  ///< by position: the kernel that runs the state
  /// A header axis along which no step moves values, that every nest of every kernel has: its range
  /// may be cut among threads. kNoAxis if there is none.
  AxisId split_axis = kNoAxis;
  /// Steps of a chunk at most: those that wait for nothing which a delay line brings. 0: any number.
  int independent_steps = 0;
};

/// Whether a product's operand is an input, an out, or a buffer, of narrow storage type; and its result.
bool reads_stored_rows(const Plan& plan, const Product& product);
bool stores_rows(const Plan& plan, const Product& product);

Plan make_plan(const CellGraph& cell, const Structure& structure, const PlanOptions& options = {});

/// Leaves out what only outs need: nests and products whole, so that what is left is computed as before, to the bit.
void leave_out_outs(Plan& plan);

/// `inspect --stage plan`. `cell` is the cell that the plan was made from.
std::string print_plan(const CellGraph& cell, const Plan& plan);

}  // namespace cellc
