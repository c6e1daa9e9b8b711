#pragma once
// The compiler's name of the type in which rows of a dtype are stored.
#include "compiler/graph/storage.h"
#include "runtime/data/array.h"
#include "runtime/data/errors.h"

namespace cellc {

/// Throws RequestError for a type that cannot be run.
Storage storage_of(Dtype dtype);

}  // namespace cellc
