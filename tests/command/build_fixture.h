#pragma once
// `build`, and compilers of C and C++ on what it wrote.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "harness.h"

namespace cellc {

inline const std::string kCc = "cc -std=c99 -Wall -Wextra -pedantic -Werror -O1 ",
                         kCpp = "c++ -std=c++17 -Wall -Wextra -pedantic -Werror -O1 ";

/// Rust needs no installation for cellc; where there is none, what it would show is skipped.
inline const std::string kRustc = "rustc --edition 2021 -O -D warnings -A non_snake_case ";
inline const char* const kNoRust = "there is no rustc";
inline bool has_rust() { return std::system("rustc --version > /dev/null 2>&1") == 0; }

/// Structs of Rust for lengths and arrays, from `build --json`.
inline std::string rust_structs(const nlohmann::json& of) {
  std::ostringstream text;
  text << "#![allow(dead_code)]\nuse std::ffi::{c_char, c_int, c_void, CStr};\nuse std::mem::zeroed;\n"
          "use std::ptr::{null, null_mut};\n#[repr(C)]\nstruct Lengths {\n";
  for (const std::string name : of["lengths"])
    text << "    " << name << ": " << (name.ends_with("offsets") ? "*const i64" : "i64") << ",\n";
  for (const auto& [call, arrays] : of["arrays"].items()) {
    text << "}\n#[repr(C)]\nstruct " << (call == "forward" ? "Arrays" : "BackwardArrays") << " {\n";
    for (const nlohmann::json& a : arrays) {
      const std::string name = a["name"], type = a["type"];
      text << "    " << name << ": " << (a["written"] ? "*mut " : "*const ")
           << (type == "float"    ? "f32"
               : type == "double" ? "f64"
                                  : "u16")
           << ",\n";
      if (a["strides"]) text << "    " << name << "_strides: [i64; 2],\n";
    }
  }
  text << "}\n";
  return text.str();
}

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
