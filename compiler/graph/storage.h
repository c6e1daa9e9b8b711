#pragma once
// What numbers are stored as in memory. Arithmetic is f64 for F64 and f32 for every other.

namespace cellc {

enum class Storage { F32, F64, F16, BF16 };

}  // namespace cellc
