#include "fake_driver.h"

#include <sys/types.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" {

FakeDriverState fake_driver_state;
static FakeDriverState& state = fake_driver_state;

// As a driver in a forked child: it has to be initialised anew, and cannot be.
static pid_t owner;
static bool forked() { return owner != 0 && owner != getpid(); }

static int result_of(const char* function) {
  if (forked()) return 3;
  const auto found = state.fail.find(function);
  return found == state.fail.end() ? 0 : found->second;
}
// What needs the context tells when it is not current.
static int on_context(const char* function) { return forked() ? 3 : state.current ? result_of(function) : 201; }

int cuInit(unsigned) {
  if (forked()) return 3;
  owner = getpid();
  return state.init_result;
}
int cuDriverGetVersion(int* version) { return *version = state.version, 0; }
int cuGetErrorName(int error, const char** name) {
  switch (error) {
    case 700:
      return *name = "CUDA_ERROR_ILLEGAL_ADDRESS", 0;
    case 720:
      return *name = "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", 0;
    default:
      return 1;
  }
}
int cuGetErrorString(int, const char** text) { return *text = "as the fake driver was told", 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, 0; }
int cuDeviceGetCount(int* count) { return *count = state.devices, 0; }
int cuDeviceGetName(char* name, int size, int) { return std::strncpy(name, "Fake H1", size), 0; }
int cuDeviceTotalMem_v2(std::size_t* bytes, int) { return *bytes = std::size_t{1} << 30, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 16:
      return *value = 132, 0;
    case 38:
      return *value = 50 << 20, 0;
    case 39:
      return *value = 2048, 0;
    case 75:
      return *value = state.major, 0;
    case 76:
      return *value = state.minor, 0;
    case 81:
      return *value = 228 << 10, 0;
    case 82:
      return *value = 65536, 0;
    case 97:
      return *value = 227 << 10, 0;
    default:
      return 1;
  }
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  if (const int result = result_of("cuDevicePrimaryCtxRetain")) return result;
  return ++state.contexts, *context = &state, 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return forked() ? 3 : (--state.contexts, 0); }
int cuCtxGetCurrent(void** context) { return forked() ? 3 : (*context = state.current, 0); }
int cuCtxPushCurrent_v2(void* context) { return forked() ? 3 : (state.current = context, 0); }
int cuCtxPopCurrent_v2(void** context) { return forked() ? 3 : (*context = state.current, state.current = nullptr, 0); }

int cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  if (const int result = on_context("cuModuleLoadDataEx")) return result;
  state.images.push_back(static_cast<const char*>(image));
  return ++state.modules, *module = &state.modules, 0;
}
int cuModuleLoadData(void** module, const void* image) {
  return cuModuleLoadDataEx(module, image, 0, nullptr, nullptr);
}
int cuModuleUnload(void*) { return --state.modules, on_context("cuModuleUnload"); }
int cuModuleGetFunction(void** function, void*, const char* name) {
  if (std::strcmp(name, "missing") == 0) return 500;
  return *function = &state.launches, on_context("cuModuleGetFunction");
}
int cuFuncGetAttribute(int* value, int attribute, void*) {
  switch (attribute) {
    case 0:
      return *value = 1024, 0;
    case 1:
      return *value = 1024, 0;
    case 3:
      return *value = 16, 0;
    case 4:
      return *value = 40, 0;
    default:
      return 1;
  }
}
int cuFuncSetAttribute(void*, int attribute, int value) {
  state.function_attributes.push_back({attribute, value});
  return on_context("cuFuncSetAttribute");
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, std::size_t) {
  return *blocks = 2048 / threads, on_context("cuOccupancyMaxActiveBlocksPerMultiprocessor");
}
namespace {
// The layout is written down a second time: driver.h must agree with the real one, not with itself.
struct Attribute {
  int id, pad;
  unsigned value[16];
};
struct Config {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  Attribute* attributes;
  unsigned count;
};
}  // namespace
int cuOccupancyMaxActiveClusters(int* clusters, void*, const void* config) {
  const Config& c = *static_cast<const Config*>(config);
  if (c.count != 1 || c.attributes[0].id != 4 || c.attributes[0].value[0] > state.largest_cluster) return 1;
  return *clusters = static_cast<int>(132 * (2048 / c.block[0]) / c.attributes[0].value[0]),
         on_context("cuOccupancyMaxActiveClusters");
}
int cuLaunchKernelEx(const void* config, void*, void** arguments, void**) {
  const Config& c = *static_cast<const Config*>(config);
  FakeDriverState::Launch launch{{c.grid[0], c.grid[1], c.grid[2]},
                                 {c.block[0], c.block[1], c.block[2]},
                                 c.shared_bytes,
                                 c.stream,
                                 false,
                                 false,
                                 1,
                                 arguments};
  for (unsigned i = 0; i < c.count; ++i) {
    const auto& [id, pad, value] = c.attributes[i];
    launch.cooperative |= id == 2 && value[0] == 1;
    if (id == 4) launch.cluster = value[0] * value[1] * value[2];
    launch.early |= id == 6 && value[0] == 1;
  }
  if (launch.early && !state.has_early_launch) return 801;
  state.launches.push_back(launch);
  return on_context("cuLaunchKernelEx");
}
int cuLaunchKernel(void*, unsigned x, unsigned y, unsigned z, unsigned i, unsigned j, unsigned k, unsigned shared,
                   void* stream, void** arguments, void**) {
  state.launches.push_back({{x, y, z}, {i, j, k}, shared, stream, false, false, 1, arguments});
  return on_context("cuLaunchKernel");
}
int cuLaunchCooperativeKernel(void*, unsigned x, unsigned y, unsigned z, unsigned i, unsigned j, unsigned k,
                              unsigned shared, void* stream, void** arguments) {
  state.launches.push_back({{x, y, z}, {i, j, k}, shared, stream, true, false, 1, arguments});
  return on_context("cuLaunchCooperativeKernel");
}
int cuCtxGetDevice(int* device) { return *device = 0, on_context("cuCtxGetDevice"); }

// For programs in C, which do not see the state.
void fake_driver_own(std::uint64_t address) { state.memory[address] = {2, 0}; }
void fake_driver_report() {
  std::printf("contexts %d, modules %d, image %s, current %d\n", state.contexts, state.modules,
              state.images.empty() ? "none" : state.images.back().c_str(), state.current != nullptr);
  for (const FakeDriverState::Launch& l : state.launches)
    std::printf("%u x %u, shared %u, stream %zu%s%s\n", l.grid[0], l.block[0], l.shared_bytes,
                reinterpret_cast<std::size_t>(l.stream), l.cooperative ? ", cooperative" : "",
                l.early ? ", early" : "");
  std::fflush(stdout);
}

