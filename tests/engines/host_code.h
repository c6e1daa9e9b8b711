#pragma once
// Emitted C++ compiled for this machine by the compiler that built the tests.
#include <string>

namespace cellc {

class HostCode {
 public:
  /// Throws std::runtime_error with the compiler's messages.
  HostCode(const std::string& text, const std::string& options);
  ~HostCode();
  HostCode(const HostCode&) = delete;
  HostCode& operator=(const HostCode&) = delete;

  template <typename T>
  T* symbol(const std::string& name) const {
    return static_cast<T*>(find(name));
  }

 private:
  void* find(const std::string& name) const;
  std::string folder_;
  void* library_ = nullptr;
};

}  // namespace cellc
