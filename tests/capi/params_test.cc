// Params of one sequence each, with gradients of their own, and params of 16 bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/capi/kept_handles.h"

namespace {

const std::string kCell = R"(cell mixed[d, m] {
  state h[d]
  input x[m]
  param W[d,m], a[d] = 0.5
  h' = tanh(a*h + W@x)
  out y = sum[d](h')
}
)";
enum { B = 3, T = 40, D = 4, M = 3 };
const std::int64_t kLengths[] = {D, M};

std::vector<double> numbers(std::size_t count, double from) {
  std::vector<double> some;
  for (std::size_t i = 0; i < count; ++i) some.push_back(0.6 * std::sin(from + 0.9 * static_cast<double>(i)));
  return some;
}

/// Arrays of a call by name, and what it gives.
struct Named {
  std::vector<cellc_view> views;
  std::map<std::string, std::vector<double>> memory;
  std::map<std::string, std::vector<std::int64_t>> lengths;
};

class ParamsOfSequences : public KeptHandles {
 protected:
  cellc_kernel* kernel(cellc_dtype dtype = CELLC_F64) {
    cellc_options options;
    cellc_options_init(&options);
    options.dtype = dtype;
    options.solver = "sequential";
    cellc_kernel* made = nullptr;
    EXPECT_EQ(cellc_compile_text(kCell.data(), kCell.size(), &options, &made), CELLC_OK) << cellc_last_error();
    kernels_.push_back(made);
    return made;
  }

  /// Every array, with sequences in front of those whose name is in `more`.
  Named arrays(cellc_kernel* kernel, cellc_direction direction, const cellc_shape& shape, const std::string& more) {
    Named named;
    const int count = cellc_call_array_count(kernel, direction);
    for (int i = 0; i < count; ++i) {
      cellc_call_array_info info;
      cellc_call_array_info_init(&info);
      EXPECT_EQ(cellc_call_array_describe(kernel, direction, i, &info), CELLC_OK);
      std::vector<std::int64_t> lengths(8);
      int rank = 0;
      EXPECT_EQ(cellc_call_array_shape(kernel, direction, &shape, i, lengths.data(), 8, &rank), CELLC_OK);
      lengths.resize(static_cast<std::size_t>(rank));
      const std::string name = info.name;
      if (more.find("<" + name + ">") != std::string::npos) lengths.insert(lengths.begin(), shape.sequences);
      std::size_t entries = 1;
      for (const std::int64_t n : lengths) entries *= static_cast<std::size_t>(n);
      named.memory[name] = info.written ? std::vector<double>(entries, 77) : numbers(entries, i);
      named.lengths[name] = lengths;
      named.views.push_back({named.memory[name].data(), CELLC_F64, static_cast<int>(lengths.size()),
                             named.lengths[name].data(), nullptr});
    }
    return named;
  }

  cellc_status apply(cellc_kernel* kernel, cellc_direction direction, const cellc_shape& shape, Named& named,
                     cellc_report* report = nullptr, const int32_t* forward_status = nullptr) {
    cellc_request request;
    cellc_request_init(&request);
    request.direction = direction;
    request.shape = &shape;
    request.arrays = named.views.data();
    request.count = static_cast<int>(named.views.size());
    request.report = report;
    request.forward_status = forward_status;
    return cellc_apply(kernel, &request);
  }

