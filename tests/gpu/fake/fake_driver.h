#pragma once
// A libcuda for tests: it has one device, whose memory is the host's and whose kernels do nothing, it
// writes down what it is asked, and it fails where it is told to. The test reaches `fake_driver_state`
// through the loader.
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

struct FakeDriverState {
  // What it answers.
  int init_result = 0;
  int version = 13000;
  int devices = 1;
  int major = 9, minor = 0;
  unsigned largest_cluster = 16;
  bool has_early_launch = true;     ///< launches that begin before what is ahead of them has ended
  std::map<std::string, int> fail;  ///< by function: what its calls give

  // What it was asked.
  struct Launch {
    std::array<unsigned, 3> grid, block;
    unsigned shared_bytes;
    void* stream;
    bool cooperative, early;
    unsigned cluster;
    void** arguments;
  };
  std::vector<Launch> launches;
  std::vector<std::string> images;                       ///< code of modules
  std::vector<std::pair<int, int>> function_attributes;  ///< set: attribute, value
  int contexts = 0;                                      ///< references to the primary one
  int modules = 0, allocations = 0, events = 0;
  void* current = nullptr;
  int streams = 0;
  int graphs = 0, ready_graphs = 0;                 ///< that are alive: captured; instantiated
  std::vector<std::pair<void*, void*>> graph_runs;  ///< what was launched, and on which stream
  int begun_in = -1;                                ///< mode of the last capture of a stream
  int capture_mode = 0, captured = 0;  ///< of the thread; number of the graph that streams but 0 are captured for
  std::map<std::uint64_t, std::pair<unsigned, int>> memory;  ///< type and device of ranges of 1 MiB, by first address
};
