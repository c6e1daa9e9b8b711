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

void refuse_lags(const CellGraph& whole, const AdjointCell& adjoint) {
  int lagged = adjoint.lagged.empty() ? -1 : adjoint.lagged[0].symbol;
  for (const Symbol& s : whole.symbols)
    if (s.lag_of >= 0 || s.line_of >= 0) lagged = std::max(s.lag_of, s.line_of);
  if (lagged < 0) return;
  throw UsageError(fmt::format(
      "--backward: cell {} reads {} at a lag, of which code for GPUs has no gradients; build it for a CPU, or "
      "call cellc_backward_on of cellc.h",
      whole.name, whole.symbols[static_cast<std::size_t>(lagged)].name));
}

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
  refuse_lags(whole, adjoint_);
  layout_ = backward_layout(fixed_, adjoint_, false);
  request_.prefix += "_backward";
  request_.dtype = arithmetic_of(request.dtype);
  // What is asked for is the forward call's; but who wants steps one by one wants them here, too.
  if (request.solver != Strategy::Sequential) request_.solver = Strategy::Auto;
  request_.with_sums = true;
  const Jacobian jacobian = differentiate(adjoint_.adjoint.cell);
  shipped_.emplace(adjoint_.adjoint.cell, analyse(adjoint_.adjoint.cell, jacobian), request_);
  for (const CallField& f : layout_.layout.fields)
    fields.push_back({static_cast<int>(f.kind), f.id, f.word, f.required()});
  add_arrays();
  add_outs();
  add_gradients();
  const auto count = [](const auto& list) { return static_cast<int>(list.size()); };
  table_ = {&forward.table(),
            &shipped_->table(),
            fields.data(),
            axes.data(),
            inputs.data(),
            outs.data(),
            arrays.data(),
            zeros.data(),
            sums.data(),
            count(fields),
            count(inputs),
            count(outs),
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
  for (const auto& [of, field] : layout_.of_adjoint) {
    const auto& [kind, id] = of;
    if (kind == FieldKind::Out) continue;
    if (kind != FieldKind::Input) {
      arrays.push_back({field, word(kind, id)});
      continue;
    }
    const auto start = layout_.starts.find(id);
    input_of_[id] = static_cast<int>(inputs.size());
    inputs.push_back({field, word(kind, id), start == layout_.starts.end() ? -1 : start->second, factors.count(id) > 0,
                      layout_.layout.fields[static_cast<std::size_t>(field)].is_storage(),
                      dims(cell.symbols[static_cast<std::size_t>(id)].axes)});
  }
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
    const auto field = layout_.of_adjoint.find({FieldKind::Out, o});
    out_of_[o] = static_cast<int>(outs.size());
    outs.push_back({field == layout_.of_adjoint.end() ? -1 : field->second, word(FieldKind::Out, o),
                    factors.count(o) > 0, dims(cell.outs[static_cast<std::size_t>(o)].index)});
  }
}

void AotBackward::add_gradients() {
  for (const auto& [symbol, field] : layout_.untouched)
    zeros.push_back({field, 1, 0, dims(whole_.symbols[static_cast<std::size_t>(symbol)].axes)});
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
    zeros.push_back({field, 0, by_sum, dims(whole_.symbols[static_cast<std::size_t>(symbol)].axes)});
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