  /// The call of sequence s alone, of `rows` steps from row `begin` on; params and gradients without sequences.
  void expect_alone(cellc_kernel* kernel, cellc_direction direction, const Named& all, const std::string& more, int s,
                    std::int64_t begin, std::int64_t rows) {
    const cellc_shape shape = shape_of(kLengths, 1, rows);
    Named one = arrays(kernel, direction, shape, "");
    const int count = cellc_call_array_count(kernel, direction);
    std::vector<std::pair<std::string, std::size_t>> written;
    for (int i = 0; i < count; ++i) {
      cellc_call_array_info info;
      cellc_call_array_info_init(&info);
      cellc_call_array_describe(kernel, direction, i, &info);
      const std::string name = info.name;
      const std::size_t n = one.memory[name].size();
      std::size_t from = static_cast<std::size_t>(s) * n;
      if (info.layout == CELLC_CONTIGUOUS)
        from = static_cast<std::size_t>(begin) * (n / static_cast<std::size_t>(rows));
      if (info.layout == CELLC_ONCE && more.find("<" + name + ">") == std::string::npos) from = 0;
      if (info.written)
        written.emplace_back(name, from);
      else
        std::copy_n(all.memory.at(name).begin() + static_cast<std::ptrdiff_t>(from), n, one.memory[name].begin());
    }
    ASSERT_EQ(apply(kernel, direction, shape, one), CELLC_OK) << cellc_last_error();
    for (const auto& [name, from] : written)
      for (std::size_t i = 0; i < one.memory[name].size(); ++i)
        ASSERT_EQ(all.memory.at(name)[from + i], one.memory[name][i]) << name << " " << i << " of sequence " << s;
  }
};

const std::string kParams = "<W><gradient.W><gradient.a><tangent.W>";

TEST_F(ParamsOfSequences, EveryDirectionIsThatOfEachSequence) {
  cellc_kernel* k = kernel();
  const cellc_shape shape = shape_of(kLengths, B, T);
  for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT}) {
    SCOPED_TRACE(direction);
    Named all = arrays(k, direction, shape, kParams);
    cellc_report report;
    cellc_report_init(&report);
    std::vector<std::int32_t> status(B, 9);
    report.status = status.data();
    ASSERT_EQ(apply(k, direction, shape, all, &report), CELLC_OK) << cellc_last_error();
    EXPECT_EQ(report.converged, 1);
    EXPECT_EQ(report.unconverged, 0);
    EXPECT_EQ(status, std::vector<std::int32_t>(B, 0));
    for (int s = 0; s < B; ++s) expect_alone(k, direction, all, kParams, s, s * T, T);
  }
}

TEST_F(ParamsOfSequences, PackedSequences) {
  cellc_kernel* k = kernel();
  const std::int64_t offsets[] = {0, 12, 12, 40};
  cellc_shape shape = shape_of(kLengths, B, 0);
  shape.offsets = offsets;
  Named all = arrays(k, CELLC_FORWARD, shape, kParams);
  ASSERT_EQ(apply(k, CELLC_FORWARD, shape, all), CELLC_OK) << cellc_last_error();
  expect_alone(k, CELLC_FORWARD, all, kParams, 0, 0, 12);
  expect_alone(k, CELLC_FORWARD, all, kParams, 2, 12, 28);
}

// Where all sequences have the same params, theirs are the parts of the sum.
TEST_F(ParamsOfSequences, GradientsAddUp) {
  cellc_kernel* k = kernel();
  const cellc_shape shape = shape_of(kLengths, B, T);
  const std::string own = "<gradient.W><gradient.a>";
  Named parts = arrays(k, CELLC_BACKWARD, shape, own), sum = arrays(k, CELLC_BACKWARD, shape, "");
  ASSERT_EQ(apply(k, CELLC_BACKWARD, shape, parts), CELLC_OK) << cellc_last_error();
  ASSERT_EQ(apply(k, CELLC_BACKWARD, shape, sum), CELLC_OK) << cellc_last_error();
  for (const char* name : {"gradient.W", "gradient.a"})
    for (std::size_t i = 0; i < sum.memory[name].size(); ++i) {
      double added = 0;
      for (std::size_t s = 0; s < B; ++s) added += parts.memory[name][s * sum.memory[name].size() + i];
      EXPECT_NEAR(added, sum.memory[name][i], 1e-12) << name;
    }
}

