// Arrays against the axes of a cell: sizes, dtypes, defaults, random data, and what is written.
#include "runtime/data/bind.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "compiler/front_end.h"

namespace cellc {
namespace {

CellGraph cell_of(const std::string& text) { return analyse_text(SourceText("test.cell", text)).cell; }

const char* kLeaky = R"(cell leaky[d, m] {
  state h[d] = 0.5
  input x[m]
  param W[d,m], a[d] = 0.25, scale = 3
  h' = a*h + W@x*scale
  out y = h' + sum[m](x)
}
)";

GivenArray ramp(std::vector<std::int64_t> shape, Dtype dtype = Dtype::F32) {
  Array array(dtype, std::move(shape));
  for (std::int64_t i = 0; i < array.count(); ++i) array.set(i, static_cast<double>(i));
  return {"file.npy", array};
}

template <class Error = RequestError>
std::string error_of(const CellGraph& cell, const BindRequest& request) {
  try {
    bind(cell, request);
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

BindRequest good() {
  BindRequest request;
  request.inputs["x"] = ramp({2, 5, 3});
  request.params["W"] = ramp({4, 3});
  return request;
}

const Array& symbol(const CellGraph& cell, const Binding& b, const char* name) {
  return b.run.symbols[cell.find_symbol(name)];
}

TEST(Bind, RefusesEntriesPastTheEndOfAnAxis) {
  const CellGraph cell = cell_of(R"(cell pick[d, k] {
  state h[d] = start[4]
  input x[d,k]
  param start[d], W[k,d]
  D[k,d] = x*W
  h' = 0.5*h + x[3,2] + D[1,d] + eye[d,4]
}
)");
  BindRequest request;
  request.random_seed = 1;
  request.length = 2;
  request.dims = {{"d", 5}, {"k", 3}};
  EXPECT_EQ(error_of(cell, request), "no error");
  request.dims = {{"d", 4}, {"k", 3}};
  EXPECT_HAS(error_of(cell, request), "reads entry 4 of axis d of ");
  EXPECT_HAS(error_of(cell, request), "which has 4 (0 to 3), as --dim d=4 has it");
  request.dims = {{"d", 5}, {"k", 2}};
  EXPECT_HAS(error_of(cell, request), "reads entry 2 of axis k of x");
}

TEST(Bind, SizesAndDefaults) {
  const CellGraph cell = cell_of(kLeaky);
  const Binding b = bind(cell, good());
  EXPECT_EQ(b.batch, 2);
  EXPECT_EQ(b.length, 5);
  EXPECT_TRUE(b.batched);
  EXPECT_EQ(b.run.offsets, (std::vector<std::int64_t>{0, 5, 10}));
  EXPECT_EQ(symbol(cell, b, "x").shape(), (std::vector<std::int64_t>{10, 3}));
  EXPECT_EQ(symbol(cell, b, "a").shape(), (std::vector<std::int64_t>{4}));
  EXPECT_EQ(symbol(cell, b, "a").get(3), 0.25);
  EXPECT_EQ(symbol(cell, b, "h").shape(), (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(symbol(cell, b, "h").get(7), 0.5);
  EXPECT_EQ(symbol(cell, b, "scale").get(0), 3);
}

TEST(Bind, WithoutBatchAxis) {
  const CellGraph cell = cell_of(kLeaky);
  BindRequest request = good();
  request.inputs["x"] = ramp({5, 3});
  request.states["h"] = ramp({4});
  const Binding b = bind(cell, request);
  EXPECT_FALSE(b.batched);
  EXPECT_EQ(b.batch, 1);
  EXPECT_EQ(symbol(cell, b, "h").get(3), 3);
  request.states["h"] = ramp({1, 4});
  EXPECT_EQ(symbol(cell, bind(cell, request), "h").get(3), 3);
}

TEST(Bind, EmptyBatchesAndSequences) {
  const CellGraph cell = cell_of(kLeaky);
  BindRequest request = good();
  request.inputs["x"] = ramp({2, 0, 3});
  EXPECT_EQ(bind(cell, request).run.offsets, (std::vector<std::int64_t>{0, 0, 0}));
  request.inputs["x"] = ramp({0, 5, 3});
  const Binding b = bind(cell, request);
  EXPECT_EQ(b.run.offsets, (std::vector<std::int64_t>{0}));
  EXPECT_EQ(symbol(cell, b, "h").count(), 0);
}

TEST(Bind, MessagesNameArrayAxisExpectedAndFound) {
  const CellGraph cell = cell_of(kLeaky);
  BindRequest request = good();
  request.params["W"] = ramp({4, 7});
  EXPECT_HAS(error_of(cell, request), "axis m has length 7; expected 3, as input x (file.npy) has it");
  request = good();
  request.inputs["x"] = ramp({2, 5, 0});
  EXPECT_HAS(error_of(cell, request), "input x (file.npy): axis m has length 0; expected at least 1");
  request = good();
  request.inputs["x"] = ramp({2, 5, 3, 1});
  EXPECT_HAS(error_of(cell, request), "input x (file.npy) has the shape [2, 5, 3, 1]; expected [B, T, m] or [T, m]");
  request = good();
  request.params["W"] = ramp({12});
  EXPECT_HAS(error_of(cell, request), "param W (file.npy) has the shape [12]; expected [d, m]");
  request = good();
  request.states["h"] = ramp({3, 4});
  EXPECT_HAS(error_of(cell, request), "state h (file.npy) has the batch size 3; expected 2");
  request = good();
  request.params.erase("W");
  EXPECT_HAS(error_of(cell, request), "needs 1 more array: param W[d, m] (--param W=FILE.npy)");
  request = good();
  request.inputs.erase("x");
  EXPECT_HAS(error_of(cell, request), "input x[B, T, m] (--input x=FILE.npy)");
  request = good();
  request.params["w"] = ramp({4});
  EXPECT_HAS(error_of(cell, request), "has no param 'w'; did you mean 'W'?");
  request = good();
  request.params["x"] = ramp({4});
  EXPECT_HAS(error_of(cell, request), "'x' is an input of cell leaky; give it with --input");
  request = good();
  request.inputs["x.lag"] = ramp({2, 1, 3});
  EXPECT_HAS(error_of(cell, request), "never reads x at a lag");
  request = good();
  request.dims["d"] = 5;
  EXPECT_HAS(error_of(cell, request), "axis d has length 4; expected 5, as --dim d=5 has it");
  request = good();
  request.dims["q"] = 5;
  EXPECT_HAS(error_of<UsageError>(cell, request), "has no axis 'q'");
  request = good();
  request.batch = 3;
  EXPECT_HAS(error_of(cell, request), "has the batch size 2; expected 3, the batch size of --batch 3");
  request = good();
  request.length = 4;
  EXPECT_HAS(error_of(cell, request), "has the length 5; expected 4");
}

TEST(Bind, MissingSizes) {
  const CellGraph cell = cell_of(kLeaky);
  BindRequest request;
  request.random_seed = 1;
  EXPECT_HAS(error_of(cell, request), "state it with --length");
  request.length = 5;
  EXPECT_HAS(error_of(cell, request), "the length of axis d is not known");
  request.dims = {{"d", 4}, {"m", 3}};
  EXPECT_EQ(bind(cell, request).batch, 1);
}

TEST(Bind, Dtypes) {
  const CellGraph cell = cell_of(kLeaky);
  BindRequest request = good();
  request.params["W"] = ramp({4, 3}, Dtype::F64);
  EXPECT_HAS(error_of(cell, request), "is f64, but input x (file.npy) is f32");
  request.dtype = Dtype::F16;
  EXPECT_EQ(bind(cell, request).dtype, Dtype::F16);
  EXPECT_EQ(symbol(cell, bind(cell, request), "W").dtype(), Dtype::F16);
  EXPECT_EQ(symbol(cell, bind(cell, request), "h").dtype(), Dtype::F32) << "a 16-bit state is carried in f32";

  // What a 16-bit run writes as h.final is f32 and goes back in without --dtype.
  request = good();
  request.inputs["x"] = ramp({2, 5, 3}, Dtype::F16);
  request.params["W"] = ramp({4, 3}, Dtype::F16);
  request.states["h"] = ramp({2, 4}, Dtype::F32);
  EXPECT_EQ(bind(cell, request).dtype, Dtype::F16);

  request = good();
  request.inputs["x"] = ramp({2, 5, 3}, Dtype::U16);
  EXPECT_HAS(error_of(cell, request), "pass --dtype bf16");
  request.inputs["x"].array.reinterpret(Dtype::U16);
  request.dtype = Dtype::BF16;
  EXPECT_EQ(symbol(cell, bind(cell, request), "x").dtype(), Dtype::BF16);
  request.inputs["x"] = ramp({2, 5, 3}, Dtype::I64);
  EXPECT_EQ(symbol(cell, bind(cell, request), "x").dtype(), Dtype::BF16);
}

TEST(Bind, IntegersAreNumbers) {
  const CellGraph cell = cell_of(kLeaky);
  BindRequest request = good();
  request.inputs["x"] = ramp({2, 5, 3}, Dtype::I64);
  EXPECT_EQ(bind(cell, request).dtype, Dtype::F32) << "W is, and integers are taken as it is";
  EXPECT_EQ(symbol(cell, bind(cell, request), "x").get(29), 29);
  request.params["W"] = ramp({4, 3}, Dtype::F64);
  EXPECT_EQ(bind(cell, request).dtype, Dtype::F64);
  request.params["W"] = ramp({4, 3}, Dtype::I64);
  EXPECT_EQ(bind(cell, request).dtype, Dtype::F32);
}

TEST(Bind, OneNumberMayBeAnArrayOfOne) {
  const CellGraph cell = cell_of("cell c {\n state h\n input x\n param a\n h' = a*h + x\n}\n");
  BindRequest request;
  request.inputs["x"] = ramp({2, 5, 1});
  request.params["a"] = ramp({1});
  request.states["h"] = ramp({2, 1});
  const Binding b = bind(cell, request);
  EXPECT_EQ(b.batch, 2);
  EXPECT_EQ(b.length, 5);
  EXPECT_EQ(symbol(cell, b, "x").shape(), (std::vector<std::int64_t>{10}));
  EXPECT_EQ(symbol(cell, b, "a").shape(), (std::vector<std::int64_t>{}));
  EXPECT_EQ(symbol(cell, b, "h").get(1), 1);
  request.params["a"] = ramp({2});
  EXPECT_HAS(error_of(cell, request), "has the shape [2]");
  request.params["a"] = ramp({1, 1});
  EXPECT_HAS(error_of(cell, request), "has the shape [1, 1]");
}

TEST(Bind, Packed) {
  const CellGraph cell = cell_of(kLeaky);
  BindRequest request = good();
  request.inputs["x"] = ramp({7, 3});
  const auto offsets = [](std::vector<std::int64_t> values) {
    Array array(Dtype::I64, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i) static_cast<std::int64_t*>(array.data())[i] = values[i];
    return GivenArray{"o.npy", array};
  };
  request.offsets = offsets({0, 3, 3, 7});
  const Binding b = bind(cell, request);
  EXPECT_EQ(b.batch, 3);
  EXPECT_TRUE(b.packed);
  EXPECT_EQ(symbol(cell, b, "h").shape(), (std::vector<std::int64_t>{3, 4}));
  request.offsets = offsets({0, 3, 8});
  EXPECT_HAS(error_of(cell, request), "has the number of steps 7; expected 8");
  request.offsets = offsets({1, 7});
  EXPECT_HAS(error_of(cell, request), "the first of the offsets is not 0: it is ");
  request.offsets = offsets({0, 5, 3, 7});
  EXPECT_HAS(error_of(cell, request), "the offsets decrease: from 5 to 3 at entry 2");
  request.offsets = ramp({4});
  EXPECT_HAS(error_of(cell, request), "expected int64");
  request.offsets = offsets({0, 7});
  request.length = 7;
  EXPECT_HAS(error_of<UsageError>(cell, request), "--length has no meaning");
}

TEST(Bind, RandomIsReproducibleAndInRange) {
  const CellGraph cell = cell_of(R"(cell c[d, m] {
  state h[d]
  input x[m], g[d] in (0, 1)
  param W[d,m], b[d]
  h' = g*h + W@x + b
}
)");
  BindRequest request;
  request.random_seed = 7;
  request.batch = 2;
  request.length = 50;
  request.dims = {{"d", 5}, {"m", 16}};
  const Binding one = bind(cell, request), two = bind(cell, request);
  EXPECT_EQ(one.filled, (std::vector<std::string>{"W", "b", "x", "g"}));
  const auto bounds = [&](const char* name, double low, double high) {
    double least = 1e9, most = -1e9;
    const Array& array = symbol(cell, one, name);
    for (std::int64_t i = 0; i < array.count(); ++i) {
      least = std::min(least, array.get(i));
      most = std::max(most, array.get(i));
      EXPECT_EQ(array.get(i), symbol(cell, two, name).get(i));
    }
    EXPECT_GE(least, low) << name;
    EXPECT_LE(most, high) << name;
    EXPECT_GT(most - least, 0.4 * (high - low)) << name;
  };
  bounds("x", -2, 2);
  bounds("g", 0, 1);
  bounds("W", -0.25, 0.25);
  bounds("b", -1, 1);

  // An array of one's own changes no other, and neither does another dtype beyond its rounding.
  request.params["b"] = ramp({5}, Dtype::F64);
  EXPECT_NEAR(symbol(cell, bind(cell, request), "x").get(17), symbol(cell, one, "x").get(17), 1e-6);
  request.random_seed = 8;
  EXPECT_NE(symbol(cell, bind(cell, request), "x").get(17), symbol(cell, one, "x").get(17));
}

TEST(Bind, RandomStaysWithinTheNumbersOfTheDtype) {
  const CellGraph cell = cell_of(R"(cell c[d] {
  state h[d]
  input x[d] in (-1e308, 1e308), small[d] in (-1, 1e30)
  h' = h + min(x, small)
}
)");
  BindRequest request;
  request.random_seed = 7;
  request.batch = 2;
  request.length = 50;
  request.dims = {{"d", 5}};
  for (const Dtype dtype : {Dtype::F64, Dtype::F32, Dtype::F16, Dtype::BF16}) {
    request.dtype = dtype;
    const Binding binding = bind(cell, request);
    for (const char* name : {"x", "small"}) {
      const Array& array = symbol(cell, binding, name);
      double least = INFINITY, most = -INFINITY;
      for (std::int64_t i = 0; i < array.count(); ++i) {
        ASSERT_TRUE(std::isfinite(array.get(i))) << name << " in " << to_string(dtype);
        least = std::min(least, array.get(i));
        most = std::max(most, array.get(i));
      }
      EXPECT_LT(least, most / 100) << name;
    }
  }
}

TEST(Bind, LearnedStartAndSizes) {
  const CellGraph cell = cell_of(R"(cell c[d] {
  state h[d] = h0, P[d,d] = eye[d,d], s = size[d]
  input x[d]
  param h0[d]
  h' = h + x
  P'[i,j] = P[i,j]
  s' = s
}
)");
  BindRequest request;
  request.inputs["x"] = ramp({2, 1, 3});
  request.params["h0"] = ramp({3});
  const Binding b = bind(cell, request);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(symbol(cell, b, "h").get(i), i % 3);
  for (int i = 0; i < 18; ++i) EXPECT_EQ(symbol(cell, b, "P").get(i), i % 9 % 4 == 0);
  EXPECT_EQ(symbol(cell, b, "s").get(1), 3);
}

