// Calls in the background: what they use, and their end.
//
// All functions need the GIL.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "array_argument.hpp"
#include "communicator.hpp"
#include "errors.hpp"
#include "nanobind/nanobind.h"
#include "nanobind/stl/unique_ptr.h"
#include "pith/pith.h"
#include "waiting.hpp"

namespace pith::python {

// What a call uses until it has ended.
struct Held {
  nb::object communicator;
  nb::object compressor;
  ArrayArgument send;
  ArrayArgument recv;
};

// A request of the library, and all that its calls use.
struct Flight {
  pithRequest_t request = nullptr;
  std::vector<Held> held = {};
  const unsigned process = fork_generation();
};

class Request {
 public:
  // A request that is in flight; `result`: what its owner gets at its end.
  Request(std::unique_ptr<Flight> flight, nb::object result)
      : flight_(std::move(flight)), result_(std::move(result)) {}
  // While the calls run, what they use is kept.
  ~Request();
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  bool done();
  // Raises the error of the calls, or TimeoutError; InvalidUsage in the handler of a signal, if its
  // thread is in this call already.
  nb::object wait(std::optional<double> timeout_s);
  // Raises if the request is not done.
  nb::object result();

 private:
  void finish(const Outcome& outcome);
  nb::object conclude() const;
  bool wait_until(std::optional<double> timeout_s);
  void check_process() const;
  void refuse_wait_in_wait() const;
  bool is_waited_for() const { return waiter_ != std::thread::id(); }

  std::unique_ptr<Flight> flight_;  // null: it has ended
  std::thread::id waiter_;          // the thread that waits in the library, without the GIL
  nb::object result_;
  Outcome outcome_;
  nb::tuple failed_;
};

// Begins calls in the background: `begin` fills in the request. Returns the Request, or raises.
// `held`: what the calls use.
template <class Begin>
nb::object begin_flight(std::vector<Held>&& held, nb::object result, Begin begin);

// Keeps what the calls use until they have ended.
void drop_in_flight(std::unique_ptr<Flight> flight);
// Frees what requests use that were dropped in flight and have ended since.
void forget_ended_requests();
void add_request(nb::module_& module);

template <class Begin>
nb::object begin_flight(std::vector<Held>&& held, nb::object result, Begin begin) {
  forget_ended_requests();
  auto flight = std::make_unique<Flight>();
  flight->held = std::move(held);
  Outcome outcome;
  try {
    outcome = without_gil([&] { return begin(&flight->request); });
  } catch (...) {
    if (flight->request) drop_in_flight(std::move(flight));
    throw;
  }
  if (outcome.result == pithSuccess) {
    return nb::cast(std::make_unique<Request>(std::move(flight), std::move(result)));
  }
  if (flight->held.empty()) check(outcome);
  nb::cast<Communicator&>(flight->held.front().communicator).check(outcome);
  return {};
}

}  // namespace pith::python
