#include "memory.hpp"

#include <cstddef>
#include <utility>

#include "errors.hpp"
#include "pith/pith.h"

namespace pith::python {

namespace {

// Memory that other ranks of this host read directly, or that a compressor owns. It lives as long
// as an array lies on it: each holds a reference.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
    check(pithMemAlloc(&data_, bytes > 0 ? bytes : 1));
  }
  Memory(void* data, std::size_t bytes, nb::object owner)
      : data_(data), bytes_(bytes), owner_(std::move(owner)) {}
  // A forked child has a heap of its own, which refuses its parent's memory.
  ~Memory() {
    if (!owner_.is_valid()) pithMemFree(data_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* data() const { return data_; }
  std::size_t size() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
  nb::object owner_;
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto* const memory = nb::inst_ptr<Memory>(self);
  return PyBuffer_FillInfo(view, self, memory->data(), static_cast<Py_ssize_t>(memory->size()), 0,
                           flags);
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

}  // namespace

nb::object memory_of(void* data, std::size_t bytes, nb::object owner) {
  return nb::cast(new Memory(data, bytes, std::move(owner)), nb::rv_policy::take_ownership);
}

void add_memory(nb::module_& module) {
  nb::class_<Memory>(module, "Memory", nb::type_slots(slots))
      .def(nb::init<std::size_t>(), nb::arg("nbytes"))
      .def("__len__", &Memory::size);
}

}  // namespace pith::python
