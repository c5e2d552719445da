// How the error of a rank that cannot continue its start-up is worded for itself and for others.
#pragma once

#include "core/error.hpp"

namespace pith {

// Prefixes system errors with the rank, unless they name one.
Error as_of_rank(int rank, const Error& error);
// The error that other ranks get.
Error as_seen_elsewhere(const Error& error);

}  // namespace pith
