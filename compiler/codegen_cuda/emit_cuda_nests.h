#pragma once
// Plan -> CUDA C++ for whole steps: for cells whose entries are coupled too widely for one thread (dense
// cells, large blocks), and for cells without states (what is computed once, before and after a stage).
// Follows plan; precedes runtime/cuda/launch/nest_program.h, which runs it. Emits text only.
//
// A kernel of the plan takes one of four forms:
//
//   Steps  The kernel has states. A thread block runs the steps of one sequence, or of some lanes of it where
//          the plan has a split axis. All threads share the nests of a step, with a barrier wherever a value
//          passes from thread to thread. States and temps lie in shared memory as far as there is room.
//   Tile   No states, but values pass from nest to nest: a thread block takes some rows at a time.
//   Persistent  In the place of Steps, where lengths are known: the blocks of a cluster share the channels of some
//          sequences, and keep the weights of products (compiler/plan/persistent_kernel.h).
//   Flat   No states, and the nests are independent: one kernel a nest, over rows times positions. Values that
//          are computed once take this form too; their temps lie in global memory.
//
// Every emitted kernel has one argument, a struct of 8-byte numbers and addresses: NestFrame
// (kernels-templates/sequential/nest_frame.cuh), followed by NestKernel::slots in order.
#include <string>
#include <vector>

#include "compiler/graph/storage.h"
#include "compiler/plan/persistent_kernel.h"
#include "compiler/plan/plan.h"
#include "compiler/syntax/source.h"
#include "kernels-templates/abi/nest_slots.h"

namespace cellc {

/// CELLC_SLOT_KINDS: its list says what each is.
enum class NestSlotKind : std::uint8_t {
#define CELLC_KIND(Name, NAME) Name,
  CELLC_SLOT_KINDS(CELLC_KIND)
#undef CELLC_KIND
};

struct NestSlot {
  NestSlotKind kind;
  int id;
  bool operator==(const NestSlot&) const = default;
};

enum class NestForm : std::uint8_t {
#define CELLC_KIND(Name, NAME) Name,
  CELLC_NEST_FORMS(CELLC_KIND)
#undef CELLC_KIND
};

struct NestKernel {
  std::string function;
  NestForm form = NestForm::Flat;
  int kernel = -1;  ///< of the plan
  int nest = -1;    ///< Flat: of that kernel
  std::vector<NestSlot> slots;
  // Persistent
  int cluster = 0, sequences = 0, threads = 0;  ///< blocks of a cluster, and what it runs side by side
  int parts = 1;                                ///< length of the plan's split axis
  std::int64_t shared_bytes = 0;
  std::int64_t exchange_bytes = 0;  ///< memory of a group, whose blocks `cluster` counts then; 0: they are a cluster
};

/// Of one kernel of the plan.
struct PersistentCode {
  PersistentKernel kernel;
  PersistentShape shape;
  PersistentLayout layout;
  int parts = 1;  ///< length of the plan's split axis
};

struct CudaNestsOptions {
  Storage storage = Storage::F32;
  /// Arrays in arithmetic precision although storage is narrow. By symbol (inputs), symbol (histories),
  /// position, out; empty: none.
  std::vector<char> wide_inputs{}, wide_histories{}, wide_states{}, wide_outs{};
  const SourceText* source = nullptr;        ///< where spans point: for #line; null: no #line
  std::string prelude{};                     ///< goes before the kernels; lines of the file are counted with it
  std::vector<PersistentCode> persistent{};  ///< kernels that take that form, all of one shape
  std::string functions{};                   ///< what kernels are called, before their number; empty: after the cell
};

struct CudaNestsModule {
  std::string name;  ///< of the file: "gru.cu"
  std::string text;
  std::vector<NestKernel> kernels;  ///< in the order of Plan::kernels, and inside one in that of launches
};

/// Whether nest `n` of a kernel is a sum whose every result the next nest goes on with alone, entry by entry:
/// where rows are many, the thread that has the sum does that too, and nothing passes through memory.
bool fuses_with_next(const Kernel& kernel, std::size_t n);

CudaNestsModule emit_cuda_nests(const Plan& plan, const CudaNestsOptions& options);

}  // namespace cellc
