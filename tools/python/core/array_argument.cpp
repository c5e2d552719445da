#include "array_argument.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "dlpack.hpp"
#include "errors.hpp"

namespace pith::python {

namespace {

[[noreturn]] void refuse_array(const char* argument, const std::string& why) {
  refuse(std::string(argument) + " " + why);
}

[[noreturn]] void refuse_strides(const char* argument) {
  refuse_array(argument,
               "is not contiguous, expected an array in C order: pass a contiguous copy "
               "(numpy.ascontiguousarray, tensor.contiguous())");
}

[[noreturn]] void refuse_read_only(const char* argument) {
  refuse_array(argument, "is read-only, expected an array that can be written");
}

// Whether the strides, in units of `unit`, are those of C order.
template <class Int>
bool is_c_order(std::span<const std::int64_t> shape, const Int* strides, std::int64_t unit) {
  std::int64_t expected = unit;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

// The message of the exception that is set, which is cleared.
std::string take_message() {
  nb::python_error error;
  return error.what();
}

}  // namespace

std::string text_of(std::span<const std::int64_t> shape) {
  std::string text = "(";
  for (const std::int64_t extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

ArrayArgument::ArrayArgument(const char* argument, nb::handle array, Access access,
                             nb::handle dtype, std::uintptr_t stream, bool reals) {
  try {
    if (!take_buffer(argument, array, access)) {
      const nb::object interface = PyObject_CheckBuffer(array.ptr())
                                       ? nb::getattr(array, "__array_interface__", nb::none())
                                       : nb::object(nb::none());
      if (nb::isinstance<nb::dict>(interface)) {
        take_interface(argument, array, nb::cast<nb::dict>(interface), access);
      } else {
        take_dlpack(argument, array, access, stream);
      }
    }
    if (!dtype.is_none()) read_as(argument, dtype);
    if (reals) type_ = in_reals(type_);
  } catch (...) {
    release();
    throw;
  }
}

ArrayArgument& ArrayArgument::operator=(ArrayArgument&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = other.data_;
  items_ = other.items_;
  type_ = other.type_;
  on_device_ = other.on_device_;
  source_ = std::exchange(other.source_, Source::none);
  dimensions_ = other.dimensions_;
  managed_ = other.managed_;
  if (source_ == Source::buffer) {
    view_ = other.view_;
    // Simple exporters let these point into the view itself.
    if (view_.shape == &other.view_.len) view_.shape = &view_.len;
    if (view_.strides == &other.view_.itemsize) view_.strides = &view_.itemsize;
  }
  std::copy_n(other.shape_, dimensions_, shape_);
  return *this;
}

void ArrayArgument::release() noexcept {
  const Source source = std::exchange(source_, Source::none);
  if (source == Source::buffer) PyBuffer_Release(&view_);
  if (source == Source::object) Py_DECREF(static_cast<PyObject*>(managed_));
  if (source == Source::tensor) {
    auto* const managed = static_cast<DLManagedTensor*>(managed_);
    if (managed->deleter) managed->deleter(managed);
  }
  if (source == Source::versioned_tensor) {
    auto* const managed = static_cast<DLManagedTensorVersioned*>(managed_);
    if (managed->deleter) managed->deleter(managed);
  }
}

void ArrayArgument::add_dimension(const char* argument, std::int64_t extent) {
  if (dimensions_ == most_dimensions) refuse_array(argument, "has more than 64 dimensions");
  shape_[dimensions_++] = extent;
  items_ *= static_cast<std::size_t>(extent);
}

// False: the array has no buffer, or none of its type.
bool ArrayArgument::take_buffer(const char* argument, nb::handle array, Access access) {
  if (!PyObject_CheckBuffer(array.ptr())) return false;
  if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_FULL_RO) != 0) {
    const bool has_other_ways =
        nb::hasattr(array, "__array_interface__") || nb::hasattr(array, "__dlpack__");
    if (!has_other_ways) refuse_array(argument, "gives no buffer: " + take_message());
    PyErr_Clear();
    return false;
  }
  source_ = Source::buffer;
  const auto item_bytes = static_cast<std::size_t>(view_.itemsize);
  const char* const format = view_.format ? view_.format : "B";
  const std::optional<ElementType> type = type_of_format(format, item_bytes);
  if (!type) {
    refuse_array(argument, std::string("has elements of format '") + format +
                               "', expected numbers in this machine's order of bytes");
  }
  type_ = *type;
  for (int i = 0; i < view_.ndim; ++i) {
    add_dimension(argument, view_.shape ? view_.shape[i] : view_.len / view_.itemsize);
  }
  if (view_.strides && !is_c_order(shape(), view_.strides, view_.itemsize)) {
    refuse_strides(argument);
  }
  if (access == Access::write && view_.readonly) refuse_read_only(argument);
  data_ = view_.buf;
  return true;
}

// For NumPy's arrays of types of other libraries, as bfloat16 of ml_dtypes, of which NumPy gives no
// buffer.
void ArrayArgument::take_interface(const char* argument, nb::handle array,
                                   const nb::dict& interface, Access access) {
  const nb::object dtype = array.attr("dtype");
  const auto item_bytes = nb::cast<std::size_t>(dtype.attr("itemsize"));
  const auto name = nb::cast<std::string>(nb::str(dtype.attr("name")));
  if (nb::cast<bool>(dtype.attr("hasobject"))) {
    refuse_array(argument, "has elements that are objects, expected numbers");
  }
  const std::optional<ElementType> known = type_of_name(name);
  type_ = known && known->item_bytes == item_bytes
              ? *known
              : ElementType{pithUint8, item_bytes, item_bytes, Sums::none};
  for (const nb::handle extent : nb::cast<nb::tuple>(interface["shape"])) {
    add_dimension(argument, nb::cast<std::int64_t>(extent));
  }
  if (!interface["strides"].is_none()) refuse_strides(argument);
  const auto data = nb::cast<nb::tuple>(interface["data"]);
  if (access == Access::write && nb::cast<bool>(data[1])) refuse_read_only(argument);
  data_ = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(data[0]));
  managed_ = array.inc_ref().ptr();
  source_ = Source::object;
}

template <class Managed>
void ArrayArgument::take_tensor(const char* argument, const nb::object& capsule, Managed* managed,
                                Access access) {
  // The capsule must not free the tensor any more.
  constexpr bool versioned = std::is_same_v<Managed, DLManagedTensorVersioned>;
  PyCapsule_SetName(capsule.ptr(), versioned ? "used_dltensor_versioned" : "used_dltensor");
  managed_ = managed;
  source_ = versioned ? Source::versioned_tensor : Source::tensor;
  const DLTensor& tensor = managed->tensor;
  const std::optional<ElementType> type = type_of_dlpack(tensor.code, tensor.bits, tensor.lanes);
  if (!type) refuse_array(argument, "has elements that are not whole bytes");
  type_ = *type;
  for (std::int32_t i = 0; i < tensor.ndim; ++i) add_dimension(argument, tensor.shape[i]);
  if (tensor.strides && !is_c_order(shape(), tensor.strides, 1)) refuse_strides(argument);
  if constexpr (versioned) {
    if (access == Access::write && (managed->flags & dl_read_only)) refuse_read_only(argument);
  }
  on_device_ = tensor.device_type == dl_cuda || tensor.device_type == dl_cuda_managed;
  if (!on_device_ && tensor.device_type != dl_cpu && tensor.device_type != dl_cuda_host) {
    refuse_array(argument, "is on a device of type " + std::to_string(tensor.device_type) +
                               " of DLPack, expected host memory (1) or CUDA (2)");
  }
  data_ = tensor.data ? static_cast<std::byte*>(tensor.data) + tensor.byte_offset : nullptr;
}

void ArrayArgument::take_dlpack(const char* argument, nb::handle array, Access access,
                                std::uintptr_t stream) {
  if (!nb::hasattr(array, "__dlpack__")) {
    PyErr_Format(PyExc_TypeError,
                 "%s is of type %s, expected an array: an object with the buffer protocol or "
                 "__dlpack__",
                 argument, Py_TYPE(array.ptr())->tp_name);
    throw nb::python_error();
  }
  // JAX's arrays never change, which its tensors do not tell.
  const auto maker = nb::cast<std::string>(nb::str(array.type().attr("__module__")));
  if (access == Access::write && maker.starts_with("jax")) refuse_read_only(argument);
  const auto device = nb::cast<nb::tuple>(array.attr("__dlpack_device__")());
  nb::dict wanted;
  // DLPack's number for the legacy default stream is 1.
  if (nb::cast<int>(device[0]) == dl_cuda) wanted["stream"] = stream ? stream : 1;
  nb::object capsule;
  try {
    wanted["max_version"] = nb::make_tuple(1, 1);
    capsule = array.attr("__dlpack__")(**wanted);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) {
      refuse_array(argument, std::string("gives no DLPack tensor: ") +
                                 nb::cast<std::string>(nb::str(error.value())));
    }
    nb::del(wanted["max_version"]);  // a library from before DLPack 1.0
    capsule = array.attr("__dlpack__")(**wanted);
  }
  PyObject* const raw = capsule.ptr();
  if (PyCapsule_IsValid(raw, "dltensor_versioned")) {
    auto* const managed =
        static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(raw, "dltensor_versioned"));
    if (managed->major != 1) refuse_array(argument, "gives a tensor of an unknown DLPack version");
    return take_tensor(argument, capsule, managed, access);
  }
  if (!PyCapsule_IsValid(raw, "dltensor")) refuse_array(argument, "gives no DLPack tensor");
  take_tensor(argument, capsule,
              static_cast<DLManagedTensor*>(PyCapsule_GetPointer(raw, "dltensor")), access);
}

void ArrayArgument::read_as(const char* argument, nb::handle dtype) {
  if (!nb::isinstance<nb::str>(dtype))
    refuse("dtype is no string, expected one of " + type_names());
  const std::string name = nb::cast<std::string>(dtype);
  const std::optional<ElementType> type = type_of_name(name);
  if (!type) refuse("dtype is '" + name + "', expected one of " + type_names());
  if (type->item_bytes != type_.item_bytes) {
    refuse_array(argument, "has items of " + std::to_string(type_.item_bytes) +
                               " bytes, which cannot be read as " + name);
  }
  type_ = *type;
}

}  // namespace pith::python
