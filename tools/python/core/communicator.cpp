#include "communicator.hpp"

#include <cstring>
#include <memory>

#include "collectives.hpp"
#include "nanobind/stl/unique_ptr.h"
#include "waiting.hpp"

namespace pith::python {

Communicator::Communicator(pithComm_t handle) : handle_(handle) {
  python::check(pithCommUserRank(handle, &rank_));
  python::check(pithCommCount(handle, &size_));
}

Communicator::~Communicator() {
  if (ended_.exchange(true)) return;
  const nb::gil_scoped_release released;
  pithCommDestroy(handle_);
}

pithComm_t Communicator::handle() const {
  if (has_ended()) raise(pithInvalidUsage, "the communicator has been finalized or aborted");
  return handle_;
}

void Communicator::check(const Outcome& outcome) const {
  if (outcome.result == pithSuccess) return;
  const bool asks = outcome.result == pithRemoteError && !has_ended();
  raise(outcome.result, outcome.message, asks ? failed() : nb::tuple());
}

void Communicator::finalize() {
  if (has_ended()) return;
  const Driving driving(*this);
  const Outcome outcome = without_gil([this] { return pithCommFinalize(handle_); });
  check(outcome);
  if (ended_.exchange(true)) return;
  python::check(without_gil([this] { return pithCommDestroy(handle_); }));
}

void Communicator::abort() {
  if (ended_.exchange(true)) return;
  python::check(without_gil([this] { return pithCommAbort(handle_); }));
}

nb::tuple Communicator::failed() const {
  const pithComm_t comm = handle();
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  int count = size_;
  python::check(without_gil([&] { return pithCommGetFailed(comm, ranks.data(), &count); }));
  nb::list found;
  for (int i = 0; i < count; ++i) found.append(ranks[static_cast<std::size_t>(i)]);
  return nb::tuple(found);
}

Communicator::Driving::Driving(Communicator& comm) : comm_(comm) {
  std::thread::id nobody;
  const std::thread::id self = std::this_thread::get_id();
  if (comm.driver_.compare_exchange_strong(nobody, self, std::memory_order_acquire)) return;
  raise(pithInvalidUsage, nobody == self
                              ? "this thread is in a call of the communicator already"
                              : "another thread is in a call of the communicator, expected one "
                                "thread at a time; different communicators may be driven by "
                                "different threads");
}

Communicator::Driving::~Driving() {
  comm_.driver_.store(std::thread::id(), std::memory_order_release);
}

namespace {

std::unique_ptr<Communicator> init() {
  pithComm_t comm = nullptr;
  check(without_gil([&] { return pithCommInitEnv(&comm); }));
  return std::make_unique<Communicator>(comm);
}

std::unique_ptr<Communicator> init_rank(const nb::bytes& unique_id, int nranks, int rank) {
  pithUniqueId id;
  if (unique_id.size() != sizeof id.internal) {
    refuse("unique_id has " + std::to_string(unique_id.size()) + " bytes, expected the " +
           std::to_string(sizeof id.internal) + " of pith.unique_id()");
  }
  std::memcpy(id.internal, unique_id.c_str(), sizeof id.internal);
  pithComm_t comm = nullptr;
  check(without_gil([&] { return pithCommInitRank(&comm, nranks, id, rank); }));
  return std::make_unique<Communicator>(comm);
}

nb::bytes unique_id() {
  pithUniqueId id;
  check(without_gil([&] { return pithGetUniqueId(&id); }));
  return nb::bytes(id.internal, sizeof id.internal);
}

}  // namespace

void add_communicator(nb::module_& module) {
  nb::class_<Communicator> type(module, "Communicator", nb::is_weak_referenceable());
  type.def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("failed", &Communicator::failed)
      .def("finalize", &Communicator::finalize)
      .def("abort", &Communicator::abort)
      .def(nb::new_(&init_rank), nb::arg("unique_id"), nb::arg("nranks"), nb::arg("rank"));
  add_collectives(type);
  module.def("_init", &init);
  module.def("unique_id", &unique_id);
}

}  // namespace pith::python
