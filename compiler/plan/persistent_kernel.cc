#include "compiler/plan/persistent_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>
#include <stdexcept>

#include "compiler/graph/axes.h"

namespace cellc {

namespace {

/// Finds, or says why not.
class Finder {
 public:
  Finder(const Plan& plan, int kernel, std::string& why)
      : plan_(plan), nests_(plan.kernels[static_cast<std::size_t>(kernel)].nests), why_(why) {
    found_.kernel = kernel;
  }

  std::optional<PersistentKernel> run() {
    for (std::size_t i = 0; i < plan_.state_kernel.size(); ++i)
      if (plan_.state_kernel[i] == found_.kernel) found_.states.push_back(static_cast<int>(i));
    if (plan_.cell.has_lines()) return no("it has delay lines");
    if (!find_spread()) return std::nullopt;
    if (!find_memory() || !find_told() || !find_products()) return std::nullopt;
    return found_;
  }

 private:
  std::nullopt_t no(std::string reason) {
    why_ = std::move(reason);
    return std::nullopt;
  }
  const Node& node(NodeId id) const { return plan_.cell.graph[id]; }
  const std::string& name(AxisId axis) const { return plan_.cell.graph.axis(axis).name; }
  bool is_split(AxisId axis) const { return plan_.split_axis != kNoAxis && axis == plan_.split_axis; }
  static const Access* load_of(const Nest& nest, NodeId id) {
    const auto at = std::find_if(nest.loads.begin(), nest.loads.end(), [&](const Access& a) { return a.node == id; });
    return at == nest.loads.end() ? nullptr : &*at;
  }

  /// The two factors of a sum W@v; null where it is none.
  std::pair<const Access*, const Access*> factors(const Nest& nest, NodeId sum) const {
    if (node(sum).op != Op::ReduceSum || nest.bound.size() != 1) return {};
    const Node& term = node(node(sum).args[0]);
    if (term.op != Op::Mul) return {};
    const Access* a = load_of(nest, term.args[0]);
    const Access* b = load_of(nest, term.args[1]);
    if (!a || !b || a == b) return {};
    const auto constant = [](const Access& x) { return x.home.place == Place::Param || x.home.place == Place::Once; };
    const auto of_step = [&](const Access& x) { return may_be_told(x); };
    if (constant(*b)) std::swap(a, b);
    if (!constant(*a) || !of_step(*b)) return {};
    return {a, b};
  }
  bool is_product(const Nest& nest) const {
    return nest.is_reduction() && !nest.nodes.empty() &&
           std::all_of(nest.nodes.begin(), nest.nodes.end(), [&](NodeId n) { return factors(nest, n).first; });
  }

  /// What the step itself makes, or the state before it. An out in 16 bits is read as it was rounded: it stays in
  /// memory.
  bool may_be_told(const Access& a) const {
    if (a.home.place == Place::Temp || a.home.place == Place::StateOld) return true;
    if (a.home.place == Place::Out && plan_.options.narrow_storage) return false;
    return (a.home.place == Place::Out || a.home.place == Place::Chunk) && makes(a.home);
  }
  bool makes(const Home& home) const {
    return std::any_of(nests_.begin(), nests_.end(), [&](const Nest& nest) {
      return std::any_of(nest.stores.begin(), nest.stores.end(),
                         [&](const Store& s) { return s.home.place == home.place && s.home.id == home.id; });
    });
  }

  bool find_spread() {
    for (const Nest& nest : nests_) {
      if (!is_product(nest)) continue;
      std::vector<AxisId> free;
      for (const AxisId a : nest.axes)
        if (!is_split(a)) free.push_back(a);
      if (free.size() != 1) return no("a product of it has results along more axes than one"), false;
      if (found_.spread != kNoAxis && found_.spread != free[0])
        return no(fmt::format("its products have results along {} and {}", name(found_.spread), name(free[0]))), false;
      found_.spread = free[0];
    }
    if (found_.spread == kNoAxis) return no("no matrix of params multiplies a value of the step"), false;
    return true;
  }

