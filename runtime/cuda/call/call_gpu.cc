#include "runtime/cuda/call/call_gpu.h"

#include "runtime/data/run_control.h"

namespace cellc {

GpuModule LoadedModules::load(Gpu& gpu, const GpuSource& source) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Entry>& kept = modules_[{source.text, source.options}];
    if (!kept) kept = std::make_shared<Entry>();
    entry = kept;
  }
  const std::lock_guard lock(entry->mutex);  // who wants another module does not wait
  if (!entry->module) return entry->module = gpu.load(source);
  GpuModule again = entry->module;
  again.compile_ms = 0;
  return again;
}

namespace {

bool is_host_asked() {
  const RunControl* const control = run_control();
  return control && (control->cancel || control->goes_on);
}

}  // namespace

bool CallGpu::ask_host(GpuStream stream) {
  if (!is_host_asked()) return false;
  // What is queued can no longer be taken back: where the host is told of kernels that ended, it has to be waited for.
  if (run_control()->waits) below_.synchronize(stream);
  go_on_after(0);
  return true;
}

double LoadedModules::compile_ahead(Gpu& gpu, const std::vector<GpuSource>& sources) {
  std::vector<GpuSource> missing;
  {
    const std::lock_guard lock(mutex_);
    for (const GpuSource& source : sources)
      if (!modules_.contains({source.text, source.options})) missing.push_back(source);
  }
  return gpu.compile_ahead(missing);
}

void CallGpu::launch(const GpuFunction& function, const GpuLaunch& launch, void** arguments) {
  if (rehearsing_) return;
  const bool asked = ask_host(launch.stream);
  below_.launch(function, launch, arguments);
  if (asked) ++run_control()->rows;
}

bool CallGpu::begin_capture(GpuStream stream) {
  return !rehearsing_ && !is_host_asked() && below_.begin_capture(stream);
}

void CallGpu::launch_graph(GpuGraph graph, GpuStream stream) {
  const bool asked = ask_host(stream);
  below_.launch_graph(graph, stream);
  if (asked) ++run_control()->rows;
}

CallGpu::Rehearsal::Rehearsal(CallGpu& gpu) : gpu_(gpu) {
  gpu_.below_.allow_in_capture(true);
  try {
    gpu_.own_ = gpu_.below_.make_stream();
  } catch (...) {
    gpu_.below_.allow_in_capture(false);
    throw;
  }
  gpu_.rehearsing_ = true;
}

void CallGpu::Rehearsal::finish() { gpu_.below_.synchronize(gpu_.own_); }

CallGpu::Rehearsal::~Rehearsal() {
  gpu_.rehearsing_ = false;
  gpu_.fresh_.clear();
  try {
    finish();  // also where it failed: what has been cleared then is kept, and its clearing must not come later
  } catch (...) {
    // A device that is lost says so at the next call.
  }
  gpu_.below_.release_stream(gpu_.own_);
  gpu_.own_ = 0;
  gpu_.below_.allow_in_capture(false);
}

}  // namespace cellc
