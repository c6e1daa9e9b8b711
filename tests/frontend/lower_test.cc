// Tree -> graph: every example, what contraction and renaming mean in numbers, lags, functions, and the exact text of
// every error (golden/check/bad-*.txt).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "compiler/graph/evaluate.h"
#include "tests/frontend/lower_text.h"

namespace cellc {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> files_of(const fs::path& folder, const std::string& prefix, const std::string& extension) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == extension && entry.path().filename().string().starts_with(prefix))
      found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// Some number for each entry of each name, the same in every cell that has the name.
double entry(const std::string& name, const std::vector<std::int64_t>& position, int lag = 0) {
  std::uint64_t h = 1469598103934665603ull;
  const auto mix = [&](std::uint64_t v) { h = (h ^ v) * 1099511628211ull; };
  for (char c : name) mix(static_cast<unsigned char>(c));
  for (std::int64_t p : position) mix(static_cast<std::uint64_t>(p) + 7);
  mix(static_cast<std::uint64_t>(lag) + 101);
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccdull;
  h ^= h >> 29;
  return static_cast<double>(h >> 11) / 9007199254740992.0 * 2 - 1;
}

class Numbers {
 public:
  Numbers(const CellGraph& cell, std::map<std::string, std::int64_t> sizes) : cell_(cell) {
    Environment environment;
    for (AxisId a : cell.header)
      if (sizes.contains(cell.graph.axis(a).name)) environment.sizes[a] = sizes.at(cell.graph.axis(a).name);
    environment.read = [&cell](int symbol, const std::vector<std::int64_t>& position, int lag) {
      const Symbol& s = cell.symbols[symbol];
      return entry(s.lag_of >= 0 ? cell.symbols[s.lag_of].name : s.name, position, s.lag_of >= 0 ? s.lag : lag);
    };
    evaluator_.emplace(cell, std::move(environment));
  }
  /// Of a state after the step, or of an out, laid out as it is written.
  Tensor operator()(const std::string& name) {
    for (const StateUpdate& u : cell_.updates)
      if (cell_.symbol_of(u).name + "'" == name) return evaluator_->value_over(u.value, cell_.symbol_of(u).index);
    for (const Out& out : cell_.outs)
      if (out.name == name) return evaluator_->value_over(out.value, out.index);
    throw std::runtime_error("no value " + name);
  }
  Tensor start(const std::string& name) {
    const Symbol& s = cell_.symbols[cell_.find_symbol(name)];
    return evaluator_->value_over(s.initial, s.index);
  }

 private:
  const CellGraph& cell_;
  std::optional<Evaluator> evaluator_;
};

using Place = std::vector<std::int64_t>;

void expect_entries(const Tensor& t, const std::function<double(const Place&)>& expected) {
  Place position(t.shape.size(), 0);
  for (double value : t.data) {
    EXPECT_NEAR(value, expected(position), 1e-12);
    for (std::size_t d = position.size(); d-- > 0;) {
      if (++position[d] < t.shape[d]) break;
      position[d] = 0;
    }
  }
}

double sum_to(std::int64_t n, const std::function<double(std::int64_t)>& term) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += term(i);
  return total;
}

