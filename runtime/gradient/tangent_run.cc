#include "runtime/gradient/tangent_run.h"

#include <fmt/format.h>

#include "compiler/analysis/jacobian.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/lagged_arrays.h"
#include "runtime/gradient/shifted_rows.h"

namespace cellc {

TangentOf moved_symbols(const Tangents& tangents) {
  TangentOf of;
  for (std::size_t s = 0; s < tangents.symbols.size(); ++s)
    of.symbols.push_back(is_given(tangents.symbols[s]) || is_given(tangents.histories[s]));
  return of;
}

TangentRun::TangentRun(const CellGraph& cell, const TangentOf& of, const DeriveHooks& hooks)
    : whole_(cell), tangent_(tangent_of(cell, of, hooks)) {
  structure_ = analyse(tangent_.cell, differentiate(tangent_.cell));
}

void TangentRun::check_kept(const Wanted& wanted) const { cellc::check_kept(whole_, tangent_, wanted, "tangents"); }

BoundRun TangentRun::bind(const BoundRun& forward, const RunOutput& output, const Tangents& tangents,
                          Dtype arithmetic) const {
  check_kept(forward.wanted);
  BoundRun run;
  run.sizes = forward.sizes;
  run.offsets = forward.offsets;
  run.reverse = forward.reverse;
  run.threads = forward.threads;
  run.symbols.resize(cell().symbols.size());
  run.histories.resize(cell().symbols.size());
  const auto moved = [&](const Array& array, const Array& of, const Symbol& symbol) {
    if (!is_given(array)) return Array(arithmetic, of.shape());
    if (array.shape() != of.shape())
      throw RequestError(fmt::format("{}: its shape is [{}] where [{}] is needed", symbol.name,
                                     fmt::join(array.shape(), ", "), fmt::join(of.shape(), ", ")));
    return convert(array, arithmetic);
  };
  for (std::size_t s = 0; s < cell().symbols.size(); ++s) {
    const ArraySource& source = tangent_.sources[s];
    const auto id = static_cast<std::size_t>(source.id);
    switch (source.kind) {
      case ArraySource::Kind::Symbol:
        run.symbols[s] = convert(rows_of_symbol(whole_, forward, output, id), arithmetic);
        if (cell().symbols[s].max_lag != 0)
          run.histories[s] =
              convert(whole_.symbols[id].line_of < 0 ? forward.histories[id] : history_as_started(whole_, forward, id),
                      arithmetic);
        break;
      case ArraySource::Kind::Previous:
        run.symbols[s] =
            previous_rows(forward, convert(output.states[id], arithmetic),
                          convert(forward.symbols[static_cast<std::size_t>(whole_.updates[id].symbol)], arithmetic));
        break;
      case ArraySource::Kind::Tangent:
        if (cell().symbols[s].line_of >= 0) {
          const auto state = static_cast<std::size_t>(whole_.symbols[id].line_of);
          run.histories[s] =
              tangent_of_line(moved(tangents.symbols[state], forward.symbols[state], whole_.symbols[state]),
                              tangents.histories[state], cell().symbols[s].max_lag);
          break;
        }
        run.symbols[s] = moved(tangents.symbols[id], forward.symbols[id], cell().symbols[s]);
        if (cell().symbols[s].kind == SymbolKind::Input && cell().symbols[s].max_lag != 0)
          run.histories[s] = moved(tangents.histories[id], forward.histories[id], cell().symbols[s]);
        break;
      default:
        throw std::logic_error("tangent: an array that it does not read");
    }
  }
  return run;
}

}  // namespace cellc
