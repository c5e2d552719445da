// Messages between two ranks. All messages of one call are under way at once, so that ranks which
// send to each other do not wait for each other's receives. PairWindows says what is sent at once
// and what when its receive is called.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/call.hpp"
#include "collectives/pair_windows.hpp"
#include "core/dtype.hpp"

namespace pith {

struct Message {
  Bytes data;  // what is sent, or where to
  std::size_t count = 0;
  DType type = DType::u8;
  int peer = -1;
  bool sends = false;
  std::uint32_t number = 0;  // of this pair and direction
};

// Refuses messages from a rank to itself that do not pair up, in order and with equal lengths.
Error check_own(std::span<const Message> messages, int rank);

// What of a message had been sent or received when the message of this step was, at least.
std::size_t bytes_before(std::uint32_t step, std::size_t head_bytes, std::size_t chunk_bytes);

// Sends and receives them all; they are cut into pieces of chunk_bytes. `windows`: those of the
// communicator.
Task<Error> exchange_messages(Call& call, std::span<const Message> messages, PairWindows& windows,
                              std::size_t chunk_bytes);

}  // namespace pith
