// What calls take by the model: for ncclGroupSimulateEnd, and to choose between two libraries.
#pragma once

#include <string>

#include "collectives/algorithm.hpp"
#include "comm/communicator.hpp"
#include "core/error.hpp"
#include "nccl/call.hpp"

namespace pith::nccl {

// A message of n bytes takes alpha + beta n: here, and under another library, as somebody has
// measured it. Sums cost nothing beside it.
struct Lines {
  LinkCost here;
  LinkCost there;
  static Expected<Lines> read(const std::string& text);  // "20:10,15:22": microseconds and GB/s
};

// Where nobody has measured anything: what the choice between algorithms assumes of memory and of
// sockets.
LinkCost guessed_link(const Shape& shape);

bool is_message(Kind kind);
// Precondition: no message.
Collective collective_of(Kind kind);

// By the algorithm that this library takes by itself.
double seconds_here(const Shape& shape, Collective collective, const LinkCost& link);
// By one that needs nothing but messages, as another library's rings and trees do.
double seconds_there(Shape shape, Collective collective, const LinkCost& link);
// Whether the lines say that the collective ends sooner there: the same on all ranks.
bool is_faster_there(const Lines& lines, const Shape& shape, Collective collective);

double seconds_of_message(std::size_t bytes, const LinkCost& link);

}  // namespace pith::nccl
