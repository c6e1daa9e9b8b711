// The parser: what is read, how it groups, and every syntax error with its line and column.
#include "compiler/syntax/parse.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cellc {
namespace {

// "line:column message" of each error, in the order of the file.
std::vector<std::string> errors_of(const std::string& text) {
  const SourceText source("test.cell", text);
  Diagnostics diagnostics;
  parse(source, diagnostics);
  std::vector<std::string> found;
  for (const Diagnostic& d : diagnostics.list()) {
    const Position at = source.position(d.span.offset);
    found.push_back(fmt::format("{}:{} {}", at.line, at.column, d.message));
  }
  return found;
}

std::string note_of(const std::string& text) {
  const SourceText source("test.cell", text);
  Diagnostics diagnostics;
  parse(source, diagnostics);
  return diagnostics.list().size() == 1 ? diagnostics.list()[0].note
                                        : fmt::format("{} errors", diagnostics.list().size());
}

std::string printed(const std::string& text) {
  const SourceText source("test.cell", text);
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  return diagnostics.empty() ? print_tree(file) : diagnostics.format(source);
}

std::string in_cell(const std::string& line) { return "cell c {\n  " + line + "\n}\n"; }

// The value of the one line of a cell, with every operator in parentheses.
std::string grouped(const Expr& e) {
  std::string index;
  for (const IndexEntry& i : e.index) {
    index += (index.empty() ? "" : ",") + (i.integer ? std::to_string(*i.integer) : i.name);
  }
  if (e.has_index) index = "[" + index + "]";
  switch (e.kind) {
    case ExprKind::Number:
      return fmt::format("{}", e.number);
    case ExprKind::Name:
      return e.name + (e.primed ? "'" : "") + index;
    case ExprKind::Negate:
      return "(-" + grouped(*e.args[0]) + ")";
    case ExprKind::Power:
      return fmt::format("({}^{})", grouped(*e.args[0]), e.number);
    case ExprKind::Binary:
      return "(" + grouped(*e.args[0]) + e.name + grouped(*e.args[1]) + ")";
    case ExprKind::Call: {
      std::string arguments;
      for (const ExprPtr& a : e.args) arguments += (arguments.empty() ? "" : ",") + grouped(*a);
      return e.name + index + "(" + arguments + ")";
    }
  }
  return "?";
}

std::string read(const std::string& expression) {
  const SourceText source("test.cell", in_cell("y = " + expression));
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  if (!diagnostics.empty()) return diagnostics.format(source);
  return grouped(*file.cells.at(0).lines.at(0).value);
}

using Errors = std::vector<std::string>;

TEST(Precedence, LoosestToTightest) {
  EXPECT_EQ(read("a + b*c"), "(a+(b*c))");
  EXPECT_EQ(read("a*b + c"), "((a*b)+c)");
  EXPECT_EQ(read("a < b + c"), "(a<(b+c))");
  EXPECT_EQ(read("a*W@x"), "(a*(W@x))");
  EXPECT_EQ(read("W@x*a"), "((W@x)*a)");
  EXPECT_EQ(read("W@x^2"), "(W@(x^2))");
  EXPECT_EQ(read("W^2@x"), "((W^2)@x)");
  EXPECT_EQ(read("a*b^2"), "(a*(b^2))");
}

TEST(Precedence, LeftToRight) {
  EXPECT_EQ(read("a - b - c"), "((a-b)-c)");
  EXPECT_EQ(read("a - b + c"), "((a-b)+c)");
  EXPECT_EQ(read("8/3*z"), "((8/3)*z)");
  EXPECT_EQ(read("a/b/c"), "((a/b)/c)");
}

TEST(Precedence, ContractionGroupsToTheRight) {
  EXPECT_EQ(read("A@B@x"), "(A@(B@x))");
  EXPECT_EQ(read("(A@B)@x"), "((A@B)@x)");
  EXPECT_EQ(read("F[i,k]@P[k,l]@F[j,l]"), "(F[i,k]@(P[k,l]@F[j,l]))");
}

TEST(Precedence, UnaryMinus) {
  EXPECT_EQ(read("-x^2"), "(-(x^2))");
  EXPECT_EQ(read("-W@x"), "(-(W@x))");
  EXPECT_EQ(read("-a*b"), "((-a)*b)");
  EXPECT_EQ(read("a*-b"), "(a*(-b))");
  EXPECT_EQ(read("a - -b"), "(a-(-b))");
  EXPECT_EQ(read("--a"), "(-(-a))");
  EXPECT_EQ(read("A@-x"), "(A@(-x))");
  EXPECT_EQ(read("A@-B@x*y"), "((A@(-(B@x)))*y)");
  EXPECT_EQ(read("-1 < x"), "((-1)<x)");
}

TEST(Precedence, Powers) {
  EXPECT_EQ(read("x^-1"), "(x^-1)");
  EXPECT_EQ(read("x^(-2)"), "(x^-2)");
  EXPECT_EQ(read("x^(2)"), "(x^2)");
  EXPECT_EQ(read("(x^2)^3"), "((x^2)^3)");
  EXPECT_EQ(read("h'[d]^2"), "(h'[d]^2)");
  EXPECT_EQ(read("f(x)^0"), "(f(x)^0)");
}

TEST(Expressions, NamesAndCalls) {
  EXPECT_EQ(read("h'"), "h'");
  EXPECT_EQ(read("h'[i]"), "h'[i]");
  EXPECT_EQ(read("key[1, k]"), "key[1,k]");
  EXPECT_EQ(read("sum[i,j](A[i,j])"), "sum[i,j](A[i,j])");
  EXPECT_EQ(read("lag[w](x)"), "lag[w](x)");
  EXPECT_EQ(read("lag(h', 1)"), "lag(h',1)");
  EXPECT_EQ(read("size[k]"), "size[k]()");
  EXPECT_EQ(read("eye[i,j]*a"), "(eye[i,j]()*a)");
  EXPECT_EQ(read("where(a >= b, -1, c != 0)"), "where((a>=b),(-1),(c!=0))");
}

TEST(Expressions, Numbers) {
  EXPECT_EQ(read("0.5 + .5 + 1e-5 + 1E4 + 2. + 1.5e+3"), "(((((0.5+0.5)+1e-05)+10000)+2)+1500)");
}

TEST(Lines, GoOnInsideBracketsAndAfterOperators) {
  EXPECT_EQ(printed("cell c {\n state h,\n  g\n h' =\n a +\n b*\n c\n g' = f(a,\n b\n )\n y[i,\n j] = 1\n}\n"),
            "cell c {\n  state h\n  state g\n  h' = a + b*c\n  g' = f(a, b)\n  y[i,j] = 1\n}\n");
}

TEST(Lines, CommentsTabsAndCarriageReturns) {
  EXPECT_EQ(printed("# über\r\ncell c { # one\r\n\tstate h # two\r\n\r\n\th' = h # F P Fᵀ\r\n}"),
            "cell c {\n  state h\n  h' = h\n}\n");
  EXPECT_EQ(printed("\xEF\xBB\xBF"
                    "cell c { state h }"),
            "cell c {\n  state h\n}\n");
  EXPECT_EQ(printed(""), "");
  EXPECT_EQ(printed("# nothing"), "");
}

TEST(Declarations, AxesStartsAndRanges) {
  EXPECT_EQ(printed("cell c[n=2, heads, k]\n{\n"
                    "  state h[heads,k] = 0.5 in (-1, 1), m = -1e4, P[n,n] = eye[n,n]\n"
                    "  input x[k] in (-.5, 2)\n"
                    "  param w = 1/2 in (0, 1), v0[k]\n}\n"),
            "cell c[n=2, heads, k] {\n"
            "  state h[heads,k] = 0.5 in (-1, 1)\n"
            "  state m = -10000\n"
            "  state P[n,n] = eye[n,n]\n"
            "  input x[k] in (-0.5, 2)\n"
            "  param w = 1/2 in (0, 1)\n"
            "  param v0[k]\n}\n");
}

TEST(Lines, TargetsOfEveryForm) {
  const std::string text =
      "cell c[d] {\n  y = 1\n  out z = y\n  out o[heads,v] = y\n  h'[i] = y\n  p, q = f[d](y, z)\n  g[0] = "
      "y\n}\n";
  EXPECT_EQ(printed(text), text);
}

TEST(Functions, EveryForm) {
  const std::string text =
      "fn f(x) = x*sigmoid(2*x)\n"
      "fn spike(v) = where(v > 0, 1, 0) derivative 1/(1 + 10*abs(v))^2\n"
      "fn both(x, y) = x*y derivative y, x\n"
      "fn pair[d](x, y) = x + y, sum[d](x - y)\n"
      "fn ln[d](x) {\n  e = x - mean[d](x)\n  return e*rsqrt(mean[d](e^2) + 1e-05)\n}\n"
      "fn two(x) {\n  a, b = pair(x, x)\n  return a, b\n}\n"
      "fn hard(x) {\n  y = x > 0\n  return y\n} derivative 1\n";
  EXPECT_EQ(printed(text), text);
}

TEST(Functions, DerivativeOnTheNextLine) {
  EXPECT_EQ(printed("fn s(v) = v > 0\n  derivative 1\n"), "fn s(v) = v > 0 derivative 1\n");
  EXPECT_EQ(printed("fn s(v) {\n return v }\nderivative 1\n"), "fn s(v) = v derivative 1\n");
}

TEST(Spans, CoverWhatTheyName) {
  const SourceText source("t", "cell c {\n  out y[d] = (a + b)*f(x)\n}\n");
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  const Line& line = file.cells.at(0).lines.at(0);
  EXPECT_EQ(source.slice(file.cells[0].span), "c");
  EXPECT_EQ(source.slice(line.span), "out y[d] = (a + b)*f(x)");
  EXPECT_EQ(source.slice(line.targets[0].span), "y[d]");
  EXPECT_EQ(source.slice(line.value->span), "(a + b)*f(x)");
  EXPECT_EQ(source.slice(line.value->name_span), "*");
  EXPECT_EQ(source.slice(line.value->args[0]->span), "a + b");
  EXPECT_EQ(source.slice(line.value->args[1]->name_span), "f");
}

TEST(Printing, ReadsBackToTheSameText) {
  for (const char* expression :
       {"a - (b - c)", "a/(b*c)",  "(a < b) < c", "(a < b) + 1",      "-(a + b)",      "-(a*b)",  "(-a)@x",
        "(-a)^2",      "(a*b)^-2", "A@-B@-x",     "(A@B)@x",          "2^3",           "(x^2)^3", "(A*B)@(c + d)",
        "a*-b",        "a - -b",   "f(-a, (b))",  "1e300*1e-300",     "123456789*0.1", "-(-(a))", "(a + b)@x^2",
        "-x^2",        "(-x)^2",   "a@(b*c)",     "(a == b)*(c != d)"}) {
    const std::string once = printed(in_cell(std::string("y = ") + expression));
    EXPECT_EQ(read(expression), read(once.substr(once.find("= ") + 2, once.rfind("\n}") - once.find("= ") - 2)))
        << expression;
    EXPECT_EQ(printed(once), once);
  }
}

struct Case {
  const char* text;
  Errors errors;
};

TEST(SyntaxErrors, InExpressions) {
  const Case cases[] = {
      {"y =", {"2:6 expected a value, found the end of the line"}},
      {"y = a +", {"2:10 expected a value, found the end of the line"}},
      {"y = a b", {"2:9 expected an operator or the end of the line, found 'b'"}},
      {"y = 3 a", {"2:9 expected an operator or the end of the line, found 'a'"}},
      {"y = 3a", {"2:7 '3a' is neither a number nor a name"}},
      {"y = 1.2.3", {"2:7 '1.2.3' is neither a number nor a name"}},
      {"y = 1e999", {"2:7 the number '1e999' is out of range"}},
      {"y = a < b < c", {"2:13 comparisons do not chain: '<' follows '<'"}},
      {"y = a == b != c", {"2:14 comparisons do not chain: '!=' follows '=='"}},
      {"y = (a + b", {"2:7 this '(' is not closed"}},
      {"y = f(a, (b)", {"2:8 this '(' is not closed"}},
      {"y = a[i, j", {"2:8 this '[' is not closed"}},
      {"y = a)", {"2:8 expected an operator or the end of the line, found ')'"}},
      {"y = (a]", {"2:9 expected an operator or ')', found ']'"}},
      {"y = (a, b)", {"2:9 expected ')', found ','"}},
      {"y = f()", {"2:9 expected an argument of 'f', found ')'"}},
      {"y = f(a,)", {"2:11 expected a value, found ')'"}},
      {"y = f(a = 3)", {"2:11 expected an operator, ',' or ')', found '='"}},
      {"y = x^0.5", {"2:9 expected a whole number as exponent, found '0.5'"}},
      {"y = x^n", {"2:9 expected a whole number as exponent, found 'n'"}},
      {"y = x^(1 + 1)", {"2:9 expected a whole number as exponent, found '('"}},
      {"y = x^1001", {"2:9 the exponent 1001 is too large"}},
      {"y = x^2^3", {"2:10 powers do not chain"}},
      {"y = x**2", {"2:8 expected '^', found '**'"}},
      {"y = a && b", {"2:9 '&&' is not part of the cell language"}},
      {"y = a || b", {"2:9 '||' is not part of the cell language"}},
      {"y = !a", {"2:7 '!' is not part of the cell language"}},
      {"y = a % 2", {"2:9 '%' is not part of the cell language"}},
      {"y = a ? b : c", {"2:9 '?' is not part of the cell language"}},
      {"y = a // one", {"2:9 '//' is not part of the cell language"}},
      {"y = +a", {"2:7 expected a value, found '+'"}},
      {"y = [a, b]", {"2:7 expected a value, found '['"}},
      {"y = {a}", {"2:7 expected a value, found '{'"}},
      {"y = if a > 0 then b", {"2:7 'if' is not part of the cell language"}},
      {"y = A.T", {"2:8 there is no '.T'"}},
      {"y = h.tanh()", {"2:8 there is no '.tanh'"}},
      {"y = torch.nn.relu(x)", {"2:12 there is no '.relu'"}},
      {"y = f1.h", {"2:9 values of a cell inside a cell are not supported yet"}},
      {"y = reverse f(a)", {"2:7 'reverse' is not supported yet"}},
      {"y = in", {"2:7 expected a value, found the reserved word 'in'"}},
      {"y = a = b", {"2:9 expected an operator or the end of the line, found '='"}},
      {"y = a, b", {"2:8 expected an operator or the end of the line, found ','"}},
      {"y = a; z = b", {"2:8 expected an operator or the end of the line, found ';'"}},
      {"y = a in (0, 1)", {"2:9 expected an operator or the end of the line, found the reserved word 'in'"}},
      {"y = x[0:3]", {"2:10 expected ',' or ']', found ':'"}},
      {"y = x[-1]", {"2:9 expected the name of an axis or an integer, found '-'"}},
      {"y = x[1.5]", {"2:9 expected the name of an axis or an integer, found '1.5'"}},
      {"y = x[i+1]", {"2:10 expected ',' or ']', found '+'"}},
      {"y = x[]", {"2:9 expected the name of an axis, found ']'"}},
      {"y = x[out]", {"2:9 expected the name of an axis, found the reserved word 'out'"}},
      {"y = x[i][j]", {"2:11 a name takes one index list"}},
      {"y = f(x)[j]", {"2:11 only a name takes an index list"}},
      {"y = (a + b)[j]", {"2:14 only a name takes an index list"}},
      {"y = 3[j]", {"2:8 a number has no axes"}},
      {"y = h''", {"2:9 one prime only: h' is the value after the step"}},
      {"y = h '", {"2:9 the prime stands directly after the name"}},
      {"y = h[d]'", {"2:11 the prime stands directly after the name"}},
      {"y = h'(2)", {"2:9 h' is a value and cannot be called"}},
      {"y = size(k)", {"2:7 'size' takes axes in brackets and no arguments"}},
      {"y = eye", {"2:7 'eye' takes axes in brackets and no arguments"}},
      {"y = h\xE2\x80\x99", {"2:8 expected an apostrophe, found a typographic quote"}},
      {"y = a \xE2\x88\x92 b", {"2:9 expected '-', found a typographic minus"}},
      {"y = \xC3\xA9", {"2:7 '\xC3\xA9' is not part of the cell language"}},
      {"y = \xFF\xFE\xFF", {"2:7 the byte 0xff is not UTF-8 text"}},
      {"y = a \x01", {"2:9 the control character 0x01"}},
  };
  for (const Case& c : cases) EXPECT_EQ(errors_of(in_cell(c.text)), c.errors) << c.text;
}

TEST(SyntaxErrors, InLinesAndDeclarations) {
  const Case cases[] = {
      {"y := 3", {"2:5 expected '=', found ':='"}},
      {"y == 3", {"2:5 expected '=' after 'y', found '=='"}},
      {"y += 3", {"2:5 expected '=' after 'y', found '+'"}},
      {"y", {"2:4 expected '=' after 'y', found the end of the line"}},
      {"h' tanh(x)", {"2:6 expected '=' after 'h'', found 'tanh'"}},
      {"tanh(x)", {"2:7 expected '=' after 'tanh', found '('"}},
      {"p, = f(x)", {"2:6 expected the name of a value, found '='"}},
      {"p, out = f(x)", {"2:6 expected the name of a value, found the reserved word 'out'"}},
      {"h'' = 3", {"2:5 one prime only: h' is the value after the step"}},
      {"h[d]' = 3", {"2:7 the prime stands before the axes"}},
      {"h ' = 3", {"2:5 the prime stands directly after the name"}},
      {"+ b", {"2:3 expected 'state', 'input', 'param', 'out', NAME = … or '}', found '+'"}},
      {"3 = y", {"2:3 expected 'state', 'input', 'param', 'out', NAME = … or '}', found '3'"}},
      {"stat h[d]", {"2:3 expected 'state', 'input', 'param', 'out' or NAME = …, found 'stat'"}},
      {"let y = 3", {"2:3 expected 'state', 'input', 'param', 'out' or NAME = …, found 'let'"}},
      {"return y", {"2:3 'return' belongs to a function"}},
      {"derivative y", {"2:3 'derivative' belongs to a function"}},
      {"reverse f(x)", {"2:3 'reverse' is not supported yet"}},
      {"fn f(x) = x", {"2:3 functions stand outside of cells"}},
      {"cell a = gru[d, m](x = e)", {"2:3 a cell as part of a cell is not supported yet"}},
      {"cell a[d] { state h }", {"2:3 cells do not stand inside one another"}},
      {"out 3 = y", {"2:7 expected the name of a value, found '3'"}},
      {"state", {"2:8 expected the name of a state, found the end of the line"}},
      {"state out[d]", {"2:9 expected the name of a state, found the reserved word 'out'"}},
      {"state h'[d]", {"2:10 'h' is declared without the prime"}},
      {"state h[2]", {"2:11 expected the name of an axis, found '2'"}},
      {"state h[]", {"2:11 expected the name of an axis, found ']'"}},
      {"state h[d] g[d]", {"2:14 expected ',', '=', 'in' or the end of the line, found 'g'"}},
      {"input x[d] = 3", {"2:14 input 'x' cannot have a default"}},
      {"input x[d] in (1, -1)", {"2:14 the range is empty"}},
      {"input x in (0, 0)", {"2:11 the range is empty"}},
      {"input x in (0)", {"2:16 expected ',', found ')'"}},
      {"input x in 0, 1", {"2:14 expected '(', found '0'"}},
      {"input x in (lo, 1)", {"2:15 expected a number, found 'lo'"}},
      {"input x in (0, 1", {"2:14 this '(' is not closed"}},
      {"param w = 3 in (0, 1) in (0, 1)", {"2:25 expected ',' or the end of the line, found the reserved word 'in'"}},
  };
  for (const Case& c : cases) EXPECT_EQ(errors_of(in_cell(c.text)), c.errors) << c.text;
}

TEST(SyntaxErrors, InHeadersAndFunctions) {
  const Case cases[] = {
      {"state h", {"1:1 expected 'cell' or 'fn', found the reserved word 'state'"}},
      {"cel c[d] { state h }", {"1:1 expected 'cell' or 'fn', found 'cel'"}},
      {"}", {"1:1 this '}' closes nothing"}},
      {"cell { state h }", {"1:6 expected a name for the cell, found '{'"}},
      {"cell out { state h }", {"1:6 expected a name for the cell, found the reserved word 'out'"}},
      {"cell c[] { state h }", {"1:8 expected the name of an axis, found ']'"}},
      {"cell c[3] { state h }", {"1:8 expected the name of an axis, found '3'"}},
      {"cell c[n=0] { state h }", {"1:10 axis 'n' cannot have the length 0"}},
      {"cell c[n=2.5] { state h }", {"1:10 expected the length of axis 'n', a whole number, found '2.5'"}},
      {"cell c[n=9999999999] { state h }", {"1:10 axis 'n' cannot have the length 9999999999"}},
      {"cell c[d { state h }", {"1:10 expected ',' or ']', found '{'"}},
      {"cell c(d) { state h }", {"1:7 expected '{', found '('"}},
      {"cell c[d] state h", {"1:11 expected '{', found the reserved word 'state'"}},
      {"cell c {\n state h\n", {"1:8 this '{' of cell 'c' is not closed"}},
      {"cell c {\n state h\ncell b {\n state h\n}\n", {"1:8 this '{' of cell 'c' is not closed"}},
      {"cell c {\n state h\n}\n}\n", {"4:1 this '}' closes nothing"}},
      {"fn f = 3", {"1:6 expected '(' and the function's arguments, found '='"}},
      {"fn f() = 3", {"1:6 expected the name of an argument, found ')'"}},
      {"fn f(3) = 3", {"1:6 expected the name of an argument, found '3'"}},
      {"fn f(x = 3", {"1:8 expected ',' or ')', found '='"}},
      {"fn f(x) x", {"1:9 expected '=' or '{', found 'x'"}},
      {"fn f[d=2](x) = x", {"1:7 a function's axes have no fixed length"}},
      {"fn f(x) = x derivative 1, 2", {"1:13 'f' has 1 argument and 2 slopes after 'derivative'"}},
      {"fn f(x, y) = x derivative 1", {"1:16 'f' has 2 arguments and 1 slope after 'derivative'"}},
      {"fn f(x) = x, x derivative 1", {"1:16 a function with a derivative has one result, 'f' has 2"}},
      {"fn f(x) {\n y = x\n}", {"1:4 function 'f' has no 'return'"}},
      {"fn f(x) {\n return x\n y = x\n}", {"3:2 nothing may follow 'return'"}},
      {"fn f(x) {\n state y\n return x\n}", {"2:2 'state' cannot stand in a function"}},
      {"fn f(x) {\n h' = x\n return x\n}", {"2:2 a function cannot give a state its value: 'h''"}},
      {"fn f(x) {\n return x\n", {"1:9 this '{' of function 'f' is not closed"}},
  };
  for (const Case& c : cases) EXPECT_EQ(errors_of(c.text), c.errors) << c.text;
}

TEST(SyntaxErrors, NulBytes) {
  EXPECT_EQ(errors_of(std::string("cell c {\n y = a \0\n}\n", 20)), (Errors{"2:8 a NUL byte"}));
  EXPECT_EQ(errors_of(std::string("# a \0 b\n", 8)), (Errors{"1:5 a NUL byte in a comment"}));
}

TEST(SyntaxErrors, Notes) {
  EXPECT_EQ(note_of(in_cell("stat h[d]")), "did you mean 'state'?");
  EXPECT_EQ(note_of(in_cell("inptu x[d]")), "did you mean 'input'?");
  EXPECT_EQ(note_of(in_cell("output y = 3")), "did you mean 'out'?");
  EXPECT_EQ(note_of(in_cell("parameter w")), "did you mean 'param'?");
  EXPECT_EQ(note_of("def f(x) = 3"), "did you mean 'fn'?");
  EXPECT_EQ(note_of(in_cell("y = a < b < c")), "both of two conditions is their product: (a < b)*(b < c)");
  EXPECT_EQ(note_of(in_cell("y = a and b")), "both of two conditions is their product: (a > 0)*(b > 0)");
  EXPECT_EQ(note_of(in_cell("if (a > 0) {\n y = 3\n }")), "a choice is where(condition, a, b)");
  EXPECT_EQ(note_of(in_cell("y = A.T")), "a transpose renames the axes by place: A[j,i]");
  EXPECT_EQ(note_of(in_cell("y = np.tanh(x)")), "a function has nothing before its name: tanh(x), sum[k](x)");
  EXPECT_EQ(note_of(in_cell("y = 2x")), "multiplication is written out: 2*x");
  EXPECT_EQ(note_of(in_cell("y = 2 x")), "multiplication is written with '*'");
  EXPECT_EQ(note_of(in_cell("param w in (0 1)")), "");
  EXPECT_EQ(note_of("cell a[d, m=d] {\n}\n"), "");
  EXPECT_EQ(note_of(in_cell("y = a @\n z = b")), "the line above ends in '@' and so goes on here");
  EXPECT_EQ(note_of(in_cell("y = a\n  + b")),
            "a line goes on after an operator at its end: put the operator on the line before");
  EXPECT_EQ(note_of(in_cell("y = f(a,\n h'[i] = b")), "expected ')', found 'h' on line 3");
  EXPECT_EQ(note_of(in_cell("y = (a +\n z = b")), "expected ')', found 'z' on line 3");
}

TEST(Recovery, EveryBrokenLineIsReported) {
  EXPECT_EQ(
      errors_of("cell a {\n  x = )\n  y = (1\n  z = 2\n  w = *\n  if (x) {\n    v = 1\n  }\n  u = 3 3\n}\n"
                "fn f(x) = \ncell b[ {\n  t = ^\n}\n"),
      (Errors{"2:7 expected a value, found ')'", "3:7 this '(' is not closed", "5:7 expected a value, found '*'",
              "6:6 expected '=' after 'if', found '('", "9:9 expected an operator or the end of the line, found '3'",
              "11:10 expected a value, found the end of the line", "12:9 expected the name of an axis, found '{'",
              "13:7 expected a value, found '^'"}));
}

TEST(Recovery, KeepsWhatWasRead) {
  const SourceText source("t", "cell a[d] {\n  state h[d], g[\n  x = 1\n  y = )\n  z = 2\n}\n");
  Diagnostics diagnostics;
  const File file = parse(source, diagnostics);
  ASSERT_EQ(file.cells.size(), 1u);
  EXPECT_EQ(file.cells[0].lines.size(), 2u);
}

std::string repeated(const std::string& part, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += part;
  return all;
}

TEST(Limits, Nesting) {
  EXPECT_EQ(errors_of(in_cell("y = " + repeated("(", 200) + "a" + repeated(")", 200))), Errors{});
  const std::string message = "more than 200 parentheses, calls and signs inside one another";
  EXPECT_EQ(errors_of(in_cell("y = " + repeated("(", 50000))), Errors{"2:207 " + message});
  EXPECT_EQ(errors_of(in_cell("y = " + repeated("-", 50000) + "a")), Errors{"2:207 " + message});
  EXPECT_EQ(errors_of(in_cell("y = " + repeated("f(", 50000))), Errors{"2:408 " + message});
}

TEST(Limits, Chains) {
  for (const char* sign : {"+", "*", "@"}) {
    const std::string chain = in_cell("y = " + repeated(std::string("a") + sign, 900) + "a");
    EXPECT_EQ(errors_of(chain), Errors{});
    EXPECT_EQ(printed(printed(chain)), printed(chain));
    EXPECT_EQ(errors_of(in_cell("y = " + repeated(std::string("a") + sign, 1000) + "a")), Errors{});
    for (const int operators : {1001, 50000}) {
      const Errors errors = errors_of(in_cell("y = " + repeated(std::string("a") + sign, operators) + "a"));
      ASSERT_EQ(errors.size(), 1u);
      EXPECT_NE(errors[0].find("a chain of more than 1000 operators"), std::string::npos) << errors[0];
    }
  }
  const Errors wide = errors_of(in_cell("y = f(" + repeated("a + b, ", 5000) + "a)"));
  ASSERT_EQ(wide.size(), 1u);
  EXPECT_NE(wide[0].find("an expression of more than 10000 operators and names"), std::string::npos) << wide[0];
}

TEST(Limits, FileSize) {
  EXPECT_EQ(errors_of(std::string(kMaxFileBytes, '#')), Errors{});
  EXPECT_EQ(errors_of(std::string(kMaxFileBytes + 1, '#')), Errors{"1:1 the file has 1048577 bytes"});
}

TEST(Limits, ManyErrorsStopEarly) {
  EXPECT_LE(errors_of("cell c {" + repeated("\n+", 100000)).size(), 500u);
  EXPECT_LE(errors_of("cell c {" + repeated("\nif{", 100000)).size(), 502u);
  EXPECT_LE(errors_of(repeated("\nfn f(", 100000)).size(), 502u);
}

}  // namespace
}  // namespace cellc
