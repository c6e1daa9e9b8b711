// What a prepared call costs, on ParaGRU: beside nothing (one channel, one step), and for decoding (one step
// of many channels) beside one step's share of a long run of the sequential kernel.
//
//   cellc_bench_capi [channels [steps]]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <vector>

#include "capi/cellc.h"

namespace {

[[noreturn]] void fail() {
  fmt::print(stderr, "{}\n", cellc_last_error());
  std::exit(1);
}

/// A prepared call with random data; states are carried in place.
struct Prepared {
  std::vector<std::vector<float>> memory;
  std::vector<cellc_array> arrays;
  cellc_call* call = nullptr;

  Prepared(cellc_kernel* kernel, std::int64_t channels, std::int64_t steps, bool rows_wanted) {
    cellc_shape shape;
    cellc_shape_init(&shape);
    shape.lengths = &channels;
    shape.steps = steps;
    if (cellc_prepare(kernel, &shape, &call)) fail();
    std::mt19937 random(1);
    std::uniform_real_distribution<float> draw(-1, 1);
    for (int i = 0; i < cellc_array_count(kernel); ++i) {
      std::int64_t entries = 0;
      if (cellc_array_entries(kernel, &shape, i, &entries)) fail();
      memory.emplace_back(static_cast<std::size_t>(entries));
      std::generate(memory.back().begin(), memory.back().end(), [&] { return draw(random); });
      arrays.push_back({memory.back().data(), entries, CELLC_F32, 0, 0});
    }
    const auto at = [&](const char* name) -> cellc_array& {
      return arrays[static_cast<std::size_t>(cellc_array_find(kernel, name))];
    };
    at("h_final").data = at("h_start").data;
    if (!rows_wanted) at("h").data = nullptr;
  }
  /// A backward call, prepared or not, of one cotangent, that of h.
  Prepared(cellc_kernel* kernel, std::int64_t channels, std::int64_t steps) {
    cellc_shape shape;
    cellc_shape_init(&shape);
    shape.lengths = &channels;
    shape.steps = steps;
    if (cellc_prepare_backward(kernel, &shape, &call)) fail();
    for (int i = 0; i < cellc_call_array_count(kernel, CELLC_BACKWARD); ++i) {
      std::int64_t lengths[8], entries = 1;
      int rank = 0;
      if (cellc_call_array_shape(kernel, CELLC_BACKWARD, &shape, i, lengths, 8, &rank)) fail();
      for (int k = 0; k < rank; ++k) entries *= lengths[k];
      memory.emplace_back(static_cast<std::size_t>(entries), 0.25f);
      arrays.push_back({memory.back().data(), entries, CELLC_F32, 0, 0});
    }
    const int final = cellc_call_array_find(kernel, CELLC_BACKWARD, CELLC_IS_COTANGENT, CELLC_ROLE_FINAL, "h");
    if (final < 0) fail();
    arrays[static_cast<std::size_t>(final)].data = nullptr;
  }
  ~Prepared() { cellc_call_free(call); }

  /// Nanoseconds of one call: the fastest of many rounds.
  double ns(int calls) const {
    double best = 1e300;
    for (int round = 0; round < 50; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < calls; ++i)
        if (cellc_run(call, arrays.data(), static_cast<int>(arrays.size()))) fail();
      best = std::min(
          best, std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / calls);
    }
    return best;
  }
};

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t channels = argc > 1 ? std::atoll(argv[1]) : 1024, steps = argc > 2 ? std::atoll(argv[2]) : 4096;
  if (channels < 1 || steps < 1) {
    fmt::print(stderr, "usage: cellc_bench_capi [channels [steps]]\n");
    return 2;
  }
  cellc_kernel* kernel = nullptr;
  if (cellc_compile_file(CELLC_PARA_GRU, nullptr, &kernel)) fail();
  const double tiny = Prepared(kernel, 1, 1, false).ns(10000);
  const double empty = Prepared(kernel, 1, 0, false).ns(10000);
  const double share = Prepared(kernel, channels, steps, true).ns(1) / static_cast<double>(steps);
  const double step = Prepared(kernel, channels, 1, false).ns(2000);
  const double back = Prepared(kernel, 1, 1).ns(10000);
  fmt::print("ParaGRU, f32, prepared calls, one thread\n");
  fmt::print("  {:<46}{:>9.1f} ns\n", "a call without steps", empty);
  fmt::print("  {:<46}{:>9.1f} ns\n", "a call of one step, one channel", tiny);
  fmt::print("  {:<46}{:>9.1f} ns\n", "a backward call of one step, one channel", back);
  fmt::print("  {:<46}{:>9.1f} ns\n", fmt::format("decoding: one step, d={}, state in place", channels), step);
  fmt::print("  {:<46}{:>9.1f} ns   decoding is {:.2f}x\n", fmt::format("a step's share of T={}", steps), share,
             step / share);
  cellc_kernel_free(kernel);
  return 0;
}
