// How long a message and its answer take on a TCP connection, as the kernel has seen it.
#pragma once

namespace pith {

// The least of late, in seconds; 0: the kernel has seen none, or does not tell.
double round_trip_of(int fd);

}  // namespace pith