const char* kLagged = R"(cell narx[d] {
  state y[d] = 2
  input x[d]
  y' = 0.5*y + 0.25*lag(y, 2) + lag(x, 3)
}
)";

TEST(Bind, HistoriesFromFilesOrStarts) {
  const CellGraph cell = cell_of(kLagged);
  BindRequest request;
  request.inputs["x"] = ramp({1, 4, 1});
  Binding b = bind(cell, request);
  EXPECT_EQ(b.run.histories[cell.find_symbol("x")].shape(), (std::vector<std::int64_t>{1, 3, 1}));
  int companions = 0;
  for (std::size_t s = 0; s < cell.symbols.size(); ++s)
    if (cell.symbols[s].lag_of >= 0) {
      EXPECT_EQ(b.run.symbols[s].get(0), 2) << "before the start a state was its start";
      ++companions;
    }
  EXPECT_EQ(companions, 2);

  request.states["y.lag"] = ramp({1, 2, 1});
  request.inputs["x.lag"] = ramp({1, 3, 1});
  b = bind(cell, request);
  for (std::size_t s = 0; s < cell.symbols.size(); ++s)
    if (cell.symbols[s].lag_of >= 0) {
      EXPECT_EQ(b.run.symbols[s].get(0), cell.symbols[s].lag - 1);
    }
  EXPECT_EQ(b.run.histories[cell.find_symbol("x")].get(2), 2);
  request.inputs["x.lag"] = ramp({1, 2, 1});
  EXPECT_HAS(error_of(cell, request), "has 2 steps of history; the cell reads 3");
}

