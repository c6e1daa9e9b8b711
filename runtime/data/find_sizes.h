#pragma once
// The second part of binding: the shapes of given arrays -> the lengths of axes, the batch and the steps.
#include "runtime/data/bind.h"
#include "runtime/data/given_arrays.h"

namespace cellc {

/// Fills in `packed`, `batched`, `batch`, `length` and the run's sizes and offsets. Throws RequestError, UsageError, or
/// DeviceError where rows cannot be counted.
void find_sizes(const CellGraph& cell, const CallLayout& layout, const BindRequest& request, const GivenArrays& given,
                Binding& binding);

std::int64_t physical_memory();

}  // namespace cellc
