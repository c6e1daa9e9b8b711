// Calls on arrays with any strides: every cell, in every direction, on arrays whose axes are permuted, reversed, spread
// and repeated, against the same call on arrays without gaps; and what of it is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cellc.h"
#include "tests/capi/kept_handles.h"
#include "tests/capi/strided_array.h"
#include "tests/main/turns.h"
#include "tests/oracle/examples.h"
#include "tests/oracle/random.h"

namespace {

using cellc::oracle::Random;
using namespace cellc::strided;

CELLC_ONE_IN(8, "Cells/Strided");

struct OneCell {
  const cellc::oracle::Example* file;
  std::string cell;
};
void PrintTo(const OneCell& of, std::ostream* to) { *to << of.cell; }

std::vector<OneCell> cells() {
  std::vector<OneCell> all;
  for (const auto& file : cellc::oracle::all_cells())
    for (const auto& cell : file.tree.cells) all.push_back({&file, cell.name});
  return all;
}

struct Arrays : CallArrays {
  using CallArrays::CallArrays;

  void draw(Random& random, const cellc::oracle::Ranges& ranges) {
    for (OneArray& a : all) {
      a.given = a.info.required || random.chance(0.7);
      const auto range = ranges.find(a.info.owner);
      double low = std::max(a.info.low, -2.0), high = std::min(a.info.high, 2.0);
      if (range != ranges.end() && a.info.quantity == CELLC_IS_VALUE)
        low = range->second.low, high = range->second.high;
      a.draw(random, low, high);
    }
  }
  cellc_status run_dense() {
    std::vector<cellc_array> table;
    for (OneArray& a : all) table.push_back(a.as_array());
    const int count = static_cast<int>(table.size());
    return direction == CELLC_FORWARD    ? cellc_forward(kernel, &shape, table.data(), count, nullptr)
           : direction == CELLC_BACKWARD ? cellc_backward(kernel, &shape, table.data(), count, nullptr, nullptr)
                                         : cellc_tangent(kernel, &shape, table.data(), count, nullptr, nullptr);
  }
  cellc_status run_spread(cellc_call* prepared = nullptr) {
    std::vector<cellc_view> table;
    for (OneArray& a : all) table.push_back(a.as_view());
    cellc_request request;
    cellc_request_init(&request);
    request.direction = direction;
    request.shape = &shape;
    request.arrays = table.data();
    request.count = static_cast<int>(table.size());
    return prepared ? cellc_run_views(prepared, table.data(), request.count) : cellc_apply(kernel, &request);
  }
};

class Strided : public KeptHandles, public testing::WithParamInterface<OneCell> {
 protected:
  Lengths lengths_of(cellc_kernel* kernel) {
    static const std::map<std::string, std::int64_t> some = {{"d", 4}, {"m", 3}, {"k", 2}, {"v", 5}};
    Lengths lengths;
    for (int a = 0; a < cellc_axis_count(kernel); ++a) {
      cellc_axis axis;
      EXPECT_EQ(cellc_axis_describe(kernel, a, &axis), CELLC_OK);
      const auto found = some.find(axis.name);
      lengths.push_back(axis.length >= 0 ? axis.length : found == some.end() ? 3 : found->second);
    }
    return lengths;
  }
};

TEST_P(Strided, IsTheSameCall) {
  const OneCell& of = GetParam();
  struct Form {
    Lengths offsets;  ///< empty: two sequences of five steps
    cellc_dtype dtype;
    bool reverse;
  };
  cellc::turns::Turn turn;
  for (const Form& form : turn.of(std::vector<Form>{{{}, CELLC_F64, false},
                                                    {{0, 4, 4, 5}, CELLC_F32, true},
                                                    {{}, CELLC_BF16, true},
                                                    {{0, 3, 3, 5}, CELLC_F16, false},
                                                    {{0, 0}, CELLC_F64, false}})) {
    cellc_options options;
    cellc_options_init(&options);
    options.cell = of.cell.c_str();
    options.dtype = form.dtype;
    options.threads = 1;
    options.solver = "sequential";
    const std::string text(of.file->source.text());
    cellc_kernel* kernel = nullptr;
    ASSERT_EQ(cellc_compile_text(text.data(), text.size(), &options, &kernel), CELLC_OK) << cellc_last_error();
    kernels_.push_back(kernel);
    const Lengths lengths = lengths_of(kernel);
    cellc_shape shape = shape_of(lengths.data(), 2, 5);
    shape.reverse = form.reverse;
    if (!form.offsets.empty()) {
      shape.offsets = form.offsets.data();
      shape.sequences = static_cast<std::int64_t>(form.offsets.size()) - 1;
    }
    Random random(41 + form.offsets.size());
    Arrays forward(kernel, CELLC_FORWARD, shape);
    forward.draw(random, of.file->ranges);
    ASSERT_EQ(forward.run_dense(), CELLC_OK) << cellc_last_error();
    for (OneArray& a : forward.all) a.spread_out(random);
    ASSERT_EQ(forward.run_spread(), CELLC_OK) << cellc_last_error();
    forward.expect_same();

    for (const cellc_direction direction : {CELLC_BACKWARD, CELLC_TANGENT}) {
      Arrays call(kernel, direction, shape);
      call.draw(random, of.file->ranges);
      for (OneArray& a : call.all) {
        const OneArray* value = a.info.quantity == CELLC_IS_VALUE ? forward.find(a.info.name) : nullptr;
        if (!value) continue;
        a.dense = value->dense;
        a.given = value->given || a.info.required;
        a.repeated = value->repeated;
      }
      const cellc_status want = call.run_dense();
      for (OneArray& a : call.all) a.spread_out(random);
      ASSERT_EQ(call.run_spread(), want) << cellc_last_error();
      if (want == CELLC_OK) call.expect_same();
    }

    cellc_call* prepared = prepare(kernel, shape);
    std::vector<cellc_array> table;
    for (OneArray& a : forward.all) table.push_back(a.as_array());
    ASSERT_EQ(cellc_run(prepared, table.data(), static_cast<int>(table.size())), CELLC_OK) << cellc_last_error();
    for (OneArray& a : forward.all) a.spread_out(random);
    for (int again = 0; again < 2; ++again) {
      ASSERT_EQ(forward.run_spread(prepared), CELLC_OK) << cellc_last_error();
      forward.expect_same();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, Strided, testing::ValuesIn(cells()),
                         [](const auto& info) { return info.param.file->name + "_" + info.param.cell; });

TEST(StridedArrays, HaveTheBitsOfF16) {
  const std::pair<double, std::uint16_t> known[] = {
      {1, 0x3c00},       {-2, 0xc000}, {0.1, 0x2e66},    {65504, 0x7bff},       {0, 0},
      {0x1p-14, 0x0400}, {0x3p-24, 3}, {2047.9, 0x6800}, {1 + 0x1p-11, 0x3c00}, {1 + 0x3p-11, 0x3c02}};
  for (const auto& [value, bits] : known) {
    std::uint16_t found = 0;
    store(reinterpret_cast<unsigned char*>(&found), CELLC_F16, value);
    EXPECT_EQ(found, bits) << value;
  }
}

class Views : public KeptHandles {
 protected:
  void SetUp() override {
    kernel_ = compile("cell sums[d] {\n  state h[d]\n  input x[d]\n  param a[d]\n  h' = a*h + x\n}\n", nullptr,
                      [](cellc_options& o) { o.dtype = CELLC_F64; });
    for (int i = 0; i < 5; ++i) views_[i] = {memory_[i], CELLC_F64, 0, nullptr, nullptr};
    std::fill_n(&memory_[0][0], 5 * 64, 1.0);
    x().data = memory_[0];
    request();
  }
  cellc_view& named(const char* name) { return views_[cellc_array_find(kernel_, name)]; }
  cellc_view& x() { return named("x"); }
  const cellc_request* request() {
    cellc_request_init(&request_);
    request_.shape = &shape_;
    request_.arrays = views_;
    request_.count = cellc_array_count(kernel_);
    return &request_;
  }
  void refused(const std::string& text, cellc_status status = CELLC_WRONG_INPUT) {
    EXPECT_EQ(cellc_apply(kernel_, &request_), status);
    EXPECT_EQ(cellc_last_error(), text);
    for (const char* written : {"h", "h_final"})
      for (int i = 0; i < 8; ++i) EXPECT_EQ(static_cast<double*>(named(written).data)[i], 1);
  }
  cellc_kernel* kernel_ = nullptr;
  const std::int64_t lengths_[1] = {2};
  const cellc_shape shape_ = shape_of(lengths_, 2, 2);
  double memory_[5][64];
  cellc_view views_[5];
  cellc_request request_;
};

TEST_F(Views, WhatIsNotOfTheCallIsRefused) {
  const std::int64_t three[] = {2, 2, 3}, right[] = {2, 2, 2}, far[] = {1, INT64_MAX / 2, 1}, low[] = {1, INT64_MIN, 1},
                     twice[] = {2, 0, 1}, woven[] = {3, 2, 1};
  x().rank = 2;
  x().lengths = right;
  refused("array x: has 2 axes; expected 3, [2, 2, 2]");
  x().rank = 3;
  x().lengths = three;
  refused("array x: has the lengths [2, 2, 3]; expected [2, 2, 2]");
  x().lengths = right;
  x().strides = far;
  refused("array x: has a stride of 4611686018427387903, which reaches beyond any memory");
  x().strides = low;
  refused("array x: has a stride of -9223372036854775808, which reaches beyond any memory");
  x().strides = nullptr;
  x().dtype = CELLC_F32;
  refused("array x: has the dtype f32; expected f64");
  x().dtype = CELLC_F64;
  named("h").rank = 3;
  for (const std::int64_t* strides : {twice, woven}) {
    named("h").strides = strides;
    refused("array h: is written, and overlaps itself");
  }
  named("h").strides = nullptr;
  x().data = nullptr;
  refused("array x: is a null pointer, but has no default");
  x().data = memory_[0];
  EXPECT_EQ(cellc_apply(kernel_, &request_), CELLC_OK) << cellc_last_error();
}

TEST_F(Views, RequestsThatCannotBeMeant) {
  request_.count = 4;
  refused("the number of arrays is not that of the kernel (cellc_call_array_count)", CELLC_WRONG_USAGE);
  request();
  request_.direction = 7;
  refused("direction 7: there is none of that number", CELLC_WRONG_USAGE);
  request();
  request_.arrays = nullptr;
  refused("the arrays are a null pointer", CELLC_WRONG_USAGE);
  request();
  request_.shape = nullptr;
  refused("the shape is a null pointer", CELLC_WRONG_USAGE);
  request();
  request_.size = 8;
  refused("the request: its size is not set; call its _init function", CELLC_WRONG_USAGE);
  request();
  request_.on_stream = 1;
  request_.stream = &request_;
  EXPECT_EQ(cellc_apply(kernel_, &request_), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_apply(kernel_, nullptr), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_apply(nullptr, request()), CELLC_WRONG_USAGE);
  EXPECT_EQ(cellc_run_views(nullptr, views_, 5), CELLC_WRONG_USAGE);
  cellc_request_init(nullptr);
}

TEST_F(Views, WhatIsReadMayOverlapItself) {
  // Steps of x are a window that moves by one; a is one number; h comes out last step first.
  const std::int64_t window[] = {0, 1, 1}, one[] = {0}, back[] = {8, -2, 1};
  const double values[] = {1, 2, 3};
  std::copy_n(values, 3, memory_[0]);
  x() = {memory_[0], CELLC_F64, 3, nullptr, window};
  double& a = *static_cast<double*>(named("a").data) = 0.5;
  named("a") = {&a, CELLC_F64, 1, nullptr, one};
  named("h_start").data = nullptr;
  double h[12];
  std::fill_n(h, 12, 7);
  named("h") = {h + 2, CELLC_F64, 3, nullptr, back};
  ASSERT_EQ(cellc_apply(kernel_, &request_), CELLC_OK) << cellc_last_error();
  const double want[] = {2.5, 4, 1, 2, 7, 7, 7, 7, 2.5, 4, 1, 2};
  for (int i = 0; i < 12; ++i) EXPECT_EQ(h[i], want[i]) << i;
}

}  // namespace
