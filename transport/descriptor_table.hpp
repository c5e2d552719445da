// A thread's own table of file descriptors. The limit of open files holds for each table, and all
// threads of a process share one table unless a thread leaves it.
#pragma once

#include <span>

#include "transport/socket.hpp"

namespace pith {

// Gives the calling thread a table of its own, which has 0, 1, 2 and `kept` (at most 8) alone; ends
// with the thread. What it opens from then on is open for no other thread and the other way round,
// though the numbers may be equal: the thread must not use what others open later, the log's file
// included (route_log_of_this_thread). False where the system cannot do it (Linux before 5.9, some
// sandboxes): then nothing has changed. Precondition: the process has another thread.
bool leave_descriptor_table(std::span<const int> kept);

// Whether the calling thread has left the table that it had at first.
bool has_own_descriptor_table();

// A thread that has left the table has kept a copy of the same number, and alone uses the object
// from now on: closes the one of the caller's table.
void hand_over(Descriptor& descriptor);

}  // namespace pith
