// What a call through prepared memory on a GPU costs: the host's part, and the device's, by itself and from a
// graph.
//
//   cellc_bench_call CELL [CHANNELS]
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "compiler/front_end.h"
#include "runtime/cuda/build/copy_baseline.h"
#include "runtime/cuda/call/call_pool.h"
#include "runtime/cuda/call/device_call.h"

using namespace cellc;

namespace {

template <typename... Arguments>
void driver(const char* name, Arguments... arguments) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  int (*function)(Arguments...) = nullptr;
  *reinterpret_cast<void**>(&function) = dlsym(library, name);
  if (!function || function(arguments...) != 0) throw std::runtime_error(std::string(name) + " failed");
}

double host_us(int calls, const std::function<void()>& call) {
  std::vector<double> times;
  for (int row = 0; row < 9; ++row) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) call();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
                    calls);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int bench(const std::string& file, std::int64_t channels) {
  std::string reason;
  const std::unique_ptr<Gpu> gpu = open_gpu("", reason);
  if (!gpu) throw std::runtime_error(reason);
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  const AnalysedCell cell = analyse_text(SourceText(file, text.str()));
  const CallLayout layout = call_layout(cell.cell);
  const auto modules = std::make_shared<LoadedModules>();
  const GpuStream stream = gpu->make_stream();
  fmt::print("{}, {}, {} channels; f32, microseconds a call\n{:>4} {:>6} {:>14} {:>12} {:>8} {:>8}\n", cell.cell.name,
             gpu->facts().name, channels, "B", "T", "host, checked", "host, queued", "device", "graph");
  for (const auto& [sequences, steps] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {8, 1}, {1, 512}, {8, 2048}}) {
    const CallShape shape{
        std::vector<std::int64_t>(cell.cell.header.size(), channels), sequences, steps, sequences * steps, {}, false};
    std::vector<GpuBuffer> memory;
    std::vector<CallArray> arrays;
    for (const CallField& f : layout.fields) {
      memory.emplace_back(*gpu, static_cast<std::size_t>(all_entries(f, shape) * 4));
      gpu->zero(memory.back().address(), memory.back().bytes(), 0);
      arrays.push_back({memory.back().address(), 0, 0});
    }
    // Decoding: the state in place.
    for (std::size_t i = 0; i < arrays.size() && steps == 1; ++i)
      if (layout.fields[i].kind == FieldKind::Final)
        arrays[i] =
            arrays[static_cast<std::size_t>(layout.find(FieldKind::Start, layout.fields[i].id) - layout.fields.data())];
    gpu->synchronize(0);
    CallPool pool(*gpu, [&] {
      return std::make_unique<DeviceCall>(*gpu, modules, cell.cell, cell.structure, Dtype::F32, &cell.source, shape,
                                          SolveOptions());
    });
    const auto run = [&] { pool.run(arrays, stream, 0, nullptr); };
    const DirectedCall forward = directed_call(cell.cell, layout, CallDirection::Forward);
    const auto checked = [&] {
      check_on_device(*gpu, forward, shape, Dtype::F32, arrays, 0);
      run();
    };
    run();
    const int calls = steps > 1 ? 20 : 200;
    const double with = host_us(calls, checked), without = host_us(calls, run);
    gpu->synchronize(stream);
    gpu->record(0, stream);
    for (int i = 0; i < 500; ++i) run();
    gpu->record(1, stream);
    const double device = gpu->elapsed_ms(0, 1) * 2;
    void *context = nullptr, *graph = nullptr, *replay = nullptr;
    driver("cuDevicePrimaryCtxRetain", &context, 0);
    driver("cuCtxSetCurrent", context);
    driver("cuStreamBeginCapture_v2", reinterpret_cast<void*>(stream), 0);
    for (int i = 0; i < 100; ++i) run();
    driver("cuStreamEndCapture", reinterpret_cast<void*>(stream), &graph);
    driver("cuGraphInstantiateWithFlags", &replay, graph, 0ull);
    driver("cuGraphLaunch", replay, reinterpret_cast<void*>(stream));
    gpu->record(2, stream);
    for (int i = 0; i < 5; ++i) driver("cuGraphLaunch", replay, reinterpret_cast<void*>(stream));
    gpu->record(3, stream);
    const double graphed = gpu->elapsed_ms(2, 3) * 2;
    fmt::print("{:>4} {:>6} {:>14.2f} {:>12.2f} {:>8.2f} {:>8.2f}\n", sequences, steps, with, without, device, graphed);
    driver("cuGraphExecDestroy", replay);
    driver("cuGraphDestroy", graph);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) {
    fmt::print(stderr, "cellc_bench_call CELL [CHANNELS]\n");
    return 2;
  }
  try {
    return bench(words[1], count > 2 ? std::atoll(words[2]) : 1024);
  } catch (const std::exception& e) {
    fmt::print(stderr, "cellc_bench_call: {}\n", e.what());
    return 4;
  }
}
