// Estimated times of calls: for ncclGroupSimulateEnd, and for choosing between two libraries.
#pragma once

#include <string>

#include "collectives/algorithm.hpp"
#include "comm/communicator.hpp"
#include "core/error.hpp"
#include "nccl/call.hpp"

namespace pith::nccl {

// Measured cost of a message of n bytes, alpha + beta n, with this and with another library. The
// cost of reductions is neglected.
struct Lines {
  LinkCost here;
  LinkCost there;
  static Expected<Lines> read(const std::string& text);  // "20:10,15:22": microseconds and GB/s
};

// Used without measurements: the links that the choice of algorithms assumes for shared memory and
// sockets.
LinkCost guessed_link(const Shape& shape);

bool is_message(Kind kind);
// Precondition: not a message.
Collective collective_of(Kind kind);

// With the algorithm that this library would choose.
double seconds_here(const Shape& shape, Collective collective, const LinkCost& link);
// With an algorithm that needs only messages, such as another library's ring or tree.
double seconds_there(Shape shape, Collective collective, const LinkCost& link);
// Whether the other library is predicted to be faster; the same answer on all ranks.
bool is_faster_there(const Lines& lines, const Shape& shape, Collective collective);

double seconds_of_message(std::size_t bytes, const LinkCost& link);

}  // namespace pith::nccl
