#include "stream.hpp"

#include "errors.hpp"

namespace pith::python {

std::uintptr_t stream_of(nb::handle stream) {
  if (stream.is_none()) return 0;
  if (PyLong_Check(stream.ptr())) return nb::cast<std::uintptr_t>(stream);
  if (nb::hasattr(stream, "__cuda_stream__")) {
    return nb::cast<std::uintptr_t>(stream.attr("__cuda_stream__")()[1]);
  }
  for (const char* name : {"cuda_stream", "ptr"}) {
    if (nb::hasattr(stream, name)) return nb::cast<std::uintptr_t>(stream.attr(name));
  }
  refuse("stream is " + nb::cast<std::string>(nb::repr(stream)) +
         ", expected None, a number, or a stream of PyTorch or CuPy");
}

}  // namespace pith::python
