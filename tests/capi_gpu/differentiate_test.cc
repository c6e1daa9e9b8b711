// Backward calls of the C API over every cell: against the evaluator's gradients and differences of the oracle, which
// shares no code with them but the parser.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/capi_gpu/named_call.h"
#include "tests/engines/lowered_cell.h"
#include "tests/main/turns.h"

namespace cellc {
namespace {

// Compiling all of them, forward and backward, takes a minute.
CELLC_ONE_IN(12, "Cells/Differentiated");

struct OneCell {
  const oracle::Example* file;
  const Cell* tree;
  std::string name;
};
void PrintTo(const OneCell& cell, std::ostream* to) { *to << cell.name; }

/// Gradients that are no derivatives.
bool is_declared(const OneCell& cell) {
  return cell.tree->name == "stopped" || cell.tree->name == "stopped_lin" ||
         std::string(cell.file->source.text()).find("derivative 1/") != std::string::npos;
}

const std::vector<OneCell>& cells() {
  static const std::vector<OneCell> all = [] {
    std::vector<OneCell> list;
    for (const oracle::Example& file : oracle::all_cells())
      for (const Cell& tree : file.tree.cells) list.push_back({&file, &tree, file.name + "_" + tree.name});
    return list;
  }();
  return all;
}

struct Kernel {
  Kernel(const OneCell& of, Dtype dtype) {
    cellc_options options;
    cellc_options_init(&options);
    options.cell = of.tree->name.c_str();
    options.dtype = dtype == Dtype::F64 ? CELLC_F64 : dtype == Dtype::F32 ? CELLC_F32 : CELLC_BF16;
    options.threads = 1;
    options.solver = "sequential";
    const std::string text(of.file->source.text());
    EXPECT_EQ(cellc_compile_text(text.data(), text.size(), &options, &handle), CELLC_OK) << cellc_last_error();
  }
  ~Kernel() { cellc_kernel_free(handle); }
  Kernel(const Kernel&) = delete;
  cellc_kernel* handle = nullptr;
};

struct Form {
  std::vector<std::int64_t> lengths;
  bool packed, reverse, gaps, given;
  double without;
};
const std::vector<Form> kForms = {{{7, 7}, false, false, false, true, 0},
                                  {{5, 0, 1, 6}, true, true, true, true, 0.3},
                                  {{6, 6, 6}, false, true, true, false, 0.3},
                                  {{0, 0}, false, false, false, true, 0}};

double dot(const Array& a, const Array& b, double& size) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.count(); ++i) {
    sum += a.get(i) * b.get(i);
    size += std::fabs(a.get(i) * b.get(i));
  }
  return sum;
}

/// <cotangents, J u> is <Jᵀ cotangents, u>, for a drawn direction u of all that was given.
/// `only`: of this array alone, where it is not empty.
void expect_transposed(NamedCall call, oracle::Random& random, const std::string& only = "") {
  double pulled = 0, pushed = 0, size = 1e-3;
  std::map<std::string, Array> direction;
  for (const auto& [name, value] : call.arrays) {
    const auto gradient = call.arrays.find("gradient." + name);
    if (gradient == call.arrays.end() || (only.empty() ? random.chance(0.2) : name != only)) continue;
    Array moved(Dtype::F64, value.shape());
    for (std::int64_t i = 0; i < moved.count(); ++i) moved.set(i, random.uniform(-1, 1));
    pulled += dot(gradient->second, moved, size);
    direction["tangent." + name] = moved;
  }
  call.arrays.merge(direction);
  ASSERT_EQ(call.run(CELLC_TANGENT), CELLC_OK) << cellc_last_error();
  EXPECT_EQ(call.touched, "");
  for (const auto& [name, value] : call.arrays)
    if (name.starts_with("cotangent."))
      pushed += dot(value, call.arrays.at("tangent." + name.substr(std::string("cotangent.").size())), size);
  EXPECT_NEAR(pushed, pulled, 1e-9 * size);
}

class Differentiated : public testing::TestWithParam<OneCell> {};

TEST_P(Differentiated, BackwardIsTheOraclesAndTangentsItsTranspose) {
  const OneCell& of = GetParam();
  const LoweredCell cell(of.file->source, of.file->tree, *of.tree);
  turns::Turn turn;
  const Kernel kernel(of, Dtype::F64);
  for (const Form& form : turn.of(kForms)) {
    SCOPED_TRACE(fmt::format("lengths {}{}", fmt::join(form.lengths, " "), form.packed ? ", packed" : ""));
    oracle::Random random(29 + form.lengths.size());
    GradientTrial::Options options;
    options.sizes = oracle::axis_lengths(cell.oracle, {3, 2, 3, 2});
    options.lengths = form.lengths;
    options.packed = form.packed;
    options.reverse = form.reverse;
    options.starts_given = options.defaults_given = form.given;
    options.without = form.without;
    GradientTrial trial(cell.graph, cell.oracle, of.file->ranges, random, options);
    const Binding binding = trial.bound(Dtype::F64);
    const Cotangents cotangents = trial.cotangents(binding);
    const NamedArrays want = trial.reference(AdjointRun(cell.graph, results_with(cotangents)));

    const OwnedShape shape(cell.graph, binding);
    NamedCall call{.kernel = kernel.handle, .shape = shape.shape, .gaps = form.gaps};
    call.arrays = given_arrays(cell.graph, binding, trial.given(binding));
    ASSERT_EQ(call.run(CELLC_FORWARD), CELLC_OK) << cellc_last_error();
    call.arrays.merge(cotangent_arrays(cell.graph, cotangents, Dtype::F64));
    // Nothing is read of what describe does not require.
    for (int i = 0; i < cellc_call_array_count(kernel.handle, CELLC_BACKWARD); ++i) {
      cellc_call_array_info info;
      cellc_call_array_info_init(&info);
      ASSERT_EQ(cellc_call_array_describe(kernel.handle, CELLC_BACKWARD, i, &info), CELLC_OK);
      if (info.quantity == CELLC_IS_VALUE && info.null == CELLC_NULL_IS_REFUSED && !info.required)
        call.arrays.erase(info.name);
    }
    ASSERT_EQ(call.run(CELLC_BACKWARD), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(call.touched, "");
    const NamedArrays found = named_gradients(cell.graph, call.arrays);
    ASSERT_EQ(found.size(), want.size());
    EXPECT_LE(largest_error(found, want), 1e-9);
    if (!is_declared(of) && !of.file->amplifies.contains(of.tree->name)) {
      EXPECT_EQ(trial.compare(found, trial.differences(1, random), 1e-6), "");
    }
    expect_transposed(call, random);
    for (const StateUpdate& u : cell.graph.updates)
      if (const std::string history = cell.graph.symbol_of(u).name + ".lag"; call.arrays.contains(history))
        expect_transposed(call, random, history);
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Differentiated, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cellc
