// How far `auto` is from the best strategy, over a grid of cells and shapes: one row a cell and shape, all strategies
// in one process and in turns, so that what else runs on the machine meets them alike.
//
//   cellc_bench_planner [options] FILE.cell…
//     --filter TEXT      only rows whose "file cell B T d" contains it; may be given again: any of them
//     --batch LIST       1,16,1024      --length LIST  64,1000,200000      --dim LIST  1,3,8,64,512
//     --threads LIST     1
//     --limit SECONDS    of one row (5): strategies that are 4 times slower than the best so far are timed once
//     --memory MB        of the arrays of a row (1000); larger rows are left out
//     --sample N         every N-th row
//     --f64
//
// `lanes` is `segmented` with one segment a sequence; `auto` is beside the best of all others.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/front_end.h"
#include "runtime/cpu/solve.h"
#include "runtime/data/bind.h"
#include "runtime/data/errors.h"
#include "runtime/data/object_cache.h"
#include "runtime/data/read_text.h"

namespace {

using namespace cellc;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double processor_ms() {
  std::timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

struct Options {
  std::vector<std::string> files, filters;
  std::vector<std::int64_t> batches{1, 16, 1024}, lengths{64, 1000, 200000}, dims{1, 3, 8, 64, 512}, threads{1};
  double limit = 5, memory = 1e9;
  int sample = 1;
  std::string cache = default_cache_directory();  ///< costs are measured where they can be kept
  Dtype dtype = Dtype::F32;
};

std::vector<std::int64_t> numbers(const char* list) {
  std::vector<std::int64_t> all;
  for (char* at = const_cast<char*>(list); *at; at += *at == ',') all.push_back(std::strtoll(at, &at, 10));
  return all;
}

struct Row {
  std::string cell;
  std::int64_t batch, length, dim;
  int threads;
  std::string name() const { return fmt::format("{} {} {} {}", cell, batch, length, dim); }
};

/// "# data: NAME in (LOW, HIGH)" of a cell file's head: the middle, for params that are numbers.
std::map<std::string, double> said_in_head(const std::string& text) {
  std::map<std::string, double> all;
  for (std::size_t at = 0; (at = text.find("# data: ", at)) != std::string::npos; ++at) {
    char name[64];
    double low, high;
    if (std::sscanf(text.c_str() + at, "# data: %63s in (%lf, %lf)", name, &low, &high) == 3)
      all[name] = (low + high) / 2;
  }
  return all;
}

double bytes_of(const CellGraph& cell, const Row& row, Dtype dtype) {
  double steps = 0, once = 0;
  const auto entries = [&](const std::vector<AxisId>& axes) {
    double n = 1;
    for (const AxisId a : axes) {
      const Axis& axis = cell.graph.axis(cell.graph.axis(a).extent_of);
      n *= static_cast<double>(axis.fixed ? *axis.fixed : row.dim);
    }
    return n;
  };
  // States are kept twice: the cells that strategies derive read a trajectory and write another.
  for (const Symbol& s : cell.symbols) {
    if (s.kind == SymbolKind::Param) once += entries(s.axes);
    if (s.kind != SymbolKind::Param) steps += entries(s.axes) * (s.kind == SymbolKind::State ? 2 : 1);
  }
  for (const Out& o : cell.outs) steps += entries(o.index);
  return (steps * static_cast<double>(row.batch) * static_cast<double>(row.length) + once) *
         static_cast<double>(size_of(dtype));
}

struct Candidate {
  std::string name;
  SolveOptions options{};
  double ms = std::numeric_limits<double>::infinity();
  std::string note{};
};

std::string plans_of(const SolveReport& report) {
  std::string text;
  for (const StageReport& s : report.stages) {
    text += fmt::format("{}{}", text.empty() ? "" : "; ", to_string(s.plan.strategy));
    if (s.plan.strategy != Strategy::Sequential) text += fmt::format(" {}+{}", s.plan.segment, s.plan.burn_in);
    if (s.misses) text += fmt::format(" missed {}/{}", s.misses, s.boundaries);
  }
  return text;
}

/// The ratio of `auto` to the best other; negative where the row was left out.
double measure(const AnalysedCell& cell, const Row& row, const Options& options) {
  BindRequest request;
  request.batch = row.batch;
  request.length = row.length;
  request.random_seed = 1;
  request.dtype = options.dtype;
  request.threads = row.threads;
  for (const AxisId a : cell.cell.header)
    if (const Axis& axis = cell.cell.graph.axis(a); !axis.fixed) request.dims[axis.name] = row.dim;
  const std::map<std::string, double> said = said_in_head(cell.source.text());
  for (const Symbol& s : cell.cell.symbols)
    if (const auto it = said.find(s.name); s.kind == SymbolKind::Param && it != said.end())
      request.param_numbers[s.name] = it->second;
  const Binding binding = bind(cell.cell, request);
  CompileOptions compile;
  compile.dtype = options.dtype;
  compile.cache_directory = options.cache;
  Solver solver(cell.cell, cell.structure, compile);
  const int stages = static_cast<int>(cell.structure.stages.size());

  std::vector<Candidate> all;
  all.push_back({"auto"});
  for (const StrategyFacts& f : strategies()) {
    bool refused = !f.on_cpu;
    for (int k = 0; k < stages && !refused; ++k) refused = solver.refusal(k, f.strategy, binding.run).has_value();
    if (refused) continue;
    all.push_back({f.name});
    all.back().options.solver = f.strategy;
    if (f.strategy == Strategy::Segmented) {
      all.push_back({"lanes"});
      all.back().options.plan.assign(static_cast<std::size_t>(stages), {Strategy::Segmented, row.length, 0, ""});
    }
  }
  RunOutput output = prepare_output(cell.cell, binding.run, options.dtype);
  std::string planned;
  double best = std::numeric_limits<double>::infinity();
  // With one thread the processor's time: what else runs on the machine is no part of that.
  const auto once = [&](Candidate& c) {
    SolveReport report;
    const double busy = processor_ms();
    output = solver.run(binding.run, c.options, report, std::move(output));
    if (&c == &all.front()) planned = plans_of(report);
    if (!report.converged) c.note = "!";
    return row.threads == 1 ? std::min(processor_ms() - busy, output.run_ms) : output.run_ms;
  };
  const auto start = Clock::now();
  double spent = 0;
  std::vector<Candidate*> running;
  for (Candidate& c : all) {
    try {
      once(c);  // compiles
      if (&c == &all.front()) once(c);
      c.ms = once(c);
    } catch (const SolverError&) {
      continue;
    } catch (const MemoryError&) {
      continue;
    }
    best = std::min(best, c.ms);
    running.push_back(&c);
    spent = seconds_since(start);
    if (&c != &all.front() && spent > options.limit) break;
  }
  std::erase_if(running, [&](Candidate* c) { return c != &all.front() && c->ms > 4 * best; });
  for (int i = 0; i < 60 && (i < 3 || seconds_since(start) < std::min(options.limit, spent + 1)); ++i)
    for (Candidate* c : running) c->ms = std::min(c->ms, once(*c));
  const Candidate* fastest = nullptr;
  for (const Candidate& c : all)
    if (&c != &all.front() && (!fastest || c.ms < fastest->ms)) fastest = &c;
  const double ratio = fastest ? all.front().ms / fastest->ms : 1;
  std::string each;
  for (const Candidate& c : all)
    if (c.ms < std::numeric_limits<double>::infinity()) each += fmt::format(" {} {:.3f}{}", c.name, c.ms, c.note);
  fmt::print("{:>6.2f}  {:<42} {:>2} thread{}  best {:<11}{}   [{}]\n", ratio, row.name(), row.threads,
             row.threads == 1 ? " " : "s", fastest ? fastest->name : "-", each, planned);
  std::fflush(stdout);
  return ratio;
}

std::vector<std::string> cells_of(const std::string& file) {
  try {
    analyse_text(read_text(file));
    return {""};
  } catch (const CellChoiceError& e) {
    return e.names;
  }
}

int usage() {
  std::fputs("cellc_bench_planner [options] FILE.cell...; the head of planner_grid_bench.cc has them\n", stderr);
  return 2;
}

std::optional<Options> options_of(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--f64") {
      o.dtype = Dtype::F64;
      continue;
    }
    if (a.rfind("--", 0) != 0) {
      o.files.push_back(a);
      continue;
    }
    if (++i == argc) return std::nullopt;
    const char* value = argv[i];
    if (a == "--filter")
      o.filters.push_back(value);
    else if (a == "--batch")
      o.batches = numbers(value);
    else if (a == "--length")
      o.lengths = numbers(value);
    else if (a == "--dim")
      o.dims = numbers(value);
    else if (a == "--threads")
      o.threads = numbers(value);
    else if (a == "--limit")
      o.limit = std::atof(value);
    else if (a == "--memory")
      o.memory = 1e6 * std::atof(value);
    else if (a == "--sample")
      o.sample = std::max(1, std::atoi(value));
    else
      return std::nullopt;
  }
  if (o.files.empty()) return std::nullopt;
  return o;
}