  /// Values of blocks lie [split axis, spread axis, …], so that a block's part is one piece.
  bool lies_in_parts(const std::vector<AxisId>& dims) const {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (is_split(dims[i]) && i != 0) return false;
      if (dims[i] == found_.spread && i != (is_split(dims[0]) ? 1u : 0u)) return false;
    }
    return true;
  }

  bool find_memory() {
    std::set<int> temps;
    for (const Nest& nest : nests_) {
      if (!lies_in_parts(nest.axes))
        return no(fmt::format("{} is not the first axis of all values", name(found_.spread))), false;
      for (const Store& s : nest.stores)
        if (s.home.place == Place::Temp) temps.insert(s.home.id);
      for (const Access& a : nest.loads) {
        if (a.home.place == Place::StateRow ||
            (a.home.place == Place::StateNew && plan_.state_kernel[a.home.id] == found_.kernel && !is_own(nest, a)))
          return no("it reads a new state at other places in the same step"), false;
        if (a.home.place == Place::Out && plan_.options.narrow_storage && makes(a.home) && !is_own(nest, a))
          return no("it reads an out at other places, as it was rounded"), false;
        if (a.lag != 0 || a.lag_axis != kNoAxis)
          if (a.home.place != Place::Input) return no("it reads earlier steps"), false;
      }
    }
    found_.temps.assign(temps.begin(), temps.end());
    for (const int s : found_.states)
      if (!lies_in_parts(plan_.cell.symbols[plan_.cell.updates[s].symbol].index))
        return no(fmt::format("{} is not the first axis of all states", name(found_.spread))), false;
    return true;
  }

  /// Whether a nest reads it at the block's own places.
  bool is_own(const Nest& nest, const Access& a) const {
    for (std::size_t i = 0; i < a.home.dims.size(); ++i)
      if (a.home.dims[i] == found_.spread &&
          !(a.index[i].is_axis() && a.index[i].axis == found_.spread && contains(nest.axes, found_.spread)))
        return false;
    return true;
  }

  bool find_told() {
    for (const Nest& nest : nests_) {
      const bool product = is_product(nest);
      for (const Access& a : nest.loads) {
        if (!may_be_told(a) || is_own(nest, a)) continue;
        const int number = found_.told_number(a.home.place, a.home.id);
        if (number < 0)
          found_.told.push_back({a.home.place, a.home.id, product});
        else
          found_.told[static_cast<std::size_t>(number)].by_products =
              found_.told[static_cast<std::size_t>(number)].by_products && product;
      }
    }
    return true;
  }

  bool find_products() {
    for (std::size_t n = 0; n < nests_.size(); ++n) {
      const Nest& nest = nests_[n];
      if (!is_product(nest)) continue;
      StationaryProduct product;
      product.nest = static_cast<int>(n);
      const AxisId bound = nest.bound[0];
      for (const NodeId sum : nest.nodes) {
        const auto [matrix, value] = factors(nest, sum);
        StationaryFactor f;
        f.matrix = *matrix;
        for (std::size_t i = 0; i < matrix->index.size(); ++i) {
          const Index& at = matrix->index[i];
          if (!at.is_axis()) return no("a product multiplies a part of a matrix"), false;
          if (at.axis == found_.spread) f.row_dim = static_cast<int>(i);
          if (at.axis == bound) f.term_dim = static_cast<int>(i);
          if (at.axis != found_.spread && at.axis != bound && !is_split(at.axis))
            return no("a product multiplies a matrix of more axes than two"), false;
        }
        f.told = found_.told_number(value->home.place, value->home.id);
        std::size_t own = 0;
        for (std::size_t i = 0; i < value->index.size(); ++i)
          own += value->index[i].is_axis() && (value->index[i].axis == bound ? value->home.dims[i] == found_.spread
                                                                             : is_split(value->index[i].axis));
        if (f.row_dim < 0 || f.term_dim < 0 || f.told < 0 || own != value->index.size())
          return no("a product multiplies a value along another axis than its own"), false;
        product.one_value = product.one_value && (product.factors.empty() || product.factors[0].told == f.told);
        product.factors.push_back(f);
      }
      found_.products.push_back(std::move(product));
    }
    // A product reads all of its values alike: where sums read one of them too, none is told in 16 bits.
    const auto told = [&](const StationaryFactor& f) -> bool& {
      return found_.told[static_cast<std::size_t>(f.told)].by_products;
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (const StationaryProduct& p : found_.products) {
        const bool alike = std::all_of(p.factors.begin(), p.factors.end(), told);
        for (const StationaryFactor& f : p.factors)
          if (!alike && told(f)) told(f) = false, changed = true;
      }
    }
    return true;
  }

