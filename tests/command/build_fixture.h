#pragma once
// `build`, and compilers of C and C++ on what it wrote.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "harness.h"

namespace cellc {

inline const std::string kCc = "cc -std=c99 -Wall -Wextra -pedantic -Werror -O1 ",
                         kCpp = "c++ -std=c++17 -Wall -Wextra -pedantic -Werror -O1 ";

class CommandBuild : public CommandTest {
 protected:
  /// What a command prints, errors too; it must succeed.
  std::string shell(const std::string& command) const {
    FILE* pipe = popen(("cd " + path("") + " && { " + command + "; } 2>&1").c_str(), "r");
    std::string text;
    char buffer[4096];
    for (std::size_t n; pipe && (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
    return text;
  }
  std::string bytes(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  nlohmann::json build(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"build", "--json"});
    const Outcome outcome = cellc(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out, nullptr, false);
  }
  std::string payload(const std::string& name) const {
    const Array a = load(name);
    return std::string(static_cast<const char*>(a.data()), static_cast<std::size_t>(a.count()) * size_of(a.dtype()));
  }
};

}  // namespace cellc
