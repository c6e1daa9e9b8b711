#include "exchange.h"

#include "arrays.h"

namespace cellc::python {
namespace {

/// Of the table, by DLPack's header.
struct Header {
  std::uint32_t major, minor;
  Header* earlier;
};
struct Table {
  Header header;
  void *allocate, *own, *give;
  int (*read)(void* tensor, DLTensor* result);  ///< may be null
  int (*stream)(std::int32_t device_type, std::int32_t number, void** result);
};

}  // namespace

TensorExchange::TensorExchange(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (capsule.is_none()) return;
  const auto* header = static_cast<const Header*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (!header) PyErr_Clear();
  while (header && header->major != 1) header = header->earlier;
  if (!header) return;
  read_ = reinterpret_cast<const Table*>(header)->read;
  stream_ = reinterpret_cast<const Table*>(header)->stream;
}

void* TensorExchange::stream(int gpu) const {
  void* stream = nullptr;
  if (stream_(kDLCuda, gpu, &stream) != 0) throw nb::python_error();
  return stream;
}

int DLTensor::cellc_dtype() const {
  constexpr std::uint8_t kFloat = 2, kBfloat = 4;
  if (dtype.lanes != 1) return kOtherDtype;
  if (dtype.code == kBfloat && dtype.bits == 16) return CELLC_BF16;
  if (dtype.code != kFloat) return kOtherDtype;
  return dtype.bits == 32 ? CELLC_F32 : dtype.bits == 64 ? CELLC_F64 : dtype.bits == 16 ? CELLC_F16 : kOtherDtype;
}

int DLTensor::cellc_device() const {
  if (device.type == kDLCpu || device.type == kDLCudaHost) return kHost;
  return device.type == kDLCuda ? device.number : kElsewhere;
}

}  // namespace cellc::python
