#include "request.hpp"

#include <chrono>
#include <thread>
#include <utility>

#include "nanobind/stl/optional.h"
#include "waiting.hpp"

namespace pith::python {

namespace {

using Clock = std::chrono::steady_clock;

using Flights = std::vector<std::unique_ptr<Flight>>;

// Never destroyed: at the end of the process calls may still use what these hold.
Flights& dropped() {
  static auto& all = *new Flights;
  return all;
}

// Whether the calls have ended; then *outcome is their result.
bool has_ended(const Flight& flight, Outcome& outcome) {
  int done = 0;
  outcome = outcome_of(pithTest(flight.request, &done));
  return done != 0;
}

void pause(int turn) {
  turn < 50 ? std::this_thread::yield()
            : std::this_thread::sleep_for(std::chrono::microseconds(turn < 500 ? 50 : 1000));
}

}  // namespace

// To free a flight may run any Python code and let the GIL go: meanwhile others drop and forget
// requests as well. So the list is whole again before the first one is freed.
void forget_ended_requests() {
  Flights looked_at = std::exchange(dropped(), {});
  Flights ended;
  for (std::unique_ptr<Flight>& flight : looked_at) {
    Outcome ignored;
    const bool is_over = flight->process == fork_generation() && has_ended(*flight, ignored);
    (is_over ? ended : dropped()).push_back(std::move(flight));
  }
}

void drop_in_flight(std::unique_ptr<Flight> flight) { dropped().push_back(std::move(flight)); }

Request::~Request() {
  if (!flight_) return;
  forget_ended_requests();
  drop_in_flight(std::move(flight_));
}

void Request::check_process() const {
  if (flight_->process == fork_generation()) return;
  raise(pithInvalidUsage,
        "the request was begun before this process was forked, expected one of its own");
}

void Request::finish(const Outcome& outcome) {
  const std::unique_ptr<Flight> ended = std::move(flight_);
  outcome_ = outcome;
  if (outcome.result == pithSuccess || ended->held.empty()) return;
  failed_ = nb::cast<Communicator&>(ended->held.front().communicator).failed_after(outcome);
}

nb::object Request::conclude() const {
  if (outcome_.result != pithSuccess) raise(outcome_.result, outcome_.message, failed_);
  return result_;
}

bool Request::done() {
  if (!flight_) return true;
  if (is_waited_for()) return false;
  check_process();
  Outcome outcome;
  if (!has_ended(*flight_, outcome)) return false;
  finish(outcome);
  return true;
}

// Polls, since another thread may wait for the request as well.
bool Request::wait_until(std::optional<double> timeout_s) {
  constexpr int turns_per_look = 16;
  const Clock::time_point begin = Clock::now();
  for (int turn = 0; !done(); ++turn) {
    const std::chrono::duration<double> waited = Clock::now() - begin;
    if (timeout_s && waited.count() > *timeout_s) return false;
    {
      const WithoutGil released;
      pause(turn);
    }
    if (turn % turns_per_look == 0 && PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return true;
}

// The handler of a signal runs inside the wait of its thread, which cannot end before the handler
// does.
void Request::refuse_wait_in_wait() const {
  if (waiter_ != std::this_thread::get_id()) return;
  raise(pithInvalidUsage,
        "this thread waits for the request already, expected no other wait for it in the handler "
        "of a signal");
}

nb::object Request::wait(std::optional<double> timeout_s) {
  if (flight_) check_process();
  refuse_wait_in_wait();
  if (timeout_s || is_waited_for()) {
    if (!wait_until(timeout_s)) {
      PyErr_SetString(PyExc_TimeoutError, "the request is not done; it goes on");
      throw nb::python_error();
    }
    return conclude();
  }
  if (!flight_) return conclude();
  waiter_ = std::this_thread::get_id();
  Outcome outcome;
  bool interrupted = false;
  {
    const WithoutGil released;
    const Wait wait;
    outcome = outcome_of(pithWait(flight_->request));
    interrupted = wait.raised();
  }
  waiter_ = {};
  std::optional<nb::python_error> raised;
  if (interrupted) raised.emplace();
  finish(outcome);
  if (raised) {
    raised->restore();
    throw nb::python_error();
  }
  return conclude();
}

nb::object Request::result() {
  if (!done()) raise(pithInvalidUsage, "the request is not done, expected wait() before");
  return conclude();
}

void add_request(nb::module_& module) {
  nb::class_<Request>(module, "Request")
      .def("done", &Request::done)
      .def("wait", &Request::wait, nb::arg("timeout") = nb::none())
      .def_prop_ro("result", &Request::result);
}

}  // namespace pith::python