TEST(Bind, WrittenArraysAndFinalHistories) {
  const CellGraph cell = cell_of(kLagged);
  BindRequest request;
  request.inputs["x"] = ramp({2, 2, 1});
  request.inputs["x.lag"] = ramp({2, 3, 1});
  for (const bool reverse : {false, true}) {
    request.reverse = reverse;
    const Binding b = bind(cell, request);
    RunOutput output;
    for (std::size_t u = 0; u < cell.updates.size(); ++u) {
      output.states.emplace_back(Dtype::F32, std::vector<std::int64_t>{4, 1});
      Array final(Dtype::F32, {2, 1});
      for (int i = 0; i < 2; ++i) final.set(i, static_cast<double>(10 * u + i));
      output.finals.push_back(final);
    }
    std::map<std::string, Array> arrays;
    for (const auto& [name, array] : written_arrays(cell, b, output)) arrays[name] = array;
    ASSERT_EQ(arrays.size(), 4u);
    EXPECT_EQ(arrays.at("y").shape(), (std::vector<std::int64_t>{2, 2, 1}));
    EXPECT_EQ(arrays.at("y.final").shape(), (std::vector<std::int64_t>{2, 1}));
    EXPECT_EQ(arrays.at("y.lag").shape(), (std::vector<std::int64_t>{2, 2, 1}));
    const double lags[] = {10, 20, 11, 21};
    for (int i = 0; i < 4; ++i) EXPECT_EQ(arrays.at("y.lag").get(i), lags[i]);
    // Two steps were read; the third of the history is the newest of the old one.
    const double forward[] = {1, 0, 0, 3, 2, 3}, backward[] = {0, 1, 0, 2, 3, 3};
    for (int i = 0; i < 6; ++i) EXPECT_EQ(arrays.at("x.lag").get(i), (reverse ? backward : forward)[i]) << i;
  }
}

