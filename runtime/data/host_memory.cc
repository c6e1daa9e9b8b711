#include "runtime/data/host_memory.h"

namespace cellc {
namespace {

thread_local const HostMemory* current = nullptr;

}  // namespace

const HostMemory* host_memory() { return current; }

UseHostMemory::UseHostMemory(const HostMemory* memory) : before_(current) { current = memory; }
UseHostMemory::~UseHostMemory() { current = before_; }

}  // namespace cellc
