// The bits of a step in CUDA, as a compiler that fuses products with sums wherever it may makes them of the text:
// kernels of one cell share the formula of its step, and what they make of a row must not follow from what else they
// compute.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/derive/pipeline.h"
#include "compiler/syntax/diagnostic.h"
#include "compiler/syntax/parse.h"
#include "tests/engines/cuda_lane_code.h"
#include "tests/engines/promises.h"
#include "tests/generate/try_cells.h"

namespace cellc {
namespace {

// GCC fuses where all that read a product are sums, which is what a card's compiler goes by, too.
constexpr const char* kFusing = "-std=c++17 -O2 -w -ffp-contract=fast -mfma";

/// Steps, and steps that make outs beside.
void emit_with_outs(const SourceText& source, const Lowered& cell, std::vector<Emitted>& all) {
  const StagedCell staged = split_stages(cell.cell, cell.structure);
  for (std::size_t k = 0; k < staged.stages.size(); ++k) {
    const std::optional<StageCells> with_outs = fuse_outs(staged, static_cast<int>(k));
    if (!with_outs) continue;
    int step = -1;
    for (const StageCells* s : {&staged.stages[k], &*with_outs}) {
      Emitted e{fmt::format("{}, stage {}{}", source.path(), k + 1, step < 0 ? "" : " with outs"),
                s->lanes.cell,
                s->lane,
                sizes_to_show(s->lanes.cell, s->lane),
                {},
                {},
                {},
                step};
      CudaLaneOptions options = options_for(cell, source, e, Storage::F32);
      options.own_updates = s->states.size();
      e.code = emit_cuda_lane(e.cell, e.lane, options);
      step = static_cast<int>(all.size());
      all.push_back(std::move(e));
    }
  }
}

/// A product that the derivative has too; one that is an out; and gates of wide sums.
const std::vector<std::string> kByHand = {
    "cell decays[d] {\n state g[d]\n input a[d], b[d]\n g' = a*exp(-g) + b\n}\n",
    "cell read_twice[d] {\n state h[d]\n input a[d], b[d], c[d]\n h' = 0.5*tanh(h) + sin(1000*(a*b + c))\n"
    " out y = a*b\n out z = (a*b)*c*h\n}\n",
    "cell shares[d] {\n state h[d]\n input a[d], b[d], c[d], e[d]\n param p[d], q[d]\n"
    " h' = tanh(p*h + a*b - q*c*h + e) - a*b\n out y = p*h + a*b\n}\n"};

std::vector<Emitted> cells(std::uint64_t first, std::uint64_t count) {
  std::vector<Emitted> all;
  std::vector<std::string> texts = kByHand;
  for (std::uint64_t seed = first; seed < first + count; ++seed) texts.push_back(amplifying_cell(seed));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const SourceText source(i < kByHand.size() ? "by hand" : fmt::format("seed {}", first + i - kByHand.size()),
                            texts[i]);
    Diagnostics diagnostics;
    const File file = parse(source, diagnostics);
    for (const Cell& tree : file.cells) {
      emit_all(source, file, tree, {}, Storage::F32, all);
      emit_with_outs(source, lowered(source, file, tree), all);
    }
  }
  return all;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

TEST(CudaLaneBits, FollowFromTheFormulaAlone) {
  const generate::Seeds seeds(10);
  const std::vector<Emitted> all = cells(seeds.first, seeds.count);
  const Runner<float> plain(all, Storage::F32), fusing(all, Storage::F32, "", kFusing);
  int carried = 0, with_outs = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    oracle::Random random(7 + i);
    for (int trial = 0; trial < 20; ++trial) {
      Values values = draw(all[i], random, true);
      clear_left_out(all[i], values);
      const std::vector<double> a = plain.step(static_cast<int>(i), all[i], values),
                                b = fusing.step(static_cast<int>(i), all[i], values);
      for (std::size_t k = 0; k < a.size(); ++k)
        if (!same(a[k], b[k])) {
          ADD_FAILURE() << all[i].label << ", entry " << k << ": " << a[k] << ", fused by the compiler " << b[k] << "\n"
                        << all[i].code.text;
          trial = 20;
          break;
        }
      if (all[i].step < 0 || all[i].label.find("newton") != std::string::npos) continue;
      // The lane cell's own states come first in both.
      with_outs += all[i].label.ends_with("with outs");
      const Emitted& step = all[static_cast<std::size_t>(all[i].step)];
      Values own(step.cell.symbols.size());
      for (std::size_t s = 0; s < own.size(); ++s)
        own[s] = values[static_cast<std::size_t>(all[i].cell.find_symbol(step.cell.symbols[s].name))];
      const std::vector<double> c = fusing.step(all[i].step, step, own);
      for (std::size_t k = 0; k < c.size(); ++k, ++carried)
        if (!same(b[k], c[k])) {
          ADD_FAILURE() << all[i].label << ", entry " << k << ": " << c[k] << ", beside others " << b[k] << "\n"
                        << step.code.text << all[i].code.text;
          trial = 20;
          break;
        }
    }
  }
  EXPECT_GT(carried, 200);
  EXPECT_GT(with_outs, 40);
}

}  // namespace
}  // namespace cellc