TEST_F(ParamsOfSequences, WhatIsRefusedHasWrittenNothing) {
  cellc_kernel* k = kernel();
  const cellc_shape shape = shape_of(kLengths, B, T);
  const auto refused = [&](cellc_direction direction, const std::string& more, auto change, const char* word,
                           const std::vector<std::int32_t>& status = {}) {
    Named named = arrays(k, direction, shape, more);
    change(named);
    const cellc_status found = apply(k, direction, shape, named, nullptr, status.empty() ? nullptr : status.data());
    EXPECT_NE(found, CELLC_OK);
    EXPECT_NE(std::string(cellc_last_error()).find(word), std::string::npos) << cellc_last_error();
    for (const auto& [name, memory] : named.memory)
      if (name == "h.final" || name.starts_with("gradient")) {
        EXPECT_EQ(memory, std::vector<double>(memory.size(), 77)) << name;
      }
  };
  const auto as_it_is = [](Named&) {};
  // One gradient for all.
  refused(CELLC_BACKWARD, "<W>", as_it_is, "have sequences as their first axis");
  // One place for the gradients of all.
  static const std::int64_t none[] = {0, M, 1};
  refused(
      CELLC_BACKWARD, kParams,
      [&](Named& named) {
        const int i = cellc_call_array_find(k, CELLC_BACKWARD, CELLC_IS_GRADIENT, CELLC_ROLE_PARAM, "W");
        named.views[static_cast<std::size_t>(i)].strides = none;
      },
      "overlaps itself");
  static const std::int64_t two[] = {2, D, M};
  refused(
      CELLC_FORWARD, kParams,
      [&](Named& named) {
        const int i = cellc_call_array_find(k, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_PARAM, "W");
        named.views[static_cast<std::size_t>(i)].lengths = two;
      },
      "has the lengths [2, 4, 3]; expected [3, 4, 3]");
  refused(CELLC_BACKWARD, kParams, as_it_is, "sequence 2", {0, 0, 1});
}

// The first sequence has no steps, and so could do without an input.
TEST_F(ParamsOfSequences, WhatALaterSequenceLacksIsSaidBeforeTheFirstRuns) {
  cellc_kernel* k = kernel();
  const std::int64_t offsets[] = {0, 0, 12, 40};
  cellc_shape shape = shape_of(kLengths, B, 0);
  shape.offsets = offsets;
  Named named = arrays(k, CELLC_FORWARD, shape, kParams);
  named.views[static_cast<std::size_t>(cellc_array_find(k, "x"))].data = nullptr;
  EXPECT_EQ(apply(k, CELLC_FORWARD, shape, named), CELLC_WRONG_INPUT);
  EXPECT_NE(std::string(cellc_last_error()).find("array x: is a null pointer"), std::string::npos)
      << cellc_last_error();
  EXPECT_EQ(named.memory["h.final"], std::vector<double>(named.memory["h.final"].size(), 77));
}

