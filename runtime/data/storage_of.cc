#include "runtime/data/storage_of.h"

#include <fmt/format.h>

#include "runtime/data/errors.h"

namespace cellc {

Storage storage_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return Storage::F32;
    case Dtype::F64:
      return Storage::F64;
    case Dtype::F16:
      return Storage::F16;
    case Dtype::BF16:
      return Storage::BF16;
    default:
      throw RequestError(fmt::format("arrays of {} cannot be run; use f32, f64, f16 or bf16", to_string(dtype)));
  }
}

}  // namespace cellc
