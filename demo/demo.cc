// A cell at work on a real signal: what was derived of it, how it ran, how exact it was, and a
// picture. `./dev run` starts it with ParaGRU and a recording of speech.
//
// The cell is used as a bank of 64 envelope followers: every channel hears the same rectified
// signal, and the bias of its update gate sets how fast it follows, from a few samples to some
// thousand.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "cli/load.h"
#include "cli/report.h"
#include "demo/plot.h"
#include "demo/signal.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"
#include "runtime/evaluate/reference.h"

namespace cellc {
namespace {

constexpr std::int64_t kChannels = 64;
constexpr std::size_t kColumns = 96;

/// Input `name` of channel i at a sample, for the three gates of ParaGRU.
float gate_input(const std::string& name, std::int64_t channel, float sample) {
  const float place = static_cast<float>(channel) / static_cast<float>(kChannels - 1);  // 0 slow … 1 fast
  const float loud = std::abs(sample);
  if (name == "xz") return -8.0f + 7.0f * place + loud;
  if (name == "xr") return 1.0f - 2.0f * place + loud;
  return 6.0f * loud;
}

GivenArray gate_array(const std::string& name, const std::vector<float>& samples) {
  const auto steps = static_cast<std::int64_t>(samples.size());
  Array array(Dtype::F32, {1, steps, kChannels});
  auto* values = static_cast<float*>(array.data());
  for (std::int64_t t = 0; t < steps; ++t)
    for (std::int64_t i = 0; i < kChannels; ++i)
      values[t * kChannels + i] = gate_input(name, i, samples[static_cast<std::size_t>(t)]);
  return {"the signal", array};
}

std::vector<double> channel_of(const Array& states, std::int64_t channel) {
  std::vector<double> values;
  for (std::int64_t i = channel; i < states.count(); i += kChannels) values.push_back(states.get(i));
  return values;
}

int demonstrate(const std::string& cell_path, const std::string& signal_path) {
  const Signal signal = read_signal(signal_path);
  const LoadedCell loaded = load_cell(cell_path, "");
  BindRequest request;
  for (const char* name : {"xz", "xr", "xc"}) {
    const int symbol = loaded.cell.find_symbol(name);
    if (symbol < 0 || loaded.cell.symbols[symbol].kind != SymbolKind::Input)
      throw RequestError(fmt::format("{}: the demonstration feeds the inputs xz, xr and xc; cell {} has no {}",
                                     cell_path, loaded.cell.name, name));
    request.inputs[name] = gate_array(name, signal.samples);
  }
  request.random_seed = 1;  // the three recurrent weights
  const Binding binding = bind(loaded.cell, request);

  CompileOptions options;
  options.dtype = binding.dtype;
  Solver solver(loaded.cell, loaded.structure, options);
  SolveReport solved;
  RunOutput first = solver.run(binding.run, {}, solved);  // once to compile and to fault the memory in, then timed
  const double compile_ms = solved.compile_ms;
  const RunOutput output = solver.run(binding.run, {}, solved, std::move(first));
  solved.compile_ms = compile_ms;

  fmt::print("signal      {}: {}\n", signal_path, signal.description);
  std::fflush(stdout);  // the reference takes seconds
  const RunReport report{loaded,
                         "",  // on the CPU
                         binding,
                         output,
                         solved,
                         true,  // what does not converge is repaired
                         "f32",
                         {},
                         "",
                         first_nonfinite(loaded.cell, binding.run, output),
                         compare(loaded.cell, binding.run, output, reference_run(loaded.cell, binding.run)),
                         {}};
  std::fputs(run_text(report).c_str(), stdout);
  if (const std::string where = not_finite(report); !where.empty())
    std::fputs(fmt::format("cellc_demo: warning: {}\n", where).c_str(), stderr);

  const std::string& state = loaded.cell.symbol_of(loaded.cell.updates[0]).name;
  fmt::print("\n  the signal\n");
  std::fputs(plot({signal.samples.begin(), signal.samples.end()}, kColumns, 6, 2).c_str(), stdout);
  for (const auto& [channel, what] : {std::pair<std::int64_t, const char*>{kChannels * 3 / 4, "follows quickly"},
                                      {kChannels / 4, "follows slowly"}}) {
    fmt::print("  {}[{}], which {}\n", state, channel, what);
    std::fputs(plot(channel_of(output.states[0], channel), kColumns, 5, 2).c_str(), stdout);
  }
  return 0;
}

}  // namespace
}  // namespace cellc

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("usage: cellc_demo CELL-FILE SIGNAL-FILE\n", stderr);
    return 2;
  }
  try {
    return cellc::demonstrate(arguments[1], arguments[2]);
  } catch (const cellc::CellFileError& e) {
    std::fputs(e.text.c_str(), stderr);
    return 1;
  } catch (const cellc::RequestError& e) {
    fmt::print(stderr, "cellc_demo: error: {}\n", e.what());
    return 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "cellc_demo: error: {}\n", e.what());
    return 4;
  }
}
