// Results on disk: whole or not at all, all or none.
#include "runtime/data/write_files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "runtime/cpu/engine.h"
#include "runtime/data/npy.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

Array filled(std::int64_t count, double value) {
  Array array(Dtype::F32, {count});
  for (std::int64_t i = 0; i < count; ++i) array.set(i, value);
  return array;
}

class WriteFiles : public testing::Test {
 protected:
  std::string directory = testing::TempDir() + "/write_files_test_" + std::to_string(getpid());
  void SetUp() override {
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override { fs::remove_all(directory); }

  std::string error(const std::string& where, const std::vector<std::pair<std::string, Array>>& arrays) {
    try {
      write_arrays(where, arrays);
    } catch (const DeviceError& e) {
      return e.what();
    }
    return "no error";
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
  }
};

TEST_F(WriteFiles, WritesAndReplaces) {
  const std::string out = directory + "/a/b/";
  write_arrays(out, {{"h", filled(3, 1)}, {"h.final", filled(1, 2)}});
  write_arrays(out, {{"h", filled(4, 5)}});
  EXPECT_EQ(read_npy(out + "h.npy").count(), 4);
  EXPECT_EQ(read_npy(out + "h.npy").get(3), 5);
  EXPECT_EQ(read_npy(out + "h.final.npy").get(0), 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(out), fs::directory_iterator()), 2) << "no temporaries stay";
}

TEST_F(WriteFiles, AFailedRenameUndoesTheOthers) {
  write_arrays(directory, {{"a", filled(1, 1)}});
  fs::create_directory(directory + "/b.npy");
  EXPECT_NE(
      error(directory, {{"a", filled(2, 9)}, {"c", filled(1, 9)}, {"b", filled(1, 9)}}).find("b.npy: cannot write"),
      std::string::npos);
  EXPECT_EQ(read_npy(directory + "/a.npy").get(0), 1) << "what was there is there again";
  EXPECT_FALSE(fs::exists(directory + "/c.npy"));
  EXPECT_EQ(files(), 2u);
}

TEST_F(WriteFiles, AFullDiskLeavesNothing) {
  struct rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old = signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 4096, before.rlim_max };
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string what = error(directory + "/new", {{"small", filled(10, 1)}, {"large", filled(5000, 1)}});
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, old);
  EXPECT_NE(what.find("large.npy: cannot write: File too large"), std::string::npos) << what;
  EXPECT_EQ(files(), 0u) << "neither files nor the directory";
}

TEST_F(WriteFiles, WhatIsNotKeptLeavesNothing) {
  write_arrays(directory, {{"a", filled(1, 1)}});
  const auto seen = [&] { return fs::exists(directory + "/n/a/b/c.npy"); };
  bool in_place = false;
  write_arrays(directory + "/n/a/b", {{"c", filled(2, 9)}}, [&] { return !(in_place = seen()); });
  EXPECT_TRUE(in_place);
  EXPECT_FALSE(fs::exists(directory + "/n"));
  write_arrays(directory, {{"a", filled(2, 9)}, {"b", filled(2, 9)}}, [] { return false; });
  EXPECT_EQ(read_npy(directory + "/a.npy").get(0), 1);
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFiles, APipeIsNotReplaced) {
  ASSERT_EQ(mkfifo((directory + "/a.npy").c_str(), 0600), 0);
  EXPECT_NE(error(directory, {{"b", filled(1, 1)}, {"a", filled(1, 1)}}).find("a.npy: cannot write: it is a device"),
            std::string::npos);
  EXPECT_TRUE(fs::is_fifo(directory + "/a.npy"));
  EXPECT_EQ(files(), 1u);
}

/// How a process ends that a signal meets after it did `before` and while results are put in place by another thread.
int ended_by(const std::function<void()>& write) {
  const pid_t child = fork();
  if (child == 0) {
    remove_temporaries_on_signals();
    write();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_F(WriteFiles, AnInterruptInAnyThreadFindsAllOrNothing) {
  write_arrays(directory, {{"a", filled(1, 1)}, {"b", filled(1, 1)}});
  // The signal comes to another thread while the results are being put in place: it waits, and all are there.
  EXPECT_EQ(ended_by([&] {
              write_arrays(directory, {{"a", filled(2, 9)}, {"b", filled(2, 9)}}, [] {
                std::thread([] { raise(SIGINT); }).join();
                return true;
              });
            }),
            SIGINT);
  EXPECT_EQ(read_npy(directory + "/a.npy").get(0), 9);
  EXPECT_EQ(read_npy(directory + "/b.npy").get(0), 9);
  EXPECT_EQ(files(), 2u);
  // Nothing stays of the directories where it comes before that.
  EXPECT_EQ(ended_by([&] {
              write_arrays(directory + "/n/a/b", {{"c", filled(2, 9)}}, [] {
                std::thread([] { kill(getpid(), SIGTERM); }).join();
                return false;
              });
            }),
            SIGTERM);
  EXPECT_EQ(files(), 2u);
}

TEST_F(WriteFiles, ADirectoryThatCannotBe) {
  write_arrays(directory, {{"a", filled(1, 1)}});
  EXPECT_NE(error(directory + "/a.npy", {{"h", filled(1, 1)}}).find("is not a directory"), std::string::npos);
  EXPECT_NE(error(directory + "/a.npy/deeper", {{"h", filled(1, 1)}}).find("cannot create the directory"),
            std::string::npos);
}

}  // namespace
}  // namespace cellc