int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) { return *free = 5000000, *total = 80000000, 0; }
int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  if (const int result = on_context("cuMemAlloc_v2")) return result;
  *address = reinterpret_cast<std::uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return ++state.allocations, 0;
}
int cuMemFree_v2(std::uint64_t address) {
  std::free(reinterpret_cast<void*>(address));
  return --state.allocations, on_context("cuMemFree_v2");
}
int cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void*) {
  return std::memcpy(reinterpret_cast<void*>(to), from, bytes), on_context("cuMemcpyHtoDAsync_v2");
}
int cuMemcpyDtoHAsync_v2(void* to, std::uint64_t from, std::size_t bytes, void*) {
  return std::memcpy(to, reinterpret_cast<void*>(from), bytes), on_context("cuMemcpyDtoHAsync_v2");
}
int cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes, void*) {
  return std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes),
         on_context("cuMemcpyDtoDAsync_v2");
}
int cuMemsetD8Async(std::uint64_t to, unsigned char value, std::size_t bytes, void*) {
  return std::memset(reinterpret_cast<void*>(to), value, bytes), on_context("cuMemsetD8Async");
}
int cuStreamSynchronize(void*) { return on_context("cuStreamSynchronize"); }
int cuEventCreate(void** event, unsigned) { return *event = new int, ++state.events, on_context("cuEventCreate"); }
int cuEventDestroy_v2(void* event) { return delete static_cast<int*>(event), --state.events, 0; }
int cuEventRecord(void*, void*) { return on_context("cuEventRecord"); }
int cuEventSynchronize(void*) { return on_context("cuEventSynchronize"); }
int cuEventElapsedTime(float* ms, void*, void*) { return *ms = 2.5f, on_context("cuEventElapsedTime"); }
int cuEventQuery(void*) { return on_context("cuEventQuery"); }
int cuStreamCreate(void** stream, unsigned flags) {
  return ++state.streams, *stream = new int(static_cast<int>(flags)), on_context("cuStreamCreate");
}
int cuStreamDestroy_v2(void* stream) { return delete static_cast<int*>(stream), --state.streams, 0; }
int cuStreamGetId(void* stream, std::uint64_t* number) {
  return *number = reinterpret_cast<std::uint64_t>(stream), on_context("cuStreamGetId");
}
int cuStreamWaitEvent(void*, void*, unsigned) { return on_context("cuStreamWaitEvent"); }
int cuStreamGetCaptureInfo_v2(void* stream, int* captured, std::uint64_t* number, void**, const void***, std::size_t*) {
  *captured = stream && state.captured ? 1 : 0;
  return *number = static_cast<std::uint64_t>(state.captured), on_context("cuStreamGetCaptureInfo_v2");
}
int cuStreamBeginCapture_v2(void*, int mode) { return state.begun_in = mode, on_context("cuStreamBeginCapture_v2"); }
int cuStreamEndCapture(void*, void** graph) {
  if (const int result = on_context("cuStreamEndCapture")) return result;
  return ++state.graphs, *graph = &state.graphs, 0;
}
int cuGraphInstantiateWithFlags(void** ready, void* graph, unsigned long long flags) {
  if (graph != &state.graphs || flags != 0) return 1;
  if (const int result = on_context("cuGraphInstantiateWithFlags")) return result;
  return ++state.ready_graphs, *ready = &state.ready_graphs, 0;
}
int cuGraphDestroy(void*) { return --state.graphs, on_context("cuGraphDestroy"); }
int cuGraphLaunch(void* graph, void* stream) {
  return state.graph_runs.push_back({graph, stream}), on_context("cuGraphLaunch");
}
int cuGraphExecDestroy(void*) { return --state.ready_graphs, on_context("cuGraphExecDestroy"); }
int cuThreadExchangeStreamCaptureMode(int* mode) { return std::swap(*mode, state.capture_mode), 0; }
int cuPointerGetAttributes(unsigned count, int* wanted, void** values, std::uint64_t address) {
  if (const int result = on_context("cuPointerGetAttributes")) return result;
  auto after = state.memory.upper_bound(address);
  const bool known = after != state.memory.begin() && address < std::prev(after)->first + (1 << 20);
  for (unsigned i = 0; i < count; ++i) {
    switch (wanted[i]) {
      case 2:
        *static_cast<unsigned*>(values[i]) = known ? std::prev(after)->second.first : 0;
        break;
      case 9:
        *static_cast<int*>(values[i]) = known ? std::prev(after)->second.second : -2;
        break;
      case 11:
        *static_cast<std::uint64_t*>(values[i]) = known ? std::prev(after)->first : 0;
        break;
      case 12:
        *static_cast<std::size_t*>(values[i]) = known ? 1 << 20 : 0;
        break;
      default:
        *static_cast<unsigned*>(values[i]) = 0;
    }
  }
  return 0;
}

}  // extern "C"
