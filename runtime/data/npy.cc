#include "runtime/data/npy.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/data/descriptor.h"
#include "runtime/data/errors.h"

namespace cellc {
namespace {

constexpr std::size_t kMaxHeader = 1 << 20;  // a shape of a million characters is no array
constexpr std::size_t kMaxRank = 64;         // more places than NumPy itself allows

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

/// The header's text is a Python dictionary literal of three keys; this reads exactly that much
/// of Python, in any order and spacing.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  Header read() {
    Header header;
    bool have_descr = false, have_order = false, have_shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        if (peek() != '\'' && peek() != '"') fail("is a structured array; cellc reads arrays of plain numbers");
        header.descr = string();
        have_descr = true;
      } else if (key == "fortran_order") {
        header.fortran_order = boolean();
        have_order = true;
      } else if (key == "shape") {
        header.shape = tuple();
        have_shape = true;
      } else {
        fail(fmt::format("has a damaged header: unknown key '{}'", key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) damaged();
    if (!have_descr || !have_order || !have_shape)
      fail("has a damaged header: it must give descr, fortran_order and shape");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw RequestError(fmt::format("{}: the .npy file {}", name_, what));
  }
  [[noreturn]] void damaged() const { fail(fmt::format("has a damaged header (at its character {})", at_ + 1)); }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) damaged();
  }

  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') damaged();
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) damaged();
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    if (value.size() > 64) damaged();
    at_ = end + 1;
    return value;
  }

  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, {"False", false}}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    damaged();
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> shape;
    expect('(');
    while (!accept(')')) {
      if (peek() == '-') fail("has a negative dimension in its header");
      if (peek() < '0' || peek() > '9') damaged();
      std::int64_t value = 0;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
        if (__builtin_mul_overflow(value, std::int64_t{10}, &value) ||
            __builtin_add_overflow(value, std::int64_t{text_[at_] - '0'}, &value))
          fail("has a dimension in its header that no array can have");
        ++at_;
      }
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so
      shape.push_back(value);
      if (shape.size() > kMaxRank) fail("has more than 64 dimensions");
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t at_ = 0;
};

const char* descr_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::F32:
      return "<f4";
    case Dtype::F64:
      return "<f8";
    case Dtype::F16:
      return "<f2";
    case Dtype::BF16:
    case Dtype::U16:
      return "<u2";
    case Dtype::I64:
      return "<i8";
  }
  throw std::logic_error("npy: no such dtype");
}

/// Numbers as a file has them and as they are held.
struct Stored {
  Dtype dtype;
  std::size_t bytes;  ///< of one in the file
  bool is_signed = true;
};

std::optional<Stored> stored_as(const std::string& descr, Int16 int16) {
  for (const Dtype dtype : {Dtype::F32, Dtype::F64, Dtype::F16, Dtype::U16, Dtype::I64})
    if (descr == descr_of(dtype)) return Stored{dtype, size_of(dtype)};
  if (descr == "<i2") return Stored{int16 == Int16::RawBits ? Dtype::U16 : Dtype::I64, 2};
  if (descr == "|b1" || descr == "|u1") return Stored{Dtype::I64, 1, false};
  if (descr == "|i1") return Stored{Dtype::I64, 1};
  if (descr == "<i4") return Stored{Dtype::I64, 4};
  if (descr == "<u4") return Stored{Dtype::I64, 4, false};
  return std::nullopt;
}

/// Numbers of the file, which lie at the end of the array's memory, each in its place.
void widen(Array& array, const Stored& stored) {
  if (stored.bytes == size_of(array.dtype())) return;
  auto* const to = static_cast<std::int64_t*>(array.data());
  const std::int64_t count = array.count();
  const std::size_t unused = 8 * (8 - stored.bytes);
  const auto* from = reinterpret_cast<const char*>(to) + static_cast<std::size_t>(count) * (8 - stored.bytes);
  for (std::int64_t i = 0; i < count; ++i, from += stored.bytes) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, from, stored.bytes);
    bits <<= unused;  // the sign into its place, then back with it
    to[i] = stored.is_signed ? static_cast<std::int64_t>(bits) >> unused : static_cast<std::int64_t>(bits >> unused);
  }
}

/// Where the file's bytes go.
char* place_of(Array& array, const Stored& stored) {
  return static_cast<char*>(array.data()) +
         static_cast<std::size_t>(array.count()) * (size_of(array.dtype()) - stored.bytes);
}

/// Where the array's bytes begin, and what the header says. `bytes` holds the file's beginning.
struct Layout {
  Header header;
  Stored stored;
  std::size_t data_offset;
  std::size_t data_bytes;
};

/// Length of magic, version, length field and header; needs the first 12 bytes.
std::size_t header_end(std::string_view bytes, const std::string& name) {
  const auto fail = [&](const std::string& what) -> RequestError {
    return RequestError(fmt::format("{}: {}", name, what));
  };
  if (bytes.size() < 10 || bytes.substr(0, 6) != "\x93NUMPY") throw fail("is not a .npy file (numpy.save writes them)");
  const int version = static_cast<unsigned char>(bytes[6]);
  if (version < 1 || version > 3)
    throw fail(fmt::format("is a .npy file of version {}; versions 1 to 3 are read", version));
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  if (bytes.size() < 8 + length_bytes) throw fail("the .npy file ends inside its header");
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i)
    length |= std::size_t{static_cast<unsigned char>(bytes[8 + i])} << (8 * i);
  if (length > kMaxHeader)
    throw fail(fmt::format("the .npy file claims a header of {} bytes; no array needs one", length));
  return 8 + length_bytes + length;
}

