#include "tests/engines/homogeneous.h"

#include <fmt/format.h>

#include <cmath>

#include "tests/oracle/random.h"

namespace cellc {

const std::vector<Homogeneous>& homogeneous_cells() {
  static const std::vector<Homogeneous> cells = {
      {"peak",
       "cell peak[d] {\n  state v[d]\n  input u[d], g[d]\n"
       "  v' = where(abs(u) > v, abs(u), v - 1e-3*v*g)\n}\n"},
      {"leaky",
       "cell leaky[d] {\n  state v[d]\n  input u[d], g[d]\n"
       "  v' = 0.99*v + g*u\n}\n"},
      {"clipped",
       "cell clipped[d] {\n  state v[d]\n  input u[d], g[d]\n"
       "  v' = min(max(0.95*v, 0.1*u), u + 0.2*v)\n}\n"},
      {"norm",
       "cell norm[d] {\n  state v[d], w[d]\n  input u[d], g[d]\n"
       "  v' = 0.9*sqrt(v^2 + 0.1*w^2) + 0.1*g*u\n  w' = 0.7*w + 0.2*v\n}\n"}};
  return cells;
}

BoundRun homogeneous_run(const CellGraph& cell, Dtype dtype, int power, const HomogeneousShape& shape) {
  BoundRun run;
  run.sizes[cell.header[0]] = shape.channels;
  run.offsets = {0};
  for (const std::int64_t length : shape.lengths) run.offsets.push_back(run.offsets.back() + length);
  run.threads = 1;
  const std::int64_t sequences = static_cast<std::int64_t>(shape.lengths.size()), steps = run.offsets.back();
  oracle::Random random(11);
  for (const Symbol& symbol : cell.symbols) {
    const bool input = symbol.kind == SymbolKind::Input;
    Array array(dtype, {input ? steps : sequences, shape.channels});
    for (std::int64_t t = 0; input && t < steps; ++t)
      for (std::int64_t c = 0; c < shape.channels; ++c) {
        const double value = random.uniform(shape.least, 1);
        const bool quiet = t / shape.stretch % 2 == 1;
        const std::int64_t at = t * shape.channels + c;
        // Rounded once, before it is scaled.
        array.set(at, symbol.name == "u" && quiet ? shape.quiet * value : value);
        if (symbol.name == "u") array.set(at, std::ldexp(array.get(at), power));
      }
    run.symbols.push_back(array);
  }
  return run;
}

std::string not_scaled(const RunOutput& output, const RunOutput& other, int power) {
  for (std::size_t u = 0; u < output.states.size(); ++u)
    for (std::int64_t i = 0; i < output.states[u].count(); ++i)
      if (other.states[u].get(i) != std::ldexp(output.states[u].get(i), power))
        return fmt::format("state {}, entry {}: {} and, over 2^{}, {}", u, i, output.states[u].get(i), power,
                           std::ldexp(other.states[u].get(i), -power));
  return {};
}

}  // namespace cellc