  const Plan& plan_;
  const std::vector<Nest>& nests_;
  std::string& why_;
  PersistentKernel found_;
};

constexpr std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

/// How the tiles of a product go round the warps: `shares` of them have a tile together, each some of its terms, so
/// that none is idle.
PersistentLayout::Product shares_of(const StationaryProduct& product, std::int64_t part, std::int64_t pairs,
                                    std::int64_t warps) {
  const auto factors = static_cast<std::int64_t>(product.factors.size());
  PersistentLayout::Product best;
  // Rows of one value's products lie one after another; others have tiles of their own.
  const std::int64_t tiles = product.one_value ? (factors * part + 15) / 16 : factors * ((part + 15) / 16);
  double least = 0;
  for (std::int64_t shares = 1; shares <= warps && warps % shares == 0; shares *= 2) {
    const std::int64_t of_share = warps / shares, of_warp = (tiles + of_share - 1) / of_share,
                       steps = 2 * ((pairs + shares - 1) / shares);
    // Sums of shares are added up behind a barrier.
    const double cost = static_cast<double>(of_warp * steps) + (shares > 1 ? 4 : 0);
    if (least > 0 && cost >= least) continue;
    least = cost;
    best.shares = static_cast<int>(shares);
    best.tiles = static_cast<int>(tiles);
    best.of_warp = static_cast<int>(of_warp);
    best.steps = static_cast<int>(steps);
  }
  return best;
}

/// Registers of a thread for weights: what is left of a multiprocessor's beside sums, inputs and places.
std::int64_t registers_for_weights(int threads, std::int64_t sums) {
  constexpr std::int64_t kRegisters = 65536, kMost = 255, kOthers = 88;
  return std::max<std::int64_t>(0, std::min(kMost, kRegisters / threads) - kOthers - sums);
}

/// Weights go to registers first, then to shared memory.
void place_weights(const PersistentKernel& kernel, const PersistentShape& shape,
                   const std::function<std::int64_t(std::int64_t)>& take, PersistentLayout& l) {
  const std::int64_t columns = (shape.slots + 7) / 8;
  std::int64_t registers = -1;
  for (std::size_t p = 0; p < kernel.products.size(); ++p) {
    const auto factors = static_cast<std::int64_t>(kernel.products[p].factors.size());
    PersistentLayout::Product& product = l.products[p];
    if (shape.numbers == StationaryNumbers::Real) {
      product.steps = static_cast<int>(l.terms);
      product.bytes = take(factors * l.part * (l.terms + 1) * shape.real_bytes);
      continue;
    }
    const std::int64_t of_warp = product.of_warp;
    // Sums: as many chains of them as StationaryTiles has.
    if (registers < 0)
      registers = registers_for_weights(shape.threads, std::max<std::int64_t>(16, of_warp * columns * 4));
    product.held = static_cast<int>(std::min<std::int64_t>(product.steps, registers / (4 * of_warp)) / 2 * 2);
    registers -= product.held * 4 * of_warp;
    if (product.shares > 1) product.partial = take(product.shares * (product.tiles * 16 + 8) * shape.slots * 4);
    product.bytes =
        take(static_cast<std::int64_t>(product.tiles) * product.shares * (product.steps - product.held) * 512);
  }
}

}  // namespace

