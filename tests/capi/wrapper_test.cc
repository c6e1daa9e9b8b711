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

TEST(Wrapper, CopiesOfACallHaveTheirOwnStrides) {
  Decay d;
  std::vector<double> turned = {3, 30, 2, 20, 1, 10}, h(6);
  auto call = std::make_unique<Call>(d.kernel, CELLC_FORWARD, d.shape);
  call->set("x", turned.data() + 4, {0, -2, 1}).set("a", std::span(d.a)).set("h", std::span(h)).unset("h.start");
  Call copy(*call), assigned(d.kernel, CELLC_BACKWARD, d.shape);
  assigned = *call;
  for (const cellc_view& one : call->views())
    for (const cellc_view& other : copy.views()) EXPECT_TRUE(!one.lengths || one.lengths != other.lengths);
  call->set("x", turned.data() + 4, {0, -4, 1});  // which would be the strides of the copies, too
  call.reset();
  for (Call* other : {&copy, &assigned}) {
    std::fill(h.begin(), h.end(), 0);
    other->run();
    EXPECT_EQ(h, d.want);
  }
}

TEST(Wrapper, AReportIsThereAlsoWhereACallHasNotConverged) {
  const char* const slow = "cell slow[d] {\n  state h[d]\n  input x[d]\n  h' = 0.9*h + 0.3*sin(2*h) + x\n}\n";
  Decay d;
  const Kernel kernel(slow, d.options);
  const Shape shape = kernel.shape({{"d", 2}}, 2, 500);
  std::vector<double> x(2000), h(2000);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 7) / 7;
  cellc_call_options options;
  cellc_call_options_init(&options);
  options.solver = "newton";
  options.fixed_iterations = 1;
  Call call(kernel, CELLC_FORWARD, shape);
  call.set("x", std::span(x)).set("h", std::span(h)).with(options);
  std::vector<std::int32_t> status(2, 7);
  std::vector<std::int64_t> bad(2, -7);
  const auto look = [&](auto run) {
    Report report;
    report.status = status.data();
    report.first_bad = bad.data();
    EXPECT_EQ(thrown([&] { run(report); }).status, CELLC_NOT_CONVERGED);
    EXPECT_EQ(report.converged, 0);
    EXPECT_GT(report.max_residual, 1e-9);
    EXPECT_EQ(status, (std::vector<std::int32_t>{1, 1}));
    EXPECT_GT(bad[0], 0);
    EXPECT_NE(h.back(), 0);
    std::fill(h.begin(), h.end(), 0);
    status = {7, 7};
  };
  look([&](Report& report) { call.run(report); });
  const PreparedCall prepared(kernel, shape);
  look([&](Report& report) { prepared.run(call, report); });
}

TEST(Wrapper, PreparesBackwardCalls) {
  Decay d;
  d.h = d.want;
  std::vector<double> ones(6, 1), dx(6), da(2), start(2);
  Call call(d.kernel, CELLC_BACKWARD, d.shape);
  call.set("x", std::span(d.x)).set("a", std::span(d.a)).set("h", std::span(d.h)).set("h.start", std::span(start));
  call.set("cotangent.h", std::span(ones)).set("gradient.x", std::span(dx)).set("gradient.a", std::span(da));
  const PreparedCall prepared(d.kernel, d.shape, CELLC_BACKWARD);
  prepared.run(call);
  EXPECT_EQ(dx, (std::vector<double>{1.75, 1.3125, 1.5, 1.25, 1, 1}));
  EXPECT_EQ(da, (std::vector<double>{1.5 * 1 + 2.5, 1.25 * 10 + 22.5}));
  EXPECT_EQ(thrown([&] { PreparedCall(d.kernel, d.shape, CELLC_TANGENT); }).kind, CELLC_ERROR_REQUEST);
}

}  // namespace