Layout layout_of(std::string_view head, std::size_t file_size, const std::string& name, Int16 int16) {
  const std::size_t end = header_end(head, name);
  if (end > file_size || end > head.size())
    throw RequestError(fmt::format("{}: the .npy file ends inside its header", name));
  const std::size_t begin = static_cast<unsigned char>(head[6]) == 1 ? 10 : 12;
  Layout layout{HeaderReader(head.substr(begin, end - begin), name).read(), {Dtype::F32, 4}, end, 0};
  const Header& header = layout.header;

  const auto stored = stored_as(header.descr, int16);
  if (!stored) {
    const bool big = !header.descr.empty() && header.descr[0] == '>';
    throw RequestError(
        fmt::format("{}: has the dtype '{}'{}; expected float32, float64, float16, int8 to int64, bool or uint16 "
                    "(raw bfloat16)",
                    name, header.descr, big ? " (big-endian)" : ""));
  }
  layout.stored = *stored;
  if (header.fortran_order && header.shape.size() > 1)
    throw RequestError(fmt::format("{}: is stored in Fortran order; save numpy.ascontiguousarray(x) instead", name));

  // A zero anywhere makes the array empty, whatever the other lengths say; they must fit even so,
  // since strides are computed from them.
  std::size_t count = 1;
  bool empty = false, overflow = false;
  for (const std::int64_t n : header.shape) {
    if (n == 0)
      empty = true;
    else
      overflow |= __builtin_mul_overflow(count, static_cast<std::size_t>(n), &count);
  }
  std::size_t held = 0;
  overflow |= __builtin_mul_overflow(count, size_of(stored->dtype), &held);
  count *= stored->bytes;
  overflow |= held > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  if (overflow)
    throw RequestError(
        fmt::format("{}: the .npy file claims the shape {}, which no memory can hold", name, shape_text(header.shape)));
  layout.data_bytes = empty ? 0 : count;
  const std::size_t present = file_size - end;
  if (present < layout.data_bytes)
    throw RequestError(fmt::format(
        "{}: the .npy file is cut short: shape {} of {} takes {} bytes, {} are there", name, shape_text(header.shape),
        stored->bytes == size_of(stored->dtype) ? to_string(stored->dtype) : header.descr.substr(1), layout.data_bytes,
        present));
  if (present > layout.data_bytes)
    throw RequestError(
        fmt::format("{}: the .npy file has {} bytes after the end of its array", name, present - layout.data_bytes));
  return layout;
}

void read_exactly(int fd, char* to, std::size_t count, const std::string& path) {
  while (count > 0) {
    const ssize_t got = read(fd, to, std::min(count, std::size_t{1} << 30));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw RequestError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
    if (got == 0) throw RequestError(fmt::format("{}: became shorter while it was read", path));
    to += got;
    count -= static_cast<std::size_t>(got);
  }
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Array read_npy(const std::string& path, Int16 int16) {
  // O_NONBLOCK: a pipe of that name must not hang the open; regular files do not care.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw RequestError(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  struct stat status {};
  if (fstat(file.get(), &status) != 0)
    throw RequestError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) throw RequestError(fmt::format("{}: is not a regular file", path));
  const std::size_t size = static_cast<std::size_t>(status.st_size);

  std::string head(std::min<std::size_t>(size, 12), '\0');
  read_exactly(file.get(), head.data(), head.size(), path);
  const std::size_t end = std::min(header_end(head, path), size);
  const std::size_t have = head.size();
  if (end > have) {
    head.resize(end);
    read_exactly(file.get(), head.data() + have, end - have, path);
  }
  const Layout layout = layout_of(head, size, path, int16);
  Array array(layout.stored.dtype, layout.header.shape);
  if (lseek(file.get(), static_cast<off_t>(layout.data_offset), SEEK_SET) < 0)
    throw RequestError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  read_exactly(file.get(), place_of(array, layout.stored), layout.data_bytes, path);
  widen(array, layout.stored);
  return array;
}

Array parse_npy(std::string_view bytes, const std::string& name, Int16 int16) {
  const Layout layout = layout_of(bytes, bytes.size(), name, int16);
  Array array(layout.stored.dtype, layout.header.shape);
  if (layout.data_bytes > 0)
    std::memcpy(place_of(array, layout.stored), bytes.data() + layout.data_offset, layout.data_bytes);
  widen(array, layout.stored);
  return array;
}

std::string npy_header(const Array& array) {
  const auto& shape = array.shape();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                                 descr_of(array.dtype()), fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const std::size_t padded = (10 + text.size() + 1 + 63) / 64 * 64;
  text.append(padded - 10 - text.size() - 1, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}  // namespace cellc
