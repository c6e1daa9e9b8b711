// cellc.hpp: owners, spans and exceptions over cellc.h, against equations by hand.
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "cellc.hpp"

namespace {

using namespace cellc::c;

const char* const kDecay = R"(cell decay[d] {
  state h[d]
  input x[d]
  param a[d]
  h' = a*h + x
}
)";

/// Of every call of this file.
struct Decay {
  Options options = [] {
    Options o;
    o.dtype = CELLC_F64;
    return o;
  }();
  Kernel kernel{kDecay, options};
  Shape shape = kernel.shape({{"d", 2}}, 1, 3);
  std::vector<double> x = {1, 10, 2, 20, 3, 30}, a = {0.5, 0.25}, h = std::vector<double>(6), final = {0, 0};
  const std::vector<double> want = {1, 10, 2.5, 22.5, 4.25, 35.625};
};

template <typename Work>
Error thrown(Work work) {
  try {
    work();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {CELLC_OK, CELLC_ERROR_NONE, ""};
}

TEST(Wrapper, RunsForwardAndBackwardByNames) {
  Decay d;
  Call forward(d.kernel, CELLC_FORWARD, d.shape);
  const std::span<const double> read(d.x);
  forward.set("x", read).set("a", std::span(d.a)).set("h", std::span(d.h)).set("h.final", std::span(d.final));
  EXPECT_TRUE(forward.run().converged);
  EXPECT_EQ(d.h, d.want);
  EXPECT_EQ(d.final, (std::vector<double>{4.25, 35.625}));

  std::vector<double> ones(6, 1), dx(6), da(2);
  Call backward(d.kernel, CELLC_BACKWARD, d.shape);
  backward.set("x", read).set("a", std::span(d.a)).set("h", std::span(d.h)).set("cotangent.h", std::span(ones));
  backward.set("gradient.x", std::span(dx)).set("gradient.a", std::span(da));
  const std::array<std::int32_t, 1> converged = {0}, bad = {1};
  backward.run(converged);
  EXPECT_EQ(dx, (std::vector<double>{1.75, 1.3125, 1.5, 1.25, 1, 1}));
  EXPECT_EQ(da, (std::vector<double>{1.5 * 1 + 2.5, 1.25 * 10 + 22.5}));
  EXPECT_EQ(thrown([&] { backward.run(bad); }).kind, CELLC_ERROR_NOT_CONVERGED);
}

TEST(Wrapper, TakesOptionsAndParamsOfSequences) {
  Decay d;
  const Shape shape = d.kernel.shape({{"d", 2}}, 3, 1);
  std::vector<double> a = {0.5, 0.25, 1, 1, 2, 0}, start = {4, 4, 4, 4, 4, 4}, h(6);
  Call forward(d.kernel, CELLC_FORWARD, shape);
  forward.set("x", std::span(d.x)).set("a", a.data(), {2, 1}).set("h.start", std::span(start)).set("h", std::span(h));
  cellc_call_options options;
  cellc_call_options_init(&options);
  options.verify = 1;
  EXPECT_EQ(forward.with(options).run().verified, 0);
  EXPECT_EQ(h, (std::vector<double>{3, 11, 6, 24, 11, 30}));
  const int cancel = 1;
  options.cancel = &cancel;
  EXPECT_EQ(thrown([&] { forward.with(options).run(); }).status, CELLC_CANCELLED);
}

TEST(Wrapper, TakesStridesAndPreparedCalls) {
  Decay d;
  const Shape packed{d.shape.lengths, 1, 1, {0, 2, 3}, true};
  std::vector<double> turned = {3, 30, 2, 20, 1, 10}, h(6);
  Call call(d.kernel, CELLC_FORWARD, d.shape);
  call.set("x", turned.data() + 4, {0, -2, 1}).set("a", std::span(d.a)).set("h", h.data(), {0, 1, 3});
  const std::vector<double> columns = {1, 2.5, 4.25, 10, 22.5, 35.625};
  call.run();
  EXPECT_EQ(h, columns);
  const PreparedCall prepared(d.kernel, d.shape);
  std::fill(h.begin(), h.end(), 0);
  prepared.run(call);
  EXPECT_EQ(h, columns);
  std::fill(h.begin(), h.end(), 0);
  cellc_call_options options;
  cellc_call_options_init(&options);
  EXPECT_EQ(prepared.run_reported(call).verified, -1);
  options.verify = 1;
  EXPECT_EQ(prepared.run_reported(call.with(options)).verified, 0);
  EXPECT_EQ(h, columns);
  EXPECT_GT(prepared.workspace(), 0);
  prepared.trim();
  std::fill(h.begin(), h.end(), 0);
  prepared.run(call);
  EXPECT_EQ(h, columns);
  Call on_packed(d.kernel, CELLC_FORWARD, packed);
  on_packed.set("x", std::span(d.x)).set("a", std::span(d.a)).set("h", std::span(d.h)).run();
  EXPECT_EQ(d.h, (std::vector<double>{2, 15, 2, 20, 3, 30}));
  EXPECT_EQ(on_packed.lengths("x"), (std::vector<std::int64_t>{3, 2}));
}

TEST(Wrapper, CompilesAheadAndTrims) {
  Decay d;
  d.kernel.compile_ahead(d.shape, true);
  Call call(d.kernel, CELLC_FORWARD, d.shape);
  call.set("x", std::span(d.x)).set("a", std::span(d.a)).set("h", std::span(d.h)).compile();
  EXPECT_EQ(d.h, std::vector<double>(6));
  d.kernel.trim();
  call.run();
  EXPECT_EQ(d.h, d.want);
  std::fill(d.h.begin(), d.h.end(), 0.0);
  call.queue(nullptr);  // a CPU makes it at once
  EXPECT_EQ(d.h, d.want);
  const Error no_stream = thrown([&] { call.queue(&call); });
  EXPECT_EQ(no_stream.status, CELLC_WRONG_USAGE);
  EXPECT_NE(std::string(no_stream.what()).find("has no streams"), std::string::npos);
  call.unset("x");
  EXPECT_EQ(thrown([&] { call.compile(); }).kind, CELLC_ERROR_ARRAY);
}

TEST(Wrapper, ErrorsAreExceptions) {
  Decay d;
  const Error text = thrown([] { Kernel("cell c {\n  state h\n  h' = g\n  out y = f\n}\n"); });
  EXPECT_EQ(text.status, CELLC_WRONG_INPUT);
  EXPECT_EQ(text.kind, CELLC_ERROR_CELL);
  EXPECT_EQ(text.line, 3);
  ASSERT_EQ(text.diagnostics.size(), 2u);
  EXPECT_EQ(text.diagnostics[1].line, 4);
  EXPECT_NE(std::string(text.what()).find("g"), std::string::npos);
  EXPECT_EQ(thrown([] { Kernel::from_file("/there/is/none.cell"); }).status, CELLC_WRONG_INPUT);
  EXPECT_EQ(thrown([] { Kernel(std::string_view()); }).kind, CELLC_ERROR_CELL);
  EXPECT_STREQ(thrown([&] { d.kernel.shape({}); }).what(), "the length of axis d is open");
  EXPECT_EQ(thrown([&] { d.kernel.array_count(9); }).status, CELLC_WRONG_USAGE);

  Call call(d.kernel, CELLC_FORWARD, d.shape);
  EXPECT_STREQ(thrown([&] { call.set("w", std::span(d.x)); }).what(), "there is no array w");
  EXPECT_STREQ(thrown([&] { call.set("x", std::span(d.x).first(5)); }).what(),
               "array x: has 5 entries; expected 6 or more");
  EXPECT_STREQ(thrown([&] { call.set("h", std::span<const double>(d.h)); }).what(),
               "array h: is written, and given as const");
  EXPECT_STREQ(thrown([&] { call.set("x", d.x.data(), {1}); }).what(), "array x: has 1 strides; expected 3");
  EXPECT_EQ(thrown([&] { call.run(); }).kind, CELLC_ERROR_ARRAY);
  std::vector<float> narrow(6);
  call.set("x", std::span(narrow)).set("a", std::span(d.a));
  EXPECT_STREQ(thrown([&] { call.run(); }).what(), "array x: has the dtype f32; expected f64");
  call.set("x", std::span(d.x)).set("h", std::span(d.h)).unset("h");
  EXPECT_NO_THROW(call.run());
}

TEST(Wrapper, AKernelLivesAsLongAsItsCalls) {
  auto d = std::make_unique<Decay>();
  auto kernel = std::make_unique<Kernel>(d->kernel);
  Call call(*kernel, CELLC_FORWARD, d->shape);
  const PreparedCall prepared(*kernel, d->shape);
  Call moved = std::move(call.set("x", std::span(d->x)).set("a", std::span(d->a)).set("h", std::span(d->h)));
  EXPECT_NE(kernel->inspect_json().find("\"decay\""), std::string::npos);
  kernel.reset();
  d->kernel = Kernel(kDecay);
  moved.run();
  EXPECT_EQ(d->h, d->want);
  prepared.run(moved);
}

}  // namespace
