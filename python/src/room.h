#pragma once
// Entries of one call, on the stack where they are few.
#include <cstddef>
#include <vector>

namespace cellc::python {

template <typename T>
class Room {
 public:
  explicit Room(std::size_t size) : size_(size) {
    if (size > kFew) many_.resize(size);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;

  T* data() { return size_ > kFew ? many_.data() : few_; }
  T& operator[](std::size_t i) { return data()[i]; }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::size_t kFew = 32;

  const std::size_t size_;
  T few_[kFew];  ///< not filled
  std::vector<T> many_;
};

}  // namespace cellc::python
