#pragma once
// Which kernels of whole steps can run *persistently*, and where everything lies when they do. Follows plan; precedes
// emit_cuda_nests, which writes such a kernel, and runtime/cuda/launch/choose_persistent.h, which picks its shape.
//
// A step that mixes channels by matrices of params (LSTM, GRU, Elman, sLSTM with heads, their adjoints) reads the same
// weights at every step. Run by one block, it reads them from a cache each time. A persistent kernel lives through all
// steps: the blocks of a cluster share the channels, each keeps the rows of the matrices that make its own channels in
// registers and shared memory, and after each step the blocks tell each other their parts of what the next product
// reads. So a step costs a product on chip and an exchange, and no weight moves.
//
// Has it: a kernel with states whose sums are products W@v of a param matrix, or one a head, by a value of the step,
// and otherwise values channel by channel, and sums over channels, which every block makes for itself. Has it not: sums
// of products of states (attention), a new state that is read elsewhere in the same step, cells without such a product:
// those stay with one block a sequence. What it saves: docs/notes/persistent.md.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/plan/plan.h"

namespace cellc {

/// A value of a block's own channels that all blocks of its cluster read.
struct ToldValue {
  Place place = Place::Temp;  ///< Temp, Out, Chunk, or StateOld: the state that the step before made
  int id = -1;
  bool by_products = true;  ///< nobody but products reads it so
};

/// One row of sums: matrix[row, term] * value[term].
struct StationaryFactor {
  Access matrix;                    ///< Param or Once
  int row_dim = -1, term_dim = -1;  ///< of the matrix
  int told = -1;                    ///< in PersistentKernel::told
};

struct StationaryProduct {
  int nest = -1;                          ///< of the kernel
  std::vector<StationaryFactor> factors;  ///< by node of the nest
  bool one_value = true;                  ///< all multiply the same one
};

struct PersistentKernel {
  int kernel = -1;          ///< of the plan
  AxisId spread = kNoAxis;  ///< the axis whose places the blocks of a cluster share
  std::vector<ToldValue> told;
  std::vector<StationaryProduct> products;
  std::vector<int> temps;   ///< that the kernel has
  std::vector<int> states;  ///< positions

  int told_number(Place place, int id) const;
  const StationaryProduct* product_of(int nest) const;
};

/// Nothing, and why, where kernel `kernel` of the plan cannot run so. `plan` must outlive it.
std::optional<PersistentKernel> find_persistent(const Plan& plan, int kernel, std::string& why);

/// What factors of products are while they rest: numbers of the arithmetic, or what tensor cores take.
enum class StationaryNumbers : std::uint8_t { Real, Tf32, Half };

struct PersistentShape {
  std::map<AxisId, std::int64_t> lengths{};  ///< by header axis
  int blocks = 1;                            ///< of a cluster: 1, 2, 4, 8, 16; of a group: 2 and more
  int slots = 1;                             ///< sequences that a cluster or group runs side by side
  int threads = 256;
  StationaryNumbers numbers = StationaryNumbers::Real;
  int real_bytes = 4;
  bool grouped = false;  ///< blocks exchange through memory, not from cluster to cluster of shared memory
  bool operator==(const PersistentShape&) const = default;
  auto operator<=>(const PersistentShape&) const = default;
};

/// Of one block. Bytes are offsets in its shared memory.
struct PersistentLayout {
  std::int64_t part = 0;   ///< places of the spread axis of a block: the last may have fewer
  std::int64_t terms = 0;  ///< blocks * part
  struct Told {
    std::int64_t bytes = 0, mailboxes = 0;
    std::int64_t exchange = 0;  ///< of a group: in its memory of the device
    std::int64_t inner = 1;     ///< entries of one place of the spread axis
    std::int64_t pitch = 0;     ///< entries from one sequence's to the next
    int entry_bytes = 4;
  };
  struct Product {
    std::int64_t bytes = 0;    ///< of what does not fit registers
    int shares = 1;            ///< warps that share the terms of a tile of rows
    int tiles = 0;             ///< of sixteen rows
    int of_warp = 0;           ///< tiles that a warp has, at most
    int steps = 0, held = 0;   ///< instructions along the terms of a share; of which in registers
    std::int64_t partial = 0;  ///< sums of shares, where there are several
    std::int64_t results = 0;  ///< [factor][slot][part]; the temps of its nest, if it stores nothing else
    bool in_temps = true;
  };
  std::int64_t slots = 0, scalars = 0;
  std::map<int, std::int64_t> temps, states_old, states_new;
  std::map<std::pair<Place, int>, std::int64_t> rows;  ///< outs and chunks that are told: beside their rows
  std::vector<Told> told;
  std::vector<Product> products;
  std::int64_t shared_bytes = 0;
  std::int64_t exchange_bytes = 0;  ///< of a group, in memory of the device; 0: there is no group
};

/// Bytes at the beginning of a group's memory: what says that its blocks have begun.
constexpr std::int64_t kGroupHeader = 128;

PersistentLayout persistent_layout(const Plan& plan, const PersistentKernel& kernel, const PersistentShape& shape,
                                   int scalars);

/// Values without axes that other nests of a kernel read: they pass through memory.
std::vector<NodeId> scalars_of(const Plan& plan, const Kernel& kernel);

}  // namespace cellc
