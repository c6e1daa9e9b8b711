// Sums, and largest values, of a row kernel: over the threads of a part of a warp.
#include <algorithm>
#include <limits>

#include "compiler/codegen_cuda/emit_cuda_nest_kernel.h"
#include "compiler/graph/axes.h"

namespace cellc {

namespace {

/// Whether the terms of its sums lie side by side.
bool terms_are_neighbours(const Nest& nest) {
  return nest.vector_axis != kNoAxis && nest.bound_loops.back() == nest.vector_axis;
}

}  // namespace

/// Whether anybody but `next` reads what is stored there.
bool NestEmitter::is_read_later(const Home& home, const Nest& next) const {
  if (home.place != Place::Temp) return true;
  return std::any_of(kernel_.nests.begin(), kernel_.nests.end(), [&](const Nest& nest) {
    return &nest != &next && std::any_of(nest.loads.begin(), nest.loads.end(), [&](const Access& a) {
      return a.home.place == home.place && a.home.id == home.id;
    });
  });
}

std::string NestEmitter::neutral(NodeId reduction) const {
  return literal(node(reduction).op == Op::ReduceSum ? 0.0 : -std::numeric_limits<double>::infinity());
}

/// Terms of a sum of many rows that one thread has, where that is known here; else 0.
std::int64_t NestEmitter::known_terms(const Nest& nest) const {
  constexpr std::int64_t kMost = 8, kMostNeighbours = 4;  // threads_of_sum gives such sums to one thread each
  if (out_.form == NestForm::Steps) return 0;
  std::int64_t terms = 1;
  for (const AxisId a : nest.bound_loops) {
    const Axis& header = plan_.cell.graph.axis(extent(a));
    if (!header.fixed || *header.fixed > kMost) return 0;
    terms *= *header.fixed;
  }
  return terms <= (terms_are_neighbours(nest) ? kMostNeighbours : kMost) ? terms : 0;
}

/// Of a thread that has all terms of a sum: how many numbers lie side by side, one for each of them; else 0.
std::int64_t NestEmitter::neighbours_read(const Access& access) const {
  if (all_terms_ == kNoAxis || access.index.empty() || access.index.back().axis != all_terms_) return 0;
  if (access.lag != 0 || access.lag_axis != kNoAxis || !is_constant(access.home)) return 0;
  const bool repeated =
      std::any_of(access.index.begin(), access.index.end() - 1, [&](const Index& i) { return i.axis == all_terms_; });
  const std::int64_t length = *plan_.cell.graph.axis(extent(all_terms_)).fixed;
  return !repeated && element_of(access.home) == "Real" && length % 2 == 0 ? length : 0;
}

/// Where all terms of a place are cellc::Plain; nothing, if none of them asks.
std::string NestEmitter::plain_where(const Nest& nest) {
  std::vector<std::string> conditions;
  const auto add = [&](const std::string& condition) {
    if (std::find(conditions.begin(), conditions.end(), condition) == conditions.end()) conditions.push_back(condition);
  };
  for (const Access& a : nest.loads) {
    if (!needs_bound(a, nest)) continue;
    if (const std::int64_t neighbours = neighbours_read(a); neighbours != 0)
      add(fmt::format("cellc::starts_vector<{}>({})", neighbours, pointer(a.home)));
    if (a.lag == 0 && a.lag_axis == kNoAxis) continue;
    const std::string elapsed = step_number("elapsed");
    if (a.lag_axis == kNoAxis) {
      add(fmt::format("{} >= {}", elapsed, a.lag));
    } else if (!contains(nest.bound, a.lag_axis)) {
      add(fmt::format("{} >= {} + {}", elapsed, position_of(a.lag_axis), a.lag));
    } else if (const auto& fixed = plan_.cell.graph.axis(extent(a.lag_axis)).fixed) {
      add(fmt::format("{} >= {}", elapsed, *fixed - 1 + a.lag));
    } else {
      add(fmt::format("{} + 1 >= {} + {}", elapsed, length(a.lag_axis), a.lag));
    }
  }
  return fmt::format("{}", fmt::join(conditions, " && "));
}

/// Terms whose place in a row is that of the sum, only some steps earlier, add their steps to one pointer.
void NestEmitter::keep_places(const Nest& nest) {
  for (const Access& a : nest.loads) {
    const bool own_place = std::none_of(a.index.begin(), a.index.end(),
                                        [&](const Index& i) { return i.is_axis() && contains(nest.bound, i.axis); });
    if (!own_place || !needs_bound(a, nest) || !is_constant(a.home)) continue;
    const std::string name = nest_names_.unique(base_name(NestSlotKind::Input, a.home.id) + "_place");
    line("const {}* const {} = cellc::kept({} + {});", element_of(a.home), name, pointer(a.home),
         place_in(a.home, a.index));
    kept_places_[a.node] = name;
  }
}

void NestEmitter::reduction_nest(const Nest& nest, const Nest* next) {
  std::vector<std::vector<AxisId>> bound;
  for (const AxisId a : nest.bound_loops) bound.push_back({a});
  line("const long long places = {}, terms = {};", count_of(nest.loops, true), count_of(bound, false));
  // What one step waits for is spread out as far as it goes; where rows are many, a thread that adds several
  // terms has as many loads on their way, and finds its place once for all of them.
  if (known_terms(nest) != 0) {
    line("constexpr int threads = 1;");
  } else {
    line("const int threads = cellc::threads_of_sum({}, terms, {}, {});", count_of(nest.loops, false),
         terms_are_neighbours(nest), out_.form == NestForm::Steps ? "1" : "cellc::kTermsOfThread");
  }
  if (out_.form == NestForm::Steps) {
    sums_of_step(nest, bound);
  } else {
    sums_of_rows(nest, bound, next);
  }
}

/// What a term is, inside of all loops.
void NestEmitter::emit_terms(const Nest& nest, const std::vector<std::vector<AxisId>>& bound) {
  enter_places(bound, "q");
  emit_loads(nest, true);
  emit_values(nest.inlined, nest);
}

void NestEmitter::emit_sums(const Nest& nest, const std::vector<std::string>& sums,
                            const std::vector<std::string>& terms) {
  for (std::size_t i = 0; i < nest.nodes.size(); ++i) {
    const bool sum = node(nest.nodes[i]).op == Op::ReduceSum;
    line(fmt::runtime(sum ? "{0} += {1};" : "{0} = cellc::max({0}, {1});"), sums[i], terms[i]);
  }
}

void NestEmitter::emit_joins(const Nest& nest, const std::vector<std::string>& sums) {
  for (std::size_t i = 0; i < nest.nodes.size(); ++i) {
    const bool sum = node(nest.nodes[i]).op == Op::ReduceSum;
    line("{0} = cellc::{1}({0}, threads);", sums[i], sum ? "sum_of_threads" : "largest_of_threads");
  }
}

/// The names of sums that are begun here.
std::vector<std::string> NestEmitter::declare_sums(const Nest& nest) {
  std::vector<std::string> sums;
  for (const NodeId id : nest.nodes) {
    sums.push_back(nest_names_.unique(name_of(id)));
    line("Real {} = {};", sums.back(), neutral(id));
  }
  return sums;
}

/// Inside of the loops over terms, whose values are there.
void NestEmitter::add_terms(const Nest& nest, const std::vector<std::string>& sums) {
  std::vector<std::string> terms;
  for (const NodeId id : nest.nodes) terms.push_back(value(node(id).args[0]).text);
  source_line(nest.nodes[0]);
  emit_sums(nest, sums, terms);
  own_line();
}

/// Behind them: the sums are values of the nest.
void NestEmitter::join_sums(const Nest& nest, const std::vector<std::string>& sums) {
  values_.clear();  // what was declared inside
  emit_joins(nest, sums);
  for (std::size_t i = 0; i < nest.nodes.size(); ++i) values_[nest.nodes[i]] = {sums[i], false};
}

void NestEmitter::sums_of_step(const Nest& nest, const std::vector<std::vector<AxisId>>& bound) {
  line(
      "const int share = static_cast<int>(threadIdx.x) % threads, sums = static_cast<int>(blockDim.x) / "
      "threads;");
  open("for (long long first = 0; first < places; first += sums) {{");
  line("const long long p = first + static_cast<int>(threadIdx.x) / threads;");
  line("const bool used = p < places;");
  if (nest.loops.empty()) line("static_cast<void>(p);");
  enter_places(nest.loops, "p");
  const std::vector<std::string> sums = declare_sums(nest);
  own_line();
  open("if (used) {{");
  emit_scalar_loads(nest);
  emit_loads(nest, false);
  own_line();
  line("CELLC_UNROLL(4)");
  open("for (long long q = share; q < terms; q += threads) {{");
  emit_terms(nest, bound);
  add_terms(nest, sums);
  close();
  close();
  join_sums(nest, sums);
  open("if (used && share == 0) {{");
  emit_stores(nest);
  close();
  close();
}

/// `next`: what goes on with the sums, where one does.
void NestEmitter::sums_of_rows(const Nest& nest, const std::vector<std::vector<AxisId>>& bound, const Nest* next) {
  std::vector<std::string> sums, terms;
  std::string none;
  for (const NodeId id : nest.nodes) {
    none += (none.empty() ? "" : ", ") + neutral(id);
    sums.push_back(fmt::format("sum[{}]", sums.size()));
    terms.push_back(fmt::format("term[{}]", terms.size()));
  }
  const std::size_t n = sums.size();
  const bool tile = out_.form == NestForm::Tile;
  const char* const of_tile = tile ? "[[maybe_unused]] const auto tile_row, " : "";
  line("const Real none[{}] = {{{}}};", n, none);
  const bool lags = has_lags(nest) || (next && has_lags(*next));
  const std::int64_t known = known_terms(nest);
  const std::string told = known != 0 ? fmt::format(", {}, {}", lags, known) : lags ? ", true" : "";
  line("cellc::each_sum{}<{}{}>(a.frame, {}places, terms, threads, none,", tile ? "_of_tile" : "",
       nest.nodes.size() + nest.inlined.size() <= 48 ? 2 : 1, told, tile ? "tile, " : "");
  ++depth_;
  numbers_ = "divide.";
  const auto begin_body = [&](const std::string& more) {
    line("[&]([[maybe_unused]] auto divide, [[maybe_unused]] const auto p,");
    open("    {}[[maybe_unused]] const cellc::RowPlace& here{}) {{", of_tile, more);
    nest_names_ = names_;
    begin_row_scope();
    loops_.clear();
    values_.clear();
    enter_places(nest.loops, "p");
  };
  // What makes a term, from what its place is found with.
  keeps_rows_ = true;
  begin_body("");
  emit_scalar_loads(nest);
  emit_loads(nest, false);
  own_line();
  if (known != 0 && bound.size() == 1) all_terms_ = bound[0][0];
  keep_places(nest);
  const std::string plain = plain_where(nest);
  if (plain.empty()) {
    open("return [=, &a]([[maybe_unused]] const auto q, Real (&term)[{}]) {{", n);
  } else {
    how_ = nest_names_.unique("how");
    line("return cellc::terms_of({},", plain);
    open("    [=, &a]([[maybe_unused]] const auto {}, [[maybe_unused]] const auto q, Real (&term)[{}]) {{", how_, n);
  }
  emit_terms(nest, bound);
  for (std::size_t i = 0; i < n; ++i) {
    const std::string term = value(node(nest.nodes[i]).args[0]).text;
    source_line(nest.nodes[i]);
    line("{} = {};", terms[i], term);
  }
  own_line();
  if (plain.empty()) {
    close("}};");
  } else {
    close("}});");
  }
  how_.clear();
  kept_places_.clear();
  all_terms_ = kNoAxis;
  end_row_scope();
  keeps_rows_ = false;
  close("}},");
  open("[&](Real (&sum)[{0}], const Real (&term)[{0}]) {{", n);
  emit_sums(nest, sums, terms);
  close("}},");
  open("[&](Real (&sum)[{}]) {{", n);
  emit_joins(nest, sums);
  close("}},");
  begin_body(fmt::format(", const Real (&sum)[{}]", n));
  for (std::size_t i = 0; i < n; ++i)
    line("const Real {} = {};", declare(nest.nodes[i], name_of(nest.nodes[i])), sums[i]);
  if (next) {
    Nest kept = nest;
    std::erase_if(kept.stores, [&](const Store& s) { return !is_read_later(s.home, *next); });
    emit_stores(kept);
    emit_scalar_loads(*next);
    emit_loads(*next, false);
    emit_values(next->nodes, *next);
    own_line();
    emit_stores(*next);
  } else {
    emit_stores(nest);
  }
  end_row_scope();
  numbers_ = "cellc::";
  close("}});");
  --depth_;
}

}  // namespace cellc
