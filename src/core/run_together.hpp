// Runs jobs that wait for each other, each on its own thread: all of them or none.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/error.hpp"

namespace pith {

// Runs a job on a thread of the library: an exception of the job becomes an error.
Error without_throwing(const std::function<Error()>& job);

// Returns the error of each job. If a thread cannot be started, no job begins, since it would wait
// for the missing one in vain; every job then has that error.
std::vector<Error> run_together(std::span<const std::function<Error()>> jobs);

// The first failure. If there is none: Code::in_progress, if any job has returned it.
Error first_failure(std::span<const Error> errors);

}  // namespace pith