// Arrays without entries overlap nothing, whatever their strides: those without gaps are 0 there.
TEST_F(ParamsOfSequences, NoStepsAndNoSequences) {
  cellc_kernel* k = kernel();
  for (const std::int64_t sequences : {0, 2})
    for (const cellc_direction direction : {CELLC_FORWARD, CELLC_BACKWARD, CELLC_TANGENT}) {
      const cellc_shape shape = shape_of(kLengths, sequences, sequences == 0 ? 5 : 0);
      Named all = arrays(k, direction, shape, kParams);
      static const std::int64_t nowhere[] = {0, 0, 0};
      static double none = 0;
      for (cellc_view& v : all.views) {
        if (!v.data) v.data = &none;
        if (sequences == 0 && v.rank == 3) v.strides = nowhere;
      }
      cellc_report report;
      cellc_report_init(&report);
      EXPECT_EQ(apply(k, direction, shape, all, &report), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(report.converged, 1);
      EXPECT_EQ(report.unconverged, 0);
      if (direction == CELLC_BACKWARD && sequences > 0) {
        EXPECT_EQ(all.memory["gradient.W"], std::vector<double>(2 * D * M, 0));
      }
      if (sequences > 0) continue;
      // Nothing ran, and there is nothing to tell of it.
      EXPECT_EQ(report.stages, 0);
      EXPECT_STREQ(report.plan, "");
      EXPECT_EQ(report.verified, -1);
      EXPECT_EQ(report.max_residual, 0);
      EXPECT_EQ(report.iterations, 0);
      cellc_stage stage;
      stage.size = sizeof stage;
      EXPECT_EQ(cellc_report_stage(0, &stage), CELLC_WRONG_USAGE);
      // What is wrong is wrong for none, too.
      const int x = cellc_call_array_find(k, direction, CELLC_IS_VALUE, CELLC_ROLE_INPUT, "x");
      for (const cellc_dtype other : {CELLC_F32, CELLC_BF16, static_cast<cellc_dtype>(9)}) {
        all.views[static_cast<std::size_t>(x)].dtype = other;
        EXPECT_EQ(apply(k, direction, shape, all), CELLC_WRONG_INPUT);
        EXPECT_NE(std::string(cellc_last_error()).find("array x: has the dtype"), std::string::npos)
            << cellc_last_error();
      }
    }
}

// The status of a forward run is of other directions.
TEST_F(ParamsOfSequences, ForwardCallsReadNoStatus) {
  cellc_kernel* k = kernel();
  const cellc_shape shape = shape_of(kLengths, B, T);
  const std::vector<std::int32_t> status = {0, 1, 1};
  Named all = arrays(k, CELLC_FORWARD, shape, kParams);
  EXPECT_EQ(apply(k, CELLC_FORWARD, shape, all, nullptr, status.data()), CELLC_OK) << cellc_last_error();
}

// Every bf16 and f16 is an f32: the bits are those of params that were widened before.
TEST_F(ParamsOfSequences, OfSixteenBits) {
  for (const cellc_dtype narrow : {CELLC_BF16, CELLC_F16})
    for (const bool by_sequence : {false, true}) {
      cellc_kernel* k = kernel();
      const cellc_shape shape = shape_of(kLengths, B, T);
      const std::string more = by_sequence ? "<W>" : "";
      Named wide = arrays(k, CELLC_FORWARD, shape, more), from = arrays(k, CELLC_FORWARD, shape, more);
      std::vector<std::uint16_t> bits;
      for (double& w : wide.memory["W"]) {
        // Numbers of six bits and their signs, which both types have.
        const int tenth = static_cast<int>(w * 60);
        w = tenth / 64.0;
        const auto single = std::bit_cast<std::uint32_t>(static_cast<float>(w));
        const std::uint32_t sign = single >> 16 & 0x8000, magnitude = single & 0x7fffffff;
        const std::uint32_t half = magnitude ? ((magnitude >> 13) - (112u << 10)) : 0;
        bits.push_back(static_cast<std::uint16_t>(narrow == CELLC_BF16 ? single >> 16 : sign | half));
      }
      const int i = cellc_call_array_find(k, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_PARAM, "W");
      from.views[static_cast<std::size_t>(i)].data = bits.data();
      from.views[static_cast<std::size_t>(i)].dtype = narrow;
      ASSERT_EQ(apply(k, CELLC_FORWARD, shape, wide), CELLC_OK) << cellc_last_error();
      ASSERT_EQ(apply(k, CELLC_FORWARD, shape, from), CELLC_OK) << cellc_last_error();
      EXPECT_EQ(from.memory["h"], wide.memory["h"]);
      // Of an input they are another type.
      const int x = cellc_call_array_find(k, CELLC_FORWARD, CELLC_IS_VALUE, CELLC_ROLE_INPUT, "x");
      from.views[static_cast<std::size_t>(x)].dtype = narrow;
      EXPECT_NE(apply(k, CELLC_FORWARD, shape, from), CELLC_OK);
    }
}

}  // namespace
