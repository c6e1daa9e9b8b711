// Processes that get no threads, or little address space: a command ends with a status and a message, and a command
// that needs neither does not notice.
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness.h"

namespace cellc {
namespace {

const char* const kProducts =
    "cell dense[d] {\n  state h[d]\n  input x[d]\n  param W[d,d], U[d,d]\n  h' = tanh(W@x + U@h)\n}\n";

class Scarce : public CommandTest {
 protected:
  std::vector<std::string> run(const std::string& threads, const std::string& length = "200") const {
    return {"run",   "dense.cell", "--random",    "1", "--batch",  "4",   "--length",  length,
            "--dim", "d=64",       "--cache-dir", "",  "--device", "cpu", "--threads", threads};
  }
};

TEST_F(Scarce, NoThreads) {
  write("dense.cell", kProducts);
  write("none.c",
        "#include <errno.h>\n#include <pthread.h>\nint pthread_create(pthread_t* t, const pthread_attr_t* a, void* "
        "(*f)(void*), void* x) { (void)t, (void)a, (void)f, (void)x; return EAGAIN; }\n");
  ASSERT_EQ(std::system(("cc -shared -fPIC " + path("none.c") + " -o " + path("none.so")).c_str()), 0);
  ProcessOptions none;
  none.environment["LD_PRELOAD"] = path("none.so");
  EXPECT_EQ(cellc({"inspect", "dense.cell"}, none).status, 0);
  EXPECT_EQ(cellc({"--version"}, none).status, 0);
  const Outcome alone = cellc(run("1"), none);
  EXPECT_EQ(alone.status, 0) << alone.err;
  const Outcome several = cellc(run("3", "20000"), none);
  EXPECT_EQ(several.status, 4);
  EXPECT_HAS(several.err, "cannot start 3 threads");
}

// A default has entries where a run has no sequences.
TEST_F(Scarce, LengthsBeyondAllMemory) {
  write("start.cell",
        "cell start[d, k] {\n  state h[d,k] = tanh(a)\n  input x[d]\n  param a[k] = 0.5\n  h' = 0.5*h + x\n}\n");
  for (const char* batch : {"0", "1"}) {
    const Outcome outcome = cellc({"run", "start.cell", "--random", "1", "--batch", batch, "--length", "0", "--dim",
                                   "d=1152921504606846976", "--dim", "k=1152921504606846976"});
    EXPECT_EQ(outcome.status, 4) << outcome.err;
    EXPECT_EQ(outcome.err.find("internal fault"), std::string::npos) << outcome.err;
  }
  write("dense.cell", "cell dense[d] {\n  state h[d]\n  input x[d]\n  h' = 0.5*h + x\n}\n");
  EXPECT_EQ(
      cellc({"run", "dense.cell", "--random", "1", "--batch", "0", "--length", "3", "--dim", "d=1152921504606846976"})
          .status,
      0);
}

// Whatever there is room for: no limit makes it hang or crash.
TEST_F(Scarce, AddressSpace) {
  write("dense.cell", kProducts);
  bool lacked = false, ran = false;
  for (std::int64_t mib = 200; mib <= 700; mib += 50) {
    ProcessOptions little;
    little.memory_limit = mib << 20;
    const Outcome outcome = cellc(run("2"), little);
    SCOPED_TRACE(mib);
    // 127: the loader had no room for LLVM.
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 4 || outcome.status == 127) << outcome.status << outcome.err;
    lacked |= outcome.err.find("no room for the buffers") != std::string::npos;
    ran |= outcome.status == 0;
  }
  EXPECT_TRUE(lacked);
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace cellc
