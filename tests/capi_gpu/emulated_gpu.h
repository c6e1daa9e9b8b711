#pragma once
// A test of the C API with the emulator in the card's place.
#include <memory>
#include <string>

#include "capi/on_gpu.h"
#include "tests/capi/kept_handles.h"
#include "tests/emulator/emulator.h"

namespace cellc {

/// GPU 0 is the emulator, and there is no other.
class EmulatedGpu : public KeptHandles {
 protected:
  void SetUp() override {
    EmulatorOptions quick;
    quick.optimisation = 0;
    emulator_ = open_emulator(quick);
    before_ = capi::gpu_opener();
    capi::gpu_opener() = [this](int number, const std::string&, std::string& reason) -> std::shared_ptr<Gpu> {
      if (number == 0) return emulator_;
      reason = "no GPU " + std::to_string(number);
      return nullptr;
    };
  }
  void TearDown() override {
    KeptHandles::TearDown();
    capi::gpu_opener() = before_;
  }
  cellc_kernel* kernel_of(const std::string& text, cellc_dtype dtype, const char* solver) {
    return compile(text, "cuda", [&](cellc_options& o) { o.dtype = dtype, o.solver = solver; });
  }

  std::shared_ptr<Emulator> emulator_;
  capi::OpenGpu before_;
};

}  // namespace cellc
