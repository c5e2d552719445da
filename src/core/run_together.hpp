// Runs jobs that wait for each other, each on its own thread: all of them or none.
#pragma once

#include <functional>
#include <new>
#include <span>
#include <system_error>
#include <vector>

#include "core/error.hpp"
#include "core/failure.hpp"

namespace pith {

// Runs a job that returns Error: an exception of the job becomes an error.
template <class Job>
Error without_throwing(const Job& job) {
  try {
    return job();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const Failure& failure) {
    return failure.error();
  } catch (const std::system_error& error) {
    return {Code::system, error.what()};
  } catch (const std::exception& exception) {
    return {Code::internal, exception.what()};
  }
}

// Returns the error of each job. If a thread cannot be started, no job begins, since it would wait
// for the missing one in vain; every job then has that error.
std::vector<Error> run_together(std::span<const std::function<Error()>> jobs);

// The first failure. If there is none: Code::in_progress, if any job has returned it.
Error first_failure(std::span<const Error> errors);

}  // namespace pith
