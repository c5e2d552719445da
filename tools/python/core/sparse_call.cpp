#include "sparse_call.hpp"

#include <optional>
#include <string>

#include "array_argument.hpp"
#include "compressor.hpp"
#include "group.hpp"
#include "nanobind/stl/optional.h"
#include "operation.hpp"
#include "stream.hpp"
#include "waiting.hpp"

namespace pith::python {

namespace {

nb::object first(const nb::object& array, std::size_t n) {
  return array[nb::slice(nb::none(), nb::int_(n), nb::none())];
}

// An index stands for one number.
void check_numbers(const ElementType& type) {
  if (in_reals(type).per_item == 1) return;
  refuse("x has elements of " + text_of(type) +
         ", expected one real number each: pass a view of the parts (x.view(\"float32\"))");
}

// Indices are 8 bytes each, whatever their type is called.
void check_indices(const ArrayArgument& indices, std::size_t capacity) {
  if (indices.type().item_bytes != 8 || indices.items() < capacity) {
    refuse("indices has " + std::to_string(indices.items()) + " items of " +
           std::to_string(indices.type().item_bytes) + " bytes, expected as many as values, of 8");
  }
}

nb::tuple all_reduce_sparse(Communicator& self, nb::handle x, Compressor& compressor, nb::handle op,
                            std::optional<std::size_t> capacity, nb::handle dtype,
                            nb::handle stream) {
  if (group_is_open()) {
    raise(pithInvalidUsage,
          "all_reduce_sparse: a group is open, expected none: only the end of the call tells how "
          "many pairs there are");
  }
  const pithComm_t comm = self.handle();
  const std::uintptr_t on = stream_of(stream);
  const ArrayArgument send("x", x, Access::read, dtype, on);
  if (send.on_device()) refuse("x is on a device, expected host memory");
  const Operation operation(op, send.type(), comm);
  check_numbers(send.type());
  const std::size_t room = capacity.value_or(send.items());
  const nb::module_ arrays = nb::module_::import_("pith.arrays");
  const nb::object indices = arrays.attr("empty_indices")(x, room);
  const nb::object values = arrays.attr("empty_like")(x, nb::make_tuple(room));
  const ArrayArgument index_array("indices", indices, Access::write);
  const ArrayArgument value_array("values", values, Access::write, dtype);
  check_indices(index_array, value_array.items());
  std::size_t n = 0;
  const Driving driving(self);
  self.check(without_gil([&] {
    return pithAllReduceCompressedSparse(
        send.data(), static_cast<std::uint64_t*>(index_array.data()), value_array.data(), room, &n,
        send.items(), send.type().type, operation, compressor.handle(), comm, nullptr);
  }));
  return nb::make_tuple(first(indices, n), first(values, n));
}

}  // namespace

void add_sparse_call(CommunicatorType& type) {
  type.def("all_reduce_sparse", &all_reduce_sparse, nb::arg("x"), nb::arg("compressor"),
           nb::arg("op") = "sum", nb::kw_only(), nb::arg("capacity") = nb::none(),
           nb::arg("dtype").none() = nb::none(), nb::arg("stream").none() = nb::none());
}

}  // namespace pith::python
