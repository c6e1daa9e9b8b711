#include "tensor_factory.h"

#include <dlfcn.h>

#include <optional>

#include "arrays.h"

namespace cellc::python {
namespace {

template <typename Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

TensorFactory TensorFactory::of_process() {
  TensorFactory found;
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (!torch) return found;
  static constexpr const char* dtypes[] = {"aoti_torch_dtype_float32", "aoti_torch_dtype_float64",
                                           "aoti_torch_dtype_float16", "aoti_torch_dtype_bfloat16"};
  std::int32_t (*number)() = nullptr;
  bool all = true;
  for (int i = 0; i < 4 && all; ++i)
    if ((all = find(torch, dtypes[i], number))) found.dtypes_[i] = number();
  if ((all = all && find(torch, "aoti_torch_device_type_cpu", number))) found.cpu_ = number();
  if ((all = all && find(torch, "aoti_torch_device_type_cuda", number))) found.cuda_ = number();
  all = all && find(torch, "aoti_torch_empty_strided", found.empty_) &&
        find(torch, "aoti_torch_delete_tensor_object", found.free_) &&
        find(torch, "aoti_torch_get_data_ptr", found.place_) && find(torch, "torch_tensor_to_pyobject", found.wrap_);
  if (!all) found.wrap_ = nullptr;
  dlclose(torch);  // it stays: torch is imported
  return found;
}

nb::object TensorFactory::make(const std::int64_t* shape, const std::int64_t* strides, int rank, int dtype, int device,
                               void** data) const {
  void *tensor = nullptr, *wrapped = nullptr;
  {
    // A GPU's memory may have to be waited for.
    std::optional<nb::gil_scoped_release> others_run;
    if (device != kHost) others_run.emplace();
    if (empty_(rank, shape, strides, dtypes_[dtype], device == kHost ? cpu_ : cuda_, device == kHost ? 0 : device,
               &tensor) != 0)
      return {};
  }
  if (place_(tensor, data) != 0 || wrap_(tensor, nullptr, &wrapped) != 0) {
    PyErr_Clear();
    wrapped = nullptr;
  }
  free_(tensor);
  return nb::steal(static_cast<PyObject*>(wrapped));
}

}  // namespace cellc::python
