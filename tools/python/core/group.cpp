#include "group.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "nanobind/stl/unique_ptr.h"
#include "waiting.hpp"

namespace pith::python {

namespace {

struct OpenGroup {
  int depth = 0;
  std::vector<Held> held;
};

// Null while no group is open: a thread that ends has no Python object to release.
thread_local OpenGroup* open_group = nullptr;

// The communicators of the calls, each once.
std::vector<Communicator*> communicators_of(const std::vector<Held>& held) {
  std::vector<Communicator*> comms;
  for (const Held& one : held) {
    auto* const comm = nb::cast<Communicator*>(one.communicator);
    if (std::ranges::find(comms, comm) == comms.end()) comms.push_back(comm);
  }
  return comms;
}

// Makes the group fail, so that its end begins no call.
void spoil_group() { pithBarrier(nullptr, nullptr); }

class Driven {
 public:
  explicit Driven(const std::vector<Communicator*>& comms) {
    driven_.reserve(comms.size());
    for (Communicator* comm : comms) driven_.emplace_back(*comm);
  }

 private:
  std::vector<Driving> driven_;
};

void run(const std::vector<Communicator*>& comms) {
  const Outcome outcome = without_gil([] { return pithGroupEnd(); });
  comms.empty() ? check(outcome) : comms.front()->check(outcome);
}

}  // namespace

bool group_is_open() { return open_group != nullptr; }

void hold_in_group(Held&& held) { open_group->held.push_back(std::move(held)); }

void Group::enter() {
  if (entered_) raise(pithInvalidUsage, "the group has been entered before, expected a new one");
  if (in_background_ && open_group) {
    raise(pithInvalidUsage,
          "the group is inside another one, expected the outermost: only that has async_op");
  }
  check(pithGroupStart());
  if (!open_group) open_group = new OpenGroup;
  entered_ = open_group;
  ++open_group->depth;
}

void Group::exit(bool failed) {
  if (!open_group || open_group != entered_) {
    raise(pithInvalidUsage, "the group was entered by another thread, expected this one");
  }
  if (failed) spoil_group();
  if (--open_group->depth > 0) return check(pithGroupEnd());
  const std::unique_ptr<OpenGroup> ended(std::exchange(open_group, nullptr));
  if (failed) {
    pithGroupEnd();  // fails, as it shall
    return;
  }
  const std::vector<Communicator*> comms = communicators_of(ended->held);
  std::optional<Driven> driven;
  try {
    driven.emplace(comms);
  } catch (...) {
    spoil_group();
    pithGroupEnd();
    throw;
  }
  if (!in_background_) return run(comms);
  forget_ended_requests();
  request_ = begin_flight(std::move(ended->held), nb::none(),
                          [](pithRequest_t* request) { return pithGroupEndAsync(request); });
}

nb::object Group::request() const {
  if (!request_.is_valid()) {
    raise(pithInvalidUsage,
          "the group has no request, expected a group with async_op=True that has ended");
  }
  return request_;
}

void add_group(nb::module_& module) {
  nb::class_<Group>(module, "Group")
      .def("__enter__",
           [](nb::pointer_and_handle<Group> self) {
             self.p->enter();
             return nb::borrow(self.h);
           })
      .def(
          "__exit__",
          [](Group& self, const nb::object& type, const nb::object&, const nb::object&) {
            self.exit(!type.is_none());
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
      .def_prop_ro("request", &Group::request)
      .def(
          "wait",
          [](const Group& self, const nb::object& timeout) {
            self.request().attr("wait")(timeout);
          },
          nb::arg("timeout") = nb::none())
      .def("done", [](const Group& self) { return self.request().attr("done")(); });
  module.def(
      "group", [](bool async_op) { return new Group(async_op); }, nb::kw_only(),
      nb::arg("async_op") = false);
}

}  // namespace pith::python
