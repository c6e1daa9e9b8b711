#include "arrays.h"

#include <cstring>
#include <utility>

namespace cellc::python {
namespace {

/// By a format of the buffer protocol, of numbers in this machine's order.
int dtype_of_format(const char* format) {
  if (!format) return kOtherDtype;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return kOtherDtype;
  switch (format[0]) {
    case 'f':
      return CELLC_F32;
    case 'd':
      return CELLC_F64;
    case 'e':
      return CELLC_F16;
    default:
      return kOtherDtype;
  }
}

bool set_shape(View& view, int rank) {
  view.rank = rank;
  return rank <= kMostAxes;
}

std::string dtype_text(nb::handle object) {
  const nb::object dtype = object.attr("dtype"), text = nb::steal(PyObject_Str(dtype.ptr()));
  if (!text.is_valid()) throw nb::python_error();
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), nullptr);
  if (!bytes) throw nb::python_error();
  return bytes;
}

/// Names of what is asked of every tensor, made once.
struct TensorNames {
  PyObject *shape = PyUnicode_InternFromString("shape"), *stride = PyUnicode_InternFromString("stride"),
           *dtype = PyUnicode_InternFromString("dtype"), *is_cpu = PyUnicode_InternFromString("is_cpu"),
           *is_cuda = PyUnicode_InternFromString("is_cuda"), *get_device = PyUnicode_InternFromString("get_device"),
           *data_ptr = PyUnicode_InternFromString("data_ptr"), *layout = PyUnicode_InternFromString("layout"),
           *is_nested = PyUnicode_InternFromString("is_nested");
};

nb::object of(nb::handle object, PyObject* name) {
  const nb::object value = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!value.is_valid()) throw nb::python_error();
  return value;
}

nb::object call(nb::handle object, PyObject* name) {
  PyObject* self = object.ptr();
  const nb::object value = nb::steal(PyObject_VectorcallMethod(name, &self, 1, nullptr));
  if (!value.is_valid()) throw nb::python_error();
  return value;
}

std::int64_t integer_at(const nb::object& tuple, int i) {
  return PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i)));
}

}  // namespace

TorchTypes& torch_types() {
  static TorchTypes* types = new TorchTypes;  // never freed: the interpreter may be gone by then
  return *types;
}

HeldArray::HeldArray(HeldArray&& other) noexcept { *this = std::move(other); }

HeldArray& HeldArray::operator=(HeldArray&& other) noexcept {
  if (this == &other) return *this;
  release();
  view = std::move(other.view);
  owner_ = std::move(other.owner_);
  // A Py_buffer may point into itself (one axis: shape to len), so its address counts; what we read of it is in `view`.
  buffer_ = other.buffer_;
  buffered_ = std::exchange(other.buffered_, false);
  return *this;
}

void HeldArray::release() {
  if (buffered_) PyBuffer_Release(&buffer_);
  buffered_ = false;
  owner_.reset();
}

bool HeldArray::take(nb::handle object) {
  release();
  if (PyFloat_Check(object.ptr()) || PyLong_Check(object.ptr())) return false;
  const TorchTypes& torch = torch_types();
  if (torch.tensor.is_valid() && torch.is_plain(object.ptr()) && take_by_exchange(object)) return true;
  if (torch.tensor.is_valid() && PyObject_IsInstance(object.ptr(), torch.tensor.ptr()) == 1) {
    take_tensor(object);
    return true;
  }
  return take_buffer(object);
}

bool HeldArray::take_buffer(nb::handle object) {
  if (!PyObject_CheckBuffer(object.ptr()) || !PyObject_HasAttrString(object.ptr(), "dtype")) return false;
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_STRIDES) != 0) {
    // NumPy has no format for dtypes of others, such as bfloat16: the same bits as integers.
    PyErr_Clear();
    const std::string dtype = dtype_text(object);
    owner_ = object.attr("view")("uint16");
    if (dtype != "bfloat16" || PyObject_GetBuffer(owner_.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_STRIDES) != 0)
      throw nb::python_error();
    view.dtype = CELLC_BF16;
  } else {
    owner_ = nb::borrow(object);
    view.dtype = dtype_of_format(buffer_.format);
  }
  buffered_ = true;
  view.data = static_cast<std::byte*>(buffer_.buf);
  view.writable = buffer_.readonly == 0;
  view.device = kHost;
  if (view.dtype == kOtherDtype) view.other = dtype_text(object);
  if (!set_shape(view, buffer_.ndim)) return true;
  for (int i = 0; i < view.rank; ++i) {
    view.shape[i] = buffer_.shape[i];
    view.strides[i] = buffer_.strides[i] / buffer_.itemsize;
    // Fields of records may stand at odd places; they are copied like any other that is not ours.
    if (buffer_.strides[i] % buffer_.itemsize != 0 && view.shape[i] > 1) view.dtype = kOtherDtype;
  }
  return true;
}

