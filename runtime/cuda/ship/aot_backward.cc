#include "runtime/cuda/ship/aot_backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "compiler/analysis/jacobian.h"
#include "compiler/derive/pipeline.h"
#include "compiler/graph/axes.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

CellGraph with_lengths(const CellGraph& cell, const std::map<AxisId, std::int64_t>& lengths) {
  CellGraph fixed = cell;
  for (const auto& [axis, length] : lengths) fixed.graph.fix_length(axis, length);
  return fixed;
}

}  // namespace

AotBackward::AotBackward(const CellGraph& whole, const AotCell& forward, const ShipRequest& request)
    : whole_(whole),
      fixed_(with_lengths(whole, request.lengths)),
      adjoint_(adjoint_of(whole, {}, request.derive)),
      request_(request) {
  layout_ = backward_layout(fixed_, adjoint_, false);
  request_.prefix += "_backward";
  request_.dtype = arithmetic_of(request.dtype);
  // Nothing scales cotangents into the range of f16 there (runtime/cuda/launch/backward_on_gpu does).
  if (request_.factors == ProductFactors::F16) request_.factors = ProductFactors::Tf32;
  // What is asked for is the forward call's; but who wants steps one by one wants them here, too.
  if (request.solver != Strategy::Sequential) request_.solver = Strategy::Auto;
  request_.with_sums = true;
  request_.with_past = !layout_.later.empty() || !layout_.past.empty();
  const Jacobian jacobian = differentiate(adjoint_.adjoint.cell);
  shipped_.emplace(adjoint_.adjoint.cell, analyse(adjoint_.adjoint.cell, jacobian), request_);
  for (const CallField& f : layout_.layout.fields)
    fields.push_back({static_cast<int>(f.kind), f.id, f.word, f.required()});
  add_arrays();
  add_outs();
  add_past();
  add_gradients();
  const auto count = [](const auto& list) { return static_cast<int>(list.size()); };
  table_ = {&forward.table(),
            &shipped_->table(),
            fields.data(),
            axes.data(),
            inputs.data(),
            outs.data(),
            later.data(),
            past.data(),
            arrays.data(),
            zeros.data(),
            sums.data(),
            count(fields),
            count(inputs),
            count(outs),
            count(later),
            count(past),
            count(arrays),
            count(zeros),
            count(sums),
            std::max(1, shipped_->layout().words),
            shipped_->gradient_kernels};
}

cellc_dims AotBackward::listed(const std::vector<int>& numbers) {
  axes.insert(axes.end(), numbers.begin(), numbers.end());
  return {static_cast<int>(axes.size() - numbers.size()), static_cast<int>(numbers.size())};
}
cellc_dims AotBackward::dims(const std::vector<AxisId>& of) {
  std::vector<int> places;
  for (const AxisId a : of) places.push_back(header_position(adjoint_.adjoint.cell, a));
  return listed(places);
}

int AotBackward::word(FieldKind kind, int id) const { return shipped_->layout().find(kind, id)->word; }

void AotBackward::add_arrays() {
  const CellGraph& cell = adjoint_.adjoint.cell;
  std::set<int> factors;
  for (const ParamGradient& param : adjoint_.params)
    for (const StepProduct& product : param.products) {
      if (!product.left.is_out) factors.insert(product.left.id);
      if (product.right && !product.right->is_out) factors.insert(product.right->id);
    }
  const auto add_input = [&](int id, const ShiftedRows& from) {
    input_of_[id] = static_cast<int>(inputs.size());
    inputs.push_back({from.field, word(FieldKind::Input, id), from.back, from.along, from.is_state, from.start,
                      from.history, factors.count(id) > 0,
                      layout_.layout.fields[static_cast<std::size_t>(from.field)].is_storage(),
                      dims(cell.symbols[static_cast<std::size_t>(id)].axes)});
  };
  for (const auto& [of, field] : layout_.of_adjoint) {
    const auto& [kind, id] = of;
    if (kind == FieldKind::Out) continue;
    if (kind != FieldKind::Input) {
      arrays.push_back({field, word(kind, id)});
      continue;
    }
    ShiftedRows from{field};
    if (const auto start = layout_.starts.find(id); start != layout_.starts.end()) {
      from.back = 1;
      from.is_state = true;
      from.start = start->second;
    }
    add_input(id, from);
  }
  for (const auto& [id, from] : layout_.earlier) add_input(id, from);
}

