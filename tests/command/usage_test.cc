// Statuses, help, and what goes to which stream.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "harness.h"

namespace cellc {
namespace {

using nlohmann::json;

class CommandUsage : public CommandTest {};

// What stands for a file may be a slip of the hand in another option than the reader thinks of.
TEST_F(CommandUsage, FilesThatAreNoneAreToldWithTheirOption) {
  const std::string cell =
      write("a.cell", "cell a[d] {\n  state h[d]\n  input x[d]\n  param rate\n  h' = rate*h + x\n}\n");
  const struct {
    const char *option, *value, *message;
  } cases[] = {
      {"--param", "rate=abc", "--param rate: abc: "}, {"--input", "x=1", "--input x: 1: "},
      {"--state", "h=0", "--state h: 0: "},           {"--cotangent", "z=1", "--cotangent z: 1: "},
      {"--tangent", "x=1", "--tangent x: 1: "},       {"--offsets", "0,3", "--offsets: 0,3: "},
  };
  for (const auto& c : cases) {
    const Outcome outcome = cellc({"run", cell, "--random", "1", "--length", "3", "--dim", "d=2", c.option, c.value});
    EXPECT_EQ(outcome.status, 1) << c.option;
    EXPECT_EQ(outcome.err, std::string("cellc: error: ") + c.message + "cannot open: No such file or directory\n");
  }
}

TEST_F(CommandUsage, HelpAndVersionEverywhere) {
  const Outcome help = cellc({"--help"});
  EXPECT_EQ(help.status, 0);
  for (const char* command : {"inspect", "run", "build", "check", "bench", "tune"}) EXPECT_HAS(help.out, command);
  EXPECT_EQ(cellc({"--version"}).out, "cellc 0.1.0\n");
  for (const char* command : {"inspect", "run", "build", "check", "bench", "tune"}) {
    EXPECT_EQ(cellc({command, "--help"}).status, 0);
    EXPECT_HAS(cellc({command, "--help"}).out, "FILE");
    EXPECT_EQ(cellc({command, "--version"}).out, "cellc 0.1.0\n");
  }
}

TEST_F(CommandUsage, WrongUsageIsStatus2) {
  const std::string gru = example("01_para_gru.cell");
  const struct {
    std::vector<std::string> arguments;
    const char* message;
  } cases[] = {
      {{}, "subcommand"},
      {{"bogus"}, "there is no command 'bogus'"},
      {{"inspect"}, "FILE"},
      {{"inspect", gru, "--nonsense"}, "--nonsense"},
      {{"inspect", gru, "--stage", "soup"}, "the stages are tree, graph"},
      {{"inspect", gru, "--stage", "ptx", "--arch", "h100"}, "expected an architecture such as sm_80"},
      {{"inspect", gru, "--stage", "cuda", "--dim", "d=3"}, "only with --stage cuda --whole"},
      {{"inspect", gru, "--stage", "graph", "--length", "3"}, "only with --stage cuda --whole"},
      {{"inspect", gru, "--stage", "cuda", "--whole", "--dim", "q=3"}, "has no axis 'q'"},
      {{"inspect", gru, "--stage", "graph", "--whole"}, "only with --stage cuda"},
      {{"inspect", gru, "--stage", "graph", "--latex"}, "excludes"},
      {{"inspect", example("25_ltc.cell")}, "holds 2 cells: say which with --cell (ltc, lrc_ssm)"},
      {{"inspect", example("25_ltc.cell"), "--cell", "ltd"}, "did you mean 'ltc'?"},
      {{"run", gru, "--input", "x"}, "expected NAME=VALUE"},
      {{"run", gru, "--dim", "d=x"}, "expected a length"},
      {{"run", gru, "--dim", "d=0"}, "expected a length"},
      {{"run", gru, "--random", "x"}, "x"},
      {{"run", gru, "--batch", "-1"}, "--batch: -1: expected a whole number of at least 0 (cellc run --help"},
      {{"run", gru, "--batch", "1.5"}, "--batch: 1.5: expected a whole number of at least 0"},
      {{"run", gru, "--length", "0x10"}, "--length: 0x10: expected a whole number of at least 0"},
      {{"run", gru, "--length", "99999999999999999999"},
       "--length: 99999999999999999999: expected a whole number of at most "},
      {{"run", gru, "--random", "-1"}, "--random: -1: expected a whole number of at least 0"},
      {{"run", gru, "--random", "18446744073709551616"},
       "--random: 18446744073709551616: expected a whole number of at most 18446744073709551615"},
      {{"run", gru, "--backward-solver", "scan"}, "--backward-solver: only with --cotangent"},
      {{"run", gru, "--tangent", "h=x.npy", "--tangent-solver", "quick"}, "--tangent-solver quick: expected"},
      {{"run", gru, "--max-iterations", "99999999999999999999"},
       "--max-iterations: 99999999999999999999: expected a whole number of at most "},
      {{"run", gru, "--fixed-iterations", "4294967296"},
       "--fixed-iterations: 4294967296: expected a whole number of at most "},
      {{"run", gru, "--absolute-tolerance", "h=x", "--random", "1", "--length", "1", "--dim", "d=1"},
       "--absolute-tolerance h=x: 'x' is no number from 0 on"},
      {{"run", gru, "--absolute-tolerance", "xz=1", "--random", "1", "--length", "1", "--dim", "d=1"},
       "--absolute-tolerance xz=1: the cell has no state 'xz'; its states are h"},
      {{"run", gru, "--threads", "0"}, "--threads: 0: expected a whole number of at least 1"},
      {{"run", gru, "--threads", "0x2"}, "--threads: 0x2: expected a whole number of at least 1"},
      {{"check", gru, "--seed", "-1"}, "--seed: -1: expected a whole number of at least 0"},
      {{"bench", gru, "--repeats", "0x3"}, "--repeats: 0x3: expected a whole number of at least 1"},
      {{"inspect", gru, "--stage", "cuda", "--whole", "--length", "0x8"},
       "--length: 0x8: expected a whole number of at least 1"},
      {{"build", gru, "--target", "cpu-object", "-o", "a.o", "--length", "-1"},
       "--length: -1: expected a whole number of at least 0"},
      {{"run", gru, "--dtype", "f31", "--random", "1"}, "expected f32, f64, bf16 or f16"},
      {{"run", gru, "--offsets", ""}, "--offsets"},
      {{"run", gru, "--offsets="}, "--offsets"},
      {{"run", gru, "--out", "", "--random", "1", "--length", "1", "--dim", "d=1"},
       "--out: expected a value, which is empty (cellc run --help"},
      {{"run", gru, "--plan", ""}, "--plan"},
      {{"run", gru, "--dtype", ""}, "--dtype"},
      {{"run", gru, "--cell", ""}, "--cell"},
      {{"run", gru, "--kernel", ""}, "--kernel"},
      {{"run", gru, "--dim", "d=2", "--dim", ""}, "--dim"},
      {{"run", gru, "--random", ""}, "--random"},
      {{"run", ""}, "FILE"},
      {{"build", gru, "--target", "cpu-object", "-o", ""}, "--out"},
      {{"build", gru, "--target", "cpu-object", "-o", "a.o", "--cpu", ""}, "--cpu"},
      {{"inspect", gru, "--stage", ""}, "--stage"},
      {{"inspect", example("25_ltc.cell"), "--stage", "tree", "--cell", "ltd"}, "--cell ltd: "},
      {{"run", gru, "--device", "tpu"}, "expected auto, cpu or cuda"},
      {{"run", gru, "--solver", "persistent", "--device", "cpu", "--random", "1", "--length", "9", "--dim", "d=2"},
       "persistent does not run on the CPU"},
      {{"run", gru, "--solver", "relaxation", "--random", "1", "--length", "9", "--dim", "d=2"}, "nothing to relax"},
      {{"run", gru, "--solver", "scan", "--random", "1", "--length", "9", "--dim", "d=2"}, "neither linear nor"},
      {{"run", gru, "--solver", "magic"}, "expected auto, sequential"},
      {{"run", gru, "--random", "1", "--length", "2", "--dim", "d=2", "--products", "f8"},
       "--products f8: expected f32, 3xtf32, tf32, bf16 or storage"},
      {{"build", gru, "--target", "cuda-source", "-o", "a.cu", "--products", "f8"},
       "--products f8: expected f32, 3xtf32, tf32, bf16 or storage"},
      {{"build", gru, "--target", "cpu-object", "-o", "a.o", "--products", "tf32"},
       "--products tf32: --target cpu-object is for CPUs"},
      {{"run", gru, "--tolerance", "-1"}, "--tolerance: -1: expected a number of at least 0 (cellc run --help"},
      {{"run", gru, "--tolerance", "nan"}, "nan: expected a number"},
      {{"run", gru, "--tolerance", "1e"}, "1e"},
      {{"run", gru, "--sovler", "auto"}, "cellc run has no option --sovler; did you mean --solver? (cellc run --help"},
      {{"run", gru, "--inputs=x=x.npy"}, "no option --inputs; did you mean --input?"},
      {{"inspect", gru, "--zzz", "1"}, "cellc inspect has no option --zzz (cellc inspect --help"},
      {{"--cell", "a", "run", gru},
       "--cell stands before the command, and options follow it: cellc run FILE --cell (cellc run --help"},
      {{"--dtype=f64", "run", gru}, "options follow it: cellc run FILE --dtype=f64 (cellc run --help"},
      {{"--soup", "run", gru}, "cellc run has no option --soup"},
      {{"inspect", gru, "another"}, "one argument too many: another"},
      {{"run", gru, "--random", "1", "--dim", "q=3", "--length", "1"}, "has no axis 'q'"},
  };
  for (const auto& c : cases) {
    const Outcome outcome = cellc(c.arguments);
    EXPECT_EQ(outcome.status, 2) << c.message << "\n" << outcome.err;
    EXPECT_HAS(outcome.err, c.message);
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(CommandUsage, NumbersAreDecimal) {
  const Outcome outcome =
      cellc({"run", example("01_para_gru.cell"), "--random", "18446744073709551615", "--length", "010", "--batch", "08",
             "--dim", "d=03", "--threads", "01", "--max-iterations", "08", "--json"});
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out, nullptr, false)["arrays"]["h"], json({8, 10, 3}));
}

TEST_F(CommandUsage, JsonWhateverTheStatus) {
  const std::string gru = example("01_para_gru.cell");
  const std::vector<std::pair<int, std::vector<std::string>>> cases = {
      {0, {"inspect", gru, "--json"}},
      {0, {"run", gru, "--random", "1", "--dim", "d=3", "--length", "4", "--json"}},
      {0,
       {"run", gru, "--random", "1", "--dim", "d=3", "--length", "4", "--json", "--device", "cpu", "--deterministic"}},
      {0, {"check", gru, "--json"}},
      {1, {"inspect", path("none.cell"), "--json"}},
      {1, {"run", gru, "--json"}},
      {2, {"run", gru, "--json", "--bogus"}},
      {2, {"bogus", "--json"}},
      {0, {"tune", gru, "--dim", "d=3", "--length", "4", "--device", "cpu", "--repeats", "1", "--json"}},
      {0, {"bench", gru, "--dim", "d=3", "--length", "4", "--device", "cpu", "--repeats", "1", "--json"}},
      {4, {"run", gru, "--json", "--device", "cuda", "--random", "1", "--dim", "d=3", "--length", "4"}},
  };
  ProcessOptions blind;
  blind.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  for (const auto& [status, arguments] : cases) {
    const Outcome outcome = cellc(arguments, blind);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    const json object = json::parse(outcome.out, nullptr, false);
    ASSERT_TRUE(object.is_object()) << outcome.out;
    EXPECT_EQ(object.contains("error"), status != 0) << outcome.out;
  }
}

TEST_F(CommandUsage, OnlyACacheMayBeNowhere) {
  EXPECT_EQ(
      cellc({"run", example("01_para_gru.cell"), "--random", "1", "--length", "1", "--dim", "d=1", "--cache-dir", ""})
          .status,
      0);
}

TEST_F(CommandUsage, NoGpuIsADeviceFailure) {
  ProcessOptions blind;  // also where there is a card
  blind.environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  const Outcome outcome =
      cellc({"run", example("01_para_gru.cell"), "--device", "cuda", "--random", "1", "--dim", "d=3", "--length", "4"},
            blind);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_HAS(outcome.err, "--device cuda: ");
  EXPECT_HAS(outcome.err, "use --device cpu");
}

TEST_F(CommandUsage, AnInternalFaultLeavesADump) {
  for (const char* stage : {"parse", "structure", "compile"}) {
    ProcessOptions options;
    options.environment = {{"CELLC_FAULT", stage}, {"TMPDIR", path("")}};
    const Outcome outcome =
        cellc({"run", example("01_para_gru.cell"), "--random", "1", "--dim", "d=3", "--length", "2", "--out", "an out"},
              options);
    EXPECT_EQ(outcome.status, 5);
    EXPECT_HAS(outcome.err, std::string("internal fault in stage '") + stage + "'");
    EXPECT_HAS(outcome.err, "replay: cd ");
    EXPECT_HAS(outcome.err, "--out 'an out'");
    const std::size_t at = outcome.err.find("dump:   ") + 8;
    const std::string dump = outcome.err.substr(at, outcome.err.find('\n', at) - at);
    std::stringstream cell;
    cell << std::ifstream(dump + "/cell.cell").rdbuf();
    EXPECT_HAS(cell.str(), "cell para_gru[d]");
    std::stringstream fault;
    fault << std::ifstream(dump + "/fault.txt").rdbuf();
    EXPECT_HAS(fault.str(), std::string("stage: ") + stage);
    EXPECT_TRUE(listing("an out").empty());
  }
}

// What is derived of a cell is verified before code is made of it, in a run as in a dump.
TEST_F(CommandUsage, ADerivedCellThatIsNoGraphIsAnInternalFault) {
  for (const char* derivation : {"stages", "transition", "newton", "guess", "residual"}) {
    SCOPED_TRACE(derivation);
    ProcessOptions options;
    options.environment = {{"CELLC_FAULT", std::string("break:") + derivation}, {"TMPDIR", path("")}};
    const std::vector<std::string> run = {"run",      example("01_para_gru.cell"),
                                          "--random", "1",
                                          "--dim",    "d=3",
                                          "--length", "900",
                                          "--solver", "newton",
                                          "--device", "cpu",
                                          "--out",    "an out"};
    const std::vector<std::string> inspect = {"inspect", example("01_para_gru.cell"), "--stage", "derive"};
    for (const auto& command : {run, inspect}) {
      const Outcome outcome = cellc(command, options);
      EXPECT_EQ(outcome.status, 5);
      EXPECT_HAS(outcome.err, std::string("internal fault in stage 'derive ") + derivation + "'");
      EXPECT_HAS(outcome.err, std::string("the derivation '") + derivation + "' of 'para_gru' went wrong");
      EXPECT_HAS(outcome.err, "unknown node");
      EXPECT_TRUE(listing("an out").empty());
    }
    options.environment = {{"CELLC_FAULT", std::string("derive ") + derivation}, {"TMPDIR", path("")}};
    const Outcome outcome = cellc(run, options);
    EXPECT_EQ(outcome.status, 5);
    EXPECT_HAS(outcome.err, std::string("internal fault in stage 'derive ") + derivation + "': fault asked for");
  }
}

// A crash is told as any other fault, and by JSON where that is asked for; it leaves no files.
TEST_F(CommandUsage, ACrashLeavesADump) {
  for (const char* stage : {"parse", "run", "write"}) {
    ProcessOptions options;
    options.environment = {{"CELLC_FAULT", std::string("crash:") + stage}, {"TMPDIR", path("")}};
    const Outcome outcome = cellc({"run", example("01_para_gru.cell"), "--random", "1", "--dim", "d=3", "--length", "2",
                                   "--out", "an out", "--json"},
                                  options);
    EXPECT_EQ(outcome.status, 5);
    EXPECT_HAS(outcome.err, std::string("internal fault in stage '") + stage + "': signal 11");
    EXPECT_HAS(outcome.err, "replay: cd ");
    const json object = json::parse(outcome.out, nullptr, false);
    ASSERT_TRUE(object.is_object()) << outcome.out;
    EXPECT_EQ(object["exit_status"], 5);
    EXPECT_TRUE(listing("an out").empty());
  }
}

// Memory or the code generator fails within a run: no dump, since it is no mistake of ours, and no file.
TEST_F(CommandUsage, AFaultWithinARunWritesNothing) {
  for (const char* solver : {"sequential", "segmented", "newton"})
    for (const char* fault : {"allocate:1", "allocate:5", "allocate:9", "compile:1"}) {
      SCOPED_TRACE(std::string(solver) + ", " + fault);
      ProcessOptions options;
      options.environment = {{"CELLC_FAULT", fault}, {"TMPDIR", path("")}};
      const Outcome outcome = cellc({"run", example("01_para_gru.cell"), "--random", "1", "--dim", "d=3", "--length",
                                     "900", "--solver", solver, "--out", "an out"},
                                    options);
      EXPECT_EQ(outcome.status, 4);
      EXPECT_HAS(outcome.err, fault[0] == 'a' ? "out of memory in stage '" : "CELLC_FAULT");
      EXPECT_FALSE(outcome.err.find("dump:") != std::string::npos);
      EXPECT_TRUE(listing("an out").empty());
    }
}

// Stacks of so many threads do not fit: those that have started must not wait for the others.
TEST_F(CommandUsage, ThreadsThatCannotStartAreADeviceFailure) {
  const std::string cell = write("leaky.cell", "cell leaky[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n");
  ProcessOptions little;
  little.memory_limit = std::int64_t{1500} << 20;
  little.signal_after_ms = 30000;  // hung
  little.signal = SIGKILL;
  // Threads that meet after every step, threads that share sequences, and those of the reference.
  for (const std::vector<std::string>& shape : std::vector<std::vector<std::string>>{
           {"--length", "4000", "--dim", "d=4096", "--solver", "sequential"},
           {"--length", "50", "--batch", "1000", "--dim", "d=512", "--solver", "sequential"},
           {"--length", "1", "--batch", "1000", "--dim", "d=1", "--verify"}}) {
    std::vector<std::string> arguments = {"run",  cell,        "--random", "1",        "--dtype",
                                          "bf16", "--threads", "600",      "--device", "cpu"};
    arguments.insert(arguments.end(), shape.begin(), shape.end());
    const Outcome outcome = cellc(arguments, little);
    EXPECT_EQ(outcome.status, 4) << outcome.err;
    EXPECT_HAS(outcome.err, "threads: ");
    EXPECT_HAS(outcome.err, "--threads");
  }
}

TEST_F(CommandUsage, AFullDiskUnderStandardOutput) {
  ProcessOptions options;
  options.stdout_path = "/dev/full";
  const Outcome outcome = cellc({"inspect", example("01_para_gru.cell")}, options);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_HAS(outcome.err, "cannot write to standard output");
  // More than a buffer: the first write has failed long before the last.
  const Outcome long_one = cellc({"inspect", example("01_para_gru.cell"), "--stage", "cuda", "--whole"}, options);
  EXPECT_EQ(long_one.status, 4);
  EXPECT_HAS(long_one.err, "cannot write to standard output\n");
}

TEST_F(CommandUsage, ResultsDoNotStayWhereTheReportFails) {
  ProcessOptions options;
  options.stdout_path = "/dev/full";
  const std::string cell = write("sum.cell", "cell s {\n  state h\n  input x\n  h' = 0.5*h + x\n}\n");
  const Outcome outcome =
      cellc({"run", cell, "--random", "1", "--batch", "1", "--length", "9", "--out", path("new/out")}, options);
  EXPECT_EQ(outcome.status, 4);
  EXPECT_FALSE(std::filesystem::exists(path("new")));
  EXPECT_EQ(cellc({"build", cell, "--target", "cpu-object", "-o", path("s.o")}, options).status, 4);
  EXPECT_FALSE(std::filesystem::exists(path("s.o")));
}

TEST_F(CommandUsage, WhatIsBuiltReplacesFilesOnly) {
  const std::string cell = write("sum.cell", "cell s {\n  state h\n  input x\n  h' = 0.5*h + x\n}\n");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const Outcome outcome = cellc({"build", cell, "--target", "cpu-object", "-o", path("pipe")});
  EXPECT_EQ(outcome.status, 4);
  EXPECT_HAS(outcome.err, "a device or a pipe");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));
  EXPECT_FALSE(std::filesystem::exists(path("pipe.h")));
}

TEST_F(CommandUsage, AReaderThatLeftHasWhatItWanted) {
  const std::string fifo = path("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const char* whole : {"--whole", "--arch=sm_80"}) {
    std::thread reader([&] {
      const int in = open(fifo.c_str(), O_RDONLY);
      char first = 0;
      EXPECT_EQ(read(in, &first, 1), 1);
      close(in);
    });
    ProcessOptions options;
    options.stdout_path = fifo;
    const Outcome outcome = cellc({"inspect", example("01_para_gru.cell"), "--stage", "cuda", whole}, options);
    reader.join();
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.err, "");
  }
}

}  // namespace
}  // namespace cellc