bool HeldArray::take_by_exchange(nb::handle object) {
  const TensorExchange& exchange = torch_types().exchange;
  DLTensor tensor;
  if (!exchange.exists() || !exchange.read(object.ptr(), tensor)) return false;
  view.dtype = tensor.cellc_dtype();
  view.device = tensor.cellc_device();
  if (view.dtype == kOtherDtype || view.device == kElsewhere) return false;  // whose names are to be said
  owner_ = nb::borrow(object);
  view.writable = true;
  view.data = tensor.first();
  if (!set_shape(view, tensor.rank)) return true;
  std::int64_t next = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    view.shape[i] = tensor.shape[i];
    view.strides[i] = tensor.strides ? tensor.strides[i] : next;
    next *= view.shape[i];
  }
  return true;
}

void HeldArray::take_tensor(nb::handle object) {
  static const TensorNames* names = new TensorNames;
  if (of(object, names->is_nested).ptr() == Py_True) throw NotDense{"nested"};
  const nb::object layout = nb::steal(PyObject_Str(of(object, names->layout).ptr()));
  if (!layout.is_valid()) throw nb::python_error();
  if (const std::string kind = nb::str(layout).c_str(); kind != "torch.strided") throw NotDense{"of layout " + kind};
  owner_ = nb::borrow(object);
  const nb::object shape = of(object, names->shape), strides = call(object, names->stride),
                   dtype = of(object, names->dtype);
  view.dtype = kOtherDtype;
  if (PyObject* number = PyDict_GetItem(torch_types().dtypes.ptr(), dtype.ptr()))
    view.dtype = static_cast<int>(PyLong_AsLong(number));
  else
    view.other = dtype_text(object);
  view.writable = true;
  if (of(object, names->is_cpu).ptr() == Py_True)
    view.device = kHost;
  else if (of(object, names->is_cuda).ptr() == Py_True)
    view.device = static_cast<int>(PyLong_AsLong(call(object, names->get_device).ptr()));
  else  // such as meta, which has no memory
    view.device = kElsewhere;
  if (view.device != kElsewhere) {
    PyObject* self = object.ptr();
    const nb::object address = nb::steal(PyObject_VectorcallMethod(names->data_ptr, &self, 1, nullptr));
    if (!address.is_valid()) {
      PyErr_Clear();
      throw NotDense{"without memory, as those that torch.func maps"};
    }
    view.data = static_cast<std::byte*>(PyLong_AsVoidPtr(address.ptr()));
    if (PyErr_Occurred()) throw nb::python_error();
  }
  if (!set_shape(view, static_cast<int>(PyTuple_Size(shape.ptr())))) return;
  for (int i = 0; i < view.rank; ++i) {
    view.shape[i] = integer_at(shape, i);
    view.strides[i] = integer_at(strides, i);
  }
}

std::int64_t size_of(int dtype) { return dtype == CELLC_F64 ? 8 : dtype == CELLC_F32 ? 4 : 2; }

const char* name_of(int dtype) {
  static constexpr const char* names[] = {"float32", "float64", "float16", "bfloat16"};
  return dtype >= 0 && dtype < 4 ? names[dtype] : "another";
}

std::string shape_text(const std::int64_t* shape, int rank) {
  std::string text = "(";
  for (int i = 0; i < rank; ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + (rank == 1 ? ",)" : ")");
}

nb::tuple shape_tuple(const std::vector<std::int64_t>& shape) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(shape.size()));
  if (!tuple) throw nb::python_error();
  for (std::size_t i = 0; i < shape.size(); ++i)
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), PyLong_FromLongLong(shape[i]));
  return nb::steal<nb::tuple>(tuple);
}

}  // namespace cellc::python