std::vector<std::string> state_names(const CellGraph& cell) {
  std::vector<std::string> names;
  for (const StateUpdate& u : cell.updates) names.push_back(cell.symbol_of(u).name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Lower, EveryExample) {
  const fs::path folder = fs::path(CELLC_SOURCE_DIR) / "dsl-examples";
  std::size_t cells = 0;
  for (const fs::path& path : files_of(folder, "", ".cell")) {
    const Lowered result = lower_text(read_text(path), path.filename().string());
    EXPECT_EQ(result.errors, "") << path;
    cells += result.cells.size();
  }
  EXPECT_GE(cells, 65u);
}

TEST(Lower, BadCases) {
  const fs::path folder = fs::path(CELLC_SOURCE_DIR) / "tests/golden/check";
  const std::vector<fs::path> paths = files_of(folder, "bad-", ".txt");
  EXPECT_GE(paths.size(), 40u);
  const bool rebase = std::getenv("CELLC_REBASE") != nullptr;
  for (const fs::path& path : paths) {
    const std::string text = read_text(path);
    const std::size_t at = text.find("\n---\n");
    ASSERT_NE(at, std::string::npos) << path << " has no line of three dashes";
    const std::string cell = text.substr(0, at + 1), expected = text.substr(at + 5);
    const std::string found = lower_text(cell).errors;
    EXPECT_NE(found, "") << path << " has no error";
    if (rebase) {
      std::ofstream(path) << cell << "---\n" << found;
    } else {
      EXPECT_EQ(found, expected) << path;
    }
  }
}

TEST(Lower, ContractionBindsTheLastAxis) {
  const CellGraph cell = good(
      "cell c[d, m] {\n state h[d]\n input x[m]\n param U[d,d], W[d,m]\n"
      " h' = U@h + W@x\n out y = h@U\n out t = U[i,j]@U[j,k]@h[k]\n}\n");
  Numbers at(cell, {{"d", 3}, {"m", 2}});
  const auto column = [](std::int64_t d) {
    return sum_to(3, [&](auto i) { return entry("h", {i}) * entry("U", {i, d}); });
  };
  expect_entries(at("h'"), [&](const Place& p) {
    return sum_to(3,
                  [&](auto i) {
                    return entry("U", {p[0], i}) * entry("h", {i});
                  }) +
           sum_to(2, [&](auto i) {
             return entry("W", {p[0], i}) * entry("x", {i});
           });
  });
  expect_entries(at("y"), [&](const Place& p) { return column(p[0]); });
  expect_entries(at("t"), [&](const Place& p) {
    return sum_to(3, [&](auto j) {
      return entry("U", {p[0], j}) * sum_to(3, [&](auto k) { return entry("U", {j, k}) * entry("h", {k}); });
    });
  });
}

TEST(Lower, ContractionBatchesSharedAxes) {
  const CellGraph cell = good(
      "cell c[heads, k, v] {\n state h[heads,k], S[k,v]\n param R[heads,k,k], W[v,v]\n"
      " h' = R@h\n S' = S@W\n out z[v,heads] = h@S\n}\n");
  Numbers at(cell, {{"heads", 2}, {"k", 3}, {"v", 2}});
  expect_entries(at("h'"), [&](const Place& p) {
    return sum_to(3, [&](auto i) { return entry("R", {p[0], p[1], i}) * entry("h", {p[0], i}); });
  });
  expect_entries(at("S'"), [&](const Place& p) {
    return sum_to(2, [&](auto i) { return entry("S", {p[0], i}) * entry("W", {i, p[1]}); });
  });
  expect_entries(at("z"), [&](const Place& p) {
    return sum_to(3, [&](auto i) { return entry("h", {p[1], i}) * entry("S", {i, p[0]}); });
  });
}

TEST(Lower, ContractionGroupsToTheRight) {
  const CellGraph cell = good(
      "cell c[n] {\n state P[n,n] = eye[n,n]\n param F[n,n], Q[n,n]\n"
      " M[i,j] = F[i,k]@P[k,l]@F[j,l] + Q[j,i]\n P'[i,j] = M[i,j] - M[j,i]*2\n}\n");
  Numbers at(cell, {{"n", 3}});
  const auto m = [](std::int64_t i, std::int64_t j) {
    return entry("Q", {j, i}) + sum_to(3, [&](auto k) {
             return sum_to(3, [&](auto l) { return entry("F", {i, k}) * entry("P", {k, l}) * entry("F", {j, l}); });
           });
  };
  expect_entries(at("P'"), [&](const Place& p) { return m(p[0], p[1]) - 2 * m(p[1], p[0]); });
  expect_entries(at.start("P"), [&](const Place& p) { return p[0] == p[1] ? 1.0 : 0.0; });
}

TEST(Lower, EqualContractionsAreOneNode) {
  const CellGraph cell = good(
      "cell c[d] {\n state h[d], g[d]\n param U[d,d]\n h' = tanh(U@h)\n g' = tanh(U@h) + g\n out y = "
      "U[d,j]@h[j]\n}\n");
  const Graph& graph = cell.graph;
  const NodeId tanh = cell.updates[0].value;
  EXPECT_EQ(graph[cell.updates[1].value].args[0], tanh);
  const Node& sum = graph[graph[tanh].args[0]];
  ASSERT_EQ(sum.op, Op::ReduceSum);
  ASSERT_EQ(sum.bound.size(), 1u);
  EXPECT_EQ(graph.axis(sum.bound[0]).name, "d#1");
  EXPECT_EQ(sum.axes, std::vector<AxisId>{cell.header[0]});
}

TEST(Lower, LogisticFunctionsWrittenOutAreOne) {
  const auto update = [](const std::string& text) {
    const CellGraph cell = good("cell c[d] {\n state h[d]\n input x[d]\n h' = " + text + "\n}\n");
    const Node& node = cell.graph[cell.updates[0].value];
    return node.op == Op::Sigmoid ? "sigmoid of " + std::string(op_info(cell.graph[node.args[0]].op).name)
                                  : op_info(node.op).name;
  };
  EXPECT_EQ(update("1/(1 + exp(-(h + x)))"), "sigmoid of Add");
  EXPECT_EQ(update("1/(exp(-(h + x)) + 1)"), "sigmoid of Add");
  EXPECT_EQ(update("1/(1 + exp(h + x))"), "sigmoid of Neg");
  EXPECT_EQ(update("exp(h + x)/(1 + exp(h + x))"), "sigmoid of Add");
  // Others of that look.
  EXPECT_EQ(update("2/(1 + exp(-h - x))"), "Div");
  EXPECT_EQ(update("1/(2 + exp(-h - x))"), "Div");
  EXPECT_EQ(update("1/(1 - exp(-h - x))"), "Div");
  EXPECT_EQ(update("exp(h)/(1 + exp(x))"), "Div");
}

TEST(Lower, RenamingDiagonalsAndPickedEntries) {
  const CellGraph cell = good(
      "cell c[n=3, d] {\n state h[n], P[n,n], q[d]\n input x[n], key[n,d]\n param A[n,n]\n"
      " h' = A[n,n] + x[i]@A[i,n]\n P'[a,b] = x[a]*h[b] + A[b,a] + eye[a,b]*x[b]\n q' = key[1,d] + "
      "x[2]*key[0,d]\n"
      " out g = h'[1]\n out t[j,i] = A[i,j]\n out e = eye[n,1]\n}\n");
  Numbers at(cell, {{"d", 2}});
  expect_entries(at("h'"), [&](const Place& p) {
    return entry("A", {p[0], p[0]}) + sum_to(3, [&](auto i) { return entry("A", {i, p[0]}) * entry("x", {i}); });
  });
  expect_entries(at("P'"), [&](const Place& p) {
    return entry("x", {p[0]}) * entry("h", {p[1]}) + entry("A", {p[1], p[0]}) + (p[0] == p[1]) * entry("x", {p[1]});
  });
  expect_entries(at("q'"), [&](const Place& p) {
    return entry("key", {1, p[0]}) + entry("x", {2}) * entry("key", {0, p[0]});
  });
  expect_entries(at("t"), [&](const Place& p) { return entry("A", {p[1], p[0]}); });
  expect_entries(at("e"), [&](const Place& p) { return p[0] == 1 ? 1.0 : 0.0; });
}

TEST(Lower, UpdateNamedByPlaces) {
  const CellGraph cell = good(
      "cell c[s, a] {\n state q[s]\n input u[a]\n param T[s,s,a]\n D[i,j] = T[i,j,a]@u\n q'[i] = "
      "D[i,j]@q[j]\n}\n");
  Numbers at(cell, {{"s", 3}, {"a", 2}});
  expect_entries(at("q'"), [&](const Place& p) {
    return sum_to(3, [&](auto j) {
      return entry("q", {j}) * sum_to(2, [&](auto a) { return entry("T", {p[0], j, a}) * entry("u", {a}); });
    });
  });
}

TEST(Lower, AnIndexNameHasTheLengthThatItsLineGives) {
  const CellGraph cell = good(
      "cell c[n, m] {\n state P[n,n], Q[m,m]\n param A[n,n], B[m,m]\n"
      " P'[i,j] = P[j,i] + size[i]*eye[i,j]\n Q'[i,j] = Q[j,i] + size[i]*eye[i,j]\n"
      " a = sum[i](A[i,i] + eye[i,0])\n out b = a + sum[i](eye[i,0]*B[i,i]) + size[i]\n}\n");
  Numbers at(cell, {{"n", 2}, {"m", 3}});
  expect_entries(at("P'"), [&](const Place& p) { return entry("P", {p[1], p[0]}) + 2.0 * (p[0] == p[1]); });
  expect_entries(at("Q'"), [&](const Place& p) { return entry("Q", {p[1], p[0]}) + 3.0 * (p[0] == p[1]); });
  expect_entries(at("b"), [&](const Place&) {
    return sum_to(2, [&](auto i) { return entry("A", {i, i}); }) + 1 + entry("B", {0, 0}) + 3;
  });
  // A line that gives a name two lengths, or none where others give two, does not say which is meant.
  const std::string head = "cell c[n, m] {\n state h\n param A[n,n], B[m,m]\n";
  for (const char* lines : {" h' = sum[i](A[i,i]) + sum[i](B[i,i]) + size[i]\n}\n",
                            " h' = sum[i](A[i,i])\n a = sum[i](B[i,i])\n b = size[i]\n}\n"})
    EXPECT_NE(lower_text(head + lines).errors.find("'i' names axes of different lengths"), std::string::npos) << lines;
}

TEST(Lower, ReductionsAndRepeatedAxes) {
  const CellGraph cell = good(
      "cell c[k=4, d] {\n state h[d]\n input x[d,k]\n"
      " h' = sum[k](h) + mean[k](x) + max[k](x) + sum[k](softmax[k](x)*x)\n"
      " t[d,k] = h\n out y = sum[k](t) + size[k]*size[d]\n}\n");
  Numbers at(cell, {{"d", 3}});
  expect_entries(at("y"), [&](const Place& p) { return 4 * entry("h", p) + 12; });
  expect_entries(at("h'"), [&](const Place& p) {
    const auto x = [&](std::int64_t k) { return entry("x", {p[0], k}); };
    const double total = sum_to(4, [&](auto k) { return std::exp(x(k)); });
    return 4 * entry("h", p) + sum_to(4, x) / 4 + std::max({x(0), x(1), x(2), x(3)}) +
           sum_to(4, [&](auto k) { return std::exp(x(k)) / total * x(k); });
  });
}

TEST(Lower, ValueNamesAndAxisNamesAreApart) {
  good("cell c[k, d] {\n state d[k]\n input k[k]\n d' = d + k*size[k]/size[d]\n}\n");
}

TEST(Lower, NumberGivenANameIsAConstant) {
  const CellGraph cell = good("cell c {\n state h\n dt = 0.5\n n = 2\n h' = lag(h, n)*(dt*4)\n}\n");
  EXPECT_EQ(state_names(cell), (Names{"h", "lag(h, 1)", "lag(h, 2)"}));
  const Node& product = cell.graph[cell.updates[0].value];
  EXPECT_EQ(product.op, Op::Mul);
  EXPECT_TRUE(cell.graph.is_constant(product.args[1], 2));
}

TEST(Lower, CompanionsAreAsManyAsNeeded) {
  EXPECT_EQ(state_names(good("cell c {\n state y, g\n input u\n g' = u\n"
                             " y' = lag(y, 1) + lag(y, 3) + lag(g, 1)*lag(u, 7)\n}\n")),
            (Names{"y", "lag(y, 1)", "lag(y, 2)", "lag(y, 3)", "g", "lag(g, 1)"}));
  // lag(h', 1) is h, and lag(h', 2) the state one step before.
  EXPECT_EQ(state_names(good("cell c {\n state h\n h' = 0.5*h\n out y = lag(h', 1)\n}\n")), (Names{"h"}));
  EXPECT_EQ(state_names(good("cell c {\n state h\n h' = 0.5*h\n out y = lag(h', 2)\n}\n")), (Names{"h", "lag(h, 1)"}));
  // Also within an expression, and above the line that gives h'.
  EXPECT_EQ(state_names(good("cell c {\n state h\n input x\n g = lag(2*h' + lag(h', 0), 2)\n h' = tanh(x + g)\n}\n")),
            (Names{"h", "lag(h, 1)"}));
  EXPECT_EQ(state_names(good("cell c {\n state h\n input x\n h' = tanh(x + 0.5*lag(h'*h', 1))\n}\n")), (Names{"h"}));
  // h' itself may be read below that line as well, by outs, other states or named values.
  EXPECT_EQ(state_names(good("cell c {\n state h, g\n input x\n p = lag(h', 1)\n q = lag(h'*g', 2)\n h' = 0.5*p + x\n"
                             " r = h' - q\n g' = r + lag(h', 3)\n out y = h'*lag(g', 1)\n}\n")),
            (Names{"h", "lag(h, 1)", "lag(h, 2)", "g", "lag(g, 1)"}));
  // Nested lags add up; a lag of a value is the value of lagged leaves.
  EXPECT_EQ(state_names(good("cell c {\n state h\n input x\n z = h*lag(x, 1)\n h' = lag(lag(z, 1), 1) + x\n}\n")),
            (Names{"h", "lag(h, 1)", "lag(h, 2)"}));
  // A line that nothing uses adds no state.
  EXPECT_EQ(state_names(good("cell c {\n state h\n z = lag(h, 3)\n h' = 0.5*h\n}\n")), (Names{"h"}));
}

TEST(Lower, LagOfAnUpdateIsNotTheLagOfItsExpression) {
  // h' = x is the input, yet lag(h', 1) is the state, whose start may differ from the history of x.
  const CellGraph cell =
      good("cell c {\n state h = 3\n input x\n h' = x\n out y = lag(h', 1)\n out z = lag(x, 1)\n}\n");
  EXPECT_EQ(cell.symbols[cell.graph[cell.outs[0].value].symbol].name, "h");
  EXPECT_EQ(cell.symbols[cell.graph[cell.outs[1].value].symbol].name, "x");
  EXPECT_EQ(cell.symbols[cell.find_symbol("x")].max_lag, 1);
  EXPECT_EQ(cell.symbols[cell.find_symbol("h")].max_lag, 0);
}

TEST(Lower, ALagAboveTheUpdateLeavesTheUpdateAsItIs) {
  const CellGraph cell = good(
      "cell c[d] {\n state h[d], g[d]\n input x[d]\n p = lag(h'*g, 2)\n h' = 0.5*lag(h', 1) + p + x\n"
      " g' = h' + lag(g', 3)\n out y = h' - lag(h', 2)\n}\n");
  Numbers at(cell, {{"d", 3}});
  const auto h = [](const Place& p) {
    return 0.5 * entry("h", p) + entry("h", p, 1) * entry("g", p, 2) + entry("x", p);
  };
  expect_entries(at("h'"), h);
  expect_entries(at("g'"), [&](const Place& p) { return h(p) + entry("g", p, 2); });
  expect_entries(at("y"), [&](const Place& p) { return h(p) - entry("h", p, 1); });
}

TEST(Lower, CompanionsShiftAndStartAlike) {
  const CellGraph cell = good("cell c[d] {\n state y[d] = 2\n y' = 0.5*y + lag(y, 2)\n}\n");
  ASSERT_EQ(cell.updates.size(), 3u);
  for (int n = 1; n <= 2; ++n) {
    const Symbol& companion = cell.symbol_of(cell.updates[n]);
    EXPECT_EQ(companion.lag_of, 0);
    EXPECT_EQ(companion.lag, n);
    EXPECT_TRUE(cell.graph.is_constant(companion.initial, 2));
    EXPECT_EQ(cell.graph[cell.updates[n].value].symbol, n - 1);
  }
  EXPECT_EQ(cell.symbols[0].max_lag, 2);
}

TEST(Lower, WhatNothingReadsAddsNoHistory) {
  const std::string head = "cell c[d, w, v] {\n state h[d]\n input x[d]\n param a[w]\n";
  const auto names = [&](const std::string& lines) {
    Names found;
    for (const NamedValue& n : good(head + lines + "}\n").named) found.push_back(n.name);
    return found;
  };
  // The history of x has w - 1 steps: at least none, and never v - 1.
  EXPECT_EQ(names(" u = lag(x, 50)\n h' = h + sum[w](a*lag[w](x))\n"), Names{});
  EXPECT_EQ(names(" u = sum[v](lag[v](x))\n h' = h + sum[w](a*lag[w](x))\n"), Names{});
  EXPECT_EQ(names(" u = sum[w](lag(lag[w](x), 1))\n h' = h + sum[w](a*lag[w](x))\n"), Names{});
  // Two steps further back it has w + 1: one and two are there, and so is another row of lags.
  EXPECT_EQ(names(" u = lag(x, 2)\n v = sum[w](lag(lag[w](x), 1))\n h' = h + sum[w](a*lag(lag[w](x), 2))\n"),
            (Names{"u", "v"}));
}

TEST(Lower, LagsAlongAnAxis) {
  const CellGraph cell = good(
      "cell c[d, w=3] {\n state h[d]\n input x[d]\n param conv[d,w]\n"
      " u = sum[w](conv*lag[w](x))\n h' = u + sum[w](conv*lag[w](h))\n out y = lag(u, 2)\n}\n");
  EXPECT_EQ(state_names(cell), (Names{"h", "lag(h, 1)", "lag(h, 2)"}));
  EXPECT_EQ(cell.symbols[cell.find_symbol("x")].max_lag, -1 + 3 + 2);
  Numbers at(cell, {{"d", 2}});
  const auto u = [](std::int64_t d, int lag) {
    return sum_to(3, [&](auto w) { return entry("conv", {d, w}) * entry("x", {d}, static_cast<int>(w) + lag); });
  };
  expect_entries(at("h'"), [&](const Place& p) {
    return u(p[0], 0) + sum_to(3, [&](auto w) {
             return entry("conv", {p[0], w}) * entry("h", {p[0]}, static_cast<int>(w));
           });
  });
}

// One convolution of another: lags of lags add up.
TEST(Lower, LagsAlongAnAxisOfWhatIsLinedUpAlready) {
  const CellGraph cell = good(
      "cell c[d, w=3, v] {\n state h[d]\n input x[d]\n param a[d,v], b[d,w]\n"
      " u = sum[v](a*lag[v](x))\n h' = sum[w](b*lag[w](u)) + 0.5*h\n}\n");
  Numbers at(cell, {{"d", 2}, {"v", 4}});
  expect_entries(at("h'"), [](const Place& p) {
    return 0.5 * entry("h", p) + sum_to(3, [&](auto w) {
             return entry("b", {p[0], w}) * sum_to(4, [&](auto v) {
                      return entry("a", {p[0], v}) * entry("x", p, static_cast<int>(w + v));
                    });
           });
  });
}

TEST(Lower, LagAlongAnAxisOfUnknownLength) {
  const CellGraph cell = good(
      "cell c[d, w] {\n state h[d]\n input x[d]\n param conv[d,w]\n h' = sum[w](conv*lag[w](x)) + "
      "0.5*h\n}\n");
  EXPECT_EQ(cell.symbols[cell.find_symbol("x")].max_lag, -1);
}

TEST(Lower, FunctionsAreHygienic) {
  // The function's i, e and k are not the caller's.
  const CellGraph cell = good(
      "fn twist[k](A, x) {\n e = A[i,k]@x[k]\n return sum[i](e*e) + sum[j](A[j,j])\n}\n"
      "fn pair(a, b) {\n return a + b, a*b\n}\n"
      "cell c[d, k] {\n state h[d], g[k]\n param W[d,d], e[d]\n"
      " p, q = pair(h, e)\n r[i] = e[i]*twist[d](W, h)\n h' = p*q + r[d]\n g' = g*twist[d](W, e)\n}\n");
  Numbers at(cell, {{"d", 3}, {"k", 2}});
  const auto twist = [](const std::string& x) {
    return sum_to(3, [&](auto i) {
      const double e = sum_to(3, [&](auto k) { return entry("W", {i, k}) * entry(x, {k}); });
      return e * e + entry("W", {i, i});
    });
  };
  expect_entries(at("h'"), [&](const Place& p) {
    const double h = entry("h", p), e = entry("e", p);
    return (h + e) * (h * e) + e * twist("h");
  });
  expect_entries(at("g'"), [&](const Place& p) { return entry("g", p) * twist("e"); });
}

TEST(Lower, IndexNamesOfAFunctionCatchNothing) {
  const CellGraph cell = good(
      "fn weigh(W, x) = sum[i](W[i]*x)\n"
      "cell c[d] {\n state h[d], P[d,d]\n param w[d]\n h' = h\n P'[i,j] = weigh(w, h[i])*h[j]\n}\n");
  Numbers at(cell, {{"d", 3}});
  expect_entries(at("P'"), [&](const Place& p) {
    return sum_to(3, [&](auto i) { return entry("w", {i}); }) * entry("h", {p[0]}) * entry("h", {p[1]});
  });
}

TEST(Lower, DeclaredDerivativeIsASurrogate) {
  const CellGraph cell = good(
      "fn spike(v) = where(v > 0, 1, 0) derivative 1/(1 + 10*abs(v))^2\n"
      "cell c[d] {\n state v[d]\n input u[d]\n v' = 0.9*v + u\n out s = spike(v' - 1) + spike(2)\n}\n");
  const Node& sum = cell.graph[cell.outs[0].value];
  const Node& surrogate = cell.graph[sum.args[0]];
  EXPECT_EQ(surrogate.op, Op::Surrogate);
  EXPECT_EQ(surrogate.args.size(), 3u);
  EXPECT_TRUE(cell.graph.is_constant(sum.args[1], 1));
}

TEST(Lower, StartsAndDefaults) {
  const CellGraph cell = good(
      "cell c[n=2, d] {\n state h[d] = 2*h0 + size[d], P[n,n] = 3*eye[n,n] - Q, s = -1e4 in (-1, 2)\n"
      " param h0[d], Q[n,n], g[d] = exp(0)\n h' = h*g\n P'[i,j] = P[j,i]\n s' = s\n}\n");
  Numbers at(cell, {{"d", 3}});
  expect_entries(at.start("h"), [&](const Place& p) { return 2 * entry("h0", p) + 3; });
  expect_entries(at.start("P"), [&](const Place& p) { return 3.0 * (p[0] == p[1]) - entry("Q", p); });
  expect_entries(at.start("g"), [&](const Place&) { return 1.0; });
  EXPECT_EQ(cell.symbols[2].range->low, -1);
}

TEST(Lower, NamedValuesInOrder) {
  const CellGraph cell =
      good("cell c[d, k] {\n state h[d]\n input x[k]\n b = x + h\n a[k,d] = b\n h' = h\n out y = h'\n}\n");
  Names names;
  for (const NamedValue& v : cell.named) names.push_back(v.name);
  EXPECT_EQ(names, (Names{"b", "a", "y"}));
  EXPECT_EQ(cell.named[1].index, (std::vector<AxisId>{cell.header[1], cell.header[0]}));
}

TEST(Lower, LowersOneCellAlone) {
  const SourceText source("case.cell", "cell bad {\n state h\n}\ncell fine {\n state h\n h' = h\n}\n");
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  EXPECT_TRUE(lower(file, file.cells[1], diagnostics).has_value());
  EXPECT_TRUE(diagnostics.empty());
  EXPECT_FALSE(lower(file, file.cells[0], diagnostics).has_value());
}

}  // namespace
}  // namespace cellc
