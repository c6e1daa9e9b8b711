#pragma once
// The command line as users and scripts see it: a process with arguments, files and a status.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/data/array.h"

namespace cellc {

struct Outcome {
  int status = -1;  ///< exit status; 128 + n where signal n ended it
  std::string out, err;
};

struct ProcessOptions {
  std::string program = CELLC_BINARY_DIR "/cellc";
  std::map<std::string, std::string> environment;
  std::int64_t file_size_limit = -1;  ///< bytes that one file may grow to: a disk that is full
  std::int64_t memory_limit = -1;     ///< bytes of address space
  std::string stdout_path;            ///< instead of a pipe
  int signal_after_ms = -1, signal = 0;
  bool ignores_children = false;  ///< started by a process that ignores SIGCHLD
};

/// A fresh directory per test, and cellc run in it. Compiled code goes to `cache` there.
class CommandTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  Outcome cellc(const std::vector<std::string>& arguments, const ProcessOptions& options = {}) const;
  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const;  ///< gives the path
  /// Writes an array; entry i is value(i).
  std::string array(const std::string& name, const std::vector<std::int64_t>& shape, double (*value)(std::int64_t),
                    Dtype dtype = Dtype::F32) const;
  std::string save(const std::string& name, const Array& array) const;
  /// The numbers of a written array.
  Array load(const std::string& name) const;
  /// Names in a directory, sorted; empty if there is none.
  std::vector<std::string> listing(const std::string& name) const;
  static std::string example(const std::string& name) { return std::string(CELLC_SOURCE_DIR "/dsl-examples/") + name; }

 private:
  std::string directory_;
};

#define EXPECT_HAS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "expected: " << (part) << "\nfound: " << (text)

}  // namespace cellc
