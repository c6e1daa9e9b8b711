#include "runtime/gradient/hessian_product.h"

#include "runtime/data/bind.h"
#include "runtime/gradient/shifted_rows.h"

namespace cellc {
namespace {

bool moves(const std::vector<Array>& arrays, int id) {
  return static_cast<std::size_t>(id) < arrays.size() && is_given(arrays[static_cast<std::size_t>(id)]);
}

AdjointOf either(const AdjointOf& a, const AdjointOf& b) {
  AdjointOf of = a;
  for (std::size_t u = 0; u < of.states.size(); ++u) of.states[u] = of.states[u] || b.states[u];
  for (std::size_t o = 0; o < of.outs.size(); ++o) of.outs[o] = of.outs[o] || b.outs[o];
  return of;
}

/// The direction in the place of the run's arrays.
BoundRun moved_run(const CellGraph& cell, const BoundRun& forward, const Tangents& direction, Dtype arithmetic) {
  BoundRun run = forward;
  for (std::size_t s = 0; s < run.symbols.size(); ++s) {
    run.symbols[s] =
        !is_given(direction.symbols[s]) ? Array(arithmetic, forward.symbols[s].shape()) : direction.symbols[s];
    if (const int state = cell.symbols[s].line_of; state >= 0) {
      const auto of = static_cast<std::size_t>(state);
      run.symbols[s] = Array();
      run.histories[s] =
          tangent_of_line(is_given(direction.symbols[of]) ? convert(direction.symbols[of], arithmetic)
                                                          : Array(arithmetic, forward.symbols[of].shape()),
                          direction.histories[of], cell.symbols[s].max_lag);
      continue;
    }
    if (!forward.histories[s].shape().empty())
      run.histories[s] =
          !is_given(direction.histories[s]) ? Array(arithmetic, forward.histories[s].shape()) : direction.histories[s];
  }
  return run;
}

/// Tangents of what the adjoint reads; those that are 0 throughout are left out.
Tangents of_adjoint(const CellGraph& cell, const AdjointRun& adjoint, const BoundRun& moved, const Tangents& direction,
                    const Cotangents& cotangents) {
  const AdjointCell& made = adjoint.adjoint();
  const auto is_moved = [&](const ArraySource& source) {
    switch (source.kind) {
      case ArraySource::Kind::Symbol:
        return moves(direction.symbols, source.id);
      case ArraySource::Kind::Lagged: {
        const int symbol = made.lagged[static_cast<std::size_t>(source.id)].symbol;
        if (cell.symbols[static_cast<std::size_t>(symbol)].line_of >= 0) return true;  // as its state does
        return moves(direction.symbols, symbol) || moves(direction.histories, symbol);
      }
      case ArraySource::Kind::Cotangent:
        return moves(cotangents.states, source.id);
      case ArraySource::Kind::OutCotangent:
        return moves(cotangents.outs, source.id);
      case ArraySource::Kind::Adjoint:
        return moves(cotangents.finals, source.id);
      default:
        return true;
    }
  };
  Tangents tangents(adjoint.cell());
  for (std::size_t s = 0; s < tangents.symbols.size(); ++s)
    if (is_moved(made.adjoint.sources[s])) tangents.symbols[s] = moved.symbols[s];
  return tangents;
}

}  // namespace

HessianProduct hessian_vector_product(const CellGraph& cell, const BoundRun& forward, const RunOutput& output,
                                      const GivenSymbols& given, const Cotangents& cotangents, Tangents direction,
                                      const Curvature& curvature, Dtype arithmetic, const RunCell& run,
                                      const SumOverSteps& sum) {
  HessianProduct result;
  tangents_through_defaults(cell, forward, given, direction);
  const TangentRun tangent(cell, moved_symbols(direction));
  result.tangents = run(tangent.cell(), tangent.structure(), tangent.bind(forward, output, direction, arithmetic));

  Cotangents bent = curvature ? curvature(result.tangents) : Cotangents();
  bent.states.resize(cell.updates.size());
  bent.finals.resize(cell.updates.size());
  bent.outs.resize(cell.outs.size());
  const AdjointRun adjoint(cell, either(results_with(cotangents), results_with(bent)));
  const BoundRun bound = adjoint.bind(forward, output, cotangents, arithmetic);
  const RunOutput found = run(adjoint.cell(), adjoint.structure(), bound);

  // The adjoint's arrays are linear in those of the run, so theirs move as these do.
  const BoundRun moved =
      adjoint.bind(moved_run(cell, forward, direction, arithmetic), result.tangents, bent, arithmetic);
  const Tangents of_arrays = of_adjoint(cell, adjoint, moved, direction, bent);
  const TangentRun second(adjoint.cell(), moved_symbols(of_arrays));
  const RunOutput moved_found =
      run(second.cell(), second.structure(), second.bind(bound, found, of_arrays, arithmetic));

  result.gradients = adjoint.gather(forward, bound, found, sum);
  result.product = adjoint.gather_tangent(forward, {bound, found}, {moved, moved_found}, sum);
  through_defaults(cell, forward, given, direction, result.gradients, result.product);
  return result;
}

}  // namespace cellc
