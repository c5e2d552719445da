// The module pith._core: pith.h for Python.
#include "collectives.hpp"
#include "communicator.hpp"
#include "compressor.hpp"
#include "group.hpp"
#include "memory.hpp"
#include "operation.hpp"
#include "process.hpp"
#include "request.hpp"
#include "sparse_call.hpp"

NB_MODULE(_core, module) {
  using namespace pith::python;
  // Objects that live as long as the interpreter are no leak.
  nanobind::set_leak_warnings(false);
  watch_process();
  add_request(module);
  add_operation(module);
  add_group(module);
  add_compressor(module);
  add_memory(module);
  CommunicatorType communicator(module, "Communicator", nanobind::is_weak_referenceable());
  add_communicator(module, communicator);
  add_collectives(communicator);
  add_sparse_call(communicator);
}
