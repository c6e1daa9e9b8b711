#pragma once
// What rows are stored as: a dtype of arrays, as the compiler names it.
#include "compiler/graph/storage.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"

namespace cellc {

/// Throws RequestError for a type that cannot be run.
Storage storage_of(Dtype dtype);

}  // namespace cellc
