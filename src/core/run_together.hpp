// Jobs that wait for each other: each on a thread of its own, all of them or none.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "core/error.hpp"

namespace pith {

// For threads of ours: what the job throws becomes an error.
Error without_throwing(const std::function<Error()>& job);

// What came of each job. Where a thread cannot be made no job begins: those that had begun would
// wait for the others in vain. That is the error of all then.
std::vector<Error> run_together(std::span<const std::function<Error()>> jobs);

// The first failure. Where there is none: that something has begun in the background, if any has.
Error first_failure(std::span<const Error> errors);

}  // namespace pith
