#pragma once
// Plan -> LLVM IR text for a CPU: one function a kernel. It runs the steps of one sequence, or of several together,
// and, in each step, the nests in vectors of the host's width. Sizes are read at run time, so one module serves every
// shape. Emits text only: this file links no LLVM.
//
//   void @cellc.kernel.N(ptr %slots, i64 %steps, i64 %lane_begin, i64 %lane_end)
//
// `slots` is an array of 8-byte numbers and addresses, in the order of KernelCode::slots; where sequences run together,
// each slot has one for every sequence, side by side. The last two arguments are a range of positions of
// Plan::split_axis; a plan without one does not read them.
#include <set>
#include <string>
#include <vector>

#include "compiler/codegen_llvm/llvm_math.h"
#include "compiler/graph/storage.h"
#include "compiler/plan/plan.h"

namespace cellc {

/// slots.def says what each is.
enum class SlotKind : std::uint8_t {
#define CELLC_SLOT(Name, name, number, common) Name,
#include "compiler/codegen_llvm/slots.def"
};

struct Slot {
  SlotKind kind;
  int id;
  bool operator==(const Slot&) const = default;
};

struct KernelCode {
  std::string function;  ///< symbol, empty where the kernel does nothing
  std::vector<Slot> slots;
};

struct EmitOptions {
  Storage storage = Storage::F32;
  int vector_bits = 512;
  /// Every call's lanes are whole vectors: plain loads and stores instead of masked ones, from which a
  /// processor cannot forward what the next step reads.
  bool whole_vectors = false;
  /// Rows of one number lie at the same distance in every array that has as wide numbers: one offset finds all of them.
  bool even_rows = false;
  /// Where all lanes of a call fit into one vector, a second loop over time keeps states and params in registers.
  bool one_vector = false;
  /// Every step begins with the states that the row before it has in given rows, not with what the step before made:
  /// the same step, about rows that somebody else wrote.
  bool from_given = false;
  /// Sequences that a call steps together: a matrix is then read once a step for all of them. Each has the bits that it
  /// has alone.
  int sequences = 1;
  std::string functions = "cellc.kernel";  ///< kernel N is the function of this name and ".N"
};

struct EmittedModule {
  std::string ir;
  std::vector<KernelCode> kernels;  ///< by Plan::kernels
};

EmittedModule emit_llvm(const Plan& plan, const EmitOptions& options);
/// The kernels alone; what they call of our functions is added to `functions`, for modules that hold
/// the kernels of several plans.
EmittedModule emit_llvm_kernels(const Plan& plan, const EmitOptions& options, std::set<llvm_math::Request>& functions);

}  // namespace cellc