int PersistentKernel::told_number(Place place, int id) const {
  for (std::size_t i = 0; i < told.size(); ++i)
    if (told[i].place == place && told[i].id == id) return static_cast<int>(i);
  return -1;
}

const StationaryProduct* PersistentKernel::product_of(int nest) const {
  for (const StationaryProduct& p : products)
    if (p.nest == nest) return &p;
  return nullptr;
}

std::optional<PersistentKernel> find_persistent(const Plan& plan, int kernel, std::string& why) {
  return Finder(plan, kernel, why).run();
}

std::vector<NodeId> scalars_of(const Plan& plan, const Kernel& kernel) {
  std::map<NodeId, const Nest*> computed;
  for (const Nest& n : kernel.nests) {
    if (!n.axes.empty()) continue;
    for (const NodeId id : n.nodes) computed[id] = &n;
  }
  std::set<NodeId> read;
  for (const Nest& n : kernel.nests) {
    const auto use = [&](NodeId id) {
      const auto it = computed.find(id);
      if (it != computed.end() && it->second != &n) read.insert(id);
    };
    for (const auto* list : {&n.nodes, &n.inlined})
      for (const NodeId id : *list)
        for (const NodeId a : plan.cell.graph[id].args) use(a);
    for (const Store& s : n.stores) use(s.value);
  }
  return {read.begin(), read.end()};
}

