// Linking: whatever goes wrong with the linker is an error, and never an empty library.
#include "runtime/build/link_shared.h"

#include <gtest/gtest.h>
#include <signal.h>

#include "runtime/data/errors.h"

namespace cellc {
namespace {

std::string error_of(const std::string& object) {
  try {
    link_shared(object, "cell.so");
  } catch (const DeviceError& e) {
    return e.what();
  }
  return {};
}

TEST(LinkShared, WhatIsNoObjectIsRefused) {
  EXPECT_NE(error_of("this is no object").find("could not link the library"), std::string::npos);
}

// Nobody is told how the linker ended where SIGCHLD is ignored.
TEST(LinkShared, AnEndThatNobodyIsToldOfIsAnError) {
  const auto before = signal(SIGCHLD, SIG_IGN);
  const std::string error = error_of("this is no object");
  signal(SIGCHLD, before);
  EXPECT_NE(error.find("SIGCHLD"), std::string::npos) << error;
}

}  // namespace
}  // namespace cellc
