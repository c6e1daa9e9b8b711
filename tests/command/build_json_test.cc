// `build --json`: enough to call what was built from a language that reads no header.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "build_fixture.h"

namespace cellc {
namespace {

// Structs of arrays and lengths, made from what the command says of them; forward and backward.
const char* const kProgram = R"(import ctypes, json
of = json.load(open("build.json"))
library = ctypes.CDLL("./" + of["out"])
size = {"float": ctypes.c_float, "double": ctypes.c_double, "uint16_t": ctypes.c_uint16}

class Lengths(ctypes.Structure):
    _fields_ = [(n, ctypes.c_void_p if n.endswith("offsets") else ctypes.c_int64) for n in of["lengths"]]

def struct_of(call):
    fields = []
    for a in of["arrays"][call]:
        fields.append((a["name"], ctypes.c_void_p))
        if a["strides"]:
            fields.append((a["name"] + "_strides", ctypes.c_int64 * 2))
    return type(call, (ctypes.Structure,), {"_fields_": fields})()

open_lengths = {"sequences": 2, "steps": 3, "k": 2}
lengths = Lengths(sequences=2, steps=3, k=2)
memory = {}

def call(kind, function):
    arrays = struct_of(kind)
    for a in of["arrays"][kind]:
        count = 1
        for part in a["shape"]:
            count *= int(part.split("=")[-1]) if "=" in part or part.isdigit() else open_lengths[part]
        values = (size[a["type"]] * count)(*[0.5] * count)
        memory.setdefault(a["name"], values)
        setattr(arrays, a["name"], ctypes.cast(memory[a["name"]], ctypes.c_void_p))
    workspace = ctypes.c_int64()
    assert getattr(library, function + "_workspace")(ctypes.byref(lengths), ctypes.byref(workspace)) == 0
    room = (ctypes.c_char * workspace.value)()
    run = getattr(library, function if kind == "backward" else function + "_forward")
    run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    small = run(ctypes.byref(lengths), ctypes.byref(arrays), room, 0, None)
    assert of["results"]["CELLC_SMALL_WORKSPACE"] == small, small
    assert run(ctypes.byref(lengths), ctypes.byref(arrays), room, workspace.value, None) == 0
    required = next(a["name"] for a in of["arrays"][kind] if a["required"])
    setattr(arrays, required, None)
    missing = run(ctypes.byref(lengths), ctypes.byref(arrays), room, workspace.value, None)
    number = [a["name"] for a in of["arrays"][kind]].index(required)
    assert missing == of["results"]["CELLC_MISSING_FIELD"] + number, missing

name = of["functions"][1][: -len("_forward")]
call("forward", name)
call("backward", name + "_backward")
print(list(memory["h"])[:6:2], list(memory["a_gradient"]))
)";

TEST_F(CommandBuild, JsonSaysAllThatACallTakes) {
  write("one.cell", "cell one[k] {\n  state h[k]\n  input x[k]\n  param a\n  h' = a*h + x\n}\n");
  const nlohmann::json of =
      build({"one.cell", "--target", "cpu-shared", "--backward", "--dtype", "f64", "-o", "libone.so"});
  EXPECT_EQ(of["lengths"], (nlohmann::json{"k", "sequences", "steps", "offsets", "reverse"}));
  EXPECT_EQ(of["results"]["CELLC_DONE"], 0);
  write("build.json", of.dump());
  write("call.py", kProgram);
  // Everything is 0.5: h is half of what it was and a half; 1 flows back to each step, so that the gradient by a is the
  // sum of the states before, 0.5, 0.75 and 0.875, of four lanes.
  EXPECT_EQ(shell("python3 call.py"), "[0.75, 0.875, 0.9375] [8.5]\n");
}

/// Structs of Rust by their names, without what may be laid out in another way.
std::map<std::string, std::string> structs_of(const std::string& text) {
  std::map<std::string, std::string> all;
  for (std::size_t at = 0; (at = text.find("\nstruct ", at)) != std::string::npos; ++at) {
    const std::size_t name = at + 8, brace = text.find(" {", name), end = text.find('}', brace);
    std::string body;
    for (const char c : text.substr(brace + 2, end - brace - 2))
      if (!std::isspace(static_cast<unsigned char>(c))) body += c;
    if (body.ends_with(',')) body.pop_back();
    all[text.substr(name, brace - name)] = body;
  }
  return all;
}

/// The page's program has the structs that follow from what is said of the build.
TEST_F(CommandBuild, RustOfThePageIsByJson) {
  std::ifstream file(CELLC_SOURCE_DIR "/docs/embedding.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const auto block = [&](const std::string& head) {
    const auto at = page.find(head + "\n");
    EXPECT_NE(at, std::string::npos) << head;
    const auto from = page.find('\n', at) + 1;
    return page.substr(from, page.find("```", from) - from);
  };
  write("follower.cell", block("```cell follower.cell"));
  const nlohmann::json of = build({"follower.cell", "--target", "cpu-shared", "--dtype", "f64", "--backward", "--name",
                                   "follower", "-o", "lib.so"});
  const auto mine = structs_of(block("```rust follow.rs"));
  EXPECT_EQ(mine.size(), 3u);
  EXPECT_EQ(mine, structs_of(rust_structs(of)));
}

TEST_F(CommandBuild, JsonOfGpusHasTheirLengths) {
  write("one.cell", "cell one[k] {\n  state h[k]\n  input x[k]\n  h' = 0.5*h + x\n}\n");
  const nlohmann::json of = build({"one.cell", "--target", "cuda-source", "-o", "one.cu"});
  EXPECT_EQ(of["lengths"], (nlohmann::json{"k", "sequences", "steps", "offsets", "device_offsets", "reverse", "keep"}));
  EXPECT_GT(of["results"]["CELLC_NO_DRIVER"], 0);
}

}  // namespace
}  // namespace cellc
