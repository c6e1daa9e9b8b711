#pragma once
// The types in which numbers are stored in memory. Arithmetic is f64 for F64 and f32 for all others.

namespace cellc {

enum class Storage { F32, F64, F16, BF16 };

}  // namespace cellc