/// Of every cell of a file that has a row which is asked for.
void bench_file(const std::string& file, const Options& options, int& counted, std::vector<double>& ratios) {
  for (const std::string& name : cells_of(file)) {
    const AnalysedCell cell = analyse_text(read_text(file), name);
    const bool has_axes = std::any_of(cell.cell.header.begin(), cell.cell.header.end(),
                                      [&](AxisId a) { return !cell.cell.graph.axis(a).fixed; });
    const std::string label = std::filesystem::path(file).stem().string() + (name.empty() ? "" : " " + name);
    for (const std::int64_t threads : options.threads)
      for (const std::int64_t dim : has_axes ? options.dims : std::vector<std::int64_t>{1})
        for (const std::int64_t batch : options.batches)
          for (const std::int64_t length : options.lengths) {
            const Row row{label, batch, length, dim, static_cast<int>(threads)};
            const bool wanted = options.filters.empty() ||
                                std::any_of(options.filters.begin(), options.filters.end(), [&](const std::string& f) {
                                  return row.name().find(f) != std::string::npos;
                                });
            if (!wanted || bytes_of(cell.cell, row, options.dtype) > options.memory) continue;
            if (counted++ % options.sample != 0) continue;
            try {
              ratios.push_back(measure(cell, row, options));
            } catch (const std::exception& e) {
              fmt::print("     -  {}: {}\n", row.name(), e.what());
            }
          }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::optional<Options> options = options_of(argc, argv);
  if (!options) return usage();
  std::vector<double> ratios;
  int counted = 0;
  for (const std::string& file : options->files) bench_file(file, *options, counted, ratios);
  if (ratios.empty()) return 0;
  std::sort(ratios.begin(), ratios.end());
  const auto share = [&](double most) {
    return 100.0 * static_cast<double>(std::upper_bound(ratios.begin(), ratios.end(), most) - ratios.begin()) /
           static_cast<double>(ratios.size());
  };
  fmt::print("{} rows: {:.1f} % within 1.15, {:.1f} % within 1.5, median {:.2f}, worst {:.2f}\n", ratios.size(),
             share(1.15), share(1.5), ratios[ratios.size() / 2], ratios.back());
}
