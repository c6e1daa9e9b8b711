#pragma once
// NumPy's .npy files, versions 1 to 3: what the command line reads and writes. A file may come from
// anywhere, so its header is compared with the file's size before anything in it is believed.
#include <string>
#include <string_view>

#include "runtime/data/array.h"
#include "runtime/data/errors.h"

namespace cellc {

/// What int16 holds: NumPy has no type for bfloat16, and not everybody who saves its bits takes unsigned numbers.
enum class Int16 : std::uint8_t { Integers, RawBits };

/// The array in the file `path`; integers and truth values of any width become I64. Throws RequestError, which names
/// the file and what is wrong.
Array read_npy(const std::string& path, Int16 int16 = Int16::Integers);

/// The same from bytes in memory; `name` is what messages call them.
Array parse_npy(std::string_view bytes, const std::string& name, Int16 int16 = Int16::Integers);

/// The header that goes before the array's bytes; its length is a multiple of 64. BF16, for which
/// NumPy has no type, is written as raw 16-bit numbers ('<u2').
std::string npy_header(const Array& array);

/// "[2, 3]", as messages spell shapes.
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace cellc
