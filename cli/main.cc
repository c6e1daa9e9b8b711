// cellc: arguments -> a command, and what it throws -> an exit status.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/fault.h"
#include "cli/load.h"
#include "cli/output.h"
#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/version.h"
#include "runtime/data/bind.h"
#include "runtime/data/write_files.h"
#include "runtime/strategy/strategy.h"

namespace cellc {
namespace {

const std::string kProgram = fmt::format("cellc {}", kVersion);

/// With --json the failure is the one object on standard output; people read standard error.
int report(bool json, int status, const std::string& message, const CellFileError* file_error = nullptr) {
  if (json) {
    nlohmann::json object = {{"error", message}, {"exit_status", status}};
    if (file_error) {
      object["diagnostics"] = nlohmann::json::array();
      for (const Diagnostic& d : file_error->diagnostics.list()) {
        const Position at = file_error->source.position(d.span.offset);
        object["diagnostics"].push_back(
            {{"line", at.line}, {"column", at.column}, {"message", d.message}, {"note", d.note}});
      }
    }
    // Messages quote file names and cell text, which need not be UTF-8.
    std::fputs((object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n").c_str(), stdout);
  }
  if (file_error)
    std::fputs(file_error->text.c_str(), stderr);
  else
    std::fputs(fmt::format("cellc: error: {}\n", message).c_str(), stderr);
  return status;
}

bool json_wanted = false;  ///< also where arguments do not parse

void report_crash(const std::string& what) {
  report(json_wanted, kInternalFault, dump_fault(what));
  std::fflush(stdout);
}

template <class Command>
int guarded(bool json, Command command) {
  try {
    return command();
  } catch (const CellFileError& e) {
    return report(json, kWrongInput, e.text, &e);
  } catch (const UsageError& e) {
    return report(json, kWrongUsage, e.what());
  } catch (const RequestError& e) {
    return report(json, kWrongInput, e.what());
  } catch (const DeviceError& e) {
    return report(json, kDeviceFailed, e.what());
  } catch (const std::bad_alloc&) {
    return report(json, kDeviceFailed, fmt::format("out of memory in stage '{}'", current_stage()));
  } catch (const std::exception& e) {
    return report(json, kInternalFault, dump_fault(e.what()));
  } catch (...) {
    return report(json, kInternalFault, dump_fault("an exception of unknown type"));
  }
}

/// Digits as people write them: CLI11 reads 010 as eight and 0x10 as sixteen, and -1 wraps around where no number
/// is negative.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  return CLI::Validator(
      [=](std::string& text) {
        const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
        std::uint64_t value = 0;
        const bool fits = std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
        if (digits && (!fits || value > most))
          return fmt::format("{}: expected a whole number of at most {}", text, most);
        if (!digits || value < least) return fmt::format("{}: expected a whole number of at least {}", text, least);
        text = fmt::format("{}", value);
        return std::string();
      },
      "", "whole number");
}

constexpr std::uint64_t kMostRows = std::numeric_limits<std::int64_t>::max(), kMostIterations = 1 << 30;

/// CLI11 would name the largest double in 309 digits, and take what is no number.
const CLI::Validator kNotNegative(
    [](std::string& text) {
      char* end = nullptr;
      const double value = std::strtod(text.c_str(), &end);
      const bool fits = !text.empty() && *end == '\0' && std::isfinite(value) && value >= 0;
      return fits ? std::string() : fmt::format("{}: expected a number of at least 0", text);
    },
    "", "not negative");

/// An empty value would read as the option left out, which a script with an unset variable does not mean.
/// Only --cache-dir gives one a meaning.
void refuse_empty_values(CLI::App& app) {
  static const CLI::Validator not_empty(
      [](std::string& text) { return text.empty() ? std::string("expected a value, which is empty") : std::string(); },
      "", "not empty");
  for (CLI::App* command : app.get_subcommands({}))
    for (CLI::Option* option : command->get_options())
      if (option->get_items_expected_max() > 0 && option->get_name() != "--cache-dir") option->check(not_empty);
}

void add_cell_options(CLI::App& command, CellOptions& options) {
  command.add_option("FILE", options.file, "the cell file")->required();
  command.add_option("--cell", options.cell, "which cell, where the file has several");
  command.add_flag("--json", options.json, "one JSON object on standard output");
  command
      .add_option("--cache-dir", options.cache_dir,
                  "where compiled kernels are kept, \"\" for nowhere; by default $CELLC_CACHE_DIR, or cellc in\n"
                  "$XDG_CACHE_HOME or ~/.cache")
      ->type_name("DIR");
  command.set_version_flag("--version", kProgram);
}

void add_inspect(CLI::App& app, InspectOptions& options) {
  CLI::App* command = app.add_subcommand("inspect", "show what is derived of a cell: Jacobian, structure, reasons");
  add_cell_options(*command, options);
  auto* latex = command->add_flag("--latex", options.latex, "a LaTeX document");
  auto* stage = command->add_option("--stage", options.stage,
                                    fmt::format("one stage of the compiler: {}", fmt::join(inspect_stages(), ", ")));
  command->add_option("--dtype", options.dtype,
                      "storage for the stages plan, llvm, asm, cuda and ptx: f32, f64, bf16, f16");
  command->add_option("--arch", options.arch, "for the stages cuda and ptx: sm_90, or another architecture");
  command->add_option("--dim", options.dims, "length of an axis, for --whole and ptx; 256 by default")
      ->allow_extra_args(false)
      ->type_name("AXIS=N");
  command->add_option("--length", options.length, "number of steps, for --whole and ptx; 4096 by default")
      ->transform(whole_number(1, std::uint64_t{1} << 40));
  command->add_flag("--whole", options.whole,
                    "for the stage cuda: the translation units that are compiled, templates and all");
  auto* json = command->get_option("--json");
  latex->excludes(stage)->excludes(json);
  stage->excludes(json);
}

void add_data_options(CLI::App* command, DataOptions& options) {
  add_cell_options(*command, options);
  const auto many = [&](const char* name, std::vector<std::string>& values, const char* help) {
    command->add_option(name, values, help)->allow_extra_args(false)->type_name("NAME=FILE");
  };
  many("--input", options.inputs, "an input, [B, T, a...] or [T, a...]; x.lag=FILE: its history");
  many("--param", options.params, "a param, [a...], or a number for every entry");
  many("--state", options.states, "an initial state, [B, a...]; h.lag=FILE: its history");
  command->add_option("--offsets", options.offsets, "packed sequences: int64 [N+1]")->type_name("FILE");
  command->add_option("--random", options.random, "fill inputs and params that are not given, from this seed")
      ->type_name("SEED")
      ->transform(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
  command->add_option("--batch", options.batch, "number of sequences, where no array says it")
      ->transform(whole_number(0, kMostRows));
  command->add_option("--length", options.length, "number of steps, where no input says it")
      ->transform(whole_number(0, kMostRows));
  command->add_option("--dim", options.dims, "length of an axis, where no array says it")
      ->allow_extra_args(false)
      ->type_name("AXIS=N");
  command->add_option("--dtype", options.dtype, "f32, f64, bf16 or f16; that of the inputs by default");
  command
      ->add_option("--tolerance", options.tolerance, "what counts as converged; 0: the bits of the sequential kernel")
      ->type_name("X")
      ->check(kNotNegative);
  command
      ->add_option("--absolute-tolerance", options.absolute_tolerances,
                   "what is tolerated of a state besides, in its own units; NAME=X: of one state")
      ->allow_extra_args(false)
      ->type_name("[NAME=]X");
  command->add_option(
      "--products", options.products,
      "what a GPU multiplies in where rows meet a matrix of params: f32, 3xtf32 (tensor cores, errors\n"
      "like those of f32; the default), tf32, bf16, or storage (its 16 bits, where it has so many, also\n"
      "of all rows between stages); CPUs and f64 keep their arithmetic");
  command->add_option("--threads", options.threads, "threads; all cores by default")->transform(whole_number(1, 4096));
  command->add_flag("--reverse", options.reverse, "from the last step to the first");
}

void add_deterministic(CLI::App* command, bool& deterministic) {
  command->add_flag(
      "--deterministic", deterministic,
      "the same bits each time also on a GPU; slower where channels are few or states remember for long.\n"
      "Runs on a CPU, gradients and tangents repeat theirs without it");
}

void add_write(CLI::App* command, std::vector<std::string>& names, const char* help) {
  command->add_option("--write", names, help)->delimiter(',')->allow_extra_args(false)->type_name("NAME,...");
}

void add_run(CLI::App& app, RunOptions& options) {
  CLI::App* command = app.add_subcommand("run", "run a cell over arrays (.npy)");
  add_data_options(command, options);
  command->add_option("--device", options.device, "auto, cpu or cuda");
  command->add_option("--cpu", options.cpu,
                      "native, or a processor by LLVM's name, such as x86-64-v3: the bits are then the same on every\n"
                      "machine that can run its code, and those of cellc build for it");
  command->add_option("--solver", options.solver, strategy_names());
  command->footer("Solvers:\n" + strategy_meanings());
  command->add_option("--max-iterations", options.max_iterations, "cap of iterations before repair")
      ->transform(whole_number(0, kMostIterations));
  command->add_option("--fixed-iterations", options.fixed_iterations, "exactly so many, without repair")
      ->transform(whole_number(0, kMostIterations));
  add_deterministic(command, options.deterministic);
  command->add_flag("--no-repair", options.no_repair, "exit 3 instead of repairing what has not converged");
  command->add_option("--plan", options.plan, "a plan to follow")->type_name("FILE");
  command
      ->add_option(
          "--kernel", options.kernel,
          "edited CUDA source to run in the place of the generated one, and to time beside it; with --verify it\n"
          "must be as right. The file is one that --write-kernels or inspect --stage cuda --whole printed")
      ->type_name("FILE.cu");
  command
      ->add_option("--write-kernels", options.write_kernels,
                   "write the CUDA source of all that the run launches, for --kernel")
      ->type_name("FILE.cu");
  command
      ->add_option("--cotangent", options.cotangents,
                   "write gradients (grad.NAME.npy) for this cotangent of a state, NAME.final or an out")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE");
  command->add_flag("--recompute", options.recompute,
                    "gradients by running segments again, about states that were never rounded");
  command->add_option("--backward-solver", options.backward_solver, "how the adjoint is solved; auto by default");
  command
      ->add_option("--tangent", options.tangents,
                   "write how the results move (tangent.NAME.npy) in the direction of this tangent of an input, a\n"
                   "param, a state's start or NAME.lag; several of them are one direction")
      ->allow_extra_args(false)
      ->type_name("NAME=FILE");
  command->add_option("--tangent-solver", options.tangent_solver, "how the tangent is solved; auto by default");
  command->add_option("--out", options.out, "write the results to this directory")->type_name("DIR");
  add_write(command, options.wanted,
            "the results that are wanted, states, outs and finals (y,h.final); all by default. What is not\n"
            "wanted is not made where it need not be");
  command->add_flag("--verify", options.verify, "compare with the sequential f64 reference");
  command->add_flag("--trace", options.trace, "show how the iterations converged");
}

void add_repeats(CLI::App* command, int& repeats) {
  command->add_option("--repeats", repeats, "calls in a row that are timed; by default what half a second allows")
      ->transform(whole_number(1, 1000000));
}

void add_bench(CLI::App& app, BenchOptions& options) {
  CLI::App* command =
      app.add_subcommand("bench", "time every strategy beside a copy of the same bytes, on every device");
  add_data_options(command, options);
  command->add_option("--device", options.device, "auto (all there are), cpu or cuda");
  command->add_option("--solver", options.solver, strategy_names({"all", "auto"}));
  add_write(command, options.wanted,
            "the results that forward runs make, states, outs and finals (y,h.final), or all; by default outs and\n"
            "finals, as a layer runs, and of a cell without outs all");
  add_deterministic(command, options.deterministic);
  command->footer("Solvers:\n" + strategy_meanings());
  add_repeats(command, options.repeats);
}

void add_tune(CLI::App& app, TuneOptions& options) {
  CLI::App* command =
      app.add_subcommand("tune", "measure plans for a cell and a shape, and remember the fastest for run");
  add_data_options(command, options);
  command->add_option("--device", options.device, "auto (cuda where there is one), cpu or cuda");
  add_repeats(command, options.repeats);
}

void add_build(CLI::App& app, BuildOptions& options) {
  CLI::App* command =
      app.add_subcommand("build", "compile a cell ahead of time: code that needs nothing of cellc, and a C header");
  add_cell_options(*command, options);
  command->add_option("--target", options.target, "cuda-source, ptx, cubin, gpu-shared, cpu-object or cpu-shared")
      ->required();
  command->add_option("-o,--out", options.out, "the file to write; the header goes beside it, as *.h")
      ->required()
      ->type_name("FILE");
  command->add_option(
      "--name", options.name,
      "what all names in C begin with, and the header's: the cell's by default, followed by whatever is "
      "not f32, on a CPU and of open lengths");
  command->add_option(
      "--cpu", options.cpu,
      "the processor to compile for: x86-64-v3 by default, native, or LLVM's name of one; several, such as\n"
      "x86-64-v2,x86-64-v3,x86-64-v4: code for each, of which a call takes the last that the machine can run");
  command->add_option("--arch", options.arch,
                      "the GPUs to compile for: sm_80 and, for cubins, sm_90 by default; several with commas");
  command->add_option("--dtype", options.dtype, "storage: f32, f64, bf16 or f16");
  command->add_option("--dim", options.dims, "length of an axis that is the same in every call")
      ->allow_extra_args(false)
      ->type_name("AXIS=N");
  command->add_option("--length", options.length, "number of steps, if it is the same in every call")
      ->transform(whole_number(0, kMostRows));
  command->add_option("--solver", options.solver, "auto, sequential, and for GPUs " + shipped_strategy_names());
  command->add_option("--products", options.products,
                      "what a GPU multiplies in where rows meet a matrix of params: f32, 3xtf32 (the default), tf32,\n"
                      "bf16 or storage, as of cellc run");
  add_deterministic(command, options.deterministic);
  command->add_flag("--backward", options.backward,
                    "also NAME_backward: gradients of all that a call read, from cotangents of what it wrote");
}

void add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* command =
      app.add_subcommand("check", "try what was derived, and the kernels, against numbers on small random data");
  add_cell_options(*command, options);
  command->add_option("--seed", options.seed, "seed of the random data")
      ->transform(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
}

/// What is wrong with arguments that do not parse, and where to look.
std::string usage_message(const CLI::App& app, const CLI::ParseError& e) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen[0];
  const std::string name = chosen.empty() ? "cellc" : fmt::format("cellc {}", command.get_name());
  std::string what = e.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&e)) {
    std::vector<std::string> known, rest = app.remaining(true);
    for (const CLI::Option* option : command.get_options())
      for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
    // What follows a misspelt option is its value: the option comes first.
    const auto dashed = std::find_if(rest.begin(), rest.end(), [](const std::string& s) { return s.starts_with("-"); });
    if (dashed == rest.end()) {
      what = fmt::format("{}: one argument too many: {}", name, fmt::join(rest, " "));
    } else {
      const std::string option = dashed->substr(0, dashed->find('=')), near = closest_name(option, known);
      const std::vector<std::string> before = app.remaining();
      if (std::find(before.begin(), before.end(), *dashed) != before.end() &&
          std::find(known.begin(), known.end(), option) != known.end())
        what = fmt::format("{} stands before the command, and options follow it: {} FILE {}", option, name, *dashed);
      else
        what = fmt::format("{} has no option {}{}", name, option,
                           near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
  }
  return fmt::format("{} ({} --help lists what there is)", what, name);
}

int main_of(int count, char** arguments) {
  // Parsing may fail before options are stored, and the answer has to be JSON even so.
  for (int i = 1; i < count; ++i) json_wanted |= std::strcmp(arguments[i], "--json") == 0;
  const bool json = json_wanted;

  InspectOptions inspect;
  RunOptions run;
  BuildOptions build;
  CheckOptions check;
  BenchOptions bench;
  TuneOptions tune;
  CLI::App app("cellc compiles a recurrence written in ten lines into code that runs it over whole sequences.",
               "cellc");
  app.set_version_flag("--version", kProgram);
  app.require_subcommand(1);
  add_inspect(app, inspect);
  add_run(app, run);
  add_build(app, build);
  add_check(app, check);
  add_bench(app, bench);
  add_tune(app, tune);
  refuse_empty_values(app);
  app.footer(
      "Exit status: 0 done, 1 the cell or an array is wrong, 2 wrong usage, 3 not converged,\n"
      "4 device or writing failed, 5 internal fault.");
  try {
    app.parse(count, arguments);
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    if (app.get_subcommands().empty() && count > 1 && arguments[1][0] != '-')
      return report(json, kWrongUsage,
                    fmt::format("there is no command '{}'; the commands are inspect, run, build, check, bench and tune",
                                arguments[1]));
    return report(json, kWrongUsage, usage_message(app, e));
  }
  return guarded(json, [&] {
    if (app.got_subcommand("inspect")) return command_inspect(inspect);
    if (app.got_subcommand("run")) return command_run(run);
    if (app.got_subcommand("build")) return command_build(build);
    if (app.got_subcommand("bench")) return command_bench(bench);
    if (app.got_subcommand("tune")) return command_tune(tune);
    return command_check(check);
  });
}

}  // namespace
}  // namespace cellc

int main(int count, char** arguments) {
  // Products run on threads of our own: OpenBLAS, which is loaded with the first of them, need not start any, and could
  // not do without where the system gives it none.
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of the write, met while files are cleaned up
  signal(SIGXFSZ, SIG_IGN);  // so is a file that grows past the user's limit
  signal(SIGCHLD, SIG_DFL);  // whoever started us may ignore it, and then nobody learns how a linker ended
  cellc::remove_temporaries_on_signals();
  cellc::remember_arguments(count, arguments);
  cellc::report_crashes(cellc::report_crash, cellc::kInternalFault);
  return cellc::flushed(cellc::guarded(false, [&] { return cellc::main_of(count, arguments); }));
}
