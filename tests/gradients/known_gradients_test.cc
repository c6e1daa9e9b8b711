// Gradients that others computed: loops by hand, numbers of another program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <sstream>

#include "tests/gradients/text_cell.h"

namespace cellc {
namespace {

const Cell& cell_named(const oracle::Example& file, const std::string& name) {
  for (const Cell& cell : file.tree.cells)
    if (cell.name == name) return cell;
  throw std::runtime_error("no cell " + name);
}

void expect_near(const Array& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(static_cast<std::size_t>(got.count()), want.size()) << what;
  double largest = 0;
  for (const double w : want) largest = std::max(largest, std::fabs(w));
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(got.get(static_cast<std::int64_t>(i)), want[i], 1e-10 * (std::fabs(want[i]) + largest))
        << what << " " << i;
}

// torch_values.txt is written by make_torch_values.py.
TEST(KnownGradients, OfTorch) {
  std::ifstream file(CELLC_SOURCE_DIR "/tests/gradients/torch_values.txt");
  ASSERT_TRUE(file);
  struct Given {
    std::vector<std::int64_t> shape;
    std::vector<double> values;
  };
  std::map<std::string, std::map<std::string, Given>> cells;
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string cell, name, shape, number;
    words >> cell >> name >> shape;
    Given given;
    for (std::istringstream lengths(shape); std::getline(lengths, number, ',');)
      given.shape.push_back(std::stoll(number));
    for (double v; words >> v;) given.values.push_back(v);
    cells[cell][name] = given;
  }
  ASSERT_EQ(cells.size(), 2u);
  for (const auto& [name, arrays] : cells) {
    const oracle::Example& example = oracle::example_named(name == "para_gru" ? "01_para_gru" : "02_para_lstm");
    const LoweredCell cell(example.source, example.tree, cell_named(example, name));
    BindRequest request;
    request.dtype = Dtype::F64;
    std::map<std::string, GivenArray> cotangents;
    for (const Symbol& s : cell.graph.symbols) {
      const Given& g = arrays.at(s.kind == SymbolKind::State ? s.name + ".initial" : s.name);
      auto& into = s.kind == SymbolKind::State   ? request.states
                   : s.kind == SymbolKind::Input ? request.inputs
                                                 : request.params;
      into[s.name] = given(g.shape, g.values);
    }
    for (const auto& [array, g] : arrays)
      if (array.starts_with("cotangent.")) cotangents[array.substr(10)] = given(g.shape, g.values);
    const auto found = run_backward(cell.graph, cell.structure, request, cotangents);
    int compared = 0;
    for (const auto& [array, g] : arrays)
      if (array.starts_with("grad.")) {
        expect_near(found.at(array), g.values, name + ": " + array);
        ++compared;
      }
    EXPECT_EQ(compared, name == "para_gru" ? 7 : 10);
  }
}

// Martin and Cundy, arXiv 1709.04057, section 2.2, for h_t = λ_t h_{t-1} + x_t with ∂L/∂h_t = c_t of each row alone:
//   ∇_{h_T} = c_T,  ∇_{h_t} = λ_{t+1} ∇_{h_{t+1}} + c_t,  ∇_{λ_t} = ∇_{h_t} h_{t-1},  ∇_{x_t} = ∇_{h_t},
//   ∇_{h_0} = λ_1 ∇_{h_1}.
TEST(KnownGradients, OfMartinAndCundy) {
  const TextCell cell("cell linear[d] {\n  state h[d]\n  input lambda[d], x[d]\n  h' = lambda*h + x\n}\n");
  constexpr std::int64_t kChannels = 3;
  oracle::Random random(9);
  for (const std::int64_t steps : {1, 2, 7, 64, 257}) {
    std::vector<double> lambda, x, c, start;
    for (std::int64_t i = 0; i < steps * kChannels; ++i) {
      lambda.push_back(random.uniform(-1, 1));
      x.push_back(random.uniform(-1, 1));
      c.push_back(random.uniform(-1, 1));
    }
    for (std::int64_t i = 0; i < kChannels; ++i) start.push_back(random.uniform(-1, 1));
    std::vector<double> h = x, by_h = c, by_lambda = c, by_start = start;
    for (std::int64_t t = 0; t < steps; ++t)
      for (std::int64_t i = 0; i < kChannels; ++i)
        h[t * kChannels + i] += lambda[t * kChannels + i] * (t ? h[(t - 1) * kChannels + i] : start[i]);
    for (std::int64_t t = steps; t-- > 0;)
      for (std::int64_t i = 0; i < kChannels; ++i) {
        const std::int64_t at = t * kChannels + i;
        if (t + 1 < steps) by_h[at] += lambda[at + kChannels] * by_h[at + kChannels];
        by_lambda[at] = by_h[at] * (t ? h[at - kChannels] : start[i]);
        if (t == 0) by_start[i] = lambda[i] * by_h[i];
      }
    BindRequest request;
    request.dtype = Dtype::F64;
    request.inputs["lambda"] = given({1, steps, kChannels}, lambda);
    request.inputs["x"] = given({1, steps, kChannels}, x);
    request.states["h"] = given({1, kChannels}, start);
    for (const Strategy s : {Strategy::Auto, Strategy::Scan, Strategy::Segmented, Strategy::Sequential}) {
      SolveOptions options;
      options.solver = s;
      const auto found = run_backward(cell.cell.graph, cell.cell.structure, request,
                                      {{"h", given({1, steps, kChannels}, c)}}, options);
      expect_near(found.at("grad.lambda"), by_lambda, "lambda");
      expect_near(found.at("grad.x"), by_h, "x");
      expect_near(found.at("grad.h.initial"), by_start, "h.initial");
    }
  }
}

// ---- declared slopes and stopped gradients: loops over numbers with a tangent ---------------------

struct Dual {
  double v = 0, d = 0;
  Dual(double value = 0, double tangent = 0) : v(value), d(tangent) {}
};
Dual operator+(Dual a, Dual b) { return {a.v + b.v, a.d + b.d}; }
Dual operator-(Dual a, Dual b) { return {a.v - b.v, a.d - b.d}; }
Dual operator*(Dual a, Dual b) { return {a.v * b.v, a.v * b.d + a.d * b.v}; }
Dual tanh_of(Dual a) { return {std::tanh(a.v), a.d * (1 - std::tanh(a.v) * std::tanh(a.v))}; }
Dual stopped(Dual a) { return {a.v, 0}; }
Dual spike(Dual a) {
  const double below = 1 + 10 * std::fabs(a.v);
  return {a.v > 0 ? 1.0 : 0.0, a.d / (below * below)};
}

using Values = std::map<std::string, std::vector<Dual>>;
constexpr std::size_t kWidth = 3, kInputs = 2;
std::vector<Dual> times(const std::vector<Dual>& matrix, const std::vector<Dual>& vector) {
  std::vector<Dual> result(matrix.size() / vector.size());
  for (std::size_t i = 0; i < matrix.size(); ++i)
    result[i / vector.size()] = result[i / vector.size()] + matrix[i] * vector[i % vector.size()];
  return result;
}

struct ByHand {
  const char* file;
  const char* cell;
  const char* input;
  /// From what stands before the step and the input's row: new states, and outs.
  std::function<Values(const Values& read, const std::vector<Dual>& x)> step;
};
using Channels = std::vector<Dual>;
const std::vector<ByHand> kByHand = {
    {"x17_lif", "lif", "u",
     [](const Values& r, const Channels& u) {
       Values n;
       for (std::size_t i = 0; i < kWidth; ++i) {
         const Dual v = r.at("v")[i], theta = r.at("theta")[i];
         n["v"].push_back(r.at("alpha")[i] * v * (1 - spike(v - theta)) + u[i]);
         n["o"].push_back(spike(n["v"][i] - theta));
       }
       return n;
     }},
    {"41_lif_soft", "lif_soft", "u",
     [](const Values& r, const Channels& u) {
       Values n;
       for (std::size_t i = 0; i < kWidth; ++i) {
         n["o"].push_back(spike(r.at("v")[i] - 1));
         n["v"].push_back(r.at("alpha")[i] * r.at("v")[i] - n["o"][i] + u[i]);
       }
       return n;
     }},
    {"41_lif_soft", "lif_recurrent", "u",
     [](const Values& r, const Channels& u) {
       Values n;
       for (std::size_t i = 0; i < kWidth; ++i) n["o"].push_back(spike(r.at("v")[i] - 1));
       const Channels back = times(r.at("W"), n["o"]);
       for (std::size_t i = 0; i < kWidth; ++i)
         n["v"].push_back(r.at("alpha")[i] * r.at("v")[i] * (1 - n["o"][i]) + back[i] + u[i]);
       return n;
     }},
    {"f_alif", "alif", "x",
     [](const Values& r, const Channels& x) {
       Values n;
       const Dual theta = r.at("theta")[0];
       for (std::size_t i = 0; i < kWidth; ++i) n["y"].push_back(spike(r.at("v")[i] - theta - 0.1 * r.at("b")[i]));
       const Channels back = times(r.at("U"), n["y"]), in = times(r.at("W"), x);
       for (std::size_t i = 0; i < kWidth; ++i) {
         n["b"].push_back(r.at("rho")[i] * r.at("b")[i] + n["y"][i]);
         n["v"].push_back(r.at("alpha")[i] * r.at("v")[i] - theta * n["y"][i] + back[i] + in[i]);
       }
       return n;
     }},
    {"dense", "stopped", "u",
     [](const Values& r, const Channels& u) {
       Values n;
       const Channels back = times(r.at("W"), r.at("h"));
       for (std::size_t i = 0; i < kWidth; ++i) n["h"].push_back(tanh_of(stopped(back[i]) + u[i]));
       return n;
     }},
    {"scans", "stopped_lin", "u",
     [](const Values& r, const Channels& u) {
       Values n;
       for (std::size_t i = 0; i < kWidth; ++i) n["h"].push_back(0.5 * stopped(r.at("h")[i]) + u[i]);
       return n;
     }},
};

TEST(KnownGradients, OfDeclaredSlopesAndStoppedGradients) {
  constexpr std::int64_t kSteps = 12;
  for (const ByHand& hand : kByHand) {
    const oracle::Example& file = oracle::example_named(hand.file);
    const LoweredCell cell(file.source, file.tree, cell_named(file, hand.cell));
    BindRequest request;
    request.dtype = Dtype::F64;
    oracle::Random random(21);
    std::map<std::string, std::vector<double>> data, cotangents;
    std::map<std::string, GivenArray> given_cotangents;
    std::int64_t spikes = 0;
    for (const Symbol& s : cell.graph.symbols) {
      std::vector<std::int64_t> shape;
      if (s.kind != SymbolKind::Param) shape.push_back(1);
      if (s.kind == SymbolKind::Input) shape.push_back(kSteps);
      for (const AxisId a : s.axes) shape.push_back(cell.graph.graph.axis(a).name == "m" ? kInputs : kWidth);
      std::int64_t count = 1;
      for (const std::int64_t n : shape) count *= n;
      for (std::int64_t i = 0; i < count; ++i)
        data[s.name].push_back(s.kind == SymbolKind::Param ? random.uniform(0.2, 0.9) : random.uniform(-0.5, 1.2));
      auto& into = s.kind == SymbolKind::State   ? request.states
                   : s.kind == SymbolKind::Input ? request.inputs
                                                 : request.params;
      into[s.name] = given(shape, data[s.name]);
      if (s.kind != SymbolKind::State) continue;
      for (std::int64_t i = 0; i < kSteps * static_cast<std::int64_t>(kWidth); ++i)
        cotangents[s.name].push_back(random.uniform(-1, 1));
      given_cotangents[s.name] = given({1, kSteps, kWidth}, cotangents[s.name]);
    }
    for (const Out& o : cell.graph.outs) {
      for (std::int64_t i = 0; i < kSteps * static_cast<std::int64_t>(kWidth); ++i)
        cotangents[o.name].push_back(random.uniform(-1, 1));
      given_cotangents[o.name] = given({1, kSteps, kWidth}, cotangents[o.name]);
    }
    const auto found = run_backward(cell.graph, cell.structure, request, given_cotangents);
    for (const Symbol& s : cell.graph.symbols) {
      std::vector<double> want;
      for (std::size_t entry = 0; entry < data.at(s.name).size(); ++entry) {
        Values read;
        for (const auto& [name, values] : data) read[name] = {values.begin(), values.end()};
        read[s.name][entry].d = 1;
        const Channels all = read.at(hand.input);
        const std::size_t width = all.size() / kSteps;
        Dual loss;
        for (std::size_t t = 0; t < kSteps; ++t) {
          const auto row = all.begin() + static_cast<std::ptrdiff_t>(t * width);
          const Values next = hand.step(read, {row, row + static_cast<std::ptrdiff_t>(width)});
          for (const auto& [name, values] : next) {
            for (std::size_t i = 0; i < kWidth; ++i) loss = loss + cotangents.at(name)[t * kWidth + i] * values[i];
            if (read.contains(name)) read[name] = values;
          }
        }
        want.push_back(loss.d);
      }
      expect_near(found.at("grad." + s.name + (s.kind == SymbolKind::State ? ".initial" : "")), want,
                  fmt::format("{}: {}", hand.cell, s.name));
    }
    for (const Out& o : cell.graph.outs)
      for (std::int64_t i = 0; i < found.at(o.name).count(); ++i) spikes += found.at(o.name).get(i) > 0;
    if (!cell.graph.outs.empty()) {
      EXPECT_GT(spikes, 3) << hand.cell << " hardly fires";
    }
  }
}

}  // namespace
}  // namespace cellc
