// What bindings are made of: the example by ctypes, over every example against the command; the header for cffi.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/capi/shell.h"
#include "tests/main/turns.h"
#include "tests/oracle/examples.h"

namespace {

const std::string kSource = CELLC_SOURCE_DIR, kBuild = CELLC_BINARY_DIR;

CELLC_ONE_IN(6, "Files/CtypesExample");

/// A Python that has a module; "" where there is none.
std::string python_with(const std::string& module) {
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (shell(std::string(python) + " -c 'import " + module + "'").status == 0) return python;
  return "";
}

class CtypesExample : public testing::TestWithParam<std::string> {};

TEST_P(CtypesExample, IsTheCommand) {
  static const std::string python = python_with("numpy");
  if (python.empty() || not_to_be_loaded())
    GTEST_SKIP() << "there is no Python that has NumPy and can load the library";
  const Outcome run = shell("CELLC_LIBRARY=" + kBuild + "/libcellc.so PYTHONPATH=" + kSource + "/examples " + python +
                            " -B " + kSource + "/tests/capi/run_ctypes_example.py " + kSource + "/dsl-examples/" +
                            GetParam() + ".cell " + kBuild + "/cellc");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_GE(std::atoi(run.text.c_str()), 1) << run.text;
}

INSTANTIATE_TEST_SUITE_P(Files, CtypesExample,
                         testing::ValuesIn(cellc::oracle::names_of(cellc::oracle::dsl_examples())),
                         [](const auto& info) { return info.param; });

TEST(CffiHeader, IsReadAsItIs) {
  const std::string python = python_with("cffi");
  if (python.empty() || not_to_be_loaded()) GTEST_SKIP() << "there is no Python that has cffi and can load the library";
  const Outcome run = shell(python + " -B " + kSource + "/tests/capi/run_cffi_header.py " + kBuild + "/cellc_cffi.h " +
                            kBuild + "/libcellc.so " + kSource + "/capi/cellc.h");
  EXPECT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.text, "done\n");
}

TEST(CtypesExampleFile, IsShort) {
  std::ifstream file(kSource + "/examples/cellc_ctypes.py");
  ASSERT_TRUE(file);
  EXPECT_LE(std::count(std::istreambuf_iterator<char>(file), {}, '\n'), 150);
}

}  // namespace
