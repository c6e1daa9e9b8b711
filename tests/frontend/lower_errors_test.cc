// Tree -> graph where the text is at fault: hints that errors give, and texts made to take for ever.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "compiler/graph/delay_lines.h"
#include "compiler/graph/evaluate.h"
#include "tests/frontend/lower_text.h"

namespace cellc {
namespace {

// It must end soon, with an answer or an error, whatever its shape.
TEST(LowerErrors, LongChainsOfOperators) {
  std::string sum = "h", product = "W";
  for (int i = 0; i < 900; ++i) sum += i % 2 ? " + h*h" : " - h";
  for (int i = 0; i < 900; ++i) product += "@W";
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += " v" + std::to_string(i) + " = " + sum + " + " + std::to_string(i) + "\n";
  const Lowered a = lower_text("cell c[d] {\n state h[d]\n" + lines + " h' = v19\n}\n");
  EXPECT_EQ(a.errors, "");
  const Lowered b = lower_text("cell c[d] {\n state h[d]\n param W[d,d]\n h' = " + product + "@h\n}\n");
  EXPECT_EQ(b.errors, "");
}

/// What the error about a function or name says to write in its place: `NAME(x) is FORMULA`.
std::string formula_for(const std::string& call) {
  const std::string errors = lower_text("cell c {\n state h\n input x, y\n h' = " + call + "\n}\n").errors;
  const std::string before = "note: " + call + " is ";
  const std::size_t at = errors.find(before);
  if (at == std::string::npos) return "";
  const std::size_t from = at + before.size();
  return errors.substr(from, errors.find('\n', from) - from);
}

TEST(LowerErrors, FunctionsOfOtherLanguagesGetTheirFormula) {
  const auto in = [](double (*f)(double)) { return [f](double x, double) { return f(x); }; };
  const std::map<std::string, std::function<double(double, double)>> wanted = {
      {"cosh(x)", in(std::cosh)},
      {"sinh(x)", in(std::sinh)},
      {"tan(x)", in(std::tan)},
      {"asinh(x)", in(std::asinh)},
      {"atanh(x)", in(std::atanh)},
      {"log10(x)", in(std::log10)},
      {"log2(x)", in(std::log2)},
      {"log1p(x)", in(std::log1p)},
      {"expm1(x)", in(std::expm1)},
      {"exp2(x)", in(std::exp2)},
      {"erfc(x)", in(std::erfc)},
      {"cbrt(x)", in(std::cbrt)},
      {"hypot(x, y)", [](double x, double y) { return std::hypot(x, y); }},
      {"fmax(x, y)", [](double x, double y) { return std::fmax(x, y); }},
      {"logit(x)", [](double x, double) { return std::log(x / (1 - x)); }},
      {"logsigmoid(x)", [](double x, double) { return -std::log1p(std::exp(-x)); }},
      {"logaddexp(x, y)", [](double x, double y) { return std::log(std::exp(x) + std::exp(y)); }},
      {"elu(x)", [](double x, double) { return x > 0 ? x : std::expm1(x); }},
      {"softsign(x)", [](double x, double) { return x / (1 + std::fabs(x)); }},
      {"mish(x)", [](double x, double) { return x * std::tanh(std::log1p(std::exp(x))); }},
      {"leaky_relu(x)", [](double x, double) { return x > 0 ? x : 0.01 * x; }},
  };
  for (const auto& [call, function] : wanted) {
    const std::string formula = formula_for(call);
    ASSERT_NE(formula, "") << call;
    const CellGraph cell = good("cell c {\n state h\n input x, y\n h' = " + formula + "\n}\n");
    for (const double x : {0.3, 0.7}) {
      Environment environment;
      environment.read = [&](int symbol, const std::vector<std::int64_t>&, int) {
        return cell.symbols[symbol].name == "x" ? x : 0.4;
      };
      Evaluator evaluator(cell, environment);
      EXPECT_NEAR(evaluator.value(cell.updates.at(0).value).data.at(0), function(x, 0.4), 1e-14) << call;
    }
  }
}

TEST(LowerErrors, NoHintNamesAnotherFunction) {
  for (const char* name :
       {"cosh", "log10", "expm1", "tan",  "acos",   "asin",  "atan",   "floor",   "round", "erfinv",
        "mod",  "sinc",  "var",   "norm", "argmax", "randn", "random", "dropout", "atan2", "lgamma"}) {
    const std::string errors = lower_text(std::string("cell c {\n state h\n h' = ") + name + "(h)\n}\n").errors;
    EXPECT_NE(errors.find("note: "), std::string::npos) << name;
    EXPECT_EQ(errors.find("did you mean"), std::string::npos) << errors;
  }
  // A slip still is one, and a function of the file's own is what it is.
  EXPECT_NE(lower_text("cell c {\n state h\n h' = tahn(h)\n}\n").errors.find("did you mean 'tanh'"), std::string::npos);
  EXPECT_EQ(lower_text("fn cosh(x) = x\ncell c {\n state h\n h' = cosh(h)\n}\n").errors, "");
}

TEST(LowerErrors, NamesThatAreReadyElsewhereGetALine) {
  const auto errors = [](const std::string& value) {
    return lower_text("cell c[d, v] {\n state h[d]\n input token\n param E[v,d], b[v]\n h' = h + " + value + "\n}\n")
        .errors;
  };
  EXPECT_NE(errors("sin(t)").find("state t, then t' = t + 1"), std::string::npos);
  EXPECT_NE(errors("pi").find("pi is 3.14159"), std::string::npos);
  EXPECT_NE(errors("randn()").find("declare an input, and give it the noise"), std::string::npos);
  // An index that is meant as a number of the data.
  EXPECT_NE(errors("E[token,d]")
                .find("declare token[v], 1 at the entry that is meant and 0 elsewhere, and write "
                      "sum[v](token*E)"),
            std::string::npos)
      << errors("E[token,d]");
  EXPECT_EQ(lower_text("cell c[d, v] {\n state h[d]\n input token[v]\n param E[v,d]\n h' = h + "
                       "sum[v](token*E)\n}\n")
                .errors,
            "");
}

TEST(LowerErrors, RenamedPlacesMeetTheirAxis) {
  const auto errors = [](const std::string& value) {
    return lower_text(
               "cell c[n, z] {\n state P[n,n], x[n]\n param F[n,n], H[z,n], g[n]\n"
               " Pp[i,j] = F[i,k]@P[k,j]\n G = " +
               value + "\n P'[i,j] = Pp[i,j]\n x' = x\n}\n")
        .errors;
  };
  EXPECT_NE(errors("Pp@H").find("'j' has the length of 'n': name the place that it contracts with, Pp@H[z,j]"),
            std::string::npos)
      << errors("Pp@H");
  EXPECT_NE(errors("Pp@g").find("Pp@g[j]"), std::string::npos) << errors("Pp@g");
  EXPECT_EQ(errors("Pp@H[z,j]"), "");
  EXPECT_EQ(errors("Pp@g[j]"), "");
}

TEST(LowerErrors, ExplodingFunctionsStop) {
  std::string text = "fn f0(x, y) = x*y + x\n";
  for (int i = 1; i < 60; ++i) {
    const std::string g = "f" + std::to_string(i - 1);
    text += "fn f" + std::to_string(i) + "(x, y) = " + g + "(" + g + "(x, y), y) + " + g + "(y, x)\n";
  }
  const Lowered a = lower_text(text + "cell c {\n state h\n input x\n h' = f59(h, x)\n}\n");
  EXPECT_NE(a.errors, "");
  EXPECT_LE(a.count, 3u);
  // Few nodes, many calls.
  text = "fn f0(x) = x + 1\n";
  for (int i = 1; i < 60; ++i)
    text +=
        "fn f" + std::to_string(i) + "(x) = f" + std::to_string(i - 1) + "(x) + f" + std::to_string(i - 1) + "(x)\n";
  const Lowered b = lower_text(text + "cell c {\n state h\n h' = f59(h)\n}\n");
  EXPECT_NE(b.errors.find("too long to inline"), std::string::npos) << b.errors;
}

TEST(LowerErrors, DeepCallsStop) {
  std::string text = "fn f0(x) = x\n", nested = "x";
  for (int i = 0; i < 90; ++i) nested = "-(" + nested + ")";
  for (int i = 1; i < 5000; ++i) text += "fn f" + std::to_string(i) + "(x) = f" + std::to_string(i - 1) + "(x)\n";
  const Lowered a = lower_text(text + "cell c {\n state h\n h' = f4999(h)\n}\n");
  EXPECT_NE(a.errors.find("more than 64 deep"), std::string::npos) << a.errors;
  text = "fn f0(x) = x\n";
  for (int i = 1; i < 60; ++i) {
    std::string body = nested;
    body.replace(body.find('x'), 1, "f" + std::to_string(i - 1) + "(x)");
    text += "fn f" + std::to_string(i) + "(x) = " + body + "\n";
  }
  const Lowered b = lower_text(text + "cell c {\n state h\n h' = f59(h)\n}\n");
  EXPECT_NE(b.errors.find("nested too deeply"), std::string::npos) << b.errors;
}

TEST(LowerErrors, FilesFullOfErrorsEndSoon) {
  std::string unknown, circle, backwards;
  for (int i = 0; i < 20000; ++i) {
    const std::string n = std::to_string(i), next = std::to_string((i + 1) % 20000);
    unknown += " value_" + n + " = nothing_" + n + "\n";
    circle += " value_" + n + " = value_" + next + "\n";
    backwards += i + 1 < 20000 ? " value_" + n + " = h + value_" + next + "\n" : " value_" + n + " = h\n";
  }
  for (const std::string& lines : {unknown, circle, backwards})
    EXPECT_NE(lower_text("cell c {\n state h\n" + lines + " h' = h\n}\n").errors, "");
}

TEST(LowerErrors, ManyStatesByLags) {
  // Up to 15 steps back each lag is a state of its own; from there on one delay line brings them all.
  EXPECT_EQ(lower_text("cell c {\n state h\n h' = lag(h, 15)\n}\n").cells.at(0).updates.size(), 16u);
  const auto far = lower_text(
      "cell c {\n state a, b, e\n a' = lag(a, 4096)\n b' = lag(b, 4000) + lag(b, 16)\n"
      " e' = lag(a, 1)\n}\n");
  EXPECT_EQ(far.errors, "");
  EXPECT_EQ(far.cells.at(0).updates.size(), 4u);
  EXPECT_EQ(independent_steps(far.cells.at(0)), 17);
  ASSERT_EQ(delay_lines(far.cells.at(0)).size(), 2u);
  EXPECT_EQ(delay_lines(far.cells.at(0))[0].deepest, 4097);
  EXPECT_EQ(delay_lines(far.cells.at(0))[1].nearest, 17);
}

}  // namespace
}  // namespace cellc
