// The driver that is shipped with kernels against the engine, bit by bit: every example, every dtype,
// defaults left out or given, rows wanted or not, strides, packed and reversed sequences, histories.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "compiler/front_end.h"
#include "compiler/graph/lower.h"
#include "compiler/syntax/parse.h"
#include "runtime/cpu/engine.h"
#include "tests/engines/driver_call.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

std::vector<std::string> cell_files() {
  std::vector<std::string> files;
  for (const char* folder : {"/dsl-examples", "/tests/cells"})
    for (const auto& entry : std::filesystem::directory_iterator(std::string(CELLC_SOURCE_DIR) + folder))
      if (entry.path().extension() == ".cell") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string stem(const std::string& path) { return std::filesystem::path(path).stem(); }

class Driver : public testing::TestWithParam<std::string> {};

TEST_P(Driver, SameBitsAsTheEngine) {
  std::ifstream file(GetParam());
  std::ostringstream text;
  text << file.rdbuf();
  const SourceText source(GetParam(), text.str());
  Diagnostics diagnostics;
  // A run in turns makes a wide type and one of 16 bits.
  turns::Turn turn;
  std::vector<Dtype> dtypes = turn.of(std::vector{Dtype::F32, Dtype::F64});
  for (const Dtype narrow : turn.of(std::vector{Dtype::BF16, Dtype::F16})) dtypes.push_back(narrow);
  for (const CellGraph& each : lower_all(parse(source, diagnostics), diagnostics)) {
    const AnalysedCell analysed = analyse_text(source, each.name);
    const CellGraph& cell = analysed.cell;
    for (const Dtype dtype : dtypes) {
      CompileOptions options{.dtype = dtype, .own_products = true};
      const Program program = Program::compile(cell, analysed.structure, options);
      const CompiledDriver driver = compile_driver(cell, analysed.structure, options);
      for (const std::int64_t length : {0, 1, 31, 70})
        for (const bool packed : {false, true})
          for (const bool reverse : {false, true})
            for (const bool defaults : {false, true}) {
              SCOPED_TRACE(fmt::format("{} {} T={} packed={} reverse={} defaults={}", each.name, to_string(dtype),
                                       length, packed, reverse, defaults));
              BindRequest request = request_for(cell, dtype, 2, length);
              request.reverse = reverse;
              if (packed) {
                request.batch.reset();
                request.length.reset();
                Array offsets(Dtype::I64, {4});
                const std::int64_t values[] = {0, length / 3, length / 3, length};
                std::memcpy(offsets.data(), values, sizeof values);
                request.offsets = GivenArray{"offsets", offsets};
              }
              Binding binding = bind(cell, request);
              if (!defaults) {
                give_starts(cell, binding, request);
                binding = bind(cell, request);
              }
              Call call(driver, binding);
              call.gap = packed ? 3 : 0;
              const int result = call(defaults, !reverse);
              ASSERT_EQ(result, 0) << driver.message(result);
              // The engine computes starts with the C library's functions, the driver with ours.
              const bool other_start = defaults && dtype == Dtype::F64 && each.name == "starts";
              const std::string wrong = call.differences(program.run(binding.run), other_start ? 1e-15 : 0);
              ASSERT_EQ(wrong, "");
            }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Driver, testing::ValuesIn(cell_files()),
                         [](const auto& info) { return stem(info.param); });
CELLC_ONE_IN(4, "Cells/Driver");

}  // namespace
}  // namespace cellc
