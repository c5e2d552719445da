// How communicators are made from Python, what they tell, and how they end.
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "communicator.hpp"
#include "element_type.hpp"
#include "group.hpp"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/unique_ptr.h"
#include "nanobind/stl/vector.h"
#include "waiting.hpp"

namespace pith::python {

namespace {

using Made = std::unique_ptr<Communicator>;

void refuse_in_group(const char* function) {
  if (!group_is_open()) return;
  raise(pithInvalidUsage, std::string(function) +
                              ": a group is open, expected none: communicators "
                              "are made outside of groups");
}

Made init_from_environment() {
  refuse_in_group("pith.init");
  pithComm_t comm = nullptr;
  check(without_gil([&] { return pithCommInitEnv(&comm); }));
  return std::make_unique<Communicator>(comm);
}

// `maker`: of the id, for messages.
pithUniqueId id_of(const nb::bytes& unique_id, const char* maker) {
  pithUniqueId id;
  if (unique_id.size() != sizeof id.internal) {
    refuse("unique_id has " + std::to_string(unique_id.size()) + " bytes, expected the " +
           std::to_string(sizeof id.internal) + " of " + maker);
  }
  std::memcpy(id.internal, unique_id.c_str(), sizeof id.internal);
  return id;
}

nb::bytes bytes_of(const pithUniqueId& id) { return nb::bytes(id.internal, sizeof id.internal); }

Made init_rank(const nb::bytes& unique_id, int nranks, int rank) {
  refuse_in_group("pith.Communicator");
  const pithUniqueId id = id_of(unique_id, "pith.unique_id()");
  pithComm_t comm = nullptr;
  check(without_gil([&] { return pithCommInitRank(&comm, nranks, id, rank); }));
  return std::make_unique<Communicator>(comm);
}

nb::list init_all(int ranks) {
  refuse_in_group("pith.init_all");
  std::vector<pithComm_t> comms(ranks > 0 ? static_cast<std::size_t>(ranks) : 1);
  check(without_gil([&] { return pithCommInitAll(comms.data(), ranks, nullptr); }));
  nb::list made;
  for (const pithComm_t comm : comms) made.append(nb::cast(std::make_unique<Communicator>(comm)));
  return made;
}

nb::bytes unique_id() {
  pithUniqueId id;
  check(without_gil([&] { return pithGetUniqueId(&id); }));
  return bytes_of(id);
}

constexpr const char* growth_id = "Communicator.unique_id()";

Made join(const nb::bytes& unique_id, int nranks, int rank) {
  refuse_in_group("pith.join");
  const pithUniqueId id = id_of(unique_id, growth_id);
  pithComm_t comm = nullptr;
  check(without_gil([&] { return pithCommGrow(nullptr, nranks, &id, rank, &comm, nullptr); }));
  return std::make_unique<Communicator>(comm);
}

nb::bytes unique_id_of(Communicator& comm) {
  const pithComm_t handle = comm.handle();
  pithUniqueId id;
  comm.check(without_gil([&] { return pithCommGetUniqueId(handle, &id); }));
  return bytes_of(id);
}

Made grow(Communicator& parent, int nranks, std::optional<nb::bytes> unique_id) {
  refuse_in_group("grow");
  const pithComm_t comm = parent.handle();
  std::optional<pithUniqueId> id;
  if (unique_id) id = id_of(*unique_id, growth_id);
  const Driving driving(parent);
  pithComm_t grown = nullptr;
  parent.check(without_gil(
      [&] { return pithCommGrow(comm, nranks, id ? &*id : nullptr, -1, &grown, nullptr); }));
  return std::make_unique<Communicator>(grown);
}

nb::object split(Communicator& parent, std::optional<int> color, int key) {
  refuse_in_group("split");
  const pithComm_t comm = parent.handle();
  const Driving driving(parent);
  pithComm_t child = nullptr;
  if (color && *color < 0) {
    refuse("color is " + std::to_string(*color) + ", expected at least 0, or None");
  }
  parent.check(without_gil([&] {
    return pithCommSplit(comm, color.value_or(PITH_SPLIT_NOCOLOR), key, &child, nullptr);
  }));
  if (!child) return nb::none();
  return nb::cast(std::make_unique<Communicator>(child));
}

Made shrink(Communicator& parent, std::vector<int> exclude, bool abort) {
  refuse_in_group("shrink");
  const pithComm_t comm = parent.handle();
  const Driving driving(parent);
  pithComm_t child = nullptr;
  parent.check(without_gil([&] {
    return pithCommShrink(comm, exclude.empty() ? nullptr : exclude.data(),
                          static_cast<int>(exclude.size()), &child, nullptr,
                          abort ? PITH_SHRINK_ABORT : PITH_SHRINK_DEFAULT);
  }));
  return std::make_unique<Communicator>(child);
}

// Raises the error that revoked the communicator, or that of the death of a rank.
void raise_error_of(Communicator& comm) {
  const pithComm_t handle = comm.handle();
  pithResult_t state = pithSuccess;
  check(without_gil([&] { return pithCommGetAsyncError(handle, &state); }));
  if (state == pithSuccess || state == pithInProgress) return;
  const Outcome outcome{state, pithGetLastError(handle)};
  comm.check(outcome);
}

std::uint64_t last_completed(Communicator& comm) {
  std::uint64_t call = 0;
  check(pithCommGetLastCompleted(comm.handle(), &call));
  return call;
}

std::string algorithm(Communicator& comm, const std::string& collective, std::size_t count,
                      const std::string& dtype) {
  const std::optional<ElementType> type = type_of_name(dtype);
  if (!type) refuse("dtype is '" + dtype + "', expected one of " + type_names());
  const char* name = nullptr;
  check(pithCommGetAlgorithm(comm.handle(), collective.c_str(), count, type->type, &name));
  return name;
}

void leave(Communicator& comm, const nb::object& type, const nb::object&, const nb::object&) {
  // The other ranks must not wait for a rank that has failed.
  type.is_none() ? comm.finalize() : comm.abort();
}

std::string summary_of(const Communicator& comm) {
  return "<pith.Communicator rank " + std::to_string(comm.rank()) + " of " +
         std::to_string(comm.size()) + (comm.has_ended() ? ", ended>" : ">");
}

nb::tuple version() {
  int code = 0;
  check(pithGetVersion(&code));
  return nb::make_tuple(code / 10000, code / 100 % 100, code % 100);
}

}  // namespace

void add_communicator(nb::module_& module, CommunicatorType& type) {
  type.def(nb::new_(&init_rank), nb::arg("unique_id"), nb::arg("nranks"), nb::arg("rank"))
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("failed", &Communicator::failed)
      .def_prop_ro("last_completed", &last_completed)
      .def("check", &raise_error_of)
      .def("algorithm", &algorithm, nb::arg("collective"), nb::arg("count"),
           nb::arg("dtype") = "float32")
      .def("split", &split, nb::arg("color").none(), nb::arg("key") = 0)
      .def("shrink", &shrink, nb::arg("exclude") = std::vector<int>(), nb::kw_only(),
           nb::arg("abort") = false)
      .def("unique_id", &unique_id_of)
      .def("grow", &grow, nb::arg("nranks"), nb::arg("unique_id").none() = nb::none())
      .def("finalize", &Communicator::finalize)
      .def("abort", &Communicator::abort)
      .def("__enter__", [](nb::object self) { return self; })
      .def("__exit__", &leave, nb::arg("type").none(), nb::arg("value").none(),
           nb::arg("traceback").none())
      .def("__repr__", &summary_of);
  module.def("init_from_environment", &init_from_environment);
  module.def("init_all", &init_all, nb::arg("nranks"));
  module.def("unique_id", &unique_id);
  module.def("join", &join, nb::arg("unique_id"), nb::arg("nranks"), nb::arg("rank"));
  module.def("version", &version);
}

}  // namespace pith::python