PersistentLayout persistent_layout(const Plan& plan, const PersistentKernel& kernel, const PersistentShape& shape,
                                   int scalars) {
  PersistentLayout l;
  const AxisLengths lengths(plan.cell.graph, shape.lengths);
  const auto length = [&](AxisId axis) {
    const Axis& header = plan.cell.graph.axis(plan.cell.graph.axis(axis).extent_of);
    return header.fixed ? *header.fixed : lengths[axis];
  };
  // Pieces of sixteen bytes; and whole tiles of sixteen rows where that leaves no block without work.
  const std::int64_t n = length(kernel.spread), each = std::max<std::int64_t>(1, (n + shape.blocks - 1) / shape.blocks);
  l.part = round_up(each, each > 8 && !shape.grouped ? 16 : 8);
  l.terms = l.part * shape.blocks;
  const auto entries = [&](const std::vector<AxisId>& dims) {
    std::int64_t count = 1;
    for (const AxisId a : dims) count *= a == plan.split_axis ? 1 : a == kernel.spread ? l.part : length(a);
    return count;
  };
  std::int64_t bytes = 0;
  const auto take = [&](std::int64_t size) {
    const std::int64_t at = bytes;
    bytes += round_up(size, 16);
    return at;
  };
  const std::int64_t warps = shape.threads / 32;
  const bool tensor = shape.numbers != StationaryNumbers::Real;
  const std::int64_t at_once = shape.numbers == StationaryNumbers::Half ? 16 : 8;
  l.slots = take(48 * shape.slots);
  const Kernel& of = plan.kernels[static_cast<std::size_t>(kernel.kernel)];
  std::vector<std::int64_t> mailboxes;
  for (std::size_t t = 0; t < kernel.told.size(); ++t) mailboxes.push_back(take(32));
  l.scalars = take(static_cast<std::int64_t>(scalars) * shape.slots * shape.real_bytes);
  std::set<int> placed;
  for (const StationaryProduct& p : kernel.products) {
    // The temps of a product lie side by side, in the order of its factors.
    const Nest& nest = of.nests[static_cast<std::size_t>(p.nest)];
    PersistentLayout::Product product =
        tensor ? shares_of(p, l.part, (l.terms + 2 * at_once - 1) / (2 * at_once), warps) : PersistentLayout::Product{};
    product.in_temps =
        nest.stores.size() == nest.nodes.size() &&
        std::all_of(nest.stores.begin(), nest.stores.end(), [](const Store& s) { return s.home.place == Place::Temp; });
    if (!product.in_temps)
      product.results = take(static_cast<std::int64_t>(nest.nodes.size()) * l.part * shape.slots * shape.real_bytes);
    for (std::size_t i = 0; i < nest.nodes.size() && product.in_temps; ++i) {
      const auto store = std::find_if(nest.stores.begin(), nest.stores.end(),
                                      [&](const Store& s) { return s.value == nest.nodes[i]; });
      if (store == nest.stores.end()) throw std::logic_error("persistent: a product is not stored");
      const std::int64_t at = take(l.part * shape.slots * shape.real_bytes);
      if (i == 0) product.results = at;
      l.temps[store->home.id] = at;
      placed.insert(store->home.id);
    }
    l.products.push_back(product);
  }
  for (const int t : kernel.temps)
    if (!placed.contains(t))
      l.temps[t] = take(entries(plan.temps[static_cast<std::size_t>(t)].dims) * shape.slots * shape.real_bytes);
  const auto state_dims = [&](int s) -> const std::vector<AxisId>& {
    return plan.cell.symbols[plan.cell.updates[static_cast<std::size_t>(s)].symbol].index;
  };
  for (const int s : kernel.states)
    for (auto* half : {&l.states_old, &l.states_new})
      (*half)[s] = take(entries(state_dims(s)) * shape.slots * shape.real_bytes);
  for (std::size_t t = 0; t < kernel.told.size(); ++t) {
    const ToldValue& value = kernel.told[t];
    PersistentLayout::Told told;
    told.mailboxes = mailboxes[t];
    const auto id = static_cast<std::size_t>(value.id);
    const std::vector<AxisId>& dims = value.place == Place::Temp    ? plan.temps[id].dims
                                      : value.place == Place::Out   ? plan.cell.outs[id].index
                                      : value.place == Place::Chunk ? plan.chunks[id].dims
                                                                    : state_dims(value.id);
    if (value.place == Place::Out || value.place == Place::Chunk)
      l.rows[{value.place, value.id}] = take(entries(dims) * shape.slots * shape.real_bytes);
    told.inner = entries(dims) / l.part;
    told.entry_bytes = value.by_products && shape.numbers == StationaryNumbers::Half ? 2 : shape.real_bytes;
    // What eight lanes read at once, 64 bytes of two sequences each, falls into different banks.
    const std::int64_t line = 128 / told.entry_bytes;
    std::int64_t read = l.terms * told.inner;  // weights behind the last term are zeros, and so are values
    for (std::size_t p = 0; p < kernel.products.size() && tensor; ++p)
      for (const StationaryFactor& f : kernel.products[p].factors)
        if (f.told == static_cast<int>(t)) read = std::max(read, l.products[p].shares * l.products[p].steps * at_once);
    told.pitch = round_up(read, line) + 64 / told.entry_bytes;
    // What comes through memory is awaited when nobody reads what was there.
    told.bytes = take((shape.grouped ? 1 : 2) * told.pitch * shape.slots * told.entry_bytes);
    if (shape.grouped) {
      const std::int64_t each_piece = 12 / told.entry_bytes,
                         pieces = (l.part * told.inner + each_piece - 1) / each_piece * shape.slots * shape.blocks;
      told.exchange = std::max(l.exchange_bytes, kGroupHeader);
      l.exchange_bytes = told.exchange + 2 * pieces * 16;
    }
    l.told.push_back(told);
  }
  if (shape.grouped) l.exchange_bytes = round_up(std::max(l.exchange_bytes, kGroupHeader), 128);
  place_weights(kernel, shape, take, l);
  l.shared_bytes = bytes;
  return l;
}

}  // namespace cellc
