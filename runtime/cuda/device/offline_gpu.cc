#include "runtime/cuda/device/offline_gpu.h"

#include <cstdlib>
#include <stdexcept>

namespace cellc {

GpuFacts facts_of_architecture(const std::string& architecture) {
  GpuFacts facts;
  const int number = std::atoi(architecture.c_str() + 3);
  facts.name = architecture;
  facts.major = number / 10;
  facts.minor = number % 10;
  facts.multiprocessors = 132;
  // CUDA C++ Programming Guide, table of compute capabilities.
  const bool large = facts.major == 9 || (facts.major >= 10 && facts.major < 12);
  facts.shared_per_block = (large ? 227 : number == 80 || number == 87 ? 163 : 99) << 10;
  facts.shared_per_multiprocessor = facts.shared_per_block + 1024;
  return facts;
}

void OfflineGpu::none() { throw std::logic_error("a card on paper was asked to run something"); }

}  // namespace cellc