void AotBackward::add_outs() {
  const CellGraph& cell = adjoint_.adjoint.cell;
  std::set<int> factors;
  for (const ParamGradient& param : adjoint_.params)
    for (const StepProduct& product : param.products) {
      if (product.left.is_out) factors.insert(product.left.id);
      if (product.right && product.right->is_out) factors.insert(product.right->id);
    }
  for (int o = 0; o < static_cast<int>(cell.outs.size()); ++o) {
    int field = -1;
    if (const auto own = layout_.of_adjoint.find({FieldKind::Out, o}); own != layout_.of_adjoint.end())
      field = own->second;
    const cellc_dims axes = dims(cell.outs[static_cast<std::size_t>(o)].index);
    if (const auto found = layout_.later.find(o); found != layout_.later.end()) {
      const ShiftedRows& l = found->second;
      if (l.back == 0 && l.along < 0) {
        field = l.field;  // written there before others are added
        begun_.insert(field);
      } else {
        later.push_back({o, l.field, l.history, l.back, l.along, {axes.first, axes.count - (l.along >= 0)}});
      }
    }
    out_of_[o] = static_cast<int>(outs.size());
    outs.push_back({field, word(FieldKind::Out, o), factors.count(o) > 0, axes});
  }
}

void AotBackward::add_past() {
  std::set<int> sums;  // histories that delay lines add to
  for (const auto& [update, p] : layout_.past) {
    if (p.is_line) sums.insert(p.history);
    const int start = word(FieldKind::Start, update),
              end = word(p.is_line ? FieldKind::State : FieldKind::Final, update);
    past.push_back({p.is_line, p.lag, p.cotangent, p.start, p.history, p.value, start, end,
                    dims(adjoint_.adjoint.cell.symbols[static_cast<std::size_t>(update)].axes)});
  }
  for (int f = 0; f < static_cast<int>(layout_.layout.fields.size()); ++f) {
    const CallField& field = layout_.layout.fields[static_cast<std::size_t>(f)];
    if (field.is_history() && field.is_written() && (field.kind == FieldKind::InputHistory || sums.count(f)))
      zeros.push_back({f, 0, dims(whole_.symbols[static_cast<std::size_t>(field.id)].axes)});
  }
}

void AotBackward::add_gradients() {
  for (const auto& [symbol, field] : layout_.untouched)
    if (!begun_.count(field)) zeros.push_back({field, 0, dims(whole_.symbols[static_cast<std::size_t>(symbol)].axes)});
  for (const auto& [symbol, field] : layout_.gradients) {
    const std::vector<AxisId>& index = whole_.symbols[static_cast<std::size_t>(symbol)].index;
    bool first = true, by_sum = false;
    for (const ParamGradient& gradient : adjoint_.params) {
      if (gradient.symbol != symbol) continue;
      for (const StepProduct& product : gradient.products) {
        // What reaches all entries of the gradient need not find zeros there.
        const auto met = [&](AxisId a) {
          return contains(product.left.index, a) || (product.right && contains(product.right->index, a));
        };
        if (first) by_sum = std::all_of(index.begin(), index.end(), met);
        first = false;
        add_sum(field, index, product);
      }
    }
    zeros.push_back({field, by_sum, dims(whole_.symbols[static_cast<std::size_t>(symbol)].axes)});
  }
}

void AotBackward::add_sum(int field, const std::vector<AxisId>& param, const StepProduct& product) {
  const std::vector<AxisId> none, &left = product.left.index, &right = product.right ? product.right->index : none;
  std::vector<AxisId> loops = param;
  for (const auto* index : {&left, &right})
    for (const AxisId a : *index)
      if (!contains(loops, a)) loops.push_back(a);
  if (loops.size() > CELLC_SUM_LOOPS)
    throw UsageError(
        fmt::format("--backward: a gradient is a sum over {} axes, and code for GPUs has sums over {}; build "
                    "it for a CPU",
                    loops.size(), static_cast<int>(CELLC_SUM_LOOPS)));
  const auto places = [&](const std::vector<AxisId>& index) {
    std::vector<int> found;
    for (const AxisId a : index)
      found.push_back(static_cast<int>(std::find(loops.begin(), loops.end(), a) - loops.begin()));
    return listed(found);
  };
  const auto factor = [&](const StepFactor& f) {
    return cellc_factor{f.is_out, f.is_out ? out_of_.at(f.id) : input_of_.at(f.id)};
  };
  cellc_step_sum sum{};
  sum.field = field;
  sum.left = factor(product.left);
  sum.right = product.right ? factor(*product.right) : cellc_factor{0, -1};
  sum.loops = dims(loops);
  sum.of_gradient = places(param);
  sum.of_left = places(left);
  sum.of_right = places(right);
  sums.push_back(sum);
}

}  // namespace cellc
