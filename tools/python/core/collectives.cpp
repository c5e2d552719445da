#include "collectives.hpp"

#include "array_argument.hpp"
#include "waiting.hpp"

namespace pith::python {

namespace {

nb::object all_reduce(Communicator& comm, nb::object x, nb::handle, nb::object out) {
  const ArrayArgument send("x", x, Access::read);
  const ArrayArgument recv("out", out, Access::write);
  const Communicator::Driving driving(comm);
  const pithComm_t handle = comm.handle();
  comm.check(without_gil([&] {
    return pithAllReduce(send.data(), recv.data(), send.items(), send.type().type, pithSum, handle,
                         nullptr);
  }));
  return out;
}

}  // namespace

void add_collectives(nb::class_<Communicator>& type) {
  type.def("all_reduce", &all_reduce, nb::arg("x"), nb::arg("op") = "sum", nb::arg("out"));
}

}  // namespace pith::python