TEST(Bind, RefusesWhatDoesNotFitMemory) {
  const CellGraph cell = cell_of(kLeaky);
  BindRequest request;
  request.random_seed = 1;
  request.batch = 1 << 20;
  request.length = 1LL << 40;
  request.dims = {{"d", 64}, {"m", 3}};
  EXPECT_HAS(error_of<DeviceError>(cell, request), "of memory; the machine has");
}

/// Whole arrays have the bits that numbers have one by one: all numbers of 16 bits, and of f32 those, what lies halfway
/// between them, and the neighbours of both.
TEST(Convert, NarrowNumbersHaveTheBitsOfOneByOne) {
  for (const Dtype narrow : {Dtype::F16, Dtype::BF16}) {
    Array all(narrow, {1 << 16});
    for (int i = 0; i < 1 << 16; ++i) static_cast<std::uint16_t*>(all.data())[i] = static_cast<std::uint16_t>(i);
    const Array wide = convert(all, Dtype::F32);
    std::vector<float> numbers;
    for (int i = 0; i < 1 << 16; ++i) {
      Array one(Dtype::F32, {1});
      one.set(0, all.get(i));
      ASSERT_EQ(std::memcmp(one.data(), static_cast<const float*>(wide.data()) + i, 4), 0)
          << to_string(narrow) << " " << i;
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(static_cast<const float*>(wide.data())[i]);
      for (const std::uint32_t half : {0u, 0x8000u, 0x1000u, 0x800u})
        for (const std::uint32_t off : {0xffffffffu, 0u, 1u})
          numbers.push_back(std::bit_cast<float>(bits + half + off));
    }
    // Below the least normal number of f16 halves lie elsewhere.
    for (int i = 0; i < 4096; ++i) {
      const float at = static_cast<float>(i) * 0x1p-25f;
      for (const float number : {at, std::nextafter(at, 1.0f), std::nextafter(at, -1.0f), -at})
        numbers.push_back(number);
    }
    Array from(Dtype::F32, {static_cast<std::int64_t>(numbers.size())});
    std::memcpy(from.data(), numbers.data(), numbers.size() * 4);
    const Array found = convert(from, narrow);
    Array one(narrow, {1});
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      one.set(0, from.get(static_cast<std::int64_t>(i)));
      ASSERT_EQ(*static_cast<const std::uint16_t*>(one.data()), static_cast<const std::uint16_t*>(found.data())[i])
          << to_string(narrow) << " of " << numbers[i];
    }
  }
}

}  // namespace
}  // namespace cellc
